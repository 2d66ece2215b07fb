"""What a rehearsal showed, from the result of its deploy and from its report."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rackready.design.yaml import read_yaml


@dataclass(frozen=True, slots=True)
class Covered:
    """Phases that at least one node passed, in their order; gates with their outcomes, and the nodes by state."""

    phases: tuple[str, ...] = ()
    gates: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Gate -> outcome -> number of results."""
    nodes: Mapping[str, str] = field(default_factory=dict)
    roles: tuple[str, ...] = ()
    """Roles of the playbooks of these phases; one with a condition ran where it holds."""
    unseen: tuple[str, ...] = ()
    """Faults that the gate set cannot see, as the set says."""

    def plain(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return {
            "phases": list(self.phases),
            "roles": list(self.roles),
            "gates": {gate: dict(found) for gate, found in self.gates.items()},
            "nodes": dict(self.nodes),
            "unseen": list(self.unseen),
        }

    def lines(self) -> list[str]:
        """Return it for people."""
        total = Counter[str]()
        for found in self.gates.values():
            total.update(dict.fromkeys(found, 1))
        states = Counter(self.nodes.values())
        return [
            f"phases: {', '.join(self.phases) or 'none'}",
            f"roles: {', '.join(self.roles) or 'none'}",
            f"gates: {', '.join(f'{count} {outcome}' for outcome, count in sorted(total.items())) or 'none'}",
            f"nodes: {', '.join(f'{count} {state}' for state, count in sorted(states.items())) or 'none'}",
        ]


def covered(said: Mapping[str, Any], playbooks: Path, kind: str) -> Covered:
    """Return what a deploy's document and its report show; nothing if it was refused. ``kind``: of the fabric."""
    nodes = {row["name"]: row["state"] for row in said.get("nodes", [])}
    file = Path(said.get("report_json", ""))
    if not said.get("report_json") or not file.exists():
        return Covered(nodes=nodes)
    report = json.loads(file.read_text(encoding="utf-8"))
    passed = (event for event in report["events"] if event["phase"] and event["node"] and event["level"] == "ok")
    phases = dict.fromkeys(event["phase"] for event in passed)
    gates: dict[str, Counter[str]] = {}
    for part in (*(gate for node in report["nodes"] for gate in node["gates"]), *report["runs"]):
        gates.setdefault(part["gate"], Counter())[part["outcome"]] += 1
    unseen = tuple(item["gate"] for item in report.get("unseen", []))
    roles = [role for phase in phases for role in _roles(playbooks / _file(phase, kind))]
    return Covered(tuple(phases), dict(sorted(gates.items())), nodes, tuple(dict.fromkeys(roles)), unseen)


def _file(phase: str, kind: str) -> str:
    """Return the playbook of a phase: it is named after it."""
    return f"{phase}-infiniband.yml" if (phase, kind) == ("fabric", "infiniband") else f"{phase}.yml"


def _roles(playbook: Path) -> list[str]:
    """Return the roles of a playbook, in its order; none if there is no such playbook."""
    plays = read_yaml(playbook) if playbook.exists() else []
    out = []
    for play in plays:
        out += [str(item["role"] if isinstance(item, dict) else item) for item in play.get("roles", [])]
        imported = [task.get("ansible.builtin.import_role") for task in play.get("tasks", [])]
        out += [str(item["name"]) for item in imported if item]
    return out
