"""A node of the simulated rack goes to its vendor and comes back with another GPU: archives and Redfish are real."""

from __future__ import annotations

import hashlib
import json
import stat
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from rackready import files
from tests.integration.project import Project

pytestmark = [pytest.mark.integration, pytest.mark.slow]

LIMIT = ("--limit", "node01,node02")
PAIR = "pair/fabric/performance/ib-write-bw"


@pytest.fixture(scope="module")
def rack(project: Project) -> Project:
    """node01 and node02 in production; then a GPU of node02 loses an NVLink, and a look at it puts it in quarantine."""
    project.skip_incast("node01", "node02")
    code, document = project.json("deploy", *LIMIT)
    assert code == 0, project.progress()[-4000:]
    assert {row["name"]: row["state"] for row in document["nodes"]} == {"node01": "ready", "node02": "ready"}
    assert project.run("sim", "inject", "node02", "nvlink-down", "--gpu", "2")[0] == 0
    code, _ = project.json("validate", "--limit", "node02")
    assert (code, project.states()["node02"]) == (1, "quarantined")
    return project


def hardware(rack: Project) -> Path:
    return rack.paths.base / "sim" / "hw" / "node02" / "state.json"


def state(rack: Project) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(hardware(rack).read_text(encoding="utf-8"))
    return found


def test_a_node_goes_to_its_vendor(rack: Project) -> None:
    code, shown = rack.run("rma", "node02", "--check", "--output", "json")
    assert code == 0, shown
    rows = {row["name"]: row for row in json.loads(shown)["gather"]}
    assert rows["field-diagnostic"]["left_out"] == "not in the site file"
    assert rack.states()["node02"] == "quarantined", "a check changes nothing"

    child = rack.start("rma", "node02", "--reason", "NVLink down")
    while child.poll() is None and not list((rack.paths.state / "rma").glob("*/bmc-parts.json")):
        time.sleep(0.05)
    child.kill()
    child.wait()
    before = {path.name: path.stat().st_mtime_ns for path in (rack.paths.state / "rma").glob("*/bmc-parts.json")}

    code, text = rack.run("rma", "node02", "--reason", "NVLink down", "--output", "json")
    assert code == 0, text + rack.progress()[-3000:]
    document = json.loads(text)
    assert {
        path.name: path.stat().st_mtime_ns for path in (rack.paths.state / "rma").glob("*/bmc-parts.json")
    } == before, "what the killed run gathered is not gathered again"
    summary, archive = document["summary"], Path(document["archive"])
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    with tarfile.open(archive) as tar:
        found = {item.name.split("/", 1)[1]: tar.extractfile(item).read() for item in tar}  # type: ignore[union-attr]
    for line in found["MANIFEST.sha256"].decode().splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256(found[name]).hexdigest() == digest
    assert {"node-parts/gpus.json", "kernel-log/kernel.log", "bmc-log/log.json", "evidence/records.jsonl"} <= set(found)
    gpu = state(rack)["gpus"][2]
    (accused,) = [item for item in summary["accused"] if item["place"] == "gpu2"]
    assert (accused["serial"], accused["slot"]) == (gpu["serial"], gpu["bmc_name"])
    assert accused["by_rule"] == ["gpu"]
    assert (summary["versions"]["driver"], len([part for part in summary["parts"] if part["kind"] == "gpu"])) == (
        json.loads(found["node-parts/identity.json"])["driver"],
        8,
    )
    missing = {item["name"]: item["reason"] for item in summary["gathered"] if not item["gathered"]}
    assert set(missing) == {"ticket", "nvidia-bug-report", "nvdebug", "field-diagnostic"}, missing
    password = (rack.paths.base / "sim" / "secrets" / "node02-bmc").read_text(encoding="utf-8").strip()
    assert not any(password.encode() in data for data in found.values())
    assert rack.states()["node02"] == "repair"
    assert rack.run("deploy", "--limit", "node02")[0] == 0
    assert rack.states()["node02"] == "repair", "a deploy leaves it alone"
    code, text = rack.run("repair", "node02", "--reason", "x")
    assert code == 2
    assert "Run `rackready rma node02 --returned --reason ...` once it is back." in rack.progress()
    assert not rack.ssh("node02", "ls -d /var/tmp/rackready-rma 2>/dev/null; true").strip()


def test_it_comes_back_with_another_gpu_and_its_peer_stays_in_production(rack: Project) -> None:
    assert rack.run("sim", "clear", "node02")[0] == 0
    now = state(rack)
    old, now["gpus"][2]["serial"] = now["gpus"][2]["serial"], "1659999999999"
    files.replace(hardware(rack), json.dumps(now).encode(), mode=0o644)
    code, text = rack.run("rma", "node02", "--returned", "--reason", "GPU replaced", "--output", "json")
    assert code == 0, text + rack.progress()[-3000:]
    document = json.loads(text)
    assert document["comparison"]["replaced"] == [
        {"kind": "gpu", "place": "gpu2", "before": old, "after": "1659999999999"}
    ]
    (peer,) = document["peers"]
    assert (peer["name"], peer["in_production"], PAIR in peer["gates"]) == ("node01", True, True)
    assert (rack.states()["node01"], rack.states()["node02"]) == ("ready", "reachable")
    assert rack.sinfo()["node01"].lower().startswith(("idle", "mix", "alloc"))

    code, document = rack.json("deploy", *LIMIT)
    assert code == 0, rack.progress()[-4000:]
    assert {row["name"]: row["state"] for row in document["nodes"]} == {"node01": "ready", "node02": "ready"}
    measured = {(record.gate, record.target) for record in rack.evidence(document["campaign"])}
    assert (PAIR, "node02") in measured
