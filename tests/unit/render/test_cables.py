"""Cables as CSV and as printable pages: streamed, escaped, self-contained, every end in its rack's page."""

from __future__ import annotations

import csv
import io
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from rackready.design.cabling.types import Cable
from rackready.render.cable_pages import rack_ends, rack_page, write_rack_pages
from rackready.render.cables import CSV_COLUMNS, cable_rows
from rackready.render.tables import Table, write_csv
from tests.unit.design.cabling.kit import Bench, floor

HALL = floor(near=(0, 4))


def cables(name: str = "gpu01") -> tuple[Cable, ...]:
    bench = Bench()
    switch = bench.twin("r/20/leaf01/swp1")
    for sub in (0, 1):
        bench.join(bench.nic(f"near/{sub + 1}/{name}{sub}/rail1"), switch, (0, sub))
    leaf, spine = bench.twin("r/20/leaf01/swp2"), bench.twin("r/22/spine01/swp1")
    bench.join(leaf, spine)
    bench.join(bench.nic("r/1/lost/rail1"), bench.twin("nowhere/1/leaf09/swp1"))
    return bench.plan(HALL).cables


def table(listed: Iterable[Cable]) -> Table:
    return Table("cables", CSV_COLUMNS, lambda: cable_rows(listed))


def test_csv_has_one_row_a_cable_and_reads_back() -> None:
    file = io.StringIO()
    assert write_csv(table(cables()), file) == 4
    rows = list(csv.DictReader(io.StringIO(file.getvalue())))
    assert tuple(rows[0]) == CSV_COLUMNS
    assert (rows[0]["a_device"], rows[0]["b_port"], rows[0]["b_connector"], rows[1]["b_connector"]) == (
        "gpu010",
        "swp1s0",
        "1",
        "2",
    )
    assert (rows[0]["a_module"], rows[0]["b_module"], rows[0]["cable"]) == (
        "MMA4Z00-NS400",
        "MMA4Z00-NS",
        "MFP7E10-N010",
    )
    assert (rows[2]["medium"], rows[2]["a_module"], rows[2]["a_connector"]) == ("dac", "", "")
    assert (rows[3]["cable"], rows[3]["stock_m"]) == ("", "")
    assert rows[3]["problem"].endswith("Add them, so that lengths can be computed.")


def test_csv_is_written_row_by_row() -> None:
    file = io.StringIO()
    lengths = []

    def stream() -> Iterator[Cable]:
        for cable in cables():
            lengths.append(len(file.getvalue()))
            yield cable

    write_csv(table(stream()), file)
    assert lengths == sorted(set(lengths))


def test_every_cable_stands_on_the_pages_of_both_its_racks() -> None:
    ends = rack_ends(cables())
    assert {rack: len(found) for rack, found in ends.items()} == {"near": 2, "nowhere": 1, "r": 5}


def test_a_page_lists_units_from_below_and_has_a_label_for_each_end() -> None:
    page = rack_page("lab", "r", rack_ends(cables())["r"])
    units = [int(unit) for unit in re.findall(r"<tr(?: class=bad)?><td></td><td>(\d+)</td>", page)]
    assert units == [1, 20, 20, 20, 22]
    assert page[page.index('<div class="flags">') :].count("<div>") == 5
    assert page.count("<tr class=bad>") == 1


def test_a_page_needs_nothing_from_outside_and_prints() -> None:
    page = rack_page("lab", "r", rack_ends(cables())["r"])
    assert re.findall(r"https?://|<script|<link|src=|@import|url\(", page) == []
    assert "@media print" in page


def test_names_are_escaped() -> None:
    page = rack_page("lab <b>", "near", rack_ends(cables("<i>&"))["near"])
    assert "<i>" not in page
    assert "lab <b>" not in page
    assert "&lt;i&gt;&amp;0" in page


def test_pages_are_written_one_a_rack(tmp_path: Path) -> None:
    paths = list(write_rack_pages("lab", cables(), tmp_path))
    assert [path.name for path in paths] == ["cables-near.html", "cables-nowhere.html", "cables-r.html"]
    assert all(path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>") for path in paths)


def test_pages_of_a_large_site_are_quick() -> None:
    """20,000 ends take 0.1 s of processor time (cell by cell 0.6 s): a plan of 100,000 GPUs has 600,000 ends."""
    ends = rack_ends(cables())["r"] * 4_000
    spent = []
    for _ in range(3):
        began = time.process_time()
        rack_page("lab", "r", ends)
        spent.append(time.process_time() - began)
    assert len(ends) == 20_000
    assert min(spent) < 0.3
