"""The main job on a simulated rack: a bad node, its repair, and a second run without changes. Tests run in order."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.project import Project

pytestmark = pytest.mark.integration

SHORT = {"id": "cluster/fabric/stress/incast", "inputs": {"seconds": 5}}
"""Each node receives on each rail, one after the other: 32 runs, and most of the time of a deploy."""
FEWER = {
    "set": "quick",
    "also": [{"id": "pair/fabric/performance/ib-write-bw"}, {"id": "cluster/fabric/performance/nccl-all-reduce-ring"}],
}
"""Gates of the second deploy. The first ran the site's full set; to run all gates between nodes again takes minutes."""


def test_one_bad_node_is_quarantined_and_three_become_ready(project: Project) -> None:
    project.change_site({"gates": {"also": [SHORT]}})
    code, _ = project.run("sim", "inject", "node03", "nvlink-down", "--gpu", "2")
    assert code == 0
    before = len(project.progress().splitlines())
    code, document = project.json("deploy")
    assert code == 1, project.progress()[-4000:]
    assert len(project.progress().splitlines()) - before < 120, "a first deploy prints what a person can read"
    rows = {row["name"]: row for row in document["nodes"]}
    assert {name: row["state"] for name, row in rows.items()} == {
        "node01": "ready",
        "node02": "ready",
        "node03": "quarantined",
        "node04": "ready",
    }, project.progress()[-4000:]
    reason = rows["node03"]["reason"]
    assert reason.startswith("node03 gpu2: NVLink down - Expected: 18 links active Actual: 17")
    assert "docs/runbooks" in reason, "the next step is named"


def test_slurm_offers_three_nodes(project: Project) -> None:
    states = project.sinfo()
    assert {name for name, state in states.items() if state == "idle"} == {"node01", "node02", "node04"}
    assert states["node03"].startswith(("drain", "down"))
    reasons = project.ssh("slurmctl", "sinfo -R -h -N -o '%N %E'")
    assert any(line.startswith("node03 rackready: ") for line in reasons.splitlines())


def test_reports_tell_the_same(project: Project) -> None:
    html, document = (
        max(project.paths.reports.rglob("*.html")),
        json.loads(max(project.paths.reports.rglob("*.json")).read_text(encoding="utf-8")),
    )
    text = html.read_text(encoding="utf-8")
    assert "NVLink down" in text
    assert "node03" in json.dumps(document)
    assert 'src="http' not in text
    assert 'href="http' not in text, "one self-contained file"


def test_a_repeat_does_not_hide_the_fault(project: Project) -> None:
    before = project.events()
    code, document = project.json("deploy", "--limit", "node03")
    assert code == 1
    assert [(row["name"], row["state"]) for row in document["nodes"]] == [("node03", "quarantined")]
    assert document["changed"] == []
    assert project.events() == before, "nothing was begun on it"


def test_quarantined_node_that_was_resumed_by_hand_is_an_alarm_and_is_drained_again(project: Project) -> None:
    project.ssh(
        "slurmctl", "scontrol update nodename=node03 state=resume; true"
    )  # it never joined: Slurm takes the drain away, and says that its state is invalid
    assert not project.sinfo()["node03"].startswith("drain")
    _, shown = project.json("status")
    (alarm,) = shown["alarms"]
    assert alarm.startswith("node03: quarantined, and the scheduler offers it to jobs - Expected: drained Actual: "), (
        alarm
    )
    assert {node["name"]: node["offered"] for node in shown["nodes"]} == {
        "node01": None,
        "node02": None,
        "node03": True,
        "node04": None,
    }
    assert not project.sinfo()["node03"].startswith("drain"), "status touches nothing"
    code, document = project.json("deploy", "--limit", "node03")
    assert (code, document["drained"], document["changed"]) == (1, ["node03"], [])
    assert project.sinfo()["node03"].startswith("drain")
    assert "node03 rackready: quarantined: node03 gpu2: NVLink down" in project.ssh(
        "slurmctl", "sinfo -R -h -N -o '%N %E'"
    )
    assert project.json("status")[1]["alarms"] == []


def test_repaired_node_comes_back(project: Project) -> None:
    project.change_site({"gates": FEWER})
    assert project.run("sim", "clear", "node03")[0] == 0
    assert project.run("repair", "node03", "--reason", "GPU baseboard replaced")[0] == 0
    code, document = project.json("deploy")
    assert code == 0, project.progress()[-4000:]
    assert {row["state"] for row in document["nodes"]} == {"ready"}
    assert set(project.sinfo().values()) == {"idle"}


def test_second_run_changes_nothing_and_says_so(project: Project) -> None:
    before = len(project.power_log())
    code, text = project.run("deploy")
    assert code == 0, project.progress()[-4000:]
    assert "nothing was changed: the site matches its file" in text
    assert "4 of 4 nodes ready" in text
    assert len(project.power_log()) == before


def test_no_secret_is_written_down(project: Project) -> None:
    secrets = [path.read_text(encoding="utf-8").strip() for path in (project.paths.base / "sim" / "secrets").iterdir()]
    assert len(secrets) >= 6
    kept = {project.paths.base / "sim" / "secrets", project.paths.base / "sim" / "rack.json"}
    guilty = []
    for path in [*project.paths.state.rglob("*"), project.root / "progress.log"]:
        if path.is_file() and not any(path.is_relative_to(place) for place in kept):
            data = path.read_bytes()
            guilty += [str(path) for secret in secrets if len(secret) > 5 and secret.encode() in data]
    assert guilty == []


def test_state_is_private(project: Project) -> None:
    loose = [
        str(path)
        for path in [project.paths.base, *Path(project.paths.state).rglob("*")]
        if not path.is_symlink() and path.is_dir() and path.stat().st_mode & 0o077
    ]
    assert not project.paths.base.stat().st_mode & 0o077, loose
