"""Controllers on several machines and one database: one works, and one that lost its lock begins nothing more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
import sqlalchemy as sa

from rackready.drivers.process import reap
from rackready.evidence.store import EvidenceStore
from rackready.ledger import postgres_lock
from rackready.ledger.effect import Observation, run_effect
from rackready.ledger.lock import ControllerBusyError, ControllerLock, is_held
from rackready.ledger.store import Ledger, LedgerError
from rackready.model.state import NodeState
from rackready.paths import Database, EnvPaths
from tests.postgres import PostgresServer, name_of
from tests.unit.evidence.test_store import record

HOLD = """
import subprocess, sys, time
from pathlib import Path
from rackready.ledger.lock import ControllerLock
from rackready.paths import EnvPaths
paths = EnvPaths(Path(sys.argv[1]), "lab")
with ControllerLock(paths.lock, "rackready deploy --env lab", paths.database):
    subprocess.Popen(["sleep", "20"], close_fds=False, start_new_session=True, stdout=subprocess.DEVNULL)
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def machines(postgres: PostgresServer, tmp_path: Path) -> tuple[EnvPaths, EnvPaths]:
    """Two checkouts, as on two machines, of one environment with one database."""
    here, there = tmp_path / "here", tmp_path / "there"
    postgres.settings(there, name=name_of(postgres.database(here)))
    return EnvPaths(here, "lab"), EnvPaths(there, "lab")


