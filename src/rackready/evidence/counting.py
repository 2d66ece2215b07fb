"""What of a report's evidence still counts: a record that does not is never shown as a pass.

The rules are the handover's (``handover.policy``); this module only shows what they say about a node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from rackready.evidence.node_report import Document, outcome
from rackready.ledger.store import Ledger
from rackready.model.evidence import COVERAGE, EvidenceRecord
from rackready.model.outcome import CONTINUES, Outcome
from rackready.model.site import Site


@dataclass(frozen=True, slots=True)
class Objection:
    """What is said of a gate's evidence. ``voids``: whether a pass of it counts no more; else it is a note."""

    text: str
    voids: bool


class Counting(Protocol):
    """Says of a node's evidence what does not count, in the worker that reads it."""

    def begin(self, site: Site, ledger: Ledger) -> None:
        """Prepare a worker."""

    def objections(self, name: str, newest: Mapping[str, EvidenceRecord]) -> Mapping[str, Objection]:
        """Return gate -> why its evidence does not count: ``newest`` is what the report shows of the node."""


def marked(found: Document, objections: Mapping[str, Objection]) -> Document:
    """Return a node's document in which no record that an objection is about passes.

    A pass or skip of a required gate becomes not_run, a required gate without a record gets an entry, and an advisory
    gate gets a note. Fails and errors stay as they are.
    """
    if not objections:
        return found
    shown = {item["gate"] for item in found["gates"]}
    gates = [_marked(item, objections.get(item["gate"])) for item in found["gates"]]
    gates += [
        _absent(found["name"], gate, why.text)
        for gate, why in objections.items()
        if why.voids and gate not in shown and gate != COVERAGE
    ]
    coverage = _coverage(found["coverage"], objections.get(COVERAGE))
    about = {"gates": gates, "coverage": coverage, "outcome": outcome(gates, coverage, found["result"])}
    return {**found, **about}


def _marked(item: Document, why: Objection | None) -> Document:
    if why is None or item["outcome"] not in CONTINUES:
        return item
    if not why.voids:
        return {**item, "note": _joined(item["note"], why.text)}
    then = f"{item['outcome']} on record at {item['finished']} ({item['campaign']})"
    return {
        **item,
        "outcome": Outcome.NOT_RUN.value,
        "fleet_pending": False,
        "note": f"{why.text} It was: {_joined(then, item['note'])}.",
        "void": True,
    }


def _joined(*texts: str | None) -> str:
    return "; ".join(text for text in texts if text)


def _absent(node: str, gate: str, why: str) -> dict[str, Any]:
    """Return the entry of a gate without a record."""
    times = dict.fromkeys(("id", "campaign", "started", "finished"), "")
    lists: dict[str, list[Any]] = {
        name: [] for name in ("findings", "metrics", "criteria", "measured", "blamed", "raw")
    }
    return {
        "title": gate,
        **times,
        "gate": gate,
        "target": node,
        "nodes": [node],
        "inputs": {},
        "outcome": Outcome.NOT_RUN.value,
        **lists,
        "transport": None,
        "fleet_pending": False,
        "note": why,
        "seconds": 0.0,
        "void": True,
    }


def _coverage(found: Document, why: Objection | None) -> Document:
    if why is None or found["outcome"] not in CONTINUES:
        return found
    return {**found, "outcome": Outcome.NOT_RUN.value, "note": why.text, "void": True}
