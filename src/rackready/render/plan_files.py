"""A plan as files: an HTML page, JSON, and lists for orders, cabling and configuration, written as streams."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from rackready.design.plan import Plan
from rackready.model.problems import RackreadyError
from rackready.render.cable_pages import write_rack_pages
from rackready.render.plan_html import plan_html
from rackready.render.plan_tables import plan_tables
from rackready.render.plan_text import facts
from rackready.render.tables import write_csv, write_workbook

WORKBOOK = "plan.xlsx"


def write_plan(plan: Plan, document: Mapping[str, Any], folder: Path) -> list[str]:
    """Write all files of a plan into a folder, created if needed; return their names (cable pages: their folder)."""
    pages = folder / "cables"
    pages.mkdir(parents=True, exist_ok=True)
    (folder / "plan.html").write_text(page(plan, document), encoding="utf-8")
    (folder / "plan.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    looks = {rack.name: rack for rack in plan.racks}
    written = _started(
        lambda: {path.name for path in write_rack_pages(plan.site.name, plan.cables.cables, pages, looks)},
        len(plan.cables.cables),
    )
    tables = plan_tables(plan)
    for table in tables:
        with (folder / f"{table.name}.csv").open("w", encoding="utf-8", newline="") as file:
            write_csv(table, file)
    write_workbook(tables, folder / WORKBOOK)
    _only(pages, written())
    return ["plan.html", "plan.json", WORKBOOK, *(f"{table.name}.csv" for table in tables), "cables/"]


APART_FROM = 50_000
"""Number of cables above which a second process writes the pages: half of the work of a large plan. Judgement."""


def _started(write: Callable[[], set[str]], cables: int) -> Callable[[], set[str]]:
    """Start writing the cable pages; return a function that waits for their names, and raises their errors."""
    if cables < APART_FROM:
        names = write()
        return lambda: names
    # A forked process already has the plan; only the names are sent back.
    here, there = multiprocessing.get_context("fork").Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_in_child, args=(write, there))
    process.start()
    there.close()

    def wait() -> set[str]:
        try:
            names, error = here.recv()
        except EOFError:
            names, error = set(), RackreadyError("cables/", expected="a page a rack", actual=_ENDED, next_step=_AGAIN)
        process.join()
        if error is not None:
            raise error
        return set(names)

    return wait


_ENDED = "the process that writes them ended before it was done"
_AGAIN = "Free memory and run the plan again."


def _in_child(write: Callable[[], set[str]], answer: Connection) -> None:
    try:
        answer.send((write(), None))
    except (OSError, RackreadyError) as error:
        answer.send((set(), error))


def _only(folder: Path, wanted: set[str]) -> None:
    """Remove pages of racks that are no longer in the plan: somebody would pull their cables."""
    for path in folder.glob("cables-*.html"):
        if path.name not in wanted:
            path.unlink()


def page(plan: Plan, document: Mapping[str, Any]) -> str:
    """Return the plan as one HTML page."""
    own = [problem for problem in plan.problems if problem not in plan.capacity.problems]
    lines = {
        name: text
        for name, text in facts(document)
        if name in {"nodes", "devices", "fabric", "cables", "power cords", "addresses"}
    }
    return plan_html(
        plan.site.name, plan.capacity, plan.racks, plan.fabric if plan.fabric.switches else None, own, lines
    )
