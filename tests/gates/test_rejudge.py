"""Stored outputs judged again: the same verdicts, today's if the gate changed, never a pass without a judgement."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rackready.evidence.report import build, write
from rackready.gates.gpu.inventory import Inventory
from rackready.gates.records.rejudge import Rejudge
from rackready.model.outcome import Finding, Outcome, Verdict
from tests.gates.fake import answered
from tests.gates.phase_rack import PAIR, Played, Rack, play
from tests.gates.support import text

INVENTORY = "node/gpu/sanity/inventory"
NCCL = "node/gpu/performance/nccl-all-reduce"


def again(played: Played, campaign: str = "c1") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        write(played.site, played.paths, campaign, Rejudge()).json.read_text(encoding="utf-8")
    )
    return found


def verdicts(report: dict[str, Any]) -> dict[tuple[str, str], str]:
    return {(node["name"], gate["gate"]): gate["outcome"] for node in report["nodes"] for gate in node["gates"]}


def gate_of(report: dict[str, Any], node: str, gate: str) -> dict[str, Any]:
    (found,) = [item for one in report["nodes"] if one["name"] == node for item in one["gates"] if item["gate"] == gate]
    return dict(found)


@pytest.fixture
def played(tmp_path: Path) -> Played:
    """A rack of which one node lacks an NVLink."""
    link = {"node03": {"inventory": answered(text("nvml/dgx_h100_gpu2_link4_inactive.json"))}}
    return play(tmp_path, Rack(link, ring=("node01", "node02", "node04")))


def test_the_same_outputs_are_judged_the_same_coverage_included(played: Played) -> None:
    then, now = build(played.site, played.paths, "c1"), again(played)
    assert now.pop("judged_again") is True
    assert verdicts(now) == verdicts(then)
    assert {**now, "generated": then["generated"]} == then


def test_it_lies_beside_the_report_of_the_records_and_says_what_it_is(played: Played) -> None:
    written = write(played.site, played.paths, "c1", Rejudge())
    assert [path.name for path in (written.html, written.json, written.junit)] == [
        "c1.again.html",
        "c1.again.json",
        "c1.again.junit.xml",
    ]
    assert "The stored outputs were judged again when this was written" in written.html.read_text(encoding="utf-8")


def test_a_gate_that_judges_otherwise_today_is_heard_and_records_stay(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    finding = Finding(where="node", what="too old", expected="new", actual="old", next_step="Renew it.")
    monkeypatch.setattr(Inventory, "evaluate", lambda *_: Verdict(outcome=Outcome.FAIL, findings=[finding]))
    before = len(played.store.records())
    now = again(played)
    assert gate_of(now, "node01", INVENTORY)["outcome"] == "fail"
    node = now["nodes"][0]
    assert (node["outcome"], node["coverage"]["outcome"], node["coverage"]["counts"]["nvlink"]) == (
        "fail",
        "error",
        [0, 144],
    )
    assert gate_of(now, "node01", PAIR)["outcome"] == "pass", "what has no output of its own keeps its verdict"
    assert len(played.store.records()) == before
    assert gate_of(build(played.site, played.paths, "c1"), "node01", INVENTORY)["outcome"] == "pass"


def test_an_output_that_is_gone_is_an_error(played: Played) -> None:
    digest = gate_of(build(played.site, played.paths, "c1"), "node01", INVENTORY)["raw"][0]["stdout_sha256"]
    (played.paths.raw / digest[:2] / f"{digest}.z").write_bytes(b"damaged")
    found = gate_of(again(played), "node01", INVENTORY)
    assert found["outcome"] == "error"
    assert found["findings"][0]["text"] == (
        f"node01: {INVENTORY} cannot be judged again - Expected: stored outputs that its gate accepts "
        f"Actual: raw output {digest} cannot be read: Error -3 while decompressing data: incorrect header check "
        "(expected: a stored output). "
        "Run the gate again. Passes based on this output "
        "no longer count. Measure the node again: `rackready validate --again --limit node01`."
    )


@pytest.mark.parametrize(
    ("change", "said_of"),
    [
        ({"key": ""}, "outputs: none, from an older version (expected: each with its command's key)"),
        ({"run": "node01/gone"}, "run node01/gone (expected: one of node01)"),
        ({"size": 7}, f"inputs.launches: gate {NCCL}: -1 (expected: at least 1). Correct it; "),
    ],
    ids=["no keys", "another run", "inputs that the gate refuses"],
)
def test_what_cannot_be_given_to_its_gate_is_an_error(played: Played, change: dict[str, object], said_of: str) -> None:
    record = played.store.concluded("node01")[NCCL]
    raw = [item.model_copy(update={"key": change.get("key", item.key)}) for item in record.raw]
    inputs = {
        **record.inputs,
        **({"run": change["run"]} if "run" in change else {}),
        **({"launches": -1} if "size" in change else {}),
    }
    played.store.append(record.model_copy(update={"id": f"{record.id}-later", "raw": raw, "inputs": inputs}))
    found = gate_of(again(played), "node01", NCCL)
    assert found["outcome"] == "error"
    assert (
        f"{NCCL} cannot be judged again - Expected: stored outputs that its gate accepts Actual: {said_of}"
        in found["findings"][0]["text"]
    )
