"""The trend of a site from its evidence, and its rows as JSON types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rackready.evidence.store import EvidenceStore
from rackready.gates.base import FleetMetric
from rackready.gates.engine.registry import all_gates
from rackready.gates.trend.judged import Against, TrendRow, judged
from rackready.gates.trend.past import Pasts
from rackready.model.site import Site

_DAY_S = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class TrendScope:
    """Which figures. ``node`` and ``gate``: "" for all."""

    days: int
    node: str = ""
    gate: str = ""


def trend(site: Site, store: EvidenceStore, asked: TrendScope, now: float) -> list[TrendRow]:
    """Return the figures of the site's nodes. With a node, the others are read too: they are its fleet."""
    platforms = {node.name: node.platform for node in site.nodes()}
    records = store.figures(now - asked.days * _DAY_S, gate=asked.gate)
    rows = judged(Pasts.of(records, frozenset(platforms)), declared(), platforms)
    return [row for row in rows if not asked.node or asked.node in row.nodes]


def declared() -> Mapping[tuple[str, str], FleetMetric]:
    """Return (gate, metric) -> how the gate compares it."""
    return {(gate.id, metric.name): metric for gate in all_gates().values() for metric in gate.fleet}


def document(row: TrendRow, *, readings: bool) -> dict[str, Any]:
    """Return a row as JSON types; with ``readings``, those of its present era."""
    step = row.step
    out = {
        **row.key._asdict(),
        "nodes": list(row.nodes),
        "outcome": row.outcome.value,
        "now": row.now,
        "better": row.better,
        "effect": "declared" if row.declared else "assumed",
        "past": {
            **_against(row.past),
            "of": row.past.of,
            "readings": len(row.readings),
            "since": text(row.readings[0].at),
        },
        "fleet": _against(row.fleet),
        "measured": text(row.readings[-1].at),
        "step": None
        if step is None
        else {"at": text(step.at), "what": step.what, "before": step.before, "after": step.after},
    }
    return {**out, "values": [[text(one.at), one.value] for one in row.readings]} if readings else out


def lines(rows: list[TrendRow]) -> Iterator[tuple[str, ...]]:
    """Yield a line of CSV for each reading of the present eras, after a head."""
    yield ("time", "nodes", "target", "gate", "metric", "value", "unit", "outcome")
    for row in rows:
        for one in row.readings:
            yield (
                text(one.at),
                " ".join(row.nodes),
                row.key.target,
                row.key.gate,
                row.key.metric,
                repr(one.value),
                row.key.unit,
                row.outcome.value,
            )


def text(at: float) -> str:
    """Return a time in UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _against(found: Against) -> dict[str, Any]:
    return {"result": found.result.value, "why": found.why, "median": found.centre, "bound": found.bound}
