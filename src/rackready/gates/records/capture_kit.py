"""Capture kit for an unreachable host: a folder with the commands, and a script that runs and packs them."""

from __future__ import annotations

import importlib.util
import inspect
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rackready.gates.base import Command, Gate, GateFacts
from rackready.gates.engine.registry import gate
from rackready.gates.engine.shipped_script import command
from rackready.gates.engine.site_facts import site_facts
from rackready.model.problems import RackreadyError
from rackready.model.profile import GateSetEntry
from rackready.model.site import Site
from rackready.ondevice import collect
from rackready.ondevice import fingerprint as script


@dataclass(frozen=True, slots=True)
class Kit:
    """One node's folder. ``left_out``: gates that one host alone cannot capture, with the reason."""

    folder: Path
    gates: tuple[str, ...]
    left_out: dict[str, str]


def write_kit(site: Site, node: str, entries: Sequence[GateSetEntry], out: Path) -> Kit:
    """Write the folder of one node below ``out``. Raise RackreadyError if nothing can be captured there."""
    facts = site_facts(site, [node])
    gates = [gate(entry.id, entry.inputs) for entry in entries]
    left_out = {item.id: why for item in gates if (why := _unfit(item, facts, node))}
    fit = [item for item in gates if item.id not in left_out]
    if not fit:
        raise RackreadyError(
            node,
            "kit",
            expected="a gate that one host can run alone",
            actual=f"none of {', '.join(left_out)}",
            next_step="Name other gates.",
        )
    runs = [(order, item.id, run) for order, item in enumerate(fit) for run in item.plan(facts, [node])]
    plan = {
        "node": node,
        "fingerprint": _plain(command("fingerprint", node, script)),
        "commands": [
            {**_plain(step), "gate": gate, "run": run.id, "order": order}
            for order, gate, run in runs
            for step in run.commands
        ],
    }
    folder = out / node
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plan.json").write_text(json.dumps(plan, indent=1) + "\n", encoding="utf-8")
    (folder / "collect.py").write_text(inspect.getsource(collect), encoding="utf-8")
    (folder / "pynvml.py").write_text(_nvml(), encoding="utf-8")
    return Kit(folder, tuple(item.id for item in fit), left_out)


def _unfit(item: Gate, facts: GateFacts, node: str) -> str:
    if item.scope != "node":
        return "it needs more than this host"
    steps = [step for run in item.plan(facts, [node]) for step in run.commands]
    if any(step.role != "step" or step.via != "host" for step in steps):
        return "some of its commands do not run on this host to their end"
    return "" if steps else "there is nothing to run on this node"


def _plain(step: Command) -> dict[str, Any]:
    return {
        "key": step.key,
        "argv": list(step.argv),
        "stdin": step.stdin,
        "env": dict(step.env),
        "stage": step.stage,
        "timeout_s": step.timeout_s,
    }


def _nvml() -> str:
    """Return the library that reads GPUs: one file without dependencies (nvidia-ml-py)."""
    found = importlib.util.find_spec("pynvml")
    if found is None or found.origin is None:
        raise RackreadyError(
            "nvidia-ml-py", expected="installed with rackready", actual="not found", next_step="Run: make setup"
        )
    return Path(found.origin).read_text(encoding="utf-8")
