"""What a condition is: a fault that a metric shows, with the words for people and the action."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from rackready.model.state import LIFE, NodeState

NODE = "site, rack, unit, node"
"""Labels of a node, which targets and rackready's own metrics both carry. On both sides of a join, so that the result
keeps them."""
AWAY_STATES = (*LIFE[: LIFE.index(NodeState.CONNECTED)], NodeState.REPAIR, NodeState.RETIRED)
"""States of nodes that nobody expects to answer, to have all GPUs, or links on all rails."""
_STATE, _AWAY = (
    "rackready_node_state",
    f'rackready_node_state{{state=~"{"|".join(state.value for state in AWAY_STATES)}"}}',
)
"""One series for each node, with its state as a label."""


def _kept(series: str) -> str:
    """Return a series, for an hour also as it was last seen: the machine of rackready may be restarting."""
    return f"({series} or (last_over_time({series}[1h]) unless on ({NODE}) {_STATE}))"


AWAY, KNOWN = _kept(_AWAY), _kept(_STATE)
"""The nodes that nobody expects, and all nodes whose state is known."""
_METRIC = re.compile(r"\b(?:DCGM_(?:FI|EXP)|node|rackready)_\w+|\bup\b")
_RECORD = re.compile(r"\b[a-z]+:\w+:\w+")


class Severity(StrEnum):
    """How soon somebody must act: now, today, or not at all."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


class Scope(StrEnum):
    """What a condition is about. Its labels name the thing."""

    GPU = "gpu"
    RAIL = "rail"
    NODE = "node"
    SWITCH = "switch"
    RACK = "rack"
    SITE = "site"


class Act(StrEnum):
    """What `rackready watch` does about a condition."""

    DRAIN = "drain"
    """Drain the node, keep evidence, open a ticket."""
    TICKET = "ticket"
    """Keep evidence and open a ticket. The node stays in production."""
    RECORD = "record"
    """Record it."""
    NONE = "none"
    """Nothing: only Prometheus knows it."""


@dataclass(frozen=True, slots=True)
class Record:
    """A recording rule. ``name``: level:metric:operations, as Prometheus' own practice asks for."""

    name: str
    expr: str
    unit: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Condition:
    """One fault. ``expr``: PromQL that returns a series for each faulty thing, in ``unit``.

    ``for_s``: how long it must hold before it is an alert. ``keep_s``: how long the alert stays after the series ended,
    for events that a metric shows for a short time only. ``action``: NVIDIA's word for what to do, empty where the
    catalogue has none. ``source``: where metric and threshold come from. ``actual`` may use ``$value`` and ``$labels``.
    ``hold_s``: how long watch must see it, where the alert waits for nothing more: its series is what watch found.
    ``watch``: what `rackready watch` does. ``job_lost``: the jobs of the node computed wrong results or cannot go on.
    """

    id: str
    severity: Severity
    scope: Scope
    meaning: str
    expr: str
    unit: str
    expected: str
    actual: str
    next_step: str
    source: str
    for_s: int = 0
    hold_s: int = 0
    keep_s: int = 0
    action: str = ""
    watch: Act = Act.NONE
    job_lost: bool = False

    @property
    def metrics(self) -> tuple[str, ...]:
        """Return the metrics that the expression reads; those behind recording rules are not listed."""
        return metrics_of(self.expr)

    @property
    def records(self) -> tuple[str, ...]:
        """Return the recording rules that the expression reads."""
        return tuple(sorted(set(_RECORD.findall(self.expr))))


def metrics_of(expr: str) -> tuple[str, ...]:
    """Return the metrics that an expression reads; those behind recording rules are not listed."""
    return tuple(sorted({*_METRIC.findall(_RECORD.sub("", expr))}))


PLACES = {
    Scope.GPU: "node {{ $labels.node }} GPU {{ $labels.gpu }}",
    Scope.RAIL: "node {{ $labels.node }} rail {{ $labels.rail }} ({{ $labels.device }}, {{ $labels.switch }} "
    "{{ $labels.switch_port }})",
    Scope.NODE: "node {{ $labels.node }}",
    Scope.SWITCH: "switch {{ $labels.switch }}",
    Scope.RACK: "rack {{ $labels.rack }}",
    Scope.SITE: "site {{ $labels.site }}",
}
"""Place of an alert, in the words of Prometheus' templates."""
