"""`rackready evidence import`: an import has a report like every campaign; a site with unknown gates is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.gates.stage import fingerprint_of
from tests.gates.support import text

Call = Callable[..., tuple[int, str, str]]
INVENTORY = "node/gpu/sanity/inventory"


@pytest.fixture
def captured(tmp_path: Path) -> Path:
    folder = tmp_path / "captured"
    folder.mkdir()
    one = {
        "node": "node01",
        "gate": INVENTORY,
        "key": "inventory",
        "exit_code": 0,
        "file": "out.txt",
        "time": "2026-11-22T09:00:00+00:00",
    }
    gpus = [{"index": index, "id": f"165000000000{index}", "vbios": "96.00"} for index in range(8)]
    files = {
        "out.txt": text("nvml/dgx_h100_healthy.json"),
        "print.json": fingerprint_of("node01", (), chassis_serial="SIM-DGXH100-0001", gpus=gpus).stdout,
        "manifest.json": json.dumps(
            {"schema": "rackready/captured/v1", "by": "field team", "outputs": [one | {"fingerprint": "print.json"}]}
        ),
    }
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")
    return folder


def test_an_import_has_a_report(call: Call, captured: Path, tmp_path: Path) -> None:
    code, said, wrong = call("evidence", "import", str(captured), "--output", "json")
    assert (code, wrong) == (0, "")
    campaign = json.loads(said)["campaign"]
    for arguments in ((), (campaign,)):
        code, said, _ = call("report", *arguments, "--output", "json")
        document = json.loads(said)
        assert (code, document["campaign"]["id"], document["campaign"]["kind"], document["campaign"]["status"]) == (
            1,
            campaign,
            "import",
            "finished",
        )
        node = document["nodes"][0]
        assert [(gate["gate"], gate["outcome"], gate["campaign"]) for gate in node["gates"]] == [
            (INVENTORY, "pass", campaign)
        ]
        assert node["outcome"] == "not_run", "one gate says nothing of the parts that it does not measure"
    for end in ("html", "json", "junit.xml"):
        assert "inventory" in (tmp_path / ".rackready/sim/reports" / f"{campaign}.{end}").read_text(encoding="utf-8")
    (log,) = (tmp_path / ".rackready/sim/logs").glob(f"{campaign}/rackready.log")
    assert f"gates.records.imported: {INVENTORY} on node01: pass" in log.read_text(encoding="utf-8")
    code, said, wrong = call("evidence", "import", str(captured))
    assert code == 2
    assert f", as {campaign}. Its records still count" in wrong


def test_a_user_without_a_name_is_asked_for_one(call: Call, captured: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may run as a number of which its /etc/passwd knows nothing."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.getuid", lambda: 54321)
    text = "--by - Expected: a name Actual: none, and the user of this machine has no name. Give --by NAME.\n"
    assert call("evidence", "import", str(captured)) == (2, "", text)
    assert call("evidence", "import", str(captured), "--by", "night shift")[0] == 0


def test_a_gate_of_the_site_that_does_not_exist_is_refused(call: Call, captured: Path, tmp_path: Path) -> None:
    path = tmp_path / "inventories/sim/site.yml"
    path.write_text(
        path.read_text(encoding="utf-8").replace("gates: {", "gates: {also: [{id: node/gpu/sanity/nothing}], ", 1),
        encoding="utf-8",
    )
    for arguments in (("import", str(captured)), ("export-kit", "--node", "node01", "--out", str(tmp_path / "kit"))):
        code, _, wrong = call("evidence", *arguments)
        assert code == 2
        assert (
            "gates.also[0].id: gate node/gpu/sanity/nothing does not exist - "
            "Expected: an id that `rackready gate list` shows." in wrong
        )
    assert not (tmp_path / ".rackready/sim/state.sqlite").exists()


def test_an_emptied_ledger_is_not_begun_anew(call: Call, captured: Path, tmp_path: Path) -> None:
    """A fail may have stood in it."""
    call("evidence", "import", str(captured))
    [file] = (tmp_path / ".rackready/sim").glob("*.sqlite")
    file.write_bytes(b"")
    for arguments in (("evidence", "import", str(captured)), ("report",), ("status",)):
        code, _, wrong = call(*arguments)
        assert code == 2, arguments
        assert (
            f"{file}: no ledger in it - Expected: the tables of one Actual: none. Restore it from a backup (docs/"
            in wrong
        )
    assert file.stat().st_size == 0