@pytest.fixture
def other(machines: tuple[EnvPaths, EnvPaths]) -> Iterator[subprocess.Popen[str]]:
    """A controller that works on the other machine."""
    child = subprocess.Popen([sys.executable, "-c", HOLD, str(machines[1].root)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    yield child
    child.kill()
    child.wait()


def controller(paths: EnvPaths) -> ControllerLock:
    return ControllerLock(paths.lock, "rackready deploy", paths.database)


def drop_connections(postgres: PostgresServer, database: Database) -> None:
    """End every connection to a database, as a cut of the network does."""
    postgres.sql(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> "
        "pg_backend_pid()",
        name_of(database),
    )


def test_second_controller_is_refused_and_told_who_works(
    machines: tuple[EnvPaths, EnvPaths], other: subprocess.Popen[str]
) -> None:
    paths = machines[0]
    assert is_held(paths.lock, paths.database)
    with pytest.raises(ControllerBusyError) as caught, controller(paths):
        pass
    actual = (
        f"Expected: none Actual: pid {other.pid} on {os.uname().nodename} (`rackready deploy --env lab`, for 0 min)."
    )
    assert (
        f"another controller works on this site - {actual} Wait for it (`rackready status`), or stop it with Ctrl-C "
        "where it runs." in str(caught.value)
    )


def test_who_is_not_the_controller_records_nothing_beside_it(
    machines: tuple[EnvPaths, EnvPaths], other: subprocess.Popen[str], tmp_path: Path
) -> None:
    ledger = Ledger.open(machines[0].database)
    store = EvidenceStore.open(ledger, tmp_path / "raw")
    said = (
        f"another controller works on this site - Expected: none Actual: pid {other.pid} on .* Nothing was "
        "recorded: wait for it"
    )
    for write in (
        lambda: ledger.set_state("n", NodeState.READY),
        lambda: ledger.begin("n", "o", "d", {}),
        lambda: store.append(record()),
    ):
        with pytest.raises(LedgerError, match=said):
            write()
    assert (ledger.states(), ledger.entries(), store.records()) == ([], [], [])


def test_lock_of_a_killed_controller_is_free(machines: tuple[EnvPaths, EnvPaths], other: subprocess.Popen[str]) -> None:
    """Also while what it started lives on: the connection is not theirs."""
    paths = machines[0]
    other.kill()
    other.wait()
    with controller(paths):
        assert is_held(paths.lock, paths.database)
        Ledger.open(paths.database).set_state("n", NodeState.READY)
    assert not is_held(paths.lock, paths.database)


def test_given_back_it_is_free_at_once(machines: tuple[EnvPaths, EnvPaths]) -> None:
    for paths in machines * 3:
        with controller(paths):
            assert os.environ[postgres_lock.LEASE]
        assert postgres_lock.LEASE not in os.environ


def test_lost_connection_stops_the_next_effect(postgres: PostgresServer, machines: tuple[EnvPaths, EnvPaths]) -> None:
    paths, done = machines[0], []

    def effect(ledger: Ledger) -> None:
        run_effect(
            ledger,
            "n",
            "power-on",
            "d",
            before=dict,
            observe=lambda _: Observation.NOT_HAPPENED,
            act=lambda token: {"token": done.append(token)},
        )

    with controller(paths):
        ledger = Ledger.open(paths.database)
        effect(ledger)
        drop_connections(postgres, paths.database)
        with pytest.raises(LedgerError) as caught:
            effect(ledger)
    actual = (
        "this controller has lost its lock - Expected: lock number 1 Actual: the connection that held it ended. "
        "Nothing more is started. "
    )
    assert str(caught.value).endswith(f"{actual}Run the same command again: it continues from what is recorded.")
    assert len(done) == 1
    with controller(paths):
        effect(ledger)
    assert len(done) == 2


def test_controller_that_another_took_over_from_records_nothing_more(
    postgres: PostgresServer, machines: tuple[EnvPaths, EnvPaths], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both in this process, which has one environment: what children of the first were told is put back by hand."""
    first, second = machines
    with controller(first):
        ledger, lease = Ledger.open(first.database), os.environ[postgres_lock.LEASE]
        token = ledger.begin("n", "o", "d", {}).token
        drop_connections(postgres, first.database)
        with controller(second):
            monkeypatch.setenv(postgres_lock.LEASE, lease)
            said = (
                f"lost its lock - Expected: lock number 1 Actual: it is pid {os.getpid()} on .* Nothing more is started"
            )
            with pytest.raises(LedgerError, match=said):
                ledger.done(token)
            monkeypatch.setenv(postgres_lock.LEASE, "2")
            assert ledger.latest("n", "o").status == "intent"  # type: ignore[union-attr]


def test_children_write_in_their_controllers_name(machines: tuple[EnvPaths, EnvPaths]) -> None:
    code = (
        "import sys; from pathlib import Path; from rackready.ledger.store import Ledger; "
        "from rackready.paths import EnvPaths\n"
    )
    code += "Ledger.open(EnvPaths(Path(sys.argv[1]), 'lab').database).event('c', 'n', 'p', 'from a child')"
    argv = [sys.executable, "-c", code, str(machines[0].root)]
    with controller(machines[0]):
        subprocess.run(argv, check=True)
        without = {name: value for name, value in os.environ.items() if name != postgres_lock.LEASE}
        stranger = subprocess.run(argv, env=without, check=False, capture_output=True, text=True)
    assert "another controller works on this site" in stranger.stderr
    assert [event.text for event in Ledger.open(machines[0].database).events("c")] == ["from a child"]


def test_lost_connection_interrupts_the_process(
    postgres: PostgresServer, machines: tuple[EnvPaths, EnvPaths], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A phase may run a tool for an hour without recording anything: the lock's own connection is watched meanwhile."""
    monkeypatch.setattr(postgres_lock, "_LOOK_EVERY_S", 0.05)
    said: list[str] = []
    monkeypatch.setattr(postgres_lock.sys, "stderr", type("Err", (), {"write": lambda _, text: said.append(text)})())
    begun = time.monotonic()

    def work() -> None:
        with controller(machines[0]):
            drop_connections(postgres, machines[0].database)
            threading.Event().wait(120)

    before = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # pytest may run as a shell's background job, which ignores it
    try:
        with pytest.raises(KeyboardInterrupt):
            work()
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - begun < 60
    assert "this controller has lost its lock - Expected: a connection that stays Actual: " in said[0]
    assert said[0].endswith("What runs is ended; run the same command again once the database answers.\n")


def test_a_connection_that_is_lost_while_the_work_ends_interrupts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work ended for the same cause, and the watch waits for the server: nobody is there to be interrupted."""
    monkeypatch.setattr(postgres_lock, "_LOOK_EVERY_S", 0.01)
    asked, lost = threading.Event(), list[str]()

    class Silent:
        """A connection that is cut off: it answers with an error after a while."""

        def execute(self, *_statement: object) -> None:
            asked.set()
            time.sleep(0.5)
            raise sa.exc.OperationalError("SELECT 1", {}, Exception("No route to host"))

    with postgres_lock.Hold(cast("sa.Connection", Silent()), "the database", 1, lost.append):
        assert asked.wait(60)
    assert lost == []


def test_takeover_says_what_it_cannot_end(machines: tuple[EnvPaths, EnvPaths], postgres: PostgresServer) -> None:
    """What a dead controller of another machine left there goes on: it is named, and refused by fences of nodes."""
    ledger = Ledger.open(machines[0].database)
    with controller(machines[0]):
        ledger.child_begun(4711, 1, "another-boot", "ansible-playbook install.yml")
    postgres.sql("UPDATE controllers SET host = 'ctl-a', boot_id = 'another-boot'", name_of(machines[0].database))
    with controller(machines[1]):
        said = "it was started on ctl-a. Nodes refuse its older token; the next controller there ends it"
        assert reap(ledger) == [f"ansible-playbook install.yml was not ended: {said}"]
        assert reap(ledger) == []


@pytest.mark.parametrize(
    ("handler", "number"),
    [(signal.default_int_handler, signal.SIGINT), (signal.SIG_IGN, signal.SIGTERM)],
    ids=["heeded", "ignored"],
)
def test_interrupt_is_what_ctrl_c_sends_or_kill_where_that_is_ignored(
    monkeypatch: pytest.MonkeyPatch, handler: object, number: int
) -> None:
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(postgres_lock.signal, "getsignal", lambda _number: handler)
    monkeypatch.setattr(postgres_lock.os, "kill", lambda *what: sent.append(what))
    postgres_lock.interrupt("why")
    assert sent == [(os.getpid(), number)]


def test_server_that_restarts_loses_nothing_and_the_next_run_goes_on(
    postgres: PostgresServer, machines: tuple[EnvPaths, EnvPaths]
) -> None:
    paths = machines[0]
    with controller(paths):
        ledger = Ledger.open(paths.database)
        ledger.set_state("n", NodeState.INSTALLED)
        postgres.stop()
        try:
            with pytest.raises(LedgerError, match=r"the ledger cannot be (written|read) - .* Actual: .*"):
                ledger.set_state("n", NodeState.READY)
        finally:
            postgres.start()
        with pytest.raises(LedgerError, match="lost its lock"):
            ledger.set_state("n", NodeState.READY)
    with controller(paths):
        assert ledger.states()[0].state is NodeState.INSTALLED
        ledger.set_state("n", NodeState.READY)
