"""SIGKILL (once Ctrl-C) of the controller at several points of each phase: nothing is done twice or left behind."""

from __future__ import annotations

import signal
import subprocess

import pytest

from rackready.campaign.request import DEPLOY
from tests.integration import aftermath
from tests.integration.chaos import Point, Record, Round, draw
from tests.integration.project import Project

pytestmark = pytest.mark.integration

SEED = 224
COUNTS = dict.fromkeys(DEPLOY, 1)
"""Kills in each phase: `make chaos` plays more."""
GATES = {"set": "quick", "also": [{"id": "pair/fabric/performance/ib-write-bw"}, {"id": "node/gpu/validation/dcgm-r3"}]}
"""Gates that read, one between nodes and one that loads a node: test_main_job.py runs the others."""
CTRL_C = Point("install", event=6, number=signal.SIGINT)
"""Strikes while Ansible is at work; the kills in the phase come before it."""


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
    assert "stopped. Nothing is lost: `make deploy ENV=sim` goes on where it stopped." in project.progress()


def test_second_controller_is_refused_while_the_first_lives(
    record: Record, refused: list[tuple[int, dict[str, str], int]]
) -> None:
    assert record.strikes
    [(code, document, pid)] = refused
    assert code == 2
    assert f"Actual: pid {pid} (`rackready deploy --env sim`" in document["error"]
