"""Tables as CSV and workbook: the same cells, the same bytes each time, no formula that somebody else wrote."""

from __future__ import annotations

import io
import time
import zipfile
from pathlib import Path

import pytest
from openpyxl import load_workbook

from rackready.render.tables import Table, write_csv, write_workbook

EVIL = ("=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx")
ROWS = [("a01", 3, "1.50", None, EVIL[0]), ("a02", 4, "", "", "plain")]


def table(rows: list[tuple[object, ...]] | None = None) -> Table:
    columns = ("rack", "unit", "length_m", "feed", "description")
    return Table(
        "cords", columns, lambda: ROWS if rows is None else rows, frozenset({"length_m"}), frozenset({"description"})
    )


def test_workbook_has_a_sheet_a_table_with_the_cells_of_its_csv(tmp_path: Path) -> None:
    write_workbook([table(), Table("empty", ("x",), list)], tmp_path / "plan.xlsx")
    book = load_workbook(tmp_path / "plan.xlsx")
    assert book.sheetnames == ["cords", "empty"]
    found = [[cell.value for cell in row] for row in book["cords"].iter_rows()]
    assert found == [
        ["rack", "unit", "length_m", "feed", "description"],
        ["a01", 3, 1.5, None, "=1+1"],
        ["a02", 4, None, None, "plain"],
    ]
    assert book["cords"].freeze_panes == "A2"
    assert book["cords"]["A1"].font.b


@pytest.mark.parametrize("text", EVIL)
def test_text_is_never_a_formula(text: str, tmp_path: Path) -> None:
    write_workbook([table([("a01", 1, "", "", text)])], tmp_path / "plan.xlsx")
    cell = load_workbook(tmp_path / "plan.xlsx")["cords"]["E2"]
    assert (cell.data_type, cell.quotePrefix) == ("s", True)
    file = io.StringIO()
    write_csv(table([("a01", 1, "", "", text)]), file)
    assert f"'{text}" in file.getvalue()


def test_workbook_is_the_same_at_any_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_workbook([table()], tmp_path / "one.xlsx")
    later = time.time() + 86_400 * 400
    monkeypatch.setattr(time, "time", lambda: later)
    monkeypatch.setattr(time, "localtime", lambda *_: time.gmtime(later))
    write_workbook([table()], tmp_path / "two.xlsx")
    assert (tmp_path / "one.xlsx").read_bytes() == (tmp_path / "two.xlsx").read_bytes()
    with zipfile.ZipFile(tmp_path / "one.xlsx") as archive:
        assert {entry.date_time[0] for entry in archive.infolist()} == {1980}
        assert b"2026" not in archive.read("docProps/core.xml")


def test_long_table_is_left_to_its_csv_and_the_sheet_says_so(tmp_path: Path) -> None:
    write_workbook([table(ROWS * 3)], tmp_path / "plan.xlsx", most_rows=5)
    found = [[cell.value for cell in row] for row in load_workbook(tmp_path / "plan.xlsx")["cords"].iter_rows()]
    assert found == [["not in this workbook"], ["more than 5 rows: cords.csv has them"]]
    write_workbook([table(ROWS * 3)], tmp_path / "plan.xlsx", most_rows=6)
    assert load_workbook(tmp_path / "plan.xlsx")["cords"].max_row == 7
