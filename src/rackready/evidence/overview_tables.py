"""The overview tables of a report: racks with the outcome of each node, gates by node, and measured pairs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rackready.evidence.attempts import counting_runs
from rackready.evidence.distribution import counted
from rackready.model.outcome import CONTINUES, Outcome, worst
from rackready.model.site import Site

SIGNS: Mapping[str, str] = {"pass": "P", "fail": "F", "error": "E", "skip": "S", "not_run": "N"}
"""A letter for each outcome: not everybody sees colours, and printers may not print them."""


_TIMES = frozenset({"us", "ms", "s"})
"""Units whose highest value is the worst. Of a rate it is the lowest."""

MOST_COLUMNS = 48
"""Most nodes of a readable table. A larger pair matrix shows only nodes with a pair that did not pass."""

PAIR = 2
"""Nodes of a run that the pair matrix shows."""

Cells = list[dict[str, Any]]


def racks(site: Site, nodes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return racks in the site's order: name, and cells from the top unit down (name, state, outcome, sign)."""
    by_name = {node["name"]: node for node in nodes}
    out = []
    for rack in site.racks:
        members = sorted((node for node in rack.nodes if node.name in by_name), key=lambda node: -(node.unit or 0))
        cells = [_cell(by_name[node.name], node.unit) for node in members]
        if cells:
            out.append({"name": rack.name, "cells": cells, "outcomes": _counts(cells)})
    return out


def _cell(node: Mapping[str, Any], unit: int | None) -> dict[str, Any]:
    return {
        "name": node["name"],
        "unit": unit,
        "state": node["state"],
        "outcome": node["outcome"],
        "sign": SIGNS[node["outcome"]],
    }


def _counts(cells: Cells) -> dict[str, int]:
    return {name: count for name in SIGNS if (count := sum(1 for cell in cells if cell["outcome"] == name))}


def gate_table(nodes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return every gate of every node: ``nodes`` (names of the columns), and ``layers`` with a row for each gate.

    The rows of a layer: ``bad``, where a node has a fail or an error, ``missing``, where a node has no result, and
    ``good``. Nodes that no gate has measured have no column.
    """
    nodes = [node for node in nodes if node["gates"]]
    gates = dict.fromkeys(item["gate"] for node in nodes for item in node["gates"])
    found = [{item["gate"]: item["outcome"] for item in node["gates"]} for node in nodes]
    layers: dict[str, dict[str, Any]] = {}
    for gate in gates:
        row = {"gate": gate, **_words(gate), "cells": [_sign(one.get(gate, Outcome.NOT_RUN.value)) for one in found]}
        layer = layers.setdefault(_layer(gate), {"name": _layer(gate), "bad": [], "missing": [], "good": []})
        layer[_room(row["cells"])].append(row)
    return {"nodes": [node["name"] for node in nodes], "layers": list(layers.values())}


def _room(cells: Cells) -> str:
    outcomes = {cell["outcome"] for cell in cells} - CONTINUES
    return "good" if not outcomes else "missing" if outcomes == {Outcome.NOT_RUN.value} else "bad"


def _sign(outcome: str) -> dict[str, str]:
    return {"outcome": outcome, "sign": SIGNS[outcome]}


def _layer(gate: str) -> str:
    """Return the layer of a gate's id (scope/layer/level/name). All gates of the BMC are one layer."""
    scope, layer = gate.split("/")[:2] if "/" in gate else ("", gate)
    return scope if scope == "bmc" else layer


def _words(gate: str) -> dict[str, str]:
    """Return the gate's name, and its scope, where that is not the node, with its level."""
    *before, name = gate.split("/")
    scope, level = (before[0], before[-1]) if before else ("", "")
    return {"name": name, "about": level if scope in {"node", "bmc"} else f"{scope} {level}"}


def pairs(runs: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a symmetric matrix for each gate over two nodes.

    It has gate, metric, unit, nodes, and rows of cells (outcome, sign, worst value, runs).
    """
    by_gate: dict[str, dict[tuple[str, str], list[Mapping[str, Any]]]] = {}
    for run in runs:
        if run["gate"].startswith("pair/"):
            first, second = sorted(run["nodes"])
            by_gate.setdefault(run["gate"], {}).setdefault((first, second), []).append(run)
    return [_matrix(gate, found) for gate, found in by_gate.items()]


def _matrix(gate: str, found: Mapping[tuple[str, str], Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    nodes = sorted({node for pair in found for node in pair})
    metric, unit = _shown(run for items in found.values() for run in items)
    cells = {pair: _pair(items, metric, unit) for pair, items in found.items()}
    left_out = 0
    if len(nodes) > MOST_COLUMNS:
        bad = sorted({node for pair, cell in cells.items() if cell["outcome"] not in CONTINUES for node in pair})[
            :MOST_COLUMNS
        ]
        left_out, nodes = len(nodes) - len(bad), bad
    rows = [{"node": one, "cells": [cells.get((min(one, other), max(one, other))) for other in nodes]} for one in nodes]
    about: dict[str, Any] = {"metric": metric, "unit": unit, "worst": "highest" if unit in _TIMES else "lowest"}
    not_passed = sum(1 for cell in cells.values() if cell["outcome"] not in CONTINUES)
    values = [cell["value"] for cell in cells.values() if cell["value"] is not None]
    about["range"] = (min(values), max(values)) if values else None
    return {
        "gate": gate,
        **about,
        "nodes": nodes,
        "rows": rows,
        "pairs": len(cells),
        "left_out": left_out,
        "bad": not_passed,
        "runs_bad": sorted(target for cell in cells.values() for target in cell["bad"]),
    }


def _shown(runs: Iterable[Mapping[str, Any]]) -> tuple[str, str]:
    """Return metric and unit of a matrix: the first that the gate judges, else the first that is no count or size."""
    first: tuple[str, str] = ("", "")
    for run in runs:
        judged = {item["metric"] for item in run["criteria"]}
        for metric in filter(counted, run["metrics"]):
            if metric["name"] in judged:
                return metric["name"], metric["unit"]
            first = first if first[0] else (metric["name"], metric["unit"])
    return first


def _pair(items: Sequence[Mapping[str, Any]], metric: str, unit: str) -> dict[str, Any]:
    """Return the cell of a pair from its runs that count: a second attempt replaces an error."""
    counting = counting_runs(items)
    outcome = worst([Outcome(item["outcome"]) for item in counting]).value
    values = [
        float(found["value"])
        for item in counting
        for found in item["metrics"]
        if (found["name"], found["unit"]) == (metric, unit)
    ]
    worst_value = max if unit in _TIMES else min
    return {
        "outcome": outcome,
        "sign": SIGNS[outcome],
        "value": worst_value(values, default=None),
        "unit": unit,
        "runs": len({item["target"] for item in counting}),
        "bad": sorted({item["target"] for item in counting if item["outcome"] not in CONTINUES}),
    }
