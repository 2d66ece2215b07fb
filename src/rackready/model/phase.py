"""What a phase is told and what it gives back: one tool run for a batch of nodes, a result per node."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rackready.model.outcome import Outcome


@dataclass(frozen=True, slots=True)
class PhaseContext:
    """Where a phase runs: the environment, the checkout, the campaign that asks, and whether nothing may be changed."""

    env: str
    root: Path
    campaign: str
    check: bool = False
    again: bool = False
    """Measure also what valid evidence spares; a fail on record stays one."""
    site_digest: str = ""
    """The stored site that the campaign works on (design.pinned); empty: the site file as it is now."""


PLAN = "plan"
"""In a result's data: what a dry run would do with the node, as JSON types."""


@dataclass(frozen=True, slots=True)
class NodeResult:
    """What became of one node (or switch) in one phase."""

    outcome: Outcome
    message: str = ""
    changed: bool = False
    data: dict[str, Any] = field(default_factory=dict)
    touched: bool = True
    """False: the phase surely did nothing to it, so what was measured on it before still counts."""
