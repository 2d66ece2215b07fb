"""Nodes in production whose scheduler refuses an offer, or is away: they stay there, as nothing speaks against them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rackready.drivers.scheduler.base import SchedulerError
from rackready.handover import run
from rackready.handover.run import offer_nodes
from rackready.model.outcome import Outcome
from rackready.model.phase import UNTOUCHED, NodeResult
from rackready.model.state import NodeState
from rackready.paths import EnvPaths
from tests.unit.handover.several_schedulers import Site, made
from tests.unit.handover.test_production import THEIRS

CONFLICT = 'labels in Kubernetes: conflict with "topograph"'


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return made(tmp_path, monkeypatch)


def cordoned(site: Site) -> None:
    site.kube.nodes["node03"] = THEIRS


def away(site: Site) -> None:
    site.kube.away = True


def silent(site: Site) -> None:
    site.kube.silent = {"node03"}


def conflicts(site: Site) -> None:
    def label(*_: object) -> bool:
        raise SchedulerError(CONFLICT)

    site.kube.label = label  # type: ignore[method-assign]


TROUBLES = [
    (cordoned, "node03: drained by others"),
    (away, "kubernetes - Expected: an answer Actual: none. Start it."),
    (silent, "node03: no answer."),
    (conflicts, CONFLICT),
]


@pytest.mark.parametrize(("trouble", "text"), TROUBLES)
def test_a_node_in_production_stays_there_when_it_cannot_be_offered(
    site: Site, trouble: Callable[[Site], None], text: str
) -> None:
    site.hand_over("node03")
    site.ledger.set_state("node03", NodeState.READY)
    trouble(site)
    found = site.hand_over("node03")["node03"]
    assert (found.outcome, found.data, found.touched) == (Outcome.ERROR, {UNTOUCHED: True}, False)
    assert found.message == text
    assert ("drain", "node03") not in site.kube.asked


@pytest.mark.parametrize(("trouble", "text"), TROUBLES)
def test_a_node_that_is_certified_only_is_held(site: Site, trouble: Callable[[Site], None], text: str) -> None:
    site.ledger.set_state("node03", NodeState.CERTIFIED)
    trouble(site)
    found = offer_nodes(site.ctx, EnvPaths(site.ctx.root, "sim"), ["node03"], {"node03": "d"})["node03"]
    assert (found.outcome, found.message, found.data, found.touched) == (Outcome.ERROR, text, {}, True)


def test_a_node_that_the_role_changed_is_touched_all_the_same(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.hand_over("node01")
    site.ledger.set_state("node01", NodeState.READY)
    played = NodeResult(Outcome.PASS, changed=True)
    monkeypatch.setattr(run, "run_playbook", lambda _ctx, _name, nodes, _variables: dict.fromkeys(nodes, played))
    site.slurm.nodes["node01"] = THEIRS
    found = site.hand_over("node01")["node01"]
    assert (found.outcome, found.changed, found.data, found.touched) == (Outcome.ERROR, True, {}, True)
