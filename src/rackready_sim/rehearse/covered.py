"""What a rehearsal showed, from the result of its deploy and from its report."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Covered:
    """Phases in the order in which they were passed, gates with their outcomes, and the nodes by state."""

    phases: tuple[str, ...] = ()
    gates: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Gate -> outcome -> number of results."""
    nodes: Mapping[str, str] = field(default_factory=dict)
    unseen: tuple[str, ...] = ()
    """Faults that the gate set cannot see, as the set says."""

    def plain(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return {
            "phases": list(self.phases),
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
            f"gates: {', '.join(f'{count} {outcome}' for outcome, count in sorted(total.items())) or 'none'}",
            f"nodes: {', '.join(f'{count} {state}' for state, count in sorted(states.items())) or 'none'}",
        ]


def covered(said: Mapping[str, Any]) -> Covered:
    """Return what a deploy's document and its report show; nothing if it was refused."""
    nodes = {row["name"]: row["state"] for row in said.get("nodes", [])}
    file = Path(said.get("report_json", ""))
    if not said.get("report_json") or not file.exists():
        return Covered(nodes=nodes)
    report = json.loads(file.read_text(encoding="utf-8"))
    phases = dict.fromkeys(event["phase"] for event in report["events"] if event["phase"] and event["node"])
    gates: dict[str, Counter[str]] = {}
    for part in (*(gate for node in report["nodes"] for gate in node["gates"]), *report["runs"]):
        gates.setdefault(part["gate"], Counter())[part["outcome"]] += 1
    unseen = tuple(item["gate"] for item in report.get("unseen", []))
    return Covered(tuple(phases), dict(sorted(gates.items())), nodes, unseen)
