"""Effects that are killed in the middle: none is forgotten, none is repeated blindly."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rackready.ledger.effect import EffectResult, Observation, run_effect
from rackready.ledger.store import Ledger, LedgerError
from rackready.model.state import NodeState
from rackready.paths import Database


class Killed(BaseException):
    """Stands for SIGKILL: nothing after it runs."""


class World:
    """A power supply that counts how often it was switched on."""

    def __init__(self) -> None:
        self.on = False
        self.cycles = 0
        self.blind = False
        self.die_before = False
        self.die_after = False

    def before(self) -> dict[str, Any]:
        return {"on": self.on}

    def observe(self, _stored: dict[str, Any]) -> Observation:
        if self.blind:
            return Observation.UNKNOWN
        return Observation.HAPPENED if self.on else Observation.NOT_HAPPENED

    def act(self, token: int) -> dict[str, Any]:
        if self.die_before:
            raise Killed
        self.on = True
        self.cycles += 1
        if self.die_after:
            raise Killed
        return {"token": token}


@pytest.fixture
def ledger(database: Database) -> Iterator[Ledger]:
    made = Ledger.open(database)
    yield made
    made.close()


def power_on(ledger: Ledger, world: World) -> EffectResult:
    return run_effect(
        ledger,
        "node01",
        "power-on",
        "d1",
        before=world.before,
        observe=world.observe,
        act=world.act,
        settle_s=0.05,
        poll_s=0.01,
    )


def test_second_call_does_nothing(ledger: Ledger) -> None:
    world = World()
    assert power_on(ledger, world).outcome == "done"
    assert power_on(ledger, world).outcome == "already"
    assert world.cycles == 1


def test_killed_before_the_effect_it_is_done_once(ledger: Ledger) -> None:
    world = World()
    world.die_before = True
    with pytest.raises(Killed):
        power_on(ledger, world)
    world.die_before = False
    assert power_on(ledger, world).outcome == "done"
    assert world.cycles == 1
    assert [entry.status for entry in ledger.entries("node01")] == ["failed", "done"]


def test_killed_after_the_effect_it_is_observed_and_not_repeated(ledger: Ledger) -> None:
    world = World()
    world.die_after = True
    with pytest.raises(Killed):
        power_on(ledger, world)
    world.die_after = False
    assert power_on(ledger, world).outcome == "already"
    assert world.cycles == 1
    assert ledger.entries("node01")[0].status == "done"


def test_when_nobody_can_tell_it_is_unknown_and_not_repeated(ledger: Ledger) -> None:
    world = World()
    world.die_after = True
    with pytest.raises(Killed):
        power_on(ledger, world)
    world.blind = True
    assert power_on(ledger, world).outcome == "unknown"
    assert world.cycles == 1
    assert ledger.entries("node01")[0].status == "intent", "the open question stays open"


def test_done_counts_only_while_observation_agrees(ledger: Ledger) -> None:
    world = World()
    power_on(ledger, world)
    world.on = False
    assert power_on(ledger, world).outcome == "done"
    assert world.cycles == 2


def test_new_epoch_makes_earlier_entries_count_no_longer(ledger: Ledger) -> None:
    world = World()
    power_on(ledger, world)
    assert ledger.raise_epoch("node01", "repaired") == 2
    assert ledger.latest("node01", "power-on", "d1") is None


def test_token_grows_and_ends_once(ledger: Ledger) -> None:
    first = ledger.begin("n", "op", "d", {})
    second = ledger.begin("n", "op", "d", {})
    assert second.token > first.token
    ledger.done(first.token)
    with pytest.raises(LedgerError, match="Expected: an open intent Actual: ended already"):
        ledger.done(first.token)


def test_states_and_transitions(ledger: Ledger) -> None:
    ledger.set_state("node01", NodeState.PROVISIONED, "", phase="provision", campaign="c")
    since = ledger.states()[0].since
    ledger.set_state("node01", NodeState.PROVISIONED, "ssh lost", phase="install", campaign="c")
    row = ledger.state("node01")
    assert row is not None
    assert (row.state, row.reason, row.phase, row.since) == (NodeState.PROVISIONED, "ssh lost", "install", since)


def test_read_only_refuses_to_make_a_ledger(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="Nothing was deployed from this checkout yet"):
        Ledger.read_only(tmp_path / "none.sqlite")
    assert not (tmp_path / "none.sqlite").exists()


def test_ledger_is_private_to_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    Ledger.open(path)
    assert path.stat().st_mode & 0o077 == 0


def test_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    path.write_text("this is no database, " * 100, encoding="utf-8")
    with pytest.raises(
        LedgerError, match="the ledger cannot be written - Expected: a writable file Actual: file is not a database"
    ):
        Ledger.open(path)


def test_ledger_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks while it is made, or after a kill in that moment, sees no ledger rather than one without tables."""
    path = tmp_path / "state.sqlite"

    def killed(*_: object) -> None:
        assert not path.exists()
        raise Killed

    monkeypatch.setattr("rackready.ledger.schema.metadata.create_all", killed)
    with pytest.raises(Killed):
        Ledger.open(path)
    assert list(tmp_path.iterdir()) == []
