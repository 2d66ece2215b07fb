"""Workers as whole processes on a real PostgreSQL: claims, kills, silence, limits, labels, versions, no worker."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rackready.campaign.abi import CAMPAIGN_ABI
from rackready.drivers.process import boot_id, start_ticks
from tests.postgres import PostgresServer
from tests.unit.campaign.worker_lab import Lab
from tests.waiting import until

ALL = ["node01", "node02", "node03", "node04"]
Make = Callable[..., Lab]


@pytest.fixture
def make(postgres: PostgresServer, tmp_path: Path) -> Iterator[Make]:
    labs: list[Lab] = []

    def made(**use: Any) -> Lab:
        labs.append(Lab(tmp_path, postgres, **use))
        return labs[-1]

    yield made
    for lab in labs:
        lab.close()


def test_batches_are_shared_and_each_is_done_once(make: Make) -> None:
    lab = make()
    workers = [lab.worker(name, mode="wait") for name in ("w1", "w2", "w3")]
    controller = lab.start("controller")
    until(lambda: len(lab.begun()) == 2)
    lab.go()
    assert lab.ended(controller) == 0, lab.said("controller")
    assert sorted(lab.world()) == ALL
    assert lab.said("controller").count(" pass ") == 4
    assert {how for _, how in lab.claims()} == {"done"}
    assert len({worker for worker, _ in lab.claims()}) == 2, "two workers had one batch each"
    for child in workers:
        child.send_signal(signal.SIGTERM)
        assert lab.ended(child) == 0
    assert lab.told("w1")[-1]["event"] == "stopped"


def test_a_worker_that_is_killed_between_effect_and_record_is_followed_by_one_that_observes(make: Make) -> None:
    lab = make(lease_s=15)
    dying = lab.worker("w1", mode="die")
    controller = lab.start("controller", "node[01-02]")
    assert lab.ended(dying) == -signal.SIGKILL
    assert lab.world() == ["node01"]
    lab.worker("w2")
    assert lab.ended(controller) == 0, lab.said("controller", "node[01-02]")
    assert sorted(lab.world()) == ["node01", "node02"], "what was done was observed, and not done again"
    assert lab.claims() == [("w1", "expired"), ("w2", "done")]


def test_a_killed_worker_alone_leaves_a_batch_that_ends_itself_and_is_given_back_at_once(make: Make) -> None:
    lab = make(lease_s=600)
    killed = lab.worker("w1", mode="wait")
    controller = lab.start("controller", "node[01-02]")
    until(lambda: len(lab.begun()) == 1)
    batch = lab.batch_of(killed)
    killed.kill()
    until(lambda: not Path(f"/proc/{batch}").exists())
    lab.worker("w2")
    assert lab.ended(controller) == 0, lab.said("controller", "node[01-02]")
    assert lab.claims() == [("w1", "died"), ("w2", "done")]


def test_a_worker_records_the_end_of_what_a_killed_one_had_started_on_its_machine(make: Make) -> None:
    """Nobody else could: Ctrl-C of the controller waits for children without an end."""
    lab = make(lease_s=15)
    lab.worker("w1")
    dead, alive = (subprocess.Popen(["sleep", "300"], start_new_session=True) for _ in range(2))
    rows = [
        (child.pid, start_ticks(child.pid), boot, what)
        for child, boot, what in ((dead, boot_id(), "dead"), (alive, boot_id(), "alive"), (dead, "other", "elsewhere"))
    ]
    for row in rows:
        lab.sql(f"INSERT INTO children (pid, start_ticks, boot_id, what, begun) VALUES {(*row, 0)}")  # noqa: S608 - numbers and words from here
    try:
        dead.kill()
        dead.wait()
        until(lambda: lab.sql("SELECT what FROM children WHERE ended IS NOT NULL") != [])
        open_ = lab.sql("SELECT what FROM children WHERE ended IS NULL ORDER BY what")
        assert open_ == [("alive",), ("elsewhere",)], "what runs, and what another machine has, is left to it"
    finally:
        for child in (dead, alive):
            child.kill()
            child.wait()


def test_a_worker_that_stood_still_can_record_and_begin_nothing_when_it_comes_back(make: Make) -> None:
    """Both its processes are stopped: nobody ends the batch. Its lease goes, and another worker does the work."""
    lab = make(lease_s=15)
    still = lab.worker("w1", mode="stuck")
    controller = lab.start("controller", "node[01-02]")
    until(lambda: len(lab.begun()) == 1)
    batch = lab.batch_of(still)
    os.kill(still.pid, signal.SIGSTOP)
    os.kill(batch, signal.SIGSTOP)
    lab.worker("w2")
    assert lab.ended(controller) == 0, lab.said("controller", "node[01-02]")
    assert lab.claims() == [("w1", "expired"), ("w2", "done")]
    lab.go()
    os.kill(batch, signal.SIGCONT)
    os.kill(still.pid, signal.SIGCONT)
    until(lambda: lab.told("w1")[-1]["event"] == "expired")
    assert not Path(f"/proc/{batch}").exists()
    assert sorted(lab.world()) == ["node01", "node02"]
    assert lab.claims() == [("w1", "expired"), ("w2", "done")]
    assert [token for (token,) in lab.sql("SELECT token FROM node_leases")] == [2, 2]


def test_a_batch_that_every_worker_dies_of_is_an_error_after_its_attempts(make: Make) -> None:
    lab = make(lease_s=600, attempts=2)
    controller = lab.start("controller", "node[01-02]")
    for number, name in enumerate(("w1", "w2"), 1):
        worker = lab.worker(name, mode="wait")
        until(lambda number=number: len(lab.begun()) == number)  # type: ignore[misc]
        worker.kill()  # before its batch has begun, only the end of the lease would tell
    lab.worker("w3")
    assert lab.ended(controller) == 1
    assert (
        "install: the workers that took it died or fell silent - Expected: a result Actual: 2 workers ended without "
        "one. See their logs, then run again: it is observed first." in lab.said("controller", "node[01-02]")
    )
    assert lab.world() == []


def test_sigterm_gives_the_batch_back_and_no_attempt_is_counted(make: Make) -> None:
    lab = make(lease_s=600, attempts=1)
    leaving = lab.worker("w1", mode="wait")
    controller = lab.start("controller", "node[01-02]")
    until(lambda: len(lab.begun()) == 1)
    leaving.send_signal(signal.SIGTERM)
    assert lab.ended(leaving) == 0
    assert [one["event"] for one in lab.told("w1")] == ["ready", "takes", "given back", "stopped"]
    lab.worker("w2")
    assert lab.ended(controller) == 0, lab.said("controller", "node[01-02]")
    assert lab.claims() == [("w1", "given back"), ("w2", "done")]


def test_a_second_sigterm_kills_what_does_not_end(make: Make) -> None:
    lab = make(lease_s=600)
    leaving = lab.worker("w1", mode="stuck")
    lab.start("controller", "node[01-02]")
    until(lambda: len(lab.begun()) == 1)
    batch = lab.batch_of(leaving)
    leaving.send_signal(signal.SIGTERM)
    leaving.send_signal(signal.SIGTERM)
    until(lambda: leaving.poll() is not None or leaving.send_signal(signal.SIGTERM) is not None)
    assert not Path(f"/proc/{batch}").exists()
    assert lab.claims() == [("w1", "died")]


def test_no_worker_is_said_and_is_an_error_after_the_stated_wait(make: Make) -> None:
    lab = make(wait_s=0)
    assert lab.ended(lab.start("controller")) == 1
    text = lab.said("controller")
    assert "waits for a worker: Expected: a live worker Actual: none; at most 0 s" in text
    assert (
        "node01: install: no worker took it within 0 s - Expected: a live worker Actual: none. "
        "Start `rackready worker --env lab`, then run again." in text
    )
    assert {state for (state,) in lab.sql("SELECT state FROM work")} == {"withdrawn"}
    assert lab.world() == []


def test_labels_place_the_batches_and_a_missing_one_is_named(make: Make) -> None:
    lab = make(place_by="hall", wait_s=0)
    lab.worker("wa", "hall=a")
    assert lab.ended(lab.start("controller", "node[01,03]")) == 1
    text = lab.said("controller", "node[01,03]")
    assert lab.world() == ["node01"]
    assert (
        "node03: install: no worker took it within 0 s - Expected: a live worker with hall=b Actual: wa: hall=a. "
        "Start `rackready worker --env lab --label hall=b`, then run again." in text
    )
    lab.worker("wb", "hall=b")
    assert lab.ended(lab.start("controller")) == 0
    assert sorted(lab.world()) == ALL
    by = dict(lab.sql("SELECT nodes::text, worker FROM work JOIN claims ON claims.work = work.id WHERE work.id > 2"))
    assert by == {'["node01", "node02"]': "wa", '["node03", "node04"]': "wb"}


def test_another_version_is_refused(make: Make) -> None:
    lab = make(wait_s=0)
    lab.worker("w1", VERSION="0.0.9")
    assert lab.ended(lab.start("controller", "node01")) == 1
    abi = f"(ABI {CAMPAIGN_ABI})"
    assert f"Actual: w1: rackready 0.0.9 {abi}, not 0.1.0 {abi}" in lab.said("controller", "node01")
    assert all(one["event"] != "takes" for one in lab.told("w1"))
    assert lab.world() == []


def test_one_limit_holds_over_all_workers(make: Make) -> None:
    lab = make(per_phase=1)
    for name in ("w1", "w2"):
        lab.worker(name, mode="wait")
    controller = lab.start("controller")
    until(lambda: len(lab.begun()) == 1)
    lab.go()
    assert lab.ended(controller) == 0
    rows = lab.sql("SELECT begun, ended FROM claims ORDER BY token")
    assert rows[0][1] <= rows[1][0], "the second began after the end of the first"


def test_a_name_in_use_is_refused_and_that_of_a_killed_worker_is_free_at_once(make: Make) -> None:
    lab = make(lease_s=600)
    first = lab.worker("w1")
    second = lab.worker("w1")
    assert lab.ended(second) == 2
    text = lab.said("worker", "w1")
    assert "worker w1: another worker has this name - Expected: a name of its own Actual: pid " in text
    assert "s ago. Give another --name, or stop that one." in text
    first.kill()
    first.wait()
    (lab.root / "worker-w1.out").unlink()
    third = lab.worker("w1")
    assert third.poll() is None
