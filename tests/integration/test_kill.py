"""SIGKILL of the controller once in every phase of one deploy, and Ctrl-C: nothing is done twice, nothing is left behind."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections import Counter

import pytest

from rackready.drivers.process import session_members
from tests.integration.project import Project

pytestmark = pytest.mark.integration

PHASES = ("provision", "install", "fabric", "validate", "optimize", "revalidate", "certify", "handover")
DELAYS_S = {"provision": 1.0, "install": 20.0, "fabric": 4.0, "validate": 6.0, "optimize": 3.0, "revalidate": 6.0, "certify": 0.2, "handover": 2.0}


def begun(project: Project, child: subprocess.Popen[str], phase: str) -> bool:
    """Wait until a phase begins; False when the campaign was already past it or ended."""
    return project.until(child, lambda event: event.phase == phase and event.text == "begins") is not None


def sessions(project: Project) -> set[int]:
    return {int(row["pid"]) for row in project.ledger().open_children()}


@pytest.mark.parametrize("phase", PHASES)
def test_killed_in_the_phase(project: Project, phase: str) -> None:
    child = project.start("deploy")
    try:
        assert begun(project, child, phase), f"{phase} never began: {project.progress()[-3000:]}"
        time.sleep(DELAYS_S[phase])
    finally:
        child.kill()
        child.communicate()


def test_then_it_ends_with_four_ready_nodes(project: Project) -> None:
    left = sessions(project)
    code, document = project.json("deploy")
    assert code == 0, project.progress()[-5000:]
    assert {row["state"] for row in document["nodes"]} == {"ready"}
    assert [pid for pid in left if session_members(pid)] == [], "an orphan of a killed run lives on"
    assert project.ledger().open_children() == []


def test_no_node_was_powered_on_twice(project: Project) -> None:
    times = Counter(
        entry["node"] for entry in project.power_log() if entry["action"].lower() in {"on", "power-on", "forceon", "forcerestart", "reset", "gracefulrestart"}
    )
    assert times == Counter({f"node0{number}": 1 for number in range(1, 5)}), project.power_log()


def test_no_package_was_installed_twice(project: Project) -> None:
    for number in range(1, 5):
        log = project.ssh(f"node0{number}", "cat /var/log/dpkg.log")
        installed = Counter(re.findall(r"^\S+ \S+ install (\S+) ", log, flags=re.MULTILINE))
        twice = {package: times for package, times in installed.items() if times > 1}
        assert twice == {}
        assert any("nvidia-fabricmanager" in package for package in installed)


def test_every_open_question_was_answered(project: Project) -> None:
    ledger = project.ledger()
    assert [entry for entry in ledger.entries() if entry.status == "intent"] == []


def test_switches_were_committed_once(project: Project) -> None:
    for leaf in ("leaf01", "leaf02"):
        done = [entry for entry in project.ledger().entries(leaf) if entry.status == "done"]
        assert len(done) == 1, done


def test_ctrl_c_stops_within_30_s_and_says_how_to_go_on(project: Project) -> None:
    child = project.start("deploy")
    try:
        assert begun(project, child, "install")
        time.sleep(2)
        at = time.monotonic()
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=60)
        assert time.monotonic() - at < 30
    finally:
        child.kill()
    assert child.returncode == 130
    assert "stopped. Nothing is lost: `make deploy ENV=sim` goes on where it stopped." in project.progress()


def test_second_controller_is_refused_while_the_first_lives(project: Project) -> None:
    first = project.start("deploy")
    try:
        assert project.until(first, lambda event: event.text == "begins") is not None
        code, document = project.json("deploy")
        assert code == 2
        assert f"Actual: pid {first.pid} (`rackready deploy --env sim`" in document["error"]
    finally:
        first.send_signal(signal.SIGINT)
        first.communicate(timeout=60)
