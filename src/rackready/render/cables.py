"""Cables and the bill of materials as CSV, written as streams."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from typing import TextIO

from rackready.design.cabling.types import BomLine, Cable

CSV_COLUMNS = (
    "label",
    "kind",
    "a_rack",
    "a_unit",
    "a_device",
    "a_port",
    "a_connector",
    "a_module",
    "b_rack",
    "b_unit",
    "b_device",
    "b_port",
    "b_connector",
    "b_module",
    "rate_gbps",
    "length_m",
    "stock_m",
    "medium",
    "cable",
    "piece",
    "problem",
)
"""``piece`` names the physical cable: rows that share it are one splitter or twin-port cable."""
BOM_COLUMNS = ("group", "part", "description", "needed", "spare", "total", "source")


def write_csv(cables: Iterable[Cable], file: TextIO) -> int:
    """Write the list of cables, one row each, and return how many there were. Nothing but the row at hand is held."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    count = 0
    for count, cable in enumerate(cables, 1):  # noqa: B007 - the count is the result
        writer.writerow(_row(cable))
    return count


def _row(cable: Cable) -> tuple[object, ...]:
    run = cable.run
    a, b = run.a.device, run.b.device
    fixed = cable.a_part == cable.cable_part
    stock = f"{cable.stock_m:g}" if cable.stock_m else ""
    return (
        cable.label,
        run.kind,
        *(a.rack, a.unit, a.name, run.a_port, "" if fixed else cable.a_sub + 1, "" if fixed else cable.a_part),
        *(b.rack, b.unit, b.name, run.b_port, "" if fixed else cable.b_sub + 1, "" if fixed else cable.b_part),
        *(run.rate, f"{cable.length_m:.2f}", stock, cable.medium, cable.cable_part, cable.group, cable.problem),
    )


def write_bom(lines: Iterable[BomLine], file: TextIO) -> None:
    """Write the bill of materials as CSV."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(BOM_COLUMNS)
    writer.writerows((line.group, line.part, line.description, line.needed, line.spare, line.total, line.source) for line in lines)
