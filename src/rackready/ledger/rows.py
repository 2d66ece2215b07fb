"""Rows of the ledger as callers get them: effects, node states, lines of progress."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rackready.model.state import NodeState

DETAIL = "detail"
"""Level of a step that goes well: a role, a change, a gate that begins or passes. Commands show it on demand."""
FAILED = "fail"
"""Level of the last event of a phase that failed on a node. Level error: the phase could not judge the node."""

IMPORT = "import"
"""Kind of a campaign that imports evidence and touches no node."""
NIGHTLY = "nightly"
"""Kind of the row of a night, which is written when it has ended: it is no campaign that could be cut off."""
BESIDE = frozenset({IMPORT, NIGHTLY})
"""Kinds of rows that must not hide that a campaign was cut off."""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One effect: ``status`` is intent (begun, its end unknown), done or failed."""

    token: int
    node: str
    operation: str
    desired: str
    epoch: int
    status: str
    observed: dict[str, Any]
    result: dict[str, Any]
    begun: float
    ended: float | None


@dataclass(frozen=True, slots=True)
class NodeRow:
    """The state of one node."""

    name: str
    state: NodeState
    reason: str
    phase: str
    campaign: str
    epoch: int
    since: float


@dataclass(frozen=True, slots=True)
class StateRow:
    """A state that a node came to, or another reason for it. ``at``: seconds since 1970."""

    state: NodeState
    reason: str
    campaign: str
    at: float


@dataclass(frozen=True, slots=True)
class EventRow:
    """One line of progress."""

    id: int
    campaign: str
    node: str
    phase: str
    level: str
    text: str
    at: float


def words(text: str) -> str:
    """Return a text without NUL characters, which PostgreSQL does not store."""
    return text.replace("\0", "\ufffd")
