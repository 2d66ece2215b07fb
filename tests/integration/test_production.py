"""Nodes in production: jobs are never disturbed, faults are fixed on empty nodes, reboots are noticed. In order."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.design.site import load_site
from rackready.drivers.redfish import Bmc, PowerAction
from rackready.ledger.store import EventRow
from tests.integration.project import Project
from tests.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

LIMIT = ("--limit", "node01,node02")
CHANGE = re.compile(
    r"gpu0 power limit and clock [\d.]+ W and \d+ MHz, wanted \d+ W and at least \d+ MHz; gpu1 .*; gpu2 .* and 5 more"
)
"""A reason names three of the eight GPUs."""
SETTINGS = "nvidia-smi --query-gpu=power.limit,clocks.sm --format=csv,noheader"
BOOT_ID = "cat /proc/sys/kernel/random/boot_id"
ROCE = "python3 /usr/local/lib/rackready/roce.py verify /etc/rackready/roce.json"


@pytest.fixture(scope="module")
def rack(project: Project) -> Project:
    """Two nodes in production."""
    project.skip_incast("node01", "node02")
    code, document = project.json("deploy", *LIMIT)
    assert code == 0, project.progress()[-4000:]
    assert {row["name"]: row["state"] for row in document["nodes"]} == {"node01": "ready", "node02": "ready"}
    return project


@pytest.fixture(scope="module")
def job(rack: Project) -> Iterator[str]:
    """The number of a job that runs on node01 until it is ended."""
    ask = "cd /tmp && sbatch --parsable --job-name=train --nodelist=node01 --output=/dev/null --wrap='sleep 3600'"
    number = rack.ssh("slurmctl", ask).strip()
    until(lambda: job_state(rack, number) == "RUNNING")
    yield number
    quietly(rack, "slurmctl", f"scancel {number}")


def job_state(project: Project, number: str) -> str:
    return project.ssh("slurmctl", f"squeue --noheader --jobs={number} --format=%T").strip()


def use(project: Project) -> dict[str, str]:
    lines = project.ssh("slurmctl", "sinfo -N -h -n node01,node02 -o '%N %T'").splitlines()
    return dict(line.split() for line in lines if line)


def reason(project: Project, node: str) -> str:
    lines = project.ssh("slurmctl", f"sinfo -R -h -N -n {node} -o '%E'").splitlines()
    return lines[0] if lines else ""


def settings(project: Project, node: str) -> set[str]:
    return set(project.ssh(node, SETTINGS).splitlines())


def since(project: Project, last: int) -> list[EventRow]:
    return [event for event in project.events() if event.id > last]


def newest(project: Project) -> int:
    return max(event.id for event in project.events())


class Overlay:
    """The rack's overlay, with a longest wait of our own as long as the block runs."""

    def __init__(self, path: Path, wait_s: int) -> None:
        self._path, self._wait_s = path, wait_s
        self._before = path.read_text(encoding="utf-8")

    def __enter__(self) -> None:
        document: dict[str, Any] = yaml.safe_load(self._before)
        document["handover"]["drain_wait_s"] = self._wait_s
        self._path.write_text(yaml.safe_dump(document), encoding="utf-8")

    def __exit__(self, *_: object) -> None:
        self._path.write_text(self._before, encoding="utf-8")


def test_second_deploy_finds_nothing_to_do_and_drains_nobody(rack: Project) -> None:
    last = newest(rack)
    code, document = rack.json("deploy", *LIMIT)
    assert (code, document["changed"]) == (0, []), rack.progress()[-4000:]
    found = since(rack, last)
    assert [event for event in found if event.phase == "drain"] == []
    assert [event.text for event in found if event.text.startswith(("changed: ", "would change: "))] == []
    seen = [event.node for event in found if event.phase == "validate" and event.text.startswith("looked at again: ")]
    assert seen == ["node01", "node02"]
    assert set(use(rack).values()) == {"idle"}


