"""Interfaces of what pulled phases use beside the ledger: releases, the server, the nodes. Tests have their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rackready.campaign.drained_phase import Results
from rackready.drivers.release_report import PullReport
from rackready.handover.dsse import Signer
from rackready.model.phase import PhaseContext
from rackready.model.problems import RackreadyError

UNIT = "rackready-pull.service"


@dataclass(frozen=True, slots=True)
class BuiltRelease:
    """A node's release: the SHA-256 of its document, and the document's size."""

    release: str
    size: int


class OrderingError(RackreadyError):
    """Nothing can be ordered."""


class Releases(Protocol):
    """Builds releases."""

    def built(self, nodes: Sequence[str], playbook: str) -> Mapping[str, BuiltRelease | str]:
        """Return node -> its release for a playbook, or why it has none."""

    def served(self, release: str) -> None:
        """Check that nodes can fetch a release. Raises OrderingError."""

    def sealed(self, node: str, variables: Mapping[str, Any]) -> Mapping[str, str | int]:
        """Store variables that only this node can read; return hash and size."""


class Agents(Protocol):
    """Knows the agent that nodes must have."""

    @property
    def digest(self) -> str:
        """Return the SHA-256 of the agent's program, as the agent reports it."""

    def wanted(self, node: str) -> str:
        """Return a digest of all that the first contact puts on a node."""

    def push(self, ctx: PhaseContext, nodes: Sequence[str]) -> Results:
        """Put the agent and its configuration on nodes."""


@dataclass(frozen=True, slots=True)
class Triggered:
    """Whether the agent was started: ``failure`` tells why not; ``absent``: the node has none."""

    failure: str = ""
    absent: bool = False


Trigger = Callable[[str], Triggered]
"""Starts a node's agent, and does not wait for it. Raises Interrupted."""
Open = Callable[[str, bytes], PullReport]
"""Returns what a node sent as its report, verified. Raises RackreadyError."""


@dataclass(frozen=True, slots=True)
class PullServices:
    """All of them. ``machine`` returns the fingerprint of a node's pinned host key."""

    releases: Releases
    agents: Agents
    trigger: Trigger
    open_report: Open
    signer: Signer
    machine: Callable[[str], str]
