"""One damaged record of node01: every command goes on, says what it is about, and leaves proof."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from rackready.design.facts import desired_digest
from rackready.design.site import load_site
from rackready.evidence.store import EvidenceStore
from rackready.ledger.store import Ledger
from rackready.model.state import NodeState
from rackready.paths import EnvPaths
from tests.unit.evidence.test_damage import on, spoil
from tests.unit.evidence.test_store import GATE, fingerprint, record

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def paths(tmp_path: Path, call: Call) -> EnvPaths:
    """Two nodes with evidence, that of node01 damaged; node03 in quarantine; no scheduler."""
    del call
    path = tmp_path / "inventories/sim/site.yml"
    site = yaml.safe_load(path.read_text(encoding="utf-8"))
    site["handover"] = {"kind": "file", "path": str(tmp_path / "ready.txt")}
    path.write_text(yaml.safe_dump(site), encoding="utf-8")
    found = EnvPaths(tmp_path, "sim")
    ledger = Ledger.open(found.database)
    for node in ("node01", "node02"):
        ledger.set_state(node, NodeState.READY)
    ledger.set_state("node03", NodeState.QUARANTINED, "node03 gpu2: NVLink down")
    ledger.put_campaign(
        "c1", env="sim", kind="deploy", nodes=["node01", "node02"], site_digest="d", abi="1", status="finished"
    )
    desired = desired_digest(load_site("sim", root=tmp_path), "node02")
    good = record("node02", prints=[fingerprint("node02", desired=desired)])
    bad, _ = EvidenceStore.open(ledger, found.raw).append(on("node01"), good)
    spoil(ledger, bad, record="{")
    ledger.close()
    return found


def outcomes(text: str) -> dict[str, str]:
    return {
        node["name"]: gate["outcome"]
        for node in json.loads(text)["nodes"]
        for gate in node["gates"]
        if gate["gate"] == GATE
    }


@pytest.mark.usefixtures("paths")
@pytest.mark.parametrize("words", [(), ("--again",)])
def test_report_shows_an_error_of_one_node(call: Call, words: tuple[str, ...]) -> None:
    code, out, _ = call("report", *words, "--output", "json")
    assert (code, outcomes(out)["node01"]) == (1, "error")
    assert set(outcomes(out)) == {"node01", "node02"}
    gates = [gate for node in json.loads(out)["nodes"] for gate in node["gates"]]
    texts = [finding["text"] for gate in gates for finding in gate["findings"]]
    assert any(text.startswith(f"node01: evidence of {GATE} is damaged (record ") for text in texts)


@pytest.mark.usefixtures("paths")
@pytest.mark.parametrize("kind", ["deploy", "provision", "install", "fabric", "validate", "optimize", "handover"])
def test_commands_of_phases_end_with_a_report(call: Call, kind: str) -> None:
    """No chosen node can be handled; the report at the end covers all of them, and its exit code is 2."""
    code, out, err = call(kind, "--limit", "node03", "--output", "json")
    assert (code, json.loads(out)["nodes"][0]["state"]) == (1, "quarantined"), err
    assert outcomes(Path(json.loads(out)["report_json"]).read_text(encoding="utf-8"))["node02"] == "pass"


@pytest.mark.usefixtures("paths")
@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("gate", "list"),
        ("gate", "show", GATE),
        ("gate", "explain", GATE),
        ("repair", "node01", "--reason", "x"),
        ("repair", "node02", "--reason", "x"),
        ("retire", "node01", "--reason", "x"),
        ("evidence", "set-aside"),
    ],
)
def test_other_commands_go_on(call: Call, words: tuple[str, ...]) -> None:
    code, _, err = call(*words)
    assert code == 0, err


def test_what_was_set_aside_is_listed_with_its_proof(call: Call, paths: EnvPaths) -> None:
    assert call("evidence", "set-aside")[1] == "nothing was set aside\n"
    ledger = Ledger.open(paths.database)
    store = EvidenceStore.open(ledger, paths.raw)
    store.records()
    store.put_aside("c2")
    ledger.close()
    code, out, _ = call("evidence", "set-aside", "--output", "json")
    (row,) = json.loads(out)["set_aside"]
    assert (code, row["target"], row["gate"], row["campaign"]) == (0, "node01", GATE, "c2")
    lines = call("evidence", "set-aside")[1].splitlines()
    assert lines == [f"{row['at']} {row['why']}", f"  found: SHA-256 {row['sha256']}, `--proof {row['id']}`"]
    code, _, err = call("evidence", "set-aside", "--proof", "x")
    assert (code, err) == (
        2,
        "--proof x - Expected: an id of `rackready evidence set-aside` Actual: no such id. Correct it.\n",
    )


def test_without_a_ledger_there_is_nothing_to_list(call: Call) -> None:
    code, _, err = call("evidence", "set-aside")
    assert (code, err) == (
        2,
        "evidence set-aside --env sim - Expected: a ledger Actual: none. Nothing was deployed yet.\n",
    )
