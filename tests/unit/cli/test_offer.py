"""A quarantined node that somebody put on offer: every command that may write drains it; `status` reports it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.drivers.scheduler.base import SchedulerError
from rackready.drivers.scheduler.file import FileAdapter
from rackready.gates.engine import validate as gates_phase
from rackready.ledger.store import Ledger
from rackready.model.state import NodeState
from rackready.paths import EnvPaths

Call = Callable[..., tuple[int, str, str]]
FINDING = "node03 gpu2: NVLink down"
HELD = f"# node03: rackready: quarantined: {FINDING}"
DRAINED = (
    "node03 is quarantined, and the scheduler offered it to jobs (ready): drained. "
    "If it was repaired: `rackready repair node03 --reason '...'`\n"
)
ALARM = (
    "node03: quarantined, and the scheduler offers it to jobs - Expected: drained Actual: ready. "
    "`rackready deploy` drains it before anything else. "
    "If it was repaired: `rackready repair node03 --reason '...'`."
)


@pytest.fixture
def listed(tmp_path: Path, call: Call) -> Path:
    """A site that hands over to a file; node03 is quarantined, and somebody wrote it back onto the list."""
    del call
    path = tmp_path / "inventories/sim/site.yml"
    site = yaml.safe_load(path.read_text(encoding="utf-8"))
    site["handover"] = {"kind": "file", "path": str(tmp_path / "ready.txt")}
    path.write_text(yaml.safe_dump(site), encoding="utf-8")
    ledger = Ledger.open(EnvPaths(tmp_path, "sim").database)
    ledger.set_state("node03", NodeState.QUARANTINED, FINDING)
    ledger.set_state("node04", NodeState.REACHABLE, "repaired")
    ledger.close()
    ready = tmp_path / "ready.txt"
    ready.write_text("node02\nnode03\n", encoding="utf-8")
    return ready


def lines(listed: Path) -> list[str]:
    return listed.read_text(encoding="utf-8").splitlines()[1:]


@pytest.mark.parametrize("kind", ["deploy", "provision", "install", "fabric", "validate", "optimize", "handover"])
def test_commands_of_phases_drain_it(call: Call, listed: Path, kind: str) -> None:
    code, out, err = call(kind, "--limit", "node03", "--output", "json")
    assert (code, lines(listed)) == (1, ["node02", HELD])
    assert DRAINED in err
    assert json.loads(out)["drained"] == ["node03"]


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        (("repair", "node04", "--reason", "x"), 0),
        (("retire", "node04", "--reason", "x", "--yes"), None),
        (("gate", "run", "node/gpu/sanity/inventory", "--node", "node04"), None),
    ],
)
def test_other_commands_that_may_write_drain_it(
    call: Call, listed: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], refused: int | None
) -> None:
    monkeypatch.setattr(gates_phase, "run_gates", lambda *_, **__: {})
    code, _, err = call(*words)
    assert refused is None or code == refused, err
    assert DRAINED in err
    assert HELD in lines(listed)


@pytest.mark.parametrize(
    "words",
    [
        ("deploy", "--check", "--limit", "node03"),
        ("status",),
        ("plan",),
        ("retire", "node04", "--reason", "x"),
        ("gate", "list"),
        ("doctor",),
    ],
)
def test_commands_that_only_look_leave_it(call: Call, listed: Path, words: tuple[str, ...]) -> None:
    before = listed.read_bytes()
    call(*words)
    assert listed.read_bytes() == before


def test_status_shows_it_as_an_alarm(call: Call, listed: Path) -> None:
    code, out, _ = call("status")
    assert (code, out.splitlines()[-1]) == (0, f"ALARM {ALARM}")
    document = json.loads(call("status", "--output", "json")[1])
    assert (document["alarms"], document["not_asked"]) == ([ALARM], [])
    assert {node["name"]: node["offered"] for node in document["nodes"]} == {
        "node01": None,
        "node02": None,
        "node03": True,
        "node04": None,
    }
    listed.write_text("node02\n", encoding="utf-8")
    document = json.loads(call("status", "--output", "json")[1])
    assert (document["alarms"], document["nodes"][2]["offered"]) == ([], False)


def test_status_works_without_the_scheduler(call: Call, listed: Path) -> None:
    listed.unlink()
    listed.mkdir()
    code, out, _ = call("status")
    words = f"node03: unknown whether it is on offer in the scheduler: {listed}: the list of ready nodes - Expected:"
    assert (code, out.splitlines()[-1].startswith(words)) == (0, True), out
    document = json.loads(call("status", "--output", "json")[1])
    assert (document["alarms"], len(document["not_asked"]), document["nodes"][2]["offered"]) == ([], 1, None)
    document = json.loads(call("status", "--no-scheduler", "--output", "json")[1])
    assert (document["alarms"], document["not_asked"], document["nodes"][2]["offered"]) == ([], [], None)


def test_repair_holds_a_node_that_is_on_offer_whatever_its_state(call: Call, listed: Path) -> None:
    code, _, err = call("repair", "node03", "--reason", "baseboard replaced")
    assert (code, lines(listed)) == (0, ["node02", "# node03: rackready: repaired: baseboard replaced"])
    assert (
        err == "node03 is quarantined, and the scheduler offered it to jobs (ready): it is drained until it is handed "
        "over again\n"
    )


def test_repair_of_a_node_on_offer_that_cannot_be_held_records_nothing(
    call: Call, listed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> bool:
        raise SchedulerError("ready.txt - Expected: writable Actual: read-only file system.")

    monkeypatch.setattr(FileAdapter, "drain", refused)
    code, _, err = call("repair", "node03", "--reason", "x")
    text = (
        "ready.txt - Expected: writable Actual: read-only file system. "
        "node03 is quarantined and offered to jobs: nothing was recorded."
    )
    assert (code, err.splitlines()[-1]) == (2, f"{text} Run again when the scheduler can drain it.")
    row = Ledger.read_only(EnvPaths(tmp_path, "sim").database).state("node03")
    assert row is not None
    assert row.state is NodeState.QUARANTINED
    assert lines(listed) == ["node03"]


def test_repair_goes_on_without_a_scheduler_where_the_node_is_not_ready(call: Call, listed: Path) -> None:
    listed.unlink()
    listed.mkdir()
    code, out, err = call("repair", "node03", "--reason", "x")
    assert (code, out) == (0, "node03: reachable, epoch 2. `make deploy ENV=sim` continues with it.\n")
    assert err.startswith("node03: unknown whether it is on offer in the scheduler: ")
