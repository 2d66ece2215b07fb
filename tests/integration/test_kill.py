"""SIGKILL (once Ctrl-C) of the controller at several points of each phase: nothing is done twice or left behind.

What became of the four nodes then serves as a rack in production: faults and drift are found on it. Tests run in order.
"""

from __future__ import annotations

import signal
import subprocess

import pytest
import yaml

from rackready.campaign.request import DEPLOY
from tests.integration import aftermath
from tests.integration.chaos import Point, Record, Round, draw
from tests.integration.drift import FAULTS as DRIFT
from tests.integration.drift import HAND, NAMED
from tests.integration.fault_matrix import Player, trials
from tests.integration.project import Project

pytestmark = pytest.mark.integration

SEED = 224
COUNTS = dict.fromkeys(DEPLOY, 1)
"""Kills in each phase: `make chaos` plays more."""
GATES = {"set": "quick", "also": [{"id": "pair/fabric/performance/ib-write-bw"}, {"id": "node/gpu/validation/dcgm-r3"}]}
"""Gates that read, one between nodes and one that loads a node: test_main_job.py runs the others."""
CTRL_C = Point("install", event=6, number=signal.SIGINT)
"""Strikes while Ansible is at work; the kills in the phase come before it."""
FAULTS = ("gpu-missing", "nvlink-down", "dimm-missing", "psu-failed")
"""One of GPU, NVLink, memory and power each: what `make test` plays of the fault matrix."""
RING = "cluster/fabric/performance/nccl-all-reduce-ring"


@pytest.fixture(scope="module")
def refused() -> list[tuple[int, dict[str, str], int]]:
    """What second controllers were told while the first lived: exit code, document, the first one's pid."""
    return []


@pytest.fixture(scope="module")
def record(project: Project, refused: list[tuple[int, dict[str, str], int]]) -> Record:
    """The whole round, played once: the tests look at what it left."""
    project.change_site({"gates": GATES})
    points = draw(SEED, COUNTS)
    last = max(index for index, point in enumerate(points) if point.phase == CTRL_C.phase)
    points.insert(last + 1, CTRL_C)

    def meet_another(point: Point, child: subprocess.Popen[str]) -> None:
        if point is CTRL_C:
            code, document = project.json("deploy")
            refused.append((code, document, child.pid))

    return Round(project, print, before=meet_another).play(points)


def test_every_phase_was_hit(record: Record) -> None:
    assert record.spared() == [], record
    assert sum(record.hits().values()) >= sum(COUNTS.values()), record.missed
    assert set(record.hits()) <= set(DEPLOY)


def test_every_kill_ended_a_living_controller(record: Record) -> None:
    assert {strike.code for strike in record.strikes if strike.landed and strike.point is not CTRL_C} == {
        -signal.SIGKILL
    }


def test_it_ends_with_four_ready_nodes_and_nothing_done_twice_or_left_behind(project: Project, record: Record) -> None:
    assert record.code == 0, project.progress()[-5000:]
    assert set(record.nodes.values()) == {"ready"}
    assert aftermath.problems(project) == []
    assert "nvidia-fabricmanager" in project.ssh("node01", "cat /var/log/dpkg.log"), (
        "the count of installations is void without any"
    )


def test_what_killed_runs_left_was_ended_and_said(project: Project, record: Record) -> None:
    assert record.strikes
    said = project.progress()
    assert "ended what an earlier run left behind: ansible-playbook install.yml (session " in said
    assert "which was cut off" in said


def test_ctrl_c_stops_within_30_s_and_says_how_to_go_on(project: Project, record: Record) -> None:
    stopped = next(strike for strike in record.strikes if strike.point is CTRL_C)
    assert stopped.landed == "install"
    assert stopped.seconds < 30
    assert stopped.code == 130
    assert "stopped. Nothing is lost: `make deploy ENV=sim` continues where it stopped." in project.progress()


def test_second_controller_is_refused_while_the_first_lives(
    record: Record, refused: list[tuple[int, dict[str, str], int]]
) -> None:
    assert record.strikes
    [(code, document, pid)] = refused
    assert code == 2
    assert f"Actual: pid {pid} (`rackready deploy --env sim`" in document["error"]


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
    assert project.sinfo()["node04"].startswith("drain"), "it is offered no more"
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
    assert all(state.startswith("drain") for name, state in project.sinfo().items() if name in NAMED)
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
    # Slurm knows 224 CPUs and 8 GPUs of each node.
    step = "srun --gres=gpu:8 --cpus-per-task=28 --mpi=pmix --reservation=rackready-node01 --nodes=2"
    assert any(step in command for command in commands), commands
    assert project.ssh("slurmctl", "scontrol show reservation").strip() == "No reservations in the system"
    assert {name: state.rstrip("*") for name, state in project.sinfo().items() if name in {"node01", "node02"}} == {
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
