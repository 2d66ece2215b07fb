"""Tables as CSV and as an Excel workbook. Output depends only on the rows: no time, user name or set order.

Text that a spreadsheet would read as a formula (it begins with =, +, -, @, a tab or a carriage return: OWASP, CSV
Injection) gets an apostrophe in CSV, and is stored as text in a workbook.
"""

from __future__ import annotations

import csv
import io
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

MOST_ROWS = 10_000
"""Most rows of one table in a workbook. Judgement: 10,000 cables (3,000 GPUs) take 1.5 s to write, 300,000 would take
45 s. Programs read such lists, from the CSV."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_WIDEST = 60
"""Widest column, in characters of Excel's standard font; longer text is cut on the screen only. Judgement."""
_SAMPLE = 200
"""Number of rows that decide the width of a column."""

Row = Sequence[object]


@dataclass(frozen=True, slots=True)
class Table:
    """One table. ``rows`` returns its rows at each call, with None for an unknown value.

    ``numbers``: columns with numbers as text; ``free``: columns with free text of people.
    """

    name: str
    columns: tuple[str, ...]
    rows: Callable[[], Iterable[Row]]
    numbers: frozenset[str] = frozenset()
    free: frozenset[str] = frozenset()


def write_csv(table: Table, file: TextIO) -> int:
    """Write a table as CSV, row by row, and return its number of rows without the head."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(table.columns)
    rows = _harmless(table) if table.free else table.rows()
    count = 0
    for count, row in enumerate(rows, 1):  # noqa: B007 - the count is the result
        writer.writerow(row)
    return count


def _harmless(table: Table) -> Iterator[Row]:
    places = {place for place, name in enumerate(table.columns) if name in table.free}
    for row in table.rows():
        yield [_inert(value) if place in places else value for place, value in enumerate(row)]


def _inert(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def write_workbook(tables: Iterable[Table], path: Path, most_rows: int = MOST_ROWS) -> None:
    """Write an Excel workbook (Office Open XML), one sheet per table; above ``most_rows`` rows it refers to the CSV."""
    from openpyxl import Workbook  # noqa: PLC0415 - a fifth of a second that only who writes a workbook pays

    book = Workbook(write_only=True)
    for table in tables:
        rows = list(islice(table.rows(), most_rows + 1))
        if len(rows) > most_rows:
            rows = [(f"more than {most_rows:,} rows: {table.name}.csv has them",)]
            _fill(book.create_sheet(table.name), Table(table.name, ("not in this workbook",), list), rows)
        else:
            _fill(book.create_sheet(table.name), table, rows)
    raw = io.BytesIO()
    book.save(raw)
    path.write_bytes(_timeless(raw.getvalue()))


def _fill(sheet: Any, table: Table, rows: list[Row]) -> None:  # noqa: ANN401 - openpyxl gives write-only sheets no public type
    from openpyxl.cell import WriteOnlyCell  # noqa: PLC0415 - as above
    from openpyxl.styles import Font  # noqa: PLC0415 - as above
    from openpyxl.utils import get_column_letter  # noqa: PLC0415 - as above

    for number, width in enumerate(_widths(table.columns, rows), 1):
        sheet.column_dimensions[get_column_letter(number)].width = width
    sheet.freeze_panes = "A2"
    sheet.auto_filter.ref = f"A1:{get_column_letter(len(table.columns))}{len(rows) + 1}"
    head = [WriteOnlyCell(sheet, name) for name in table.columns]
    for cell in head:
        cell.font = Font(bold=True)
    sheet.append(head)
    numbers = {place for place, name in enumerate(table.columns) if name in table.numbers}

    def text(value: str) -> object:
        cell = WriteOnlyCell(sheet, value)
        cell.data_type = "s"  # never "f", a formula
        cell.quotePrefix = True  # stays text after an edit
        return cell

    for row in rows:
        sheet.append(list(_cells(row, numbers, text)))


def _cells(row: Row, numbers: set[int], text: Callable[[str], object]) -> Iterator[object]:
    for place, value in enumerate(row):
        if value is None or value == "":
            yield None
        elif isinstance(value, int | float):
            yield value
        elif place in numbers:
            yield float(str(value))
        else:
            shown = str(value)
            yield text(shown) if shown.startswith(_FORMULA) else shown


def _widths(columns: Sequence[str], rows: Sequence[Row]) -> list[int]:
    sample = [columns, *rows[:_SAMPLE]]
    return [min(_WIDEST, 2 + max(len(str(row[place] or "")) for row in sample)) for place in range(len(columns))]


_WRITTEN = re.compile(rb"(<dcterms:(created|modified)[^>]*>)[^<]*")
_DAY = (1980, 1, 1, 0, 0, 0)
"""The first date in the ZIP format."""


def _timeless(archive: bytes) -> bytes:
    """Return a workbook without the times that openpyxl and the ZIP archive put into it."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as before, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as after:
        for name in sorted(before.namelist()):
            content = before.read(name)
            if name == "docProps/core.xml":
                content = _WRITTEN.sub(rb"\g<1>1980-01-01T00:00:00Z", content)
            after.writestr(zipfile.ZipInfo(name, _DAY), content, zipfile.ZIP_DEFLATED)
    return out.getvalue()
