"""Golden files: cables and bill of materials of a lab of four nodes. `GOLDENS=rewrite pytest tests/golden` rewrites."""

from __future__ import annotations

import io
import os
from pathlib import Path

from rackready.design.cabling.bom import bill_of_materials
from rackready.design.cabling.plan import plan_cables
from rackready.design.cabling.runs import site_runs
from rackready.design.cabling.types import CablePlan
from rackready.render.cables import BOM_COLUMNS, CSV_COLUMNS, bom_rows, cable_rows
from rackready.render.tables import Table, write_csv
from tests.unit.design.cabling.kit import catalogue, lab, parse

HERE = Path(__file__).resolve().parent / "plan"


def plan() -> CablePlan:
    runs = site_runs(parse(lab()))
    return plan_cables(runs.runs, runs.floor, catalogue(), runs.notes)


def compare(name: str, text: str) -> None:
    golden = HERE / name
    if os.environ.get("GOLDENS") == "rewrite":
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


def test_cables_are_as_reviewed() -> None:
    file = io.StringIO()
    assert write_csv(Table("cables", CSV_COLUMNS, lambda: cable_rows(plan().cables)), file) == 38
    compare("lab-4-nodes-cables.csv", file.getvalue())


def test_bill_of_materials_is_as_reviewed() -> None:
    file = io.StringIO()
    lines = bill_of_materials(
        plan().cables, catalogue(), 5, {"switch": {"sn5600": 2, "sn2201": 1}, "node": {"dgx_h100": 4}}
    )
    write_csv(Table("bom", BOM_COLUMNS, lambda: bom_rows(lines)), file)
    compare("lab-4-nodes-bom.csv", file.getvalue())
