"""The one file that nodes get, run as Slurm runs it: beside tools and a scontrol that the tests make."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import os
import subprocess
import sys
import time
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from rackready.design.site import load_site
from rackready.drivers.scheduler import base
from rackready.gates.nodecheck import bundle
from rackready.gates.nodecheck.judge import ToolEnd
from rackready.gates.nodecheck.program import NODE_FILE, PREFIX, run_all
from rackready.model.evidence import Fingerprint
from rackready.model.slurm_files import SlurmChecks
from tests.gates.nodecheck.test_judge import GOOD, NODE, SMI

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = bundle.program()
IDLE = "NodeName=node01 Arch=x86_64 State=IDLE ThreadsPerCore=2\n"


class Host:
    """A node's tools as scripts that print files, and scontrol, which writes down its calls."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.node: dict[str, Any] = dict(NODE)
        for name in ("smi", "nvlink", "log", "units", "disks"):
            (folder / name).write_text(GOOD[name].out)
        (folder / "state").write_text(IDLE)
        self.tool("nvidia-smi", f'case "$1" in nvlink) cat {folder}/nvlink;; *) cat {folder}/smi;; esac')
        self.tool("journalctl", f"cat {folder}/log")
        self.tool("systemctl", f"cat {folder}/units")
        self.tool("df", f"cat {folder}/disks")
        self.scontrol()

    def tool(self, name: str, body: str) -> None:
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def scontrol(self, update: str = "exit 0") -> None:
        say = f'for word in "$@"; do printf "%s|" "$word"; done >> {self.folder}/calls; echo >> {self.folder}/calls'
        self.tool("scontrol", f'{say}\ncase "$1" in show) cat {self.folder}/state;; *) {update};; esac')

    def calls(self) -> list[str]:
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def run(self, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
        place, node = self.folder / "slurm-check", self.folder / "node.json"
        place.write_text(PROGRAM.replace(NODE_FILE, str(node)))
        if self.node:
            node.write_text(json.dumps(self.node))
        return subprocess.run(
            [sys.executable, "-I", str(place), *argv], capture_output=True, text=True, check=False, timeout=120,
            env={"PATH": f"{self.bin}:{os.environ['PATH']}", **env},
        )  # fmt: skip


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


SHOW = "show|node|node01|--oneliner|"
REASON = "rackready: check: gpu0: row remapping failed (Xid 64)"
UPDATE = f"update|NodeName=node01|State=DRAIN|Reason={REASON}|"


def break_gpu(host: Host) -> None:
    old = "<remapped_row_failure>No<"
    (host.folder / "smi").write_text(SMI.replace(old, old.replace("No", "Yes"), 1))


def test_a_healthy_node_passes_and_slurm_is_not_called(host: Host) -> None:
    done = host.run()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert host.calls() == []


def test_a_fault_drains_with_its_words_before_the_program_fails(host: Host) -> None:
    break_gpu(host)
    done = host.run()
    assert (done.returncode, done.stdout) == (1, "gpu0: row remapping failed (Xid 64)\n")
    assert host.calls() == [SHOW, UPDATE]


def test_a_job_of_root_starts_on_a_faulty_node_and_ends_there(host: Host) -> None:
    # rackready measures a node with a new GPU before it is handed over anew; an operator looks for a fault.
    break_gpu(host)
    done = host.run(SLURM_JOB_UID="0")
    assert (done.returncode, done.stdout) == (0, "gpu0: row remapping failed (Xid 64)\n")
    assert host.calls() == []
    assert host.run("--look", SLURM_JOB_UID="0").returncode == 1
    assert host.run(SLURM_JOB_UID="1000").returncode == 1
    assert host.calls() == [SHOW, UPDATE]


def test_several_faults_are_counted(host: Host) -> None:
    break_gpu(host)
    (host.folder / "units").write_text("failed\nactive\n")
    done = host.run()
    assert done.stdout.splitlines()[1] == "nvidia-fabricmanager.service (failed)"
    assert host.calls()[1] == UPDATE.replace("64)|", "64) (+1 more)|")


@pytest.mark.parametrize(
    "state",
    [
        "NodeName=node01 State=IDLE+DRAIN Reason=disk [root@2026-11-28T00:00:00]\n",
        "NodeName=node01 State=DOWN*+DRAIN Reason=rackready: repair [root@2026-11-28T00:00:00]\n",
        "NodeName=node01 State=MIXED+DRAIN Reason=rackready: check: old [root@2026-11-28T00:00:00]\n",
    ],
)
def test_nobodys_drain_is_overwritten(host: Host, state: str) -> None:
    break_gpu(host)
    (host.folder / "state").write_text(state)
    assert host.run().returncode == 1
    assert host.calls() == [SHOW]


@pytest.mark.parametrize("state", ["IDLE", "MIXED", "DOWN*", "IDLE+MAINTENANCE+RESERVED"])
def test_a_node_in_any_other_state_is_drained(host: Host, state: str) -> None:
    break_gpu(host)
    (host.folder / "state").write_text(IDLE.replace("IDLE", state))
    host.run()
    assert host.calls() == [SHOW, UPDATE]


def test_a_healthy_node_never_resumes_its_drain(host: Host) -> None:
    (host.folder / "state").write_text("NodeName=node01 State=IDLE+DRAIN Reason=rackready: check: old [root@2026]\n")
    assert host.run().returncode == 0
    assert host.calls() == []


def test_to_look_changes_nothing(host: Host) -> None:
    break_gpu(host)
    done = host.run("--look")
    assert (done.returncode, host.calls()) == (1, [])


def test_a_tool_that_hangs_ends_in_time_and_drains(host: Host) -> None:
    host.node["limit_s"] = 10
    host.tool("nvidia-smi", 'trap "" TERM\nsleep 300 & wait\nsleep 300')
    start = time.monotonic()
    done = host.run()
    assert time.monotonic() - start < 60, "without the limit it takes 300 s"
    assert done.returncode == 1
    assert host.calls()[1] == (
        "update|NodeName=node01|State=DRAIN|Reason=rackready: check: nvidia-smi -q -x did not measure (no answer "
        "within 2 s) (+1 more)|"
    )


def test_a_slurmctld_that_hangs_does_not_keep_the_program(host: Host) -> None:
    break_gpu(host)
    host.tool("scontrol", "sleep 300")
    done = host.run()
    assert done.returncode == 1
    assert done.stderr == "rackready: scontrol show node node01: no answer within 4 s\n"


def test_a_refused_drain_is_said_and_the_job_is_still_stopped(host: Host) -> None:
    break_gpu(host)
    host.scontrol('echo "slurm_update error: Invalid user id" >&2; exit 1')
    done = host.run()
    assert done.returncode == 1
    assert done.stderr == (
        "rackready: scontrol update NodeName=node01 State=DRAIN: exit code 1: slurm_update error: Invalid user id\n"
    )


def test_a_missing_tool_and_one_that_cannot_run_are_said(tmp_path: Path) -> None:
    flat = tmp_path / "flat"
    flat.write_text("")
    done = run_all({"none": ["rackready-no-such-tool"], "flat": [str(flat)]}, time.monotonic() + 30, 30)
    assert done["none"] == ToolEnd(-1, "", "rackready-no-such-tool: No such file or directory")
    assert done["flat"].failure.endswith("flat: Permission denied")


@pytest.mark.parametrize("text", ["", "{", '{"format": "rackready/slurm-check/v0", "node": "node01"}'])
def test_without_its_file_the_node_is_drained_not_passed(host: Host, text: str) -> None:
    host.node = {}
    (host.folder / "node.json").write_text(text)
    (host.folder / "state").write_text(IDLE.replace("node01", "node09"))
    done = host.run(SLURMD_NODENAME="node09")
    assert done.returncode == 1
    assert host.calls()[0] == "show|node|node09|--oneliner|"
    assert "|Reason=rackready: check: " in host.calls()[1]
    assert "node.json unreadable (" in host.calls()[1]


def test_a_defect_of_the_check_drains_and_does_not_pass(host: Host) -> None:
    del host.node["gpus"]
    done = host.run()
    assert (done.returncode, done.stdout) == (1, "the check did not measure (KeyError: 'gpus')\n")


def test_the_reason_is_one_line_of_plain_letters(host: Host) -> None:
    host.node["gpus"] = [*NODE["gpus"][:7], "x" * 300 + "\n\u2603"]
    host.run()
    reason = host.calls()[1].split("Reason=")[1].rstrip("|")
    assert len(reason) <= 250
    assert reason.isascii()


def test_its_reasons_are_rackreadys_so_that_a_handover_may_resume_the_node() -> None:
    assert PREFIX.startswith(f"{base.PREFIX} ")


# --- the file ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", bundle.MODULES)
def test_its_modules_need_nothing_that_a_node_lacks(name: str) -> None:
    source = inspect.getsource(importlib.import_module(name))
    tree = ast.parse(source, feature_version=(3, 9))
    assert "'''" not in source
    known = set(bundle.MODULES[: bundle.MODULES.index(name)])
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            names = [] if whole <= known else [node.module]
        for module in names:
            assert module in known or module.split(".")[0] in sys.stdlib_module_names, module
    words = [word.arg for node in ast.walk(tree) if isinstance(node, ast.Call) for word in node.keywords]
    assert not {"strict", "slots", "kw_only"} & set(words), "Python 3.10 brought them (tests/repo/test_ondevice_python)"


def test_the_file_is_the_same_each_time() -> None:
    assert bundle.program() == PROGRAM
    ast.parse(PROGRAM, feature_version=(3, 9))
    assert PROGRAM.startswith("#!/usr/bin/python3 -I\n")


def test_what_is_expected_comes_from_site_profiles_and_fingerprint() -> None:
    site = load_site("sim", root=ROOT)
    found = Fingerprint(
        node="node01", chassis_serial="c", gpus=["1", "2"], nics=[], driver="580.1", vbios=[], nic_firmware=[],
        kernel="6.1", desired_digest="d",
    )  # fmt: skip
    assert bundle.expected(site, SlurmChecks(), found, date(2026, 11, 28)) == {
        **NODE, "gpus": ["1", "2"], "filesystems": ["/", "/tmp", "/var"],  # noqa: S108 - looked at only
    }  # fmt: skip
