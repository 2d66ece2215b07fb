"""One node of a report as a JSON document: its state, the newest record of each gate, coverage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rackready.ledger.store import NodeRow
from rackready.model.evidence import COVERAGE, EvidenceRecord
from rackready.model.outcome import Outcome, Verdict, worst
from rackready.model.site import Node

Document = dict[str, Any]


JUDGING = frozenset({"validate", "revalidate", "certify"})
"""Phases whose results follow from evidence."""


def document(
    node: Node, row: NodeRow | None, newest: Mapping[str, EvidenceRecord], result: Mapping[str, Any] | None = None
) -> Document:
    """Return the document of a node: ``newest`` is gate -> the record that counts.

    ``result``: the node's last result in the campaign, if it took part: a phase may go wrong where every gate passed.
    """
    records = [record for gate, record in newest.items() if gate != COVERAGE]
    gates, coverage = [entry(record) for record in records], _coverage(newest.get(COVERAGE))
    fingerprint = next(
        (item for record in reversed(records) for item in record.fingerprints if item.node == node.name), None
    )
    return {
        "name": node.name,
        "serial": node.serial or "",
        "state": row.state.value if row else "declared",
        "reason": row.reason if row else "",
        "outcome": outcome(gates, coverage, result),
        "fingerprint": fingerprint.model_dump(mode="json") if fingerprint else None,
        "gates": gates,
        "coverage": coverage,
        "result": None if result is None else {name: result[name] for name in ("phase", "outcome", "message")},
    }


def outcome(
    gates: Iterable[Mapping[str, Any]], coverage: Mapping[str, Any], result: Mapping[str, Any] | None = None
) -> str:
    """Return the worst outcome of a node's gates, its coverage, and its last result in the campaign.

    Passes tell nothing about unmeasured parts.
    """
    found = [*gates, coverage, *([] if result is None else [result])]
    return worst([Outcome(item["outcome"]) for item in found]).value


def _coverage(record: EvidenceRecord | None) -> Document:
    if record is None:
        return {"outcome": Outcome.NOT_RUN.value, "counts": {}, "unmeasured": [], "skipped": {}, "measured_by": {}}
    return {
        "outcome": record.verdict.outcome.value,
        **{key: record.inputs.get(key, {}) for key in ("counts", "unmeasured", "skipped", "measured_by")},
    }


def entry(record: EvidenceRecord) -> Document:
    """Return one record as a report shows it, each finding with its text."""
    found = record.model_dump(mode="json", exclude={"fingerprints", "verdict"})
    inputs = dict(found.pop("inputs"))
    return {
        "title": inputs.pop("title", record.gate),
        **found,
        "inputs": inputs,
        **_plain(record.verdict),
        "seconds": round((record.finished - record.started).total_seconds(), 1),
    }


def with_verdict(found: Document, verdict: Verdict) -> Document:
    """Return an entry with another verdict."""
    return {**found, **_plain(verdict)}


def verdict_of(found: Mapping[str, Any]) -> Verdict:
    """Return the verdict of an entry."""
    findings = [{key: value for key, value in finding.items() if key != "text"} for finding in found["findings"]]
    return Verdict.model_validate(
        {name: found[name] for name in Verdict.model_fields if name in found} | {"findings": findings}
    )


def _plain(verdict: Verdict) -> Document:
    out = verdict.model_dump(mode="json")
    for finding, kept in zip(out["findings"], verdict.findings, strict=True):
        finding["text"] = str(kept)
    return out
