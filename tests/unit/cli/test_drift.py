"""`rackready drift`: tables for people, a typed document for programs, and its exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from rackready.campaign.drift import run as drift
from rackready.campaign.drift.run import DriftRun
from rackready.model.drift import DriftItem, DriftKind, DriftReport, WhenSeen

Call = Callable[..., tuple[int, str, str]]
FIRST = WhenSeen(run="drift-1", at="2026-11-25T10:00:00Z")
ITEM = DriftItem(
    kind=DriftKind.PACKAGE,
    name="libnccl2",
    expected="2 held",
    actual="1",
    source="role cuda_toolkit",
    phase="install",
    next_step="`rackready deploy --env sim --limit node01` puts it right.",
    since=WhenSeen(run="sim-7", at="2026-11-24T10:00:00Z"),
    first_seen=FIRST,
)
BIOS = ITEM.model_copy(
    update={"kind": DriftKind.FIRMWARE, "name": "BIOS", "phase": "", "next_step": "Flash it.", "since": None}
)


def report(name: str, *items: DriftItem, **more: Any) -> DriftReport:
    values = {"target": "node", "asked": True, "compared": ["install"], "items": list(items)} | more
    return DriftReport(name=name, **values)


def answer(monkeypatch: pytest.MonkeyPatch, *reports: DriftReport, left_out: tuple[str, ...] = ()) -> None:
    found = DriftRun("drift-2", 1_795_000_000.0, 1.5, reports, left_out)
    monkeypatch.setattr(drift, "drift_run", lambda *_, **_options: found)


def test_no_drift_is_0(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, report("node01"), left_out=("node02",))
    code, out, _ = call("drift")
    assert code == 0
    assert out == (
        "node02 is retired and was not asked\n"
        "no drift: everything that was applied matches the site file\n"
        "drift run drift-2, 1.5 s; nothing was changed\n"
    )


def test_drift_is_a_table_for_each_node_with_its_next_steps(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, report("node01", ITEM, BIOS, notes=["booted since"]), report("node02"))
    code, out, _ = call("drift")
    assert code == 1
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in out.splitlines() if line.startswith("│")]
    assert rows == [
        ["firmware", "BIOS", "2 held", "1", "unknown", "drift-1"],
        ["package", "libnccl2", "2 held", "1", "sim-7", "drift-1"],
    ]
    assert out.splitlines()[-5:] == [
        "node01: `rackready deploy --env sim --limit node01` puts it right.",
        "node01: BIOS: Flash it.",
        "node01: booted since",
        "drift: 2 items on node01",
        "drift run drift-2, 1.5 s; nothing was changed",
    ]


def test_a_node_that_could_not_be_asked_is_2_with_the_drift_of_the_others(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(monkeypatch, report("node01", ITEM), report("node02", asked=False, not_asked=["node02: no answer"]))
    code, out, _ = call("drift")
    assert code == 2
    assert out.splitlines()[-4:] == [
        "node02 not asked: node02: no answer",
        "drift: 1 item on node01",
        "not compared, or only in part: node02",
        "drift run drift-2, 1.5 s; nothing was changed",
    ]


def test_json_has_every_field_typed(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, report("node01", ITEM), report("leaf01", target="switch", compared=["fabric"]))
    code, out, _ = call("drift", "--output", "json")
    document = json.loads(out)
    assert document.pop("log").endswith("/.rackready/sim/logs/drift-2/rackready.log")
    assert code == 1
    assert {key: value for key, value in document.items() if key not in {"nodes", "switches"}} == {
        "env": "sim",
        "site": "sim",
        "run": "drift-2",
        "at": "2026-11-18T11:06:40Z",
        "seconds": 1.5,
        "drift": True,
        "asked": True,
        "left_out": [],
    }
    assert document["nodes"][0]["items"] == [
        {
            "kind": "package",
            "name": "libnccl2",
            "expected": "2 held",
            "actual": "1",
            "source": "role cuda_toolkit",
            "phase": "install",
            "task": "",
            "next_step": "`rackready deploy --env sim --limit node01` puts it right.",
            "since": {"run": "sim-7", "at": "2026-11-24T10:00:00Z"},
            "first_seen": {"run": "drift-1", "at": "2026-11-25T10:00:00Z"},
            "last_without": None,
        }
    ]
    assert [switch["name"] for switch in document["switches"]] == ["leaf01"]


def test_an_unknown_node_is_refused(call: Call) -> None:
    code, _, said = call("drift", "--limit", "node99")
    assert (code, "--limit node99 - Expected: some of node[01-04] Actual: node99." in said) == (2, True)


def test_before_any_deploy_it_is_refused(call: Call) -> None:
    code, _, said = call("drift")
    assert code == 2
    assert "drift --env sim - Expected: nodes that rackready deployed Actual: no record of any." in said
