"""What a report shows at a glance: racks with the outcome of each node, every gate of every node, and the pairs that were measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rackready.model.outcome import Outcome, worst
from rackready.model.site import Site

SIGNS: Mapping[str, str] = {"pass": "P", "fail": "F", "error": "E", "skip": "S", "not_run": "N"}
"""A letter for each outcome: colour alone does not reach everybody, nor a printer."""

MOST_COLUMNS = 48
"""More nodes than this make no table that can be read: the pair matrix then holds only nodes with a pair that did not pass."""

Cells = list[dict[str, Any]]


def racks(site: Site, nodes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return racks in the site's order: name, and a cell for each node from the top unit down (name, state, outcome, sign)."""
    by_name = {node["name"]: node for node in nodes}
    out = []
    for rack in site.racks:
        members = sorted((node for node in rack.nodes if node.name in by_name), key=lambda node: -(node.unit or 0))
        cells = [_cell(by_name[node.name], node.unit) for node in members]
        if cells:
            out.append({"name": rack.name, "cells": cells, "outcomes": _counts(cells)})
    return out


def _cell(node: Mapping[str, Any], unit: int | None) -> dict[str, Any]:
    return {"name": node["name"], "unit": unit, "state": node["state"], "outcome": node["outcome"], "sign": SIGNS[node["outcome"]]}


def _counts(cells: Cells) -> dict[str, int]:
    return {name: count for name in SIGNS if (count := sum(1 for cell in cells if cell["outcome"] == name))}


def gate_table(nodes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return every gate of every node: ``gates`` (ids) and ``rows`` (node, cells in the gates' order; a gate without a record is not_run)."""
    gates = list(dict.fromkeys(item["gate"] for node in nodes for item in node["gates"]))
    rows = []
    for node in nodes:
        found = {item["gate"]: item["outcome"] for item in node["gates"]}
        cells = [{"outcome": found.get(gate, Outcome.NOT_RUN.value), "sign": SIGNS[found.get(gate, Outcome.NOT_RUN.value)]} for gate in gates]
        rows.append({"node": node["name"], "cells": cells})
    return {"gates": gates, "rows": rows}


def pairs(runs: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a matrix for each gate over two nodes: gate, nodes, rows of cells (outcome, sign, lowest value, unit, runs), symmetric."""
    by_gate: dict[str, dict[tuple[str, str], list[Mapping[str, Any]]]] = {}
    for run in runs:
        if run["gate"].startswith("pair/"):
            first, second = sorted(run["nodes"])
            by_gate.setdefault(run["gate"], {}).setdefault((first, second), []).append(run)
    return [_matrix(gate, found) for gate, found in by_gate.items()]


def _matrix(gate: str, found: Mapping[tuple[str, str], Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    nodes = sorted({node for pair in found for node in pair})
    cells = {pair: _pair(items) for pair, items in found.items()}
    left_out = 0
    if len(nodes) > MOST_COLUMNS:
        bad = sorted({node for pair, cell in cells.items() if cell["outcome"] != "pass" for node in pair})[:MOST_COLUMNS]
        left_out, nodes = len(nodes) - len(bad), bad
    rows = [{"node": one, "cells": [cells.get((min(one, other), max(one, other))) for other in nodes]} for one in nodes]
    return {"gate": gate, "nodes": nodes, "rows": rows, "pairs": len(cells), "left_out": left_out}


def _pair(items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the pair as its newest runs leave it: one a target, so that a second attempt replaces the first."""
    newest = {item["target"]: item for item in items}
    outcome = worst([Outcome(item["outcome"]) for item in newest.values()]).value
    lowest = min((metric for item in newest.values() for metric in item["metrics"]), key=lambda metric: float(metric["value"]), default=None)
    return {
        "outcome": outcome,
        "sign": SIGNS[outcome],
        "value": None if lowest is None else lowest["value"],
        "unit": "" if lowest is None else lowest["unit"],
        "runs": len(newest),
        "bad": sorted(target for target, item in newest.items() if item["outcome"] != "pass"),
    }
