"""The judged numbers of a verdict in few words: for each metric its extremes, and the bounds with their sources."""

from __future__ import annotations

from typing import Any

from rackready.model.outcome import Criterion, Metric, Verdict


def judged_metrics(verdict: Verdict) -> list[dict[str, Any]]:
    """Return the metrics that a bound judged, as ``metrics_of``."""
    return [item for item in metrics_of(verdict) if item["bounds"]]


def metrics_of(verdict: Verdict) -> list[dict[str, Any]]:
    """Return the metrics by name: how many values, the lowest, the highest, and every bound.

    A bound without a number is left out.
    """
    bounds: dict[str, list[Criterion]] = {}
    for item in verdict.criteria:
        bounds.setdefault(item.metric, []).append(item)
    values: dict[tuple[str, str], list[Metric]] = {}
    for metric in verdict.metrics:
        values.setdefault((metric.name, metric.unit), []).append(metric)
    return [
        {
            "metric": name,
            "unit": unit,
            "values": len(found),
            "lowest": _at(min(found, key=_value)),
            "highest": _at(max(found, key=_value)),
            "bounds": [_bound(item) for item in bounds.get(name, [])],
        }
        for (name, unit), found in values.items()
    ]


def _value(metric: Metric) -> float:
    return metric.value


def _at(metric: Metric) -> dict[str, Any]:
    return {"value": metric.value, "on": metric.target}


def _bound(item: Criterion) -> dict[str, Any]:
    return {"label": item.label, "op": item.op.value, "bound": item.bound, "unit": item.unit, "source": item.source}
