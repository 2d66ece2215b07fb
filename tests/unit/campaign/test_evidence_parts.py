"""The plan of the validate phase on a site with several schedulers: partners are lent within a part only."""

from __future__ import annotations

from rackready.campaign.evidence_plan import dry_results, possible_partners
from rackready.model.phase import PLAN
from tests.unit.campaign.test_evidence_plan import INCAST, PAIR, keep, measure, planned

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
