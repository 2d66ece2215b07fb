"""Nodes of the fault matrix: boot them again, make them differ as healthy nodes do, keep their loads short."""

from __future__ import annotations

import copy
import json
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rackready.design.site import load_site
from rackready.drivers.redfish import Bmc, PowerAction
from tests.integration.project import Project

NODES = ("node01", "node02", "node03", "node04")
_BOOT_S = 180.0
_GATES = "gates: {set: bringup}"

LOADS: dict[str, dict[str, object]] = {
    "node/gpu/stress/burn": {"power_s": 30, "stress_s": 30},
    "node/gpu/stress/compute-integrity": {"compute_s": 30, "memory_s": 30},
}
"""Gates that load GPUs for as long as their inputs ask, in the simulated DCGM too: here for the shortest time."""


def boot(project: Project, nodes: Sequence[str]) -> None:
    """Power the nodes off and on, and wait until each answers on SSH and its services are up."""
    site = load_site("sim", root=project.root)
    for action in (PowerAction.OFF, PowerAction.ON):
        for name in nodes:
            wanted = site.node(name).bmc.known()
            assert wanted is not None
            with Bmc(name, wanted) as bmc:
                bmc.power(action)
    for name in nodes:
        _answers(project, name)


def _answers(project: Project, name: str) -> None:
    deadline = time.monotonic() + _BOOT_S
    while True:
        try:
            if project.ssh(name, "systemctl is-system-running --wait || true").strip() in {"running", "degraded"}:
                return
        except AssertionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(1)


def healthy_state(state: dict[str, Any], seed: int) -> dict[str, Any]:
    """Return the state of another healthy node: temperature, idle power, a few corrected errors and 1 % speed differ.

    Speed: what differs from node to node is put on top of what the simulated silicon of each GPU differs by anyway (0.3
    %).

    The identity of the node stays, so that it is still the one that the site names.
    """
    draw = random.Random(seed)  # noqa: S311 - no secret: the same seed makes the same node
    out = copy.deepcopy(state)
    for gpu in out["gpus"]:
        gpu["temperature_c"] = draw.randint(26, 44)
        gpu["power"]["idle_w"] = draw.randint(64, 86)
        gpu["compute_factor"] = round(draw.gauss(1.0, 0.003), 5)
        gpu["memory_factor"] = round(draw.gauss(1.0, 0.003), 5)
        corrected = draw.choice([0, 0, 0, 0, 1, 2])
        gpu["ecc"]["aggregate"]["corrected"] += corrected
        gpu["ecc"]["volatile"]["corrected"] += draw.randint(0, corrected)
        gpu["pcie"]["replay"] += draw.choice([0, 0, 0, 1])
    for nic in out["nics"]:
        nic["factor"] = round(min(1.0, draw.gauss(0.997, 0.002)), 5)
    return out


def shorten(site_file: Path) -> None:
    """Have the site ask for the shortest loads."""
    text = site_file.read_text(encoding="utf-8")
    assert text.count(_GATES) == 1, f"{site_file} does not say {_GATES}"
    also = [{"id": gate, "inputs": inputs} for gate, inputs in LOADS.items()]
    site_file.write_text(text.replace(_GATES, f"gates: {{set: bringup, also: {json.dumps(also)}}}"), encoding="utf-8")
