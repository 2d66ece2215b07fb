"""The life of a node."""

from __future__ import annotations

from enum import StrEnum


class NodeState(StrEnum):
    """States in the order of a node's life, then the side states."""

    DECLARED = "declared"
    REACHABLE = "reachable"
    INVENTORIED = "inventoried"
    BASELINED = "baselined"
    PROVISIONED = "provisioned"
    INSTALLED = "installed"
    CONNECTED = "connected"
    VALIDATED = "validated"
    OPTIMIZED = "optimized"
    CERTIFIED = "certified"
    READY = "ready"
    QUARANTINED = "quarantined"
    STUCK = "stuck"
    REPAIR = "repair"
    RETIRED = "retired"


OUT = frozenset({NodeState.QUARANTINED, NodeState.REPAIR, NodeState.RETIRED})
"""States of nodes on which no job may start."""

LIFE = tuple(list(NodeState)[: list(NodeState).index(NodeState.READY) + 1])
"""The states up to ready, in order."""


def at_least(state: NodeState, wanted: NodeState) -> bool:
    """Return whether a node in ``state`` has reached ``wanted``. Side states never have."""
    return state in LIFE and LIFE.index(state) >= LIFE.index(wanted)
