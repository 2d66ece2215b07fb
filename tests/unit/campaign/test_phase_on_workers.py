"""Batches that no worker finished: how long one is waited for, and what is said and done about their nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from rackready.campaign import phase_on_workers, step
from rackready.campaign.request import CampaignRequest
from rackready.ledger.store import Ledger
from rackready.ledger.work import Offer
from rackready.model.outcome import Outcome
from rackready.model.phase import UNTOUCHED, NodeResult, PhaseContext
from rackready.model.state import NodeState
from rackready.paths import EnvPaths
from tests.postgres import PostgresServer
from tests.unit.ledger.test_work import World, taken

OFFER = Offer("c1", "install", ("node01",), ("rack01",), {}, {"site_digest": "d", "env": "lab"}, {}, "1", "1")


@pytest.fixture
def world(postgres: PostgresServer, tmp_path: Path) -> Iterator[World]:
    found = World(postgres, tmp_path, wait_s=60)
    with found.controller():
        yield found


def waiting(world: World) -> phase_on_workers._Wait:
    return phase_on_workers._Wait(world.ledger, world.queue, world.queue.offer(OFFER), OFFER)


def long_ago(wait: phase_on_workers._Wait) -> None:
    """Let the time limit of a wait that began be over."""
    assert wait.told
    wait.since -= 61


def test_a_batch_that_came_back_is_waited_for_anew(world: World) -> None:
    wait = waiting(world)
    wait.look()
    long_ago(wait)
    claim = taken(world.queue)
    wait.look()
    world.queue.release(claim.token, "given back", blame=False)
    wait.look()
    assert not wait.over, "the limit counts from the moment when nobody has it"


def test_nodes_of_a_batch_that_a_worker_had_are_not_said_to_be_untouched(world: World) -> None:
    wait = waiting(world)
    world.queue.release(taken(world.queue).token, "given back", blame=False)
    wait.look()
    long_ago(wait)
    wait.look()
    assert wait.error("node01") == NodeResult(
        Outcome.ERROR,
        "node01: install: its worker gave it back, and no other took it within 60 s - Expected: a live worker "
        "Actual: none. Start `rackready worker --env lab`, then run again: what was begun is observed first.",
    )


def test_nodes_of_a_batch_that_nobody_had_stay_as_they_are(world: World) -> None:
    wait = waiting(world)
    wait.look()
    long_ago(wait)
    wait.look()
    result = wait.error("node01")
    assert (result.data, result.touched) == ({UNTOUCHED: True}, False)


@pytest.mark.parametrize("result", ["outlived", "nobody"])
def test_a_node_whose_workers_died_is_drained_and_one_that_nobody_had_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, result: str
) -> None:
    untouched = NodeResult(Outcome.ERROR, "no worker", data={UNTOUCHED: True}, touched=False)
    error = {"outlived": NodeResult(Outcome.ERROR, "3 workers died"), "nobody": untouched}[result]
    drained: dict[str, str] = {}

    def run_offered(*given: Any) -> phase_on_workers.Results:
        record: Callable[[Mapping[str, NodeResult]], phase_on_workers.Results] = given[-1]
        return record(dict.fromkeys(given[-2], error))

    def drain(_ctx: PhaseContext, nodes: list[str], reasons: dict[str, str]) -> dict[str, NodeResult]:
        drained.update({node: reasons[node] for node in nodes})
        return dict.fromkeys(nodes, NodeResult(Outcome.PASS))

    monkeypatch.setattr(step, "use_of", lambda *_given: object())
    monkeypatch.setattr(step, "run_offered", run_offered)
    monkeypatch.setattr(step, "drain_nodes", drain)
    request = CampaignRequest("c1", "lab", str(tmp_path), "deploy", ("validate",), ("node01",), 2, (1,), 100, "d")
    with Ledger.open(EnvPaths(tmp_path, "lab").database) as ledger:
        ledger.set_state("node01", NodeState.READY)
    step.run_phase(request, "validate", ["node01"])
    assert drained == ({"node01": "connected: 3 workers died"} if result == "outlived" else {})
