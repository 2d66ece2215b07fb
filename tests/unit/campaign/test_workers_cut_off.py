"""Workers whose controller is killed, whose database is restarted, whose site is another one."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.postgres import PostgresServer
from tests.unit.campaign.worker_lab import Lab
from tests.waiting import until

NODES = "node[01-02]"


@pytest.fixture
def ends() -> Iterator[ExitStack]:
    """What ends the processes of a test, also of one that fails."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A server that this test alone stops."""
    server = PostgresServer.begin()
    yield server
    server.close()


def test_a_killed_controller_stops_its_workers_and_the_next_one_waits_for_them(
    postgres: PostgresServer, tmp_path: Path, ends: ExitStack
) -> None:
    lab = Lab(tmp_path, postgres, lease_s=15)
    ends.callback(lab.close)
    lab.worker("w1", mode="wait")
    controller = lab.start("controller", NODES)
    until(lambda: len(lab.begun()) == 1)
    controller.kill()
    lab.ended(controller)
    lab.go()  # who still worked would go on now
    assert lab.ended(lab.start("controller", NODES)) == 0, lab.said("controller", NODES)
    assert sorted(lab.world()) == ["node01", "node02"]
    assert lab.claims()[-1] == ("w1", "done")
    assert {state for (state,) in lab.sql("SELECT state FROM work")} == {"lost", "done"} or lab.claims()[0][1] == "done"
    assert [(row[0],) for row in lab.sql("SELECT count(*) FROM claims WHERE ended IS NULL")] == [(0,)]


def test_a_stopped_campaign_takes_its_batch_back_and_goes_on_later(
    postgres: PostgresServer, tmp_path: Path, ends: ExitStack
) -> None:
    lab = Lab(tmp_path, postgres, lease_s=60)
    ends.callback(lab.close)
    lab.worker("w1", mode="wait")
    controller = lab.start("controller", NODES)
    until(lambda: len(lab.begun()) == 1)
    controller.send_signal(signal.SIGINT)
    assert lab.ended(controller) == 130
    assert lab.claims() == [("w1", "given back")]
    assert [state for (state,) in lab.sql("SELECT state FROM work")] == ["withdrawn"]
    lab.go()
    assert lab.ended(lab.start("controller", NODES)) == 0
    assert "which was cut off" in lab.said("controller", NODES)
    assert sorted(lab.world()) == ["node01", "node02"]


def test_a_restarted_database_loses_nothing(own_server: PostgresServer, tmp_path: Path, ends: ExitStack) -> None:
    """The controller stops, as it lost its lock; the worker ends its batch, and is there again by itself."""
    lab = Lab(tmp_path, own_server, lease_s=15)
    ends.callback(lab.close)
    worker = lab.worker("w1", mode="wait")
    controller = lab.start("controller", NODES)
    until(lambda: len(lab.begun()) == 1)
    batch = lab.batch_of(worker)
    own_server.stop()
    until(lambda: not Path(f"/proc/{batch}").exists())
    assert lab.ended(controller) != 0
    assert lab.world() == []
    own_server.start()
    lab.go()
    assert lab.ended(lab.start("controller", NODES)) == 0, lab.said("controller", NODES)
    assert sorted(lab.world()) == ["node01", "node02"]
    assert "database" in [one["event"] for one in lab.told("w1")]
    assert worker.poll() is None


def test_another_site_is_refused_until_it_is_the_same(
    postgres: PostgresServer, tmp_path: Path, ends: ExitStack
) -> None:
    """The worker has a checkout of its own, in which the site file differs."""
    lab = Lab(tmp_path / "here", postgres, lease_s=60, wait_s=600)
    ends.callback(lab.close)
    there = tmp_path / "there"
    shutil.copytree(lab.root / "inventories", there / "inventories")
    site = there / "inventories/lab/site.yml"
    right = (lab.root / "inventories/lab/site.yml").read_text(encoding="utf-8")
    site.write_text(right.replace("name: lab\n", "name: another\n"), encoding="utf-8")
    worker = lab.start("worker", "w1", root=there)
    until(lambda: bool(lab.told("w1")))
    controller = lab.start("controller", NODES)
    until(lambda: "refuses" in [one["event"] for one in lab.told("w1")])
    text = next(one["text"] for one in lab.told("w1") if one["event"] == "refuses")
    assert text.startswith("site of campaign c-")
    assert " - Expected: SHA-256 " in text
    assert text.endswith(
        f"Bring {there}/inventories/lab to the controller's version; the checkout must be at the same path."
    )
    until(lambda: "waits for a worker: Expected: a live worker Actual: w1: site of campaign" in _said(lab))
    worker.kill()
    controller.send_signal(signal.SIGINT)
    assert lab.ended(controller) == 130
    assert lab.world() == []


def test_a_worker_without_the_key_refuses_and_takes_part_once_it_has_it(
    postgres: PostgresServer, tmp_path: Path, ends: ExitStack
) -> None:
    """It would take every batch, one after the other, and fail each: no node could be reached."""
    lab = Lab(tmp_path, postgres, lease_s=60, wait_s=600)
    ends.callback(lab.close)
    key = tmp_path / "inventories/lab/secrets/id_ed25519"
    kept = key.rename(tmp_path / "kept")
    lab.worker("w1")
    controller = lab.start("controller", NODES)
    until(lambda: "refuses" in [one["event"] for one in lab.told("w1")])
    text = next(one["text"] for one in lab.told("w1") if one["event"] == "refuses")
    assert text == (
        f"worker w1: private key {key} - Expected: an OpenSSH private key without passphrase Actual: No such file or "
        "directory. Put it there, as it is on the controller: this worker takes part within 10 s."
    )
    until(lambda: "Actual: w1: worker w1: private key" in _said(lab))
    assert lab.claims() == []
    kept.rename(key)
    assert lab.ended(controller) == 0, _said(lab)
    assert sorted(lab.world()) == ["node01", "node02"]


def _said(lab: Lab) -> str:
    return lab.said("controller", NODES)
