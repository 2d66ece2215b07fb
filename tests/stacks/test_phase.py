"""The provision phase without an engine: messages when the worker does not answer or the disk is full."""

from __future__ import annotations

import errno
import json
import shutil
import threading
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.drivers.process import ChildResult
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.phase import PhaseContext
from rackready.model.problems import RackreadyError
from rackready.paths import EnvPaths
from rackready.stacks import provision, worker
from rackready.stacks.machine import POWER_ON

ROOT = Path(__file__).resolve().parents[2]
Usage = namedtuple("Usage", "total used free")  # noqa: PYI024 - as shutil's own


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PhaseContext:
    (tmp_path / "inventories/t").mkdir(parents=True)
    shutil.copy(ROOT / "inventories/sim/site.yml", tmp_path / "inventories/t/site.yml")
    monkeypatch.setattr(provision.engine, "require_engine", lambda _root: Path("pulumi"))
    return PhaseContext("t", tmp_path, "c1")


def child(monkeypatch: pytest.MonkeyPatch, does: Callable[[dict[str, Any]], None], *, timed_out: bool = False) -> None:
    def run(_argv: list[str], *, stdin_text: str, **_rest: object) -> ChildResult:
        does(json.loads(stdin_text))
        return ChildResult(1, timed_out, 1.0)

    monkeypatch.setattr(provision, "run_child", run)


def test_no_nodes_is_no_work(context: PhaseContext) -> None:
    assert provision.run_provision(context, []) == {}


