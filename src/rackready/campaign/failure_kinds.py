"""What went wrong with a node, by code: a kind of failure that no earlier wave had stops a deploy or an upgrade."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rackready.evidence.store import EvidenceStore
from rackready.model.outcome import CONTINUES
from rackready.model.phase import BROKEN, FINDINGS


def kinds(node: str, result: Mapping[str, Any], campaign: str, store: EvidenceStore) -> list[str]:
    """Return what went wrong with a node: codes of gates, of its phase, the task that failed; else phase and outcome.

    ``result``: ``phase`` and ``outcome`` of the node's last phase, and what else that phase returned.
    """
    if result["outcome"] in CONTINUES:
        return []
    phase = result["phase"]
    findings: Sequence[object] = result.get(FINDINGS) or []  # the gates' are words: their codes are in the evidence
    found = of_gates(node, campaign, store)
    found |= {f"{phase} {one['code']}" for one in findings if isinstance(one, dict) and one.get("code")}
    found |= {f"{phase} {task}" for task in result.get(BROKEN, [])}
    return sorted(found) or [f"{phase} {result['outcome']}"]


def of_gates(node: str, campaign: str, store: EvidenceStore) -> set[str]:
    """Return gate and code of what gates found on a node in a campaign."""
    return {
        f"{record.gate} {finding.code or record.verdict.outcome.value}"
        for record in store.records(node=node, campaign=campaign)
        if record.verdict.outcome.value not in CONTINUES
        for finding in record.verdict.findings
    }
