"""Outcomes, findings and verdicts of measurements."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from pydantic import Field, model_validator

from rackready.model.base import Model
from rackready.model.place import stored, unit_of
from rackready.model.problems import quoted


class Outcome(StrEnum):
    """Outcome of one gate on one target. Error never counts as pass."""

    PASS = "pass"  # noqa: S105 - an outcome
    FAIL = "fail"
    ERROR = "error"
    SKIP = "skip"
    NOT_RUN = "not_run"


CONTINUES = frozenset({Outcome.PASS, Outcome.SKIP})
"""Outcomes with which a node continues to the next gate or phase."""

_ORDER = (Outcome.PASS, Outcome.SKIP, Outcome.NOT_RUN, Outcome.ERROR, Outcome.FAIL)


def worst(outcomes: list[Outcome]) -> Outcome:
    """Return the worst of several outcomes; not_run when there are none, because nothing was measured."""
    return max(outcomes, key=_ORDER.index, default=Outcome.NOT_RUN)


class Op(StrEnum):
    """Comparison of a metric with its bound. A closed set: never a string that is evaluated."""

    GE = "ge"
    LE = "le"
    EQ = "eq"


class Metric(Model):
    """One measured number."""

    name: str
    target: str = Field(description="measured part: node03/gpu2, node01/mlx5_0->node02/mlx5_0")
    value: float
    unit: str


class Criterion(Model):
    """One bound, with its inputs and source, as it was applied."""

    metric: str
    op: Op
    bound: float
    unit: str
    label: str = Field(description="ceiling, reference, floor, fleet or identity")
    source: str
    derived: bool = Field(default=False, description="computed from the topology, not published or measured")
    inputs: dict[str, float | str] = Field(default_factory=dict)


class Finding(Model):
    """One deviation from the expected state."""

    code: str = Field(
        "",
        description="kind of finding, for programs: 'nvlink-down'; "
        "empty when no gate made it, and in records from before "
        "there were codes",
    )
    where: str = Field(description="node and part, for readers: 'node03 gpu2', 'node03 mlx5_0 (rail 3)'")
    node: str = Field("", description="node, switch or rack device that it is about: 'node03'")
    part: str = Field("", description="part of it: 'gpu2'; empty when it is about the whole")
    what: str = Field(description="'NVLink down'")
    expected: str
    actual: str
    next_step: str
    nodes: list[str] = Field(
        default_factory=list,
        description="further nodes that the finding concerns, e.g. the senders of a run into another node",
    )

    @model_validator(mode="before")
    @classmethod
    def _place_from_words(cls, given: Any) -> Any:  # noqa: ANN401 - whatever is to be validated
        """Return a finding in today's form: evidence from before these fields, and other packages, give words alone."""
        if not isinstance(given, Mapping) or "node" in given or not isinstance(given.get("where"), str):
            return given
        place = stored(given)
        return {**given, "where": str(place), "node": place.node, "part": place.part}

    @property
    def unit(self) -> str:
        """Return its place as coverage names parts: 'node03/gpu2'."""
        return unit_of(self.node, self.part)

    @property
    def inside(self) -> str:
        """Return its place without the node, for readers: 'gpu2', 'mlx5_0 (rail 3)'; empty for the whole node."""
        return stored({"where": self.where, "node": self.node, "part": self.part}).inside

    def __str__(self) -> str:
        return f"{self.where}: {self.what} - Expected: {self.expected} Actual: {quoted(self.actual)}. {self.next_step}"


FLEET_PENDING = "fleet pending"
"""Name of a pass that no bound could judge."""


class Verdict(Model):
    """Verdict of a gate on one target."""

    outcome: Outcome
    findings: list[Finding] = Field(default_factory=list)
    metrics: list[Metric] = Field(default_factory=list)
    criteria: list[Criterion] = Field(default_factory=list)
    measured: list[str] = Field(
        default_factory=list,
        description="parts that this run measured (coverage): node01/gpu0, node01/mlx5_0, ...",
    )
    blamed: list[str] = Field(
        default_factory=list, description="nodes to which a fail belongs, for pair and group gates"
    )
    transport: str | None = Field(None, description="transport in use, when the gate moves data")
    fleet_pending: bool = Field(
        default=False,
        description="no bound could judge a pass; it satisfies no required gate until its fleet is compared",
    )
    note: str | None = Field(None, description="note for readers in addition to the findings, or the reason of a skip")

    @model_validator(mode="before")
    @classmethod
    def _pending_as_a_word(cls, given: Any) -> Any:  # noqa: ANN401 - whatever is to be validated
        """Return a verdict in today's form: before this field, the note contained it."""
        if not isinstance(given, Mapping) or "fleet_pending" in given:
            return given
        notes = str(given.get("note") or "").split("; ")
        if FLEET_PENDING not in notes:
            return given
        rest = "; ".join(part for part in notes if part != FLEET_PENDING)
        return {**given, "fleet_pending": True, "note": rest or None}

    @property
    def remarks(self) -> str:
        """Return the remarks after the outcome: that the fleet must judge it, and the note."""
        return "; ".join(part for part in (FLEET_PENDING if self.fleet_pending else "", self.note) if part)