def test_results_come_back_as_they_were_written(context: PhaseContext, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def answer(request: dict[str, Any]) -> None:
        asked.append(request)
        Path(request["result"]).write_text(
            json.dumps({"node01": {"outcome": "pass", "message": "m", "changed": True, "data": {"power": "On"}}})
        )

    child(monkeypatch, answer)
    found = provision.run_provision(context, ["node01", "node02"])
    assert (found["node01"].outcome, found["node01"].changed, found["node01"].data) == (
        Outcome.PASS,
        True,
        {"power": "On"},
    )
    assert asked[0]["racks"] == {"rack01": ["node01", "node02"]}
    assert (asked[0]["action"], asked[0]["campaign"]) == ("up", "c1")
    assert found["node02"].outcome is Outcome.ERROR
    assert found["node02"].message.startswith(
        "node02: not provisioned - Expected: a result of the provisioning worker Actual: none (exit status 1). Look at "
    )


def test_only_a_power_effect_touches_a_node(context: PhaseContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """A BMC that does not answer voids nothing that was measured on a node that runs."""
    ledger = Ledger.open(EnvPaths(context.root, context.env).database)
    for node in ("node01", "node02"):
        ledger.done(ledger.begin(node, POWER_ON, "earlier", {}).token)
    error = {"outcome": "error", "message": "m", "changed": False, "data": {}}

    def answer(request: dict[str, Any]) -> None:
        ledger.begin("node02", POWER_ON, "now", {})
        Path(request["result"]).write_text(json.dumps({"node01": error, "node02": error}))

    child(monkeypatch, answer)
    found = provision.run_provision(context, ["node01", "node02"])
    assert {node: result.touched for node, result in found.items()} == {"node01": False, "node02": True}


def test_check_only_previews(context: PhaseContext, monkeypatch: pytest.MonkeyPatch) -> None:
    actions: list[str] = []
    child(monkeypatch, lambda request: actions.append(request["action"]))
    provision.run_provision(PhaseContext(context.env, context.root, "c1", check=True), ["node01"])
    provision.run_destroy(context, ["node01"])
    assert actions == ["preview", "destroy"]


def test_a_worker_that_was_stopped_for_its_time_says_so(context: PhaseContext, monkeypatch: pytest.MonkeyPatch) -> None:
    child(monkeypatch, lambda _request: None, timed_out=True)
    found = provision.run_provision(context, ["node01"])["node01"]
    assert (
        "none (stopped after 1500 s: 1 round of 1500 s (campaign.provision_timeout_s + 600)). Look at " in found.message
    )


def site_of_racks(context: PhaseContext, racks: int, nodes: int) -> list[str]:
    """Write a site of so many racks with so many nodes each; returns the nodes' names."""
    path = context.root / "inventories/t/site.yml"
    raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    raw["links"], raw["racks"], names = [], [], []
    ports = iter(range(1, 65))
    template = {"platform": "dgx_h100", "unit": 1}
    for rack in range(racks):
        here = []
        for k in range(nodes):
            number = rack * nodes + k + 1
            name = f"n{number:03}"
            names.append(name)
            bmc = {"address": f"10.0.3.{number}", "username": "admin", "password": {"file": "p"}}
            here.append(
                {**template, "name": name, "serial": name, "unit": 1 + 8 * k, "address": f"10.0.4.{number}", "bmc": bmc}
            )
            first = [next(ports) for _ in range(4)]
            span = f"swp{first[0]}-swp{first[-1]}"
            raw["links"] += [
                {"node": name, "rails": rails, "switch": switch, "ports": span}
                for rails, switch in (("1-4", "leaf01"), ("5-8", "leaf02"))
            ]
        raw["racks"].append({"name": f"rack{rack + 1:02}", "nodes": here})
    path.write_text(yaml.safe_dump(raw), encoding="utf-8")
    return names


def test_the_time_limit_counts_the_rounds_of_many_racks(context: PhaseContext, monkeypatch: pytest.MonkeyPatch) -> None:
    names = site_of_racks(context, 10, 1)
    limits: list[float] = []
    monkeypatch.setattr(provision, "racks_at_once", lambda _database, _racks: 4)

    def run(_argv: list[str], *, timeout_s: float, **_rest: object) -> ChildResult:
        limits.append(timeout_s)
        return ChildResult(1, timed_out=True, seconds=1.0)

    monkeypatch.setattr(provision, "run_child", run)
    found = provision.run_provision(context, names)
    assert limits == [3 * 1500.0], "ten racks, four at once: three rounds"
    assert (
        "none (stopped after 4500 s: 3 rounds of 1500 s (campaign.provision_timeout_s + 600)). Look at "
        in found["n010"].message
    )


@pytest.mark.parametrize(
    ("sizes", "count"),
    [
        ([1], 1),
        ([1, 1, 1, 1], 1),
        ([1] * 5, 2),
        ([4], 2),
        ([32], 2),
        ([33], 3),
        ([64] * 4, 3),
        ([64] * 5, 6),
        ([64, 1, 1, 1, 1], 3),
    ],
)
def test_rounds(sizes: list[int], count: int) -> None:
    assert worker.rounds({f"r{at}": [f"n{at}-{k}" for k in range(size)] for at, size in enumerate(sizes)}, 4) == count


@pytest.mark.parametrize(("free_mib", "racks"), [(0, 4), (1_600, 4), (8_000, 20), (24_000, 60), (512_000, 64)])
def test_racks_side_by_side_take_half_of_the_free_memory(
    free_mib: int, racks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = EnvPaths(tmp_path, "t").database
    text = f"MemTotal:       99999999 kB\nMemAvailable:   {free_mib * 1024} kB\n"
    monkeypatch.setattr(Path, "read_text", lambda _path, encoding: text if encoding == "ascii" else "")
    monkeypatch.setattr(worker.os, "cpu_count", lambda: 2)
    assert worker.racks_at_once(database, {"r": ["n"]}) == racks
    database.settings.parent.mkdir(parents=True)
    database.settings.touch()
    assert worker.racks_at_once(database, {"r": ["n"]}) == 4, "connections of a PostgreSQL server are few"


@pytest.mark.parametrize(
    ("nodes", "cores", "racks"),
    [(1, 2, 64), (4, 2, 16), (16, 2, 4), (18, 2, 4), (72, 2, 4), (16, 16, 32), (16, 64, 64)],
)
def test_nodes_in_work_go_by_cores(
    nodes: int, cores: int, racks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "read_text", lambda _path, encoding: "MemAvailable:   99999999 kB\n" if encoding else "")
    monkeypatch.setattr(worker.os, "cpu_count", lambda: cores)
    asked = {"small": ["n0"], "large": [f"n{k}" for k in range(nodes)]}
    assert worker.racks_at_once(EnvPaths(tmp_path, "t").database, asked) == racks


def test_few_engines_start_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn ends with the first step on a node, and at the latest with the run; a bounded semaphore refuses twice."""
    turns = threading.BoundedSemaphore(2)
    monkeypatch.setattr(worker, "_STARTS", turns)
    with worker._turn() as begun, worker._turn():
        assert turns.acquire(blocking=False) is False
        begun()
        assert turns.acquire(blocking=False) is True
        turns.release()
        begun()
    assert [turns.acquire(blocking=False) for _ in range(3)] == [True, True, False]


def test_a_full_disk_is_named(context: PhaseContext, monkeypatch: pytest.MonkeyPatch) -> None:
    child(monkeypatch, lambda _request: None)
    monkeypatch.setattr(provision.shutil, "disk_usage", lambda _path: Usage(1, 1, 0))
    assert "none (no space left on the disk of " in provision.run_provision(context, ["node01"])["node01"].message


def test_a_disk_that_is_full_from_the_start_is_one_clear_error(
    context: PhaseContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_request: dict[str, Any]) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    child(monkeypatch, full)
    with pytest.raises(
        RackreadyError,
        match=r"provisioning cannot write its files - Expected: a writable folder Actual: No space left on device\. "
        r"Free disk space",
    ):
        provision.run_provision(context, ["node01"])


def test_a_stop_asks_every_engine_though_one_has_ended_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def kill(pid: int, _number: int) -> None:
        if pid == 11:
            raise ProcessLookupError
        asked.append(pid)

    monkeypatch.setattr(worker, "session_members", lambda _session: [10, 11, 12, 13])
    monkeypatch.setattr(worker, "name_of", lambda pid: "" if pid == 10 else "pulumi")  # 10 is gone
    monkeypatch.setattr(worker.os, "kill", kill)
    worker._stop(2, None)
    assert asked == [12, 13]
