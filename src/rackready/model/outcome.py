"""Outcomes, findings and verdicts: the words in which rackready says what a measurement means."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from pydantic import Field, model_validator

from rackready.model.base import Model


class Outcome(StrEnum):
    """What became of one gate on one target. Error never counts as pass."""

    PASS = "pass"  # noqa: S105 - an outcome
    FAIL = "fail"
    ERROR = "error"
    SKIP = "skip"
    NOT_RUN = "not_run"


CONTINUES = frozenset({Outcome.PASS, Outcome.SKIP})
"""With these a node goes on to the next gate or phase."""

_ORDER = (Outcome.PASS, Outcome.SKIP, Outcome.NOT_RUN, Outcome.ERROR, Outcome.FAIL)


def worst(outcomes: list[Outcome]) -> Outcome:
    """Return the worst of several outcomes; of none at all: not_run, because nothing was measured."""
    return max(outcomes, key=_ORDER.index, default=Outcome.NOT_RUN)


class Op(StrEnum):
    """How a metric is held against its bound. A closed set: never a string that is evaluated."""

    GE = "ge"
    LE = "le"
    EQ = "eq"


class Metric(Model):
    """One measured number."""

    name: str
    target: str = Field(description="what it was measured on: node03/gpu2, node01/mlx5_0->node02/mlx5_0")
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
    derived: bool = Field(default=False, description="computed by us from topology rather than published or measured")
    inputs: dict[str, float | str] = Field(default_factory=dict)


class Finding(Model):
    """One thing that is not as it should be."""

    code: str = Field(
        "",
        description="kind of finding, for programs: 'nvlink-down'; "
        "empty where no gate made it, and in records from before "
        "there were codes",
    )
    where: str = Field(description="node and part: 'node03 gpu2'")
    what: str = Field(description="'NVLink down'")
    expected: str
    actual: str
    next_step: str
    nodes: list[str] = Field(
        default_factory=list,
        description="nodes that it is about beside that of its place: senders of a run into another node",
    )

    def __str__(self) -> str:
        return f"{self.where}: {self.what} - Expected: {self.expected} Actual: {self.actual}. {self.next_step}"


FLEET_PENDING = "fleet pending"
"""How a pass is called that no bound could judge."""


class Verdict(Model):
    """What a gate says of one target."""

    outcome: Outcome
    findings: list[Finding] = Field(default_factory=list)
    metrics: list[Metric] = Field(default_factory=list)
    criteria: list[Criterion] = Field(default_factory=list)
    measured: list[str] = Field(
        default_factory=list,
        description="parts that this run really measured (coverage): node01/gpu0, node01/mlx5_0, ...",
    )
    blamed: list[str] = Field(
        default_factory=list, description="nodes to which a fail belongs, for pair and group gates"
    )
    transport: str | None = Field(None, description="transport really used, where the gate moves data")
    fleet_pending: bool = Field(
        default=False,
        description="no bound could judge a pass: only its fleet can, and until then no required gate is satisfied",
    )
    note: str | None = Field(None, description="what a reader should know beside the findings, or the reason of a skip")

    @model_validator(mode="before")
    @classmethod
    def _pending_as_a_word(cls, given: Any) -> Any:  # noqa: ANN401 - whatever is to be validated
        """Read a verdict of rackready before this field: the note said it."""
        if not isinstance(given, Mapping) or "fleet_pending" in given:
            return given
        notes = str(given.get("note") or "").split("; ")
        if FLEET_PENDING not in notes:
            return given
        rest = "; ".join(part for part in notes if part != FLEET_PENDING)
        return {**given, "fleet_pending": True, "note": rest or None}

    @property
    def remarks(self) -> str:
        """Return what is printed behind the outcome: that its fleet must judge it, and the note."""
        return "; ".join(part for part in (FLEET_PENDING if self.fleet_pending else "", self.note) if part)
