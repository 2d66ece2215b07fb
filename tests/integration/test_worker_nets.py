"""Workers and a controller on machines of their own: they lose the database for longer than a lease."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rackready_sim.plan import clone_id
from tests.integration import left_behind, worker_nets
from tests.integration.worker_nets import CONTROLLER, DATABASE, Nets
from tests.postgres import PostgresServer, programs
from tests.unit.campaign.worker_lab import ROOT, Lab
from tests.waiting import until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(programs() is None, reason="no PostgreSQL server is installed"),
]

LEASE_S = 12
NODES = "node[01-02]"
HOLDS = """
import sys
from pathlib import Path
import sqlalchemy as sa
from rackready.ledger.store import Ledger
from rackready.paths import EnvPaths

with Ledger.open(EnvPaths(Path(sys.argv[1]), "lab").database) as ledger, ledger.write() as connection:
    print("holds", flush=True)
    connection.execute(sa.text("SELECT pg_sleep(3)"))
"""
"""A writer of another machine: its statement ends while its cable is out, and the server has an answer to send."""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    left_behind.sweep()
    nets = Nets(f"rr-{clone_id(tmp_path)}")
    note = left_behind.Note(nets.prefix)
    try:
        nets.begin(("w1", "w2"))
        server = PostgresServer.begin(nets.inside(DATABASE), nets.addresses[DATABASE])
        note.add(server.folder)
        made = Lab(tmp_path, server, nets, lease_s=LEASE_S)
        try:
            yield made
        finally:
            made.close()
            server.close()
    finally:
        nets.close()
        note.done()
        assert not [one for one in worker_nets.spaces() if one.startswith(nets.prefix)]


@pytest.mark.slow
def test_a_worker_that_is_cut_off_ends_its_batch_in_time_and_writes_nothing_when_it_is_back(lab: Lab) -> None:
    """It is alive, and reaches its nodes: only the database is out of reach, for longer than the lease."""
    cut_off = lab.worker("w1", mode="stuck")
    controller = lab.start("controller", NODES)
    until(lambda: len(lab.begun()) == 1)
    batch = lab.batch_of(cut_off)
    lab.nets.cut("w1")
    at = time.monotonic()
    until(lambda: worker_nets.is_dead(batch))
    took = time.monotonic() - at
    assert LEASE_S / 3 < took < LEASE_S, "it ends its batch before another worker may have it"
    assert lab.claims() == [("w1", "")]
    lab.go()  # whoever still worked would go on now
    lab.worker("w2")
    assert lab.ended(controller) == 0, lab.said("controller", NODES)
    assert lab.claims() == [("w1", "expired"), ("w2", "done")]
    assert sorted(lab.world()) == ["node01", "node02"]
    assert lab.told("w1")[-1]["event"] in {"takes", "database"}, "it is still cut off"
    before = lab.sql("SELECT * FROM operations ORDER BY token")
    lab.nets.heal("w1")
    until(lambda: lab.told("w1")[-1]["text"] == "answers again")
    assert lab.sql("SELECT * FROM operations ORDER BY token") == before
    assert cut_off.poll() is None
    said = lab.said("worker", "w1")
    silent = re.search(r"was not renewed for (\d+) s of 12 s: what ran is ended", said)
    assert silent, said
    assert LEASE_S * 2 / 3 <= int(silent[1]) < LEASE_S, "more than 8 s where the machine is busy"


@pytest.mark.slow
def test_a_worker_that_is_frozen_while_it_is_cut_off_finds_its_claim_over(lab: Lab) -> None:
    """Its processes stand still as well, so it can end nothing in time: the server refuses what it tries later."""
    frozen = lab.worker("w1", mode="stuck")
    controller = lab.start("controller", NODES)
    until(lambda: len(lab.begun()) == 1)
    batch = lab.batch_of(frozen)
    lab.nets.cut("w1")
    _signal_all(lab, "w1", "STOP")
    lab.go()
    lab.worker("w2")
    assert lab.ended(controller) == 0, lab.said("controller", NODES)
    lab.nets.heal("w1")
    _signal_all(lab, "w1", "CONT")
    until(lambda: worker_nets.is_dead(batch))
    until(lambda: lab.told("w1")[-1]["event"] == "expired")
    assert lab.claims() == [("w1", "expired"), ("w2", "done")]
    assert sorted(lab.world()) == ["node01", "node02"]
    assert frozen.poll() is None


@pytest.mark.slow
def test_a_controller_that_is_cut_off_stops_and_its_workers_let_go(lab: Lab) -> None:
    worker = lab.worker("w1", mode="wait")
    controller = lab.start("controller", NODES)
    until(lambda: len(lab.begun()) == 1)
    lab.nets.cut(CONTROLLER)
    assert lab.ended(controller) != 0
    assert "un the same command again" in lab.said("controller", NODES), "whichever of its connections fails first"
    assert "Traceback" not in lab.said("controller", NODES)
    until(lambda: lab.claims()[0][1] in {"given back", "expired"})
    assert lab.world() == []
    lab.nets.heal(CONTROLLER)
    lab.go()
    assert lab.ended(lab.start("controller", NODES)) == 0, lab.said("controller", NODES)
    assert sorted(lab.world()) == ["node01", "node02"]
    assert worker.poll() is None


def test_a_writer_that_is_cut_off_keeps_nobody_else_from_writing(lab: Lab) -> None:
    """The server has something to send, and so sends no keepalives: it must give up all the same.

    Else all writers, and a controller's lock, would wait for a machine that is gone until TCP gives up, 15 minutes.
    """
    with subprocess.Popen(
        [*lab.nets.inside("w1"), sys.executable, "-c", HOLDS, str(lab.root)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "holds\n"
        lab.nets.cut("w1")
        at = time.monotonic()
        locks = "SELECT pid FROM pg_locks WHERE locktype = 'advisory'"
        while lab.sql(locks) and time.monotonic() - at < 60:
            time.sleep(0.2)
        took = time.monotonic() - at
        lab.nets.kill_all("w1")
    assert took < 30, "the lock_timeout of the others"


def _signal_all(lab: Lab, name: str, number: str) -> None:
    pids = [str(pid) for pid in lab.nets.processes(name)]
    subprocess.run(["kill", f"-{number}", *pids], check=True)
