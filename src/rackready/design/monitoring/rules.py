"""Rules of Prometheus as plain data: recording rules and alerts."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from rackready.design.monitoring.condition import PLACES, Condition, Record
from rackready.design.monitoring.conditions import topics

Document = dict[str, Any]


def rules(without: Collection[str] = ()) -> Document:
    """Return the rules file: a group for each topic, recording rules before the alerts that read them.

    ``without``: alerts that are left out.
    """
    return {
        "groups": [
            {
                "name": topic.name,
                "rules": [
                    *map(_record, topic.records),
                    *(_alert(item) for item in topic.conditions if item.id not in without),
                ],
            }
            for topic in topics()
        ]
    }


def _record(record: Record) -> Document:
    return {"record": record.name, "expr": record.expr}


def _alert(condition: Condition) -> Document:
    found: Document = {"alert": condition.id, "expr": condition.expr}
    if condition.for_s:
        found["for"] = f"{condition.for_s}s"
    if condition.keep_s:
        found["keep_firing_for"] = f"{condition.keep_s}s"
    labels = {"severity": condition.severity.value, "scope": condition.scope.value}
    if condition.action:
        labels["action"] = condition.action
    return found | {"labels": labels, "annotations": words(condition)}


def words(condition: Condition) -> dict[str, str]:
    """Return the words of an alert: place, meaning, Expected, Actual and the next step."""
    place = PLACES[condition.scope]
    next_step = condition.next_step.replace("NODE", "{{ $labels.node }}")
    return {
        "summary": f"{place}: {condition.meaning}",
        "description": f"{place} - Expected: {condition.expected} Actual: {condition.actual}. {next_step}",
        "expected": condition.expected,
        "actual": condition.actual,
        "next_step": next_step,
        "source": condition.source,
        "unit": condition.unit,
    }
