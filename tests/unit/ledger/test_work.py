"""The work queue in one process: what the settings refuse, and what a claim that is over may not do."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from rackready.design.database import read_server
from rackready.evidence.error import EvidenceError
from rackready.evidence.raw_outputs import RawOutputs
from rackready.ledger.effect import Observation, run_effect
from rackready.ledger.lock import ControllerLock
from rackready.ledger.store import Ledger, LedgerError
from rackready.ledger.work import Claim, Offer, Pulse, WorkQueue
from rackready.ledger.work_tables import CLAIM, claims, clock
from rackready.model.object_store import SharedOutputs
from rackready.model.problems import SiteInvalidError
from rackready.model.state import NodeState
from rackready.paths import EnvPaths
from tests.postgres import PostgresServer, name_of

USE = {"lease_s": 600}


def offer(*nodes: str, phase: str = "install", rack: str = "rack01", **labels: str) -> Offer:
    return Offer("c1", phase, nodes, (rack,), labels, {"site_digest": "d"}, {}, "1", "1")


def claim(queue: WorkQueue, name: str = "w1", sites: str = "d", version: str = "1", **labels: str) -> Claim | None:
    return queue.claim(name, labels, frozenset({sites}), version, "1")


def taken(queue: WorkQueue, name: str = "w1") -> Claim:
    found = claim(queue, name)
    assert found is not None
    return found


class World:
    """A controller with the queue of its ledger. The lock is held while it is used."""

    def __init__(self, postgres: PostgresServer, root: Path, **use: Any) -> None:
        self.paths = EnvPaths(root, "lab")
        self.database = postgres.database(root, workers=USE | use)
        self.ledger = Ledger.open(self.database)
        settings = self.ledger.backend.workers
        assert settings is not None
        self.queue = WorkQueue.open(self.ledger, settings)

    def controller(self) -> ControllerLock:
        return ControllerLock(self.paths.lock, "rackready deploy", self.database)


@pytest.fixture
def world(postgres: PostgresServer, tmp_path: Path) -> World:
    return World(postgres, tmp_path)


def test_only_who_fits_takes_a_batch_and_nobody_takes_it_twice(world: World) -> None:
    with world.controller():
        world.queue.offer(offer("node01", hall="a"))
        assert claim(world.queue, hall="b") is None
        assert claim(world.queue) is None
        assert claim(world.queue, hall="a", version="2") is None
        assert claim(world.queue, hall="a", sites="other") is None
        found = claim(world.queue, hall="a", row="r")
        assert found is not None
        assert found.offer == offer("node01", hall="a")
        assert claim(world.queue, "w2", hall="a") is None


def test_no_second_claim_has_a_node_of_a_live_one(world: World) -> None:
    with world.controller():
        world.queue.offer(offer("node01", "node02"))
        world.queue.offer(offer("node02", phase="optimize"))
        first = taken(world.queue)
        assert claim(world.queue, "w2") is None
        assert world.queue.release(first.token, "given back", blame=False)
        again = taken(world.queue, "w2")
        assert (again.offer.phase, again.token > first.token, again.attempt) == ("install", True, 0)


def test_a_clock_of_the_server_that_is_set_back_keeps_no_batch_of_a_dead_worker(world: World) -> None:
    """The lease would end an hour late. It is cut to a whole lease from now, which a live worker renews."""
    with world.controller():
        world.queue.offer(offer("node01"))
        token = taken(world.queue).token
        with world.ledger.engine.begin() as connection:
            connection.execute(sa.update(claims).values(until=claims.c.until + 3600))
        world.queue.sweep()
        with world.ledger.read() as connection:
            until, now = connection.execute(sa.select(claims.c.until)).scalar_one(), clock(connection)
        assert now + USE["lease_s"] - 60 < until <= now + USE["lease_s"]
        assert world.queue.renew(token) is Pulse.GO_ON


def test_an_effect_under_a_claim_that_is_over_is_not_begun(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    acts: list[int] = []

    def effect() -> None:
        run_effect(
            world.ledger,
            "node01",
            "wipe",
            "d",
            before=dict,
            observe=lambda _: Observation.NOT_HAPPENED,
            act=lambda token: acts.append(token) or {},  # type: ignore[func-returns-value]
        )

    with world.controller():
        world.queue.offer(offer("node01"))
        first = taken(world.queue)
        monkeypatch.setenv(CLAIM, str(first.token))
        effect()
        assert len(acts) == 1
        world.queue.release(first.token, "died", blame=True)
        second = taken(world.queue, "w2")
        lost = (
            f"this worker has lost its batch - Expected: claim {first.token}, held Actual: died. Nothing more is "
            "started here. Another worker takes the batch and observes first."
        )
        for act in (
            effect,
            lambda: world.ledger.set_state("node01", NodeState.READY),
            lambda: world.queue.finish(first.token, {}),
        ):
            with pytest.raises(LedgerError) as caught:
                act()
            assert lost in str(caught.value)
        assert len(acts) == 1
        assert world.queue.renew(first.token) is Pulse.LOST
        assert not world.queue.release(first.token, "given back", blame=False)
        monkeypatch.setenv(CLAIM, str(second.token))
        effect()
        assert world.queue.renew(second.token) is Pulse.GO_ON
        world.queue.finish(second.token, {"node01": {}})
        assert world.queue.end_of(second.token) == "done"


def test_a_lease_ends_by_the_servers_clock(postgres: PostgresServer, tmp_path: Path) -> None:
    world = World(postgres, tmp_path, lease_s=600, attempts=2)
    late = "UPDATE claims SET until = extract(epoch FROM clock_timestamp()) - 1 WHERE ended IS NULL"
    with world.controller():
        number = world.queue.offer(offer("node01"))
        first = taken(world.queue)
        postgres.sql(late, name_of(world.database))
        assert not world.queue.holds(first.token)
        assert world.queue.renew(first.token) is Pulse.LOST
        second = taken(world.queue, "w2")
        assert (second.token > first.token, second.attempt) == (True, 1)
        postgres.sql(late, name_of(world.database))
        world.queue.sweep()
        assert world.queue.look(number).state == "failed"


def test_a_batch_without_its_controller_is_not_taken_nor_renewed(world: World) -> None:
    with world.controller():
        number = world.queue.offer(offer("node01"))
        waiting = world.queue.offer(offer("node02"))
        first = taken(world.queue)
    assert world.queue.offers() == []
    assert claim(world.queue, "w2") is None
    assert world.queue.renew(first.token) is Pulse.ORPHANED
    assert world.queue.release(first.token, "given back", blame=False)
    begun = time.monotonic()
    with world.controller():
        assert time.monotonic() - begun < USE["lease_s"]
        assert [world.queue.look(one).state for one in (number, waiting)] == ["lost", "lost"]
        assert claim(world.queue) is None


def test_a_new_controller_waits_for_the_end_of_a_lease(
    world: World, postgres: PostgresServer, capsys: pytest.CaptureFixture[str]
) -> None:
    with world.controller():
        world.queue.offer(offer("node01"))
        first = taken(world.queue)
    soon = "UPDATE claims SET until = extract(epoch FROM clock_timestamp()) + 3"
    postgres.sql(soon, name_of(world.database))
    with world.controller():
        assert not world.queue.holds(first.token)
        assert world.queue.end_of(first.token) == "expired"
    assert "waits until workers (w1) let go of node01, at most " in capsys.readouterr().err


def test_a_batch_that_was_done_is_not_offered_again_to_its_campaign(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world.controller():
        number = world.queue.offer(offer("node01"))
        found = taken(world.queue)
        monkeypatch.setenv(CLAIM, str(found.token))
        world.queue.finish(found.token, {"node01": {"outcome": "pass"}})
        monkeypatch.delenv(CLAIM)
    with world.controller():
        assert world.queue.offer(offer("node01")) == number
        assert world.queue.look(number).result == {"node01": {"outcome": "pass"}}
        assert world.queue.offer(offer("node01", phase="optimize")) != number


def test_limits_count_over_all_workers(postgres: PostgresServer, tmp_path: Path) -> None:
    world = World(postgres, tmp_path, per_phase=2, per_rack=1)
    with world.controller():
        for number, rack in enumerate(("rack01", "rack01", "rack02", "rack03")):
            world.queue.offer(offer(f"node0{number}", rack=rack))
        first, second = taken(world.queue), taken(world.queue, "w2")
        assert (first.offer.racks, second.offer.racks) == (("rack01",), ("rack02",))
        assert claim(world.queue, "w3") is None
        world.queue.release(second.token, "given back", blame=False)
        assert taken(world.queue, "w3").offer.racks == ("rack02",)


def test_validate_on_workers_needs_a_shared_folder(postgres: PostgresServer, tmp_path: Path) -> None:
    database = postgres.settings(tmp_path, workers={"phases": ["validate"]})
    with pytest.raises(SiteInvalidError) as caught:
        read_server(database.settings)
    assert (
        "workers.phases: validate needs raw_outputs, a folder or an object store that all machines share. Correct it."
    ) in str(caught.value)
    database = postgres.settings(tmp_path, workers={"phases": ["validate"]}, raw_outputs="shared")
    assert read_server(database.settings).raw_outputs == SharedOutputs.model_validate(tmp_path / "shared")


def test_raw_outputs_of_all_machines_are_in_one_folder(postgres: PostgresServer, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    database = postgres.database(tmp_path / "here", raw_outputs=str(shared))
    there = postgres.settings(tmp_path / "there", name=name_of(database), raw_outputs=str(shared))
    outputs = [RawOutputs(Ledger.open(one), one.file.parent / "raw") for one in (database, there)]
    digest = outputs[0].put("seen")
    assert outputs[1].get(digest) == "seen"
    assert outputs[1].whole
    assert not (database.file.parent / "raw").exists()
    with pytest.raises(EvidenceError, match="Measure again") as caught:
        outputs[1].get("0" * 64)
    assert "Copy it" not in str(caught.value)
