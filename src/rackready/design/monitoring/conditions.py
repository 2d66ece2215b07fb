"""The one table of conditions. Counters, rules, routes and dashboards are made from it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from rackready.design.monitoring.condition import Condition, Record, metrics_of
from rackready.design.monitoring.counters import DCGM
from rackready.design.monitoring.gpu_conditions import GPU_CONDITIONS, GPU_RECORDS
from rackready.design.monitoring.host_conditions import HOST_CONDITIONS, HOST_RECORDS
from rackready.design.monitoring.own_conditions import OWN_CONDITIONS, OWN_RECORDS
from rackready.design.monitoring.watch_conditions import WATCH_CONDITIONS
from rackready.design.monitoring.xid_conditions import xid_conditions


@dataclass(frozen=True, slots=True)
class Topic:
    """Records and conditions that are evaluated together, records first."""

    name: str
    records: tuple[Record, ...]
    conditions: tuple[Condition, ...]


@cache
def topics() -> tuple[Topic, ...]:
    """Return every topic."""
    return (
        Topic("rackready-xid", (), tuple(xid_conditions())),
        Topic("rackready-gpu", GPU_RECORDS, GPU_CONDITIONS),
        Topic("rackready-host", HOST_RECORDS, HOST_CONDITIONS),
        Topic("rackready-own", OWN_RECORDS, OWN_CONDITIONS),
        Topic("rackready-watch", (), WATCH_CONDITIONS),
    )


def conditions() -> tuple[Condition, ...]:
    """Return every condition."""
    return tuple(condition for topic in topics() for condition in topic.conditions)


@cache
def by_id() -> dict[str, Condition]:
    """Return every condition by its id."""
    return {condition.id: condition for condition in conditions()}


def records() -> dict[str, Record]:
    """Return every recording rule by name."""
    return {record.name: record for topic in topics() for record in topic.records}


def counters(panels: tuple[str, ...] = ()) -> list[str]:
    """Return the counters of dcgm-exporter that conditions, records and these expressions of panels read."""
    read = [condition.expr for condition in conditions()] + [record.expr for record in records().values()]
    found = {metric for expr in (*read, *panels) for metric in metrics_of(expr)}
    return sorted(found & DCGM.keys())
