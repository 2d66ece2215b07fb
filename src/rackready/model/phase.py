"""Input and output of a phase: one tool run for a batch of nodes, one result per node."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rackready.model.outcome import Finding, Outcome


@dataclass(frozen=True, slots=True)
class PhaseContext:
    """The context of a phase: environment, checkout, campaign, and whether it is a dry run."""

    env: str
    root: Path
    campaign: str
    check: bool = False
    again: bool = False
    """Also measure gates with valid evidence. A recorded fail stays a fail."""
    phases: tuple[str, ...] = ()
    """The campaign's phases, in order."""
    erase: tuple[str, ...] = ()
    """Nodes whose disks may be erased (``--erase``)."""
    beside: tuple[str, ...] = ()
    """Nodes outside the campaign that may serve as partners in gates of several nodes; nothing else is done to them."""
    full: bool = False
    """Also play nodes that could prove that they are as their release says (``--full``)."""
    site_digest: str = ""
    """Digest of the stored site of the campaign (design.pinned); empty: the site file as it is now."""


NOTE = "note"
"""In a result's data: what is still due although the node reaches the phase's state."""
REACHED = "reached"
"""In a result's data: state -> note on it, for states that the node has reached, in their order. A result that is not
good has those before its fault."""
PLAN = "plan"
"""In a result's data: what a dry run would do with the node, as JSON types."""
DRAINED = "drained"
"""In a result's data: the node is drained already, with a reason that must stay."""
UNTOUCHED = "untouched"
"""In a result's data: nothing was done to the node, and it is not drained for this result."""
TOGETHER = "together"
"""In a result's data: the node of its NVLink domain that stays as it is, and this one with it."""
BROKEN = "broken"
"""In a bad result of a playbook: role and task of what failed."""
FINDINGS = "findings"
"""In a result's data: what was found, with codes, as JSON types; the message has the same in words."""


def finding_documents(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Return findings as JSON types."""
    return [finding.model_dump(mode="json") for finding in findings]


@dataclass(frozen=True, slots=True)
class NodeResult:
    """Result of one node or switch in one phase."""

    outcome: Outcome
    message: str = ""
    changed: bool = False
    data: dict[str, Any] = field(default_factory=dict)
    touched: bool = True
    """False: the phase certainly changed nothing on it, so earlier evidence still counts."""
