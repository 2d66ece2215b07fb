"""The main job on a simulated rack: a bad node, its repair, and a second run without changes. Tests run in order."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.integration.drift import FAULTS as DRIFT
from tests.integration.drift import HAND, NAMED
from tests.integration.fault_matrix import Player, trials
from tests.integration.project import Project

pytestmark = pytest.mark.integration

FAULTS = ("gpu-missing", "nvlink-down", "dimm-missing", "psu-failed")
"""One of GPU, NVLink, memory and power each: what `make test` plays of the fault matrix."""


RING = "cluster/fabric/performance/nccl-all-reduce-ring"


def sinfo(project: Project) -> dict[str, str]:
    lines = project.ssh("slurmctl", "sinfo -N -h -o '%N %T'").split("\n")
    return dict(line.split() for line in lines if line)


def test_one_bad_node_is_quarantined_and_three_become_ready(project: Project) -> None:
    code, _ = project.run("sim", "inject", "node03", "nvlink-down", "--gpu", "2")
    assert code == 0
    code, document = project.json("deploy")
    assert code == 1, project.progress()[-4000:]
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
    states = sinfo(project)
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


def test_mere_repeat_does_not_launder_the_fault(project: Project) -> None:
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
    assert not sinfo(project)["node03"].startswith("drain")
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
    assert not sinfo(project)["node03"].startswith("drain"), "status touches nothing"
    code, document = project.json("deploy", "--limit", "node03")
    assert (code, document["drained"], document["changed"]) == (1, ["node03"], [])
    assert sinfo(project)["node03"].startswith("drain")
    assert "node03 rackready: quarantined: node03 gpu2: NVLink down" in project.ssh(
        "slurmctl", "sinfo -R -h -N -o '%N %E'"
    )
    assert project.json("status")[1]["alarms"] == []


def test_repaired_node_comes_back(project: Project) -> None:
    assert project.run("sim", "clear", "node03")[0] == 0
    assert project.run("repair", "node03", "--reason", "GPU baseboard replaced")[0] == 0
    code, document = project.json("deploy")
    assert code == 0, project.progress()[-4000:]
    assert {row["state"] for row in document["nodes"]} == {"ready"}
    assert set(sinfo(project).values()) == {"idle"}


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


def test_a_certificate_is_verified_against_the_node_as_it_is_now(project: Project) -> None:
    code, document = project.json("certificate", "verify", "--limit", "node04")
    assert code == 0, project.progress()[-4000:]
    assert document["nodes"][0]["outcome"] == "pass"
    assert project.run("sim", "inject", "node04", "dimm-other")[0] == 0
    code, document = project.json("certificate", "verify", "--limit", "node04")
    assert code == 1
    reason = document["nodes"][0]["reason"]
    assert reason.startswith(
        "node04: certificate - Expected: made for the parts that it has now Actual: memory module DIMM_P0_C1 was "
    ), reason
    assert sinfo(project)["node04"].startswith("drain"), "it is offered no more"
    assert project.run("sim", "clear", "node04")[0] == 0


def test_no_drift_hides_behind_evidence(project: Project) -> None:
    for node, faults in DRIFT.items():
        for fault in faults:
            code, text = project.run("sim", "inject", node, *fault)
            assert code == 0, text + project.progress()[-1000:]
    code, document = project.json("deploy", "--limit", "node02,node03")
    assert code == 1, project.progress()[-4000:]
    assert {row["name"]: row["state"] for row in document["nodes"]} == {
        "node02": "quarantined",
        "node03": "quarantined",
    }
    told: dict[str, str] = {}
    for event in project.events():
        if event.campaign == document["campaign"]:
            told[event.node] = f"{told.get(event.node, '')}\n{event.text}"
    for record in project.evidence(document["campaign"]):
        told[record.target] = "\n".join(
            [told.get(record.target, ""), *(str(finding) for finding in record.verdict.findings)]
        )
    unsaid = [words for node, those in NAMED.items() for words in those if words not in told[node]]
    assert unsaid == [], told
    assert all(state.startswith("drain") for name, state in sinfo(project).items() if name in NAMED)
    for node in DRIFT:
        assert project.run("sim", "clear", node)[0] == 0


def test_faults_are_caught_and_named_in_production_and_repaired_nodes_pass(project: Project) -> None:
    player = Player(project)
    player.play(trials(FAULTS))
    assert sorted((result.trial.fault.name, result.wrong) for result in player.table.results) == sorted(
        (name, "") for name in FAULTS
    )
    assert player.table.alarms == []


def test_srun_starts_what_open_mpi_started_and_the_nodes_are_as_before(project: Project) -> None:
    project.ssh("slurmctl", "scontrol update nodename=node01,node02 state=drain reason='rackready: trial of srun'")
    overlay = project.paths.overlay
    before = overlay.read_text(encoding="utf-8")
    overlay.write_text(yaml.safe_dump(yaml.safe_load(before) | {"gates": {"launcher": "srun"}}), encoding="utf-8")
    try:
        code, document = project.json("gate", "run", RING, "--node", "node01", "--node", "node02")
    finally:
        overlay.write_text(before, encoding="utf-8")
    assert code == 0, document
    commands = [output.command for record in project.evidence(document["campaign"]) for output in record.raw]
    assert any("srun --mpi=pmix --reservation=rackready-node01 --nodes=2" in command for command in commands), commands
    assert project.ssh("slurmctl", "scontrol show reservation").strip() == "No reservations in the system"
    assert {name: state.rstrip("*") for name, state in sinfo(project).items() if name in {"node01", "node02"}} == {
        "node01": "drained",
        "node02": "drained",
    }
    assert "rackready: trial of srun" in project.ssh("slurmctl", "sinfo -R -h -o '%E'")


def test_the_next_install_mends_and_names_what_it_manages(project: Project) -> None:
    for command in HAND:
        project.ssh("node01", command)
    code, document = project.json("install", "--limit", "node01")
    assert (code, document["changed"]) == (0, ["node01"]), project.progress()[-4000:]
    told = [event.text for event in project.events() if event.campaign == document["campaign"]]
    assert any(text.startswith("changed: base : limits | Apply the kernel settings") for text in told), told
    assert any(text.startswith("changed: base : limits | Set mode 1777 on /tmp and /var/tmp") for text in told), told
    assert project.ssh("node01", "sysctl -n kernel.numa_balancing; stat -c %a /tmp").split() == ["0", "1777"]
