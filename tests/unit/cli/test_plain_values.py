"""Values reach the terminal unchanged: rich takes `[/x]` for markup, drops `[error 52]` and draws `:a:` as a symbol."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rackready.ledger.lock import ControllerLock
from rackready.ledger.store import Ledger
from rackready.model.state import NodeState
from rackready.paths import EnvPaths

ROOT = Path(__file__).resolve().parents[3]
VALUE = r"gpu2 [/x] Xid 92 [error 52, severity isolate] at fe80:a:b [red]cable[/red] \[bold]"

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def rack(tmp_path: Path, call: Call) -> EnvPaths:
    """A site of which one node stands in quarantine for a reason that looks like markup."""
    _ = call
    paths = EnvPaths(tmp_path, "sim")
    ledger = Ledger.open(paths.database)
    for node in ("node01", "node02", "node03", "node04"):
        ledger.set_state(node, NodeState.QUARANTINED, f"{node} {VALUE}")
    ledger.close()
    return paths


@pytest.mark.parametrize("kind", ["deploy", "provision", "install", "fabric", "validate", "optimize", "handover"])
def test_the_end_of_a_campaign(rack: EnvPaths, call: Call, kind: str) -> None:
    _ = rack
    code, out, err = call(kind, "--env", "sim")
    assert (
        code,
        f"node03: node03 {VALUE}" in out,
        "node03 is in quarantine and left alone. When it is repaired: `rackready repair node03" in err,
    ) == (
        1,
        True,
        True,
    )


def test_status(rack: EnvPaths, call: Call) -> None:
    _ = rack
    code, out, _ = call("status", "--env", "sim")
    assert (code, f"node03: node03 {VALUE}" in out) == (0, True)


def test_status_of_a_campaign_that_runs_says_what_each_node_does(rack: EnvPaths, call: Call) -> None:
    ledger = Ledger.open(rack.database)
    ledger.put_campaign("c1", env="sim", kind="deploy", nodes=["node01"], site_digest="d", abi="1", status="running")
    ledger.event("c1", "node01", "validate", "node/gpu/sanity/ecc begins")
    ledger.event("c1", "node01", "validate", f"node/gpu/sanity/nvlink begins: {VALUE} (gate 17 of 41)")
    ledger.close()
    with ControllerLock(rack.lock, "rackready deploy", rack.database):
        _, out, _ = call("status", "--env", "sim")
    said = [line for line in out.splitlines() if " now (" in line]
    assert len(said) == 1
    assert re.fullmatch(
        r"node01 now \(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\): validate: node/gpu/sanity/nvlink begins: "
        + re.escape(f"{VALUE} (gate 17 of 41)"),
        said[0],
    )
    assert " now (" not in call("status", "--env", "sim")[1], "its controller is dead: nothing runs"


def test_repair(rack: EnvPaths, call: Call) -> None:
    assert call("repair", "node01", "--env", "sim", "--reason", VALUE)[0] == 0
    _, out, _ = call("status", "--env", "sim")
    assert f"node01: repaired: {VALUE}" in out
    assert f"node02: node02 {VALUE}" in out
    _ = rack


def test_retire_shows_its_steps(rack: EnvPaths, call: Call) -> None:
    code, out, _ = call("retire", "node01", "--env", "sim", "--reason", VALUE)
    assert (code, VALUE in out) == (0, True)
    _ = rack


def test_gate_evaluate(tmp_path: Path, call: Call) -> None:
    report = (ROOT / "tests/fixtures/made/smi/dgx_h100_healthy.xml").read_text(encoding="utf-8")
    strange = tmp_path / "smi.xml"
    strange.write_text(
        re.sub(r"<product_name>[^<]*</product_name>", f"<product_name>{VALUE}</product_name>", report, count=1),
        encoding="utf-8",
    )
    _, out, err = call("gate", "evaluate", "node/gpu/sanity/settings", "--profile", "dgx_h100", "--input", str(strange))
    assert VALUE in out + err


def test_doctor_names_files_as_they_are(tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    clone = tmp_path / "a [error 52] [b] clone"
    shutil.copytree(tmp_path / "inventories", clone / "inventories")
    (clone / "playbooks").mkdir()
    monkeypatch.setenv("RACKREADY_ROOT", str(clone))
    _, out, _ = call("doctor", "--env", "sim")
    assert "a [error 52] [b] clone" in out


def test_size_prints_a_model_under_the_name_that_its_file_gives(tmp_path: Path, call: Call) -> None:
    config = json.loads((ROOT / "tests/fixtures/made/llm/llama31_8b.json").read_text(encoding="utf-8")) | {
        "_name_or_path": VALUE
    }
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    code, out, _ = call("size", "model", "--config", str(tmp_path / "config.json"))
    assert (code, VALUE in out) == (0, True)


def test_only_one_module_speaks_to_the_terminal_through_rich() -> None:
    """Markup is off in one place, so nothing else builds a console; test_live_table.py checks the live table's."""
    users = [
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src").rglob("*.py")
        if re.search(r"^\s*(from|import) rich\b", path.read_text("utf-8"), re.MULTILINE)
    ]
    assert sorted(users) == ["rackready/cli/live_table.py", "rackready/cli/output.py"]
