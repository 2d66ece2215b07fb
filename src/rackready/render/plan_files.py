"""A plan as files: a page for people, lists for those who order, pull cables and configure, and JSON for programs. Lists are written as streams."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rackready.design.plan import Plan
from rackready.render.cable_pages import write_rack_pages
from rackready.render.plan_html import plan_html
from rackready.render.plan_tables import plan_tables
from rackready.render.plan_text import facts
from rackready.render.tables import write_csv, write_workbook

WORKBOOK = "plan.xlsx"


def write_plan(plan: Plan, document: Mapping[str, Any], folder: Path) -> list[str]:
    """Write all files of a plan into a folder, which is made when it is not there, and return their names; cable pages as their folder."""
    pages = folder / "cables"
    pages.mkdir(parents=True, exist_ok=True)
    (folder / "plan.html").write_text(page(plan, document), encoding="utf-8")
    (folder / "plan.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    tables = plan_tables(plan)
    for table in tables:
        with (folder / f"{table.name}.csv").open("w", encoding="utf-8", newline="") as file:
            write_csv(table, file)
    write_workbook(tables, folder / WORKBOOK)
    looks = {rack.name: rack for rack in plan.racks}
    _only(pages, {path.name for path in write_rack_pages(plan.site.name, plan.cables.cables, pages, looks)})
    return ["plan.html", "plan.json", WORKBOOK, *(f"{table.name}.csv" for table in tables), "cables/"]


def _only(folder: Path, wanted: set[str]) -> None:
    """Remove pages of racks that are in the plan no longer: somebody would pull their cables."""
    for path in folder.glob("cables-*.html"):
        if path.name not in wanted:
            path.unlink()


def page(plan: Plan, document: Mapping[str, Any]) -> str:
    """Return the plan as one HTML page."""
    own = [problem for problem in plan.problems if problem not in plan.capacity.problems]
    lines = {name: text for name, text in facts(document) if name in {"nodes", "devices", "fabric", "cables", "power cords", "addresses"}}
    return plan_html(plan.site.name, plan.capacity, plan.racks, plan.fabric if plan.fabric.switches else None, own, lines)
