"""Dashboards as Grafana's JSON, by grafana-foundation-sdk for Grafana 11.6."""

from __future__ import annotations

import json
from typing import Any

from grafana_foundation_sdk.builders import dashboard as board
from grafana_foundation_sdk.builders import prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import DataSourceRef, VariableRefresh
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from rackready.design.monitoring.dashboards import Choice, Dashboard, Panel, dashboards

_SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
_KINDS: dict[str, Any] = {"lines": timeseries.Panel, "number": stat.Panel, "table": table.Panel}
_HEIGHT = {"lines": 8, "table": 8, "number": 4}
TAG = "rackready"


def grafana_files() -> dict[str, bytes]:
    """Return every dashboard's file by its name."""
    return {f"{found.uid}.json": _text(found).encode() for found in dashboards()}


def _text(found: Dashboard) -> str:
    made = (
        board.Dashboard(found.title).uid(found.uid).tags([TAG]).refresh("1m").time("now-6h", "now").timezone("browser")
    )
    made = made.readonly().with_variable(board.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    for choice in found.choices:
        made = made.with_variable(_choice(choice))
    for panel in found.panels:
        made = made.with_panel(_panel(panel))
    return json.dumps(made.build(), cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


def _choice(choice: Choice) -> board.QueryVariable:
    query = f"label_values({choice.metric}, {choice.name})"
    return (
        board.QueryVariable(choice.name)
        .label(choice.name)
        .datasource(_SOURCE)
        .query(query)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
    )


def _panel(panel: Panel) -> Any:  # noqa: ANN401 - a builder; the SDK's three have no base with these methods
    made: Any = _KINDS[panel.kind]()
    query = prometheus.Dataquery().expr(panel.expr).legend_format(panel.legend).ref_id("A").datasource(_SOURCE)
    if panel.kind == "table":
        query = query.instant().format(PromQueryFormat.TABLE)
    elif panel.kind == "number":
        query = query.instant()
    made = made.title(panel.title).description(panel.description).datasource(_SOURCE).unit(panel.unit)
    return made.span(panel.wide).height(_HEIGHT[panel.kind]).with_target(query)