def test_node_that_a_job_keeps_is_named_drained_and_not_touched(rack: Project, job: str) -> None:
    locked = settings(rack, "node01")
    rack.ssh("node01", "nvidia-smi -rgc")
    reset = settings(rack, "node01")
    assert reset != locked
    with Overlay(rack.paths.overlay, 0):
        code, document = rack.json("optimize", "--limit", "node01")
    assert code == 1, rack.progress()[-4000:]
    assert document["nodes"][0]["reason"] == (
        f"node01: jobs run on it - Expected: none within 0 s of draining it Actual: {job} (root, train). "
        "Nothing was changed, and it stays drained so that it empties: wait and run again, or end them with "
        f"`scancel {job}`."
    )
    assert document["nodes"][0]["state"] == "certified"
    assert document["changed"] == []
    said = reason(rack, "node01")
    assert CHANGE.fullmatch(said.removeprefix("rackready: optimize is about to change: ")), said
    assert settings(rack, "node01") == reset
    assert job_state(rack, job) == "RUNNING"


def test_deploy_waits_for_the_job_and_then_repairs_and_releases_the_node(rack: Project, job: str) -> None:
    reset = settings(rack, "node01")
    child = rack.start("deploy", *LIMIT, "--output", "json")
    event = rack.until(child, lambda event: event.phase == "drain" and event.text.startswith("drained; "), within_s=600)
    assert event is not None, rack.progress()[-4000:]
    assert (event.node, event.text) == (
        "node01",
        f"drained; waits, at most 3600 s in all, for the end of {job} (root, gpu)",
    )
    assert job_state(rack, job) == "RUNNING"
    assert settings(rack, "node01") == reset
    rack.ssh("slurmctl", f"scancel {job}")
    text, _ = child.communicate(timeout=600)
    assert child.returncode == 0, rack.progress()[-4000:]
    document = json.loads(text)
    assert document["changed"] == ["node01"]
    assert {row["state"] for row in document["nodes"]} == {"ready"}
    assert set(use(rack).values()) == {"idle"}
    assert settings(rack, "node01") == settings(rack, "node02")
    assert settings(rack, "node01") != reset


def test_reboot_behind_our_back_is_noticed_and_what_it_could_touch_measured_again(rack: Project) -> None:
    locked, boot, last = settings(rack, "node02"), rack.ssh("node02", BOOT_ID), newest(rack)
    node = load_site("sim", root=rack.root).node("node02")
    with Bmc("node02", node.bmc) as bmc:
        bmc.power(PowerAction.RESET)
    until(lambda: quietly(rack, "node02", BOOT_ID) not in {"", boot})
    until(lambda: quietly(rack, "node02", SETTINGS) != "" and settings(rack, "node02") == locked)
    until(lambda: quietly(rack, "node02", ROCE) != "")
    until(lambda: "No jobs running" in quietly(rack, "node02", "systemctl list-jobs"))
    code, document = rack.json("validate", *LIMIT)
    assert code == 0, rack.progress()[-4000:]
    assert document["changed"] == []
    found = [event for event in since(rack, last) if event.phase == "validate"]
    why = (
        "to be measured: node02: node/gpu/validation/dcgm-r1 - Expected: measured since the node's last boot "
        "Actual: measured before it. "
    )
    assert [event.node for event in found if event.text == f"{why}Run `rackready validate`."] == ["node02"]
    begun = {(event.node, event.text.split()[0]) for event in found if " begins: " in event.text}
    assert ("node02", "node/gpu/performance/nccl-all-reduce") in begun
    assert ("node02", "node/gpu/validation/dcgm-r3") not in begun, "a boot does not wear hardware"
    assert rack.states()["node01"] == "ready", "a partner is given back"
    assert rack.states()["node02"] == "certified", "a node that was measured waits for its handover"
    helped = {
        "pair/fabric/performance/ib-write-bw",
        "pair/fabric/performance/ib-write-lat",
        "group/host/validation/firmware",
    }
    assert {gate for name, gate in begun if name == "node01"} == helped, "node01 helps, and what it has stands"


def test_then_it_is_handed_over_again(rack: Project) -> None:
    code, document = rack.json("handover", *LIMIT)
    assert code == 0, rack.progress()[-4000:]
    assert {row["state"] for row in document["nodes"]} == {"ready"}
    until(lambda: set(use(rack).values()) == {"idle"})


def quietly(project: Project, node: str, command: str) -> str:
    """Return what a command says, nothing while the node does not answer or the command fails."""
    try:
        return project.ssh(node, command)
    except (AssertionError, subprocess.TimeoutExpired):
        return ""
