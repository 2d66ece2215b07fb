"""The plan of the validate phase on a site with several schedulers: partners are lent within a part only."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import pytest

from rackready.campaign import evidence_reader
from rackready.campaign.evidence_plan import dry_results, possible_partners
from rackready.campaign.evidence_reader import lent_before
from rackready.drivers.scheduler.base import SchedulerNode, UnknownNodeError
from rackready.drivers.scheduler.places import DRAIN, RELEASE
from rackready.handover.run import PARTNER_OF
from rackready.ledger.store import Ledger
from rackready.model.phase import PLAN, PhaseContext
from rackready.paths import EnvPaths
from tests.unit.campaign.test_evidence_plan import INCAST, PAIR, keep, measure, planned
from tests.unit.design.several_sites import BOTH, several

PARTS = {"s1": "slurm", "s2": "slurm", "s3": "slurm", "k1": "kubernetes", "k2": "kubernetes"}


def test_partners_are_nodes_of_the_same_part() -> None:
    found = planned(
        measure("s1", PAIR), measure("k1", PAIR), keep("s2"), keep("s3"), keep("k2"), busy=("s2", "k2"), parts=PARTS
    )
    work = found.after({})
    assert work.partners == ("s2", "k2")
    assert work.lend == {
        "s2": "partner in the measurement of s1",
        "k2": "partner in the measurement of k1",
    }
    assert possible_partners(found.seen) == ["s2", "k2"]
    rows = found.rows()
    assert (rows["s1"].partners, rows["k1"].partners) == (("s2",), ("k2",))
    assert (rows["s2"].partner_of, rows["k2"].partner_of) == (("s1",), ("k1",))


def test_nodes_of_one_part_are_no_partners_of_another() -> None:
    found = planned(measure("s1", PAIR), measure("s2", PAIR), measure("k1", PAIR), keep("s3"), parts=PARTS)
    work = found.after({})
    assert (work.partners, work.missing, work.missing_in) == ((), 1, {"slurm": 0, "kubernetes": 1})
    shown = dry_results(found)
    assert shown["k1"].message == (
        "would be measured under load: k1: too old; gates of several nodes: with nodes of part kubernetes only; "
        "partners missing: 1"
    )
    assert shown["s1"].message == (
        "would be measured under load: s1: too old; gates of several nodes: with nodes of part slurm only"
    )
    assert shown["k1"].data[PLAN]["part"] == "kubernetes"


def test_a_partner_that_is_short_in_one_part_is_not_made_up_for_by_another() -> None:
    found = planned(measure("s1", INCAST), keep("s2"), keep("k1"), keep("k2"), parts=PARTS)
    work = found.after({})
    assert (work.partners, work.missing) == (("s2",), 1)


def test_a_site_with_one_scheduler_says_nothing_of_parts() -> None:
    shown = dry_results(planned(measure("n1", PAIR), keep("n2")))["n1"]
    assert shown.message == "would be measured under load: n1: too old; partners: n2"
    assert "part" not in shown.data[PLAN]


class OneLess:
    """Slurm after somebody removed node01 from it; node02 is drained by us."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, node: str) -> SchedulerNode:
        if node == "node01":
            raise UnknownNodeError(node, expected="a line", actual="none", next_step="Add it.")
        return SchedulerNode(node, "DRAIN", usable=False, drained=True, down=False, reason="rackready: lent")


def test_a_lent_partner_is_found_though_its_scheduler_does_not_know_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a killed run's partner would stay drained for ever."""
    ctx = PhaseContext("sim", tmp_path, "c1")
    monkeypatch.setattr(evidence_reader, "adapter_for", lambda *_: OneLess())
    with Ledger.open(EnvPaths(tmp_path, "sim").database) as ledger:
        for node in ("node01", "node02"):
            ledger.done(ledger.begin(node, RELEASE, "d", {}).token)
            ledger.done(ledger.begin(node, DRAIN, "d", {PARTNER_OF: ["node03"]}).token)
    assert lent_before(ctx, several(*BOTH), ["node01", "node02"]) == ["node02"]
