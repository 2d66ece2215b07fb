"""`make molecule` for two quick roles and the troubles of one: a new node each, and the rack comes down again."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rackready_sim import podman
from rackready_sim.plan import clone_id
from tests.integration.project import ROOT

pytestmark = [pytest.mark.integration, pytest.mark.slow]
_HOME = ROOT / ".rackready" / "molecule"


def test_two_roles_pass_their_scenarios_and_nothing_is_left(image: None) -> None:
    del image
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/molecule", "base", "cuda_toolkit"],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert done.stdout.splitlines()[-1] == "molecule: 2 of 2 roles passed"
    for role in ("base", "cuda_toolkit"):
        log = (_HOME / "logs" / f"{role}.log").read_text(encoding="utf-8")
        for action in ("create", "prepare", "converge", "idempotence", "verify", "destroy"):
            assert f"default > {action}: Executed: Successful" in log, f"{role}: {action}"
    assert podman.containers(clone_id(_HOME)) == []


def test_every_trouble_of_a_role_ends_as_described(image: None) -> None:
    del image
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/molecule", "cuda_toolkit/trouble"],
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    log = (_HOME / "logs" / "cuda_toolkit-trouble.log").read_text(encoding="utf-8")
    assert log.count("outcome: pass") == 8, "the upgrade, its second run, and the run after each other trouble"
    assert log.count("outcome: fail") + log.count("outcome: error") == 7
    assert "rolled back: packages and holds are as before" in " ".join(log.split())
    assert podman.containers(clone_id(_HOME)) == []
