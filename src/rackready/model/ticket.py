"""A repair ticket: one fault of one part, from its finding to what was measured after the repair."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import AwareDatetime, Field

from rackready.model.base import Model


class TicketStatus(StrEnum):
    """Where a repair is."""

    OPEN = "open"
    REPAIRED = "repaired"
    """`rackready repair` was run; the node is not measured yet."""
    CLOSED = "closed"


class FaultyPart(Model):
    """The part that failed. Empty where it is not known."""

    name: str = Field(description="as in findings, e.g. gpu4, mlx5_2, nvswitch1, node")
    slot: str = Field("", description="PCI address, or switch and port at the other end of the cable")
    serial: str = Field("", description="serial number of the part, as last measured")
    model: str = Field("", description="model of the part")


class TicketNode(Model):
    """The node of a ticket."""

    name: str
    site: str
    rack: str
    unit: int | None = Field(None, description="lowest rack unit")
    serial: str = Field("", description="serial number of the chassis")
    platform: str


class TicketFinding(Model):
    """The finding, in the words of the condition with the same id in Prometheus."""

    condition: str
    severity: str
    action: str = Field("", description="NVIDIA's word in the Xid catalogue")
    meaning: str
    expected: str
    actual: str
    next_step: str
    source: str


class TicketDrain(Model):
    """How jobs are kept off the node."""

    at: AwareDatetime | None = Field(None, description="when it was drained; null: it was not")
    by: Literal["watch", "nightly", "other", "nobody"]
    reason: str = Field("", description="reason in the scheduler, or why it was not drained")
    jobs: list[str] = Field(default_factory=list, description="jobs that were on it, and what became of them")


class TicketEvidence(Model):
    """One output that was kept."""

    command: str
    sha256: str = Field("", description="hash under which `.rackready/ENV/raw` has it; empty: it could not be had")
    problem: str = Field("", description="why it could not be had")


class TicketClosed(Model):
    """The end of a ticket."""

    at: AwareDatetime
    by: Literal["validation", "operator"]
    reason: str
    gates_passed: int = Field(0, description="gates that passed on the node since its repair")
    gates_failed: list[str] = Field(default_factory=list, description="gates that failed on it since then")


class Ticket(Model):
    """A repair ticket."""

    schema_: Literal["rackready/ticket/v1"] = Field("rackready/ticket/v1", alias="schema")
    id: str
    env: str
    status: TicketStatus
    node: TicketNode
    part: FaultyPart
    finding: TicketFinding
    first_seen: AwareDatetime
    last_seen: AwareDatetime
    count: int = Field(description="how often it was seen")
    boot_id: str = Field("", description="boot of the node in which it was seen first")
    cursor: str = Field("", description="place in the node's journal; empty for what was polled")
    drain: TicketDrain
    evidence: list[TicketEvidence] = Field(default_factory=list)
    history: list[str] = Field(default_factory=list, description="what happened since, oldest first")
    closed: TicketClosed | None = None
