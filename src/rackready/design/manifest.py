"""Reads the vendor's manifest (serial, BMC MAC, factory password and position of each machine) into an overlay."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rackready.design.strays import without_strays
from rackready.model.problems import Problem, SiteInvalidError
from rackready.model.serials import wanted_serial
from rackready.model.site import Node, Site

COLUMNS = ("serial", "bmc_mac", "password", "rack", "unit")
_OTHER_NAMES = {
    "serial": ("serial_number", "serialnumber", "sn"),
    "bmc_mac": ("mac", "bmcmac", "bmc_mac_address", "bmc"),
    "password": ("factory_password", "bmc_password", "default_password"),
    "rack": ("rack_name",),
    "unit": ("u", "rack_unit", "position"),
}
_DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab"}
_MAC = re.compile(r"[0-9a-f]{12}|[0-9a-f]{2}([:-])[0-9a-f]{2}(?:\1[0-9a-f]{2}){4}|[0-9a-f]{4}(?:\.[0-9a-f]{4}){2}")
_UNIT = re.compile(r"\d{1,2}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ManifestMachine:
    """One machine of the manifest. ``password`` is a secret and never appears in a message or the overlay."""

    line: int
    node: str
    rack: str
    serial: str
    mac: str
    password: str

    def __repr__(self) -> str:
        return f"Machine(line={self.line}, node={self.node!r}, serial={self.serial!r})"


def read_manifest(text: str, site: Site, source: str) -> list[ManifestMachine]:
    """Return the machines of a manifest (CSV with a header line), each with the node at its position in the site.

    Cells are separated by commas, semicolons or tabs.

    Raises SiteInvalidError that lists every problem with its line.
    """
    text = text.removeprefix("\ufeff")
    between = _delimiter(text)
    rows = csv.reader(io.StringIO(text), strict=True, delimiter=between)
    try:
        table = [(rows.line_num, row) for row in rows if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise SiteInvalidError(
            source, [Problem(f"line {rows.line_num}", f"not valid CSV: {error}.", "Correct the line.")]
        ) from error
    if not table:
        raise SiteInvalidError(
            source,
            [Problem.of("line 1", "", f"Start with {','.join(COLUMNS)}.", expected="a header line", actual="nothing")],
        )
    columns = _columns(table[0][1], source)
    counted = [_too_many(line, row, table[0][1], between) for line, row in table[1:]]
    problems = [problem for problem in counted if problem is not None]
    if problems:
        # A cell that was cut moves the next ones: no cell is surely what its column says, and each may be a password.
        raise SiteInvalidError(source, problems)
    places: _Places = {
        (rack.name, node.unit): node for rack in site.racks for node in rack.nodes if node.unit is not None
    }
    found = [_machine(line, row, columns, (site, places), problems) for line, row in table[1:]]
    machines = [machine for machine in found if machine is not None]
    problems += _twice(machines)
    if not table[1:]:
        problems.append(Problem.of("line 2", "", "Add the machines.", expected="a machine", actual="the file ends"))
    if problems:
        raise SiteInvalidError(source, problems)
    return machines


def _delimiter(text: str) -> str:
    """Return what separates the cells: that with which the first line has every column, else a comma.

    Spreadsheets of many countries write semicolons, and copied cells are separated by tabs.
    """
    head = next((line for line in text.splitlines() if line.strip()), "")
    for between in _DELIMITERS:
        given = _plain(next(csv.reader([head], delimiter=between), []))
        if all(_named(given, (column, *_OTHER_NAMES[column])) for column in COLUMNS):
            return between
    return ","


def _too_many(line: int, row: Sequence[str], head: Sequence[str], between: str) -> Problem | None:
    """Return the problem of a row with more cells than the header, or text below no name. Its cells are not shown."""
    named = max(place for place, name in enumerate(head, 1) if name.strip())
    actual = len(row) if len(row) > len(head) else max(place for place, cell in enumerate(row, 1) if cell.strip())
    if actual <= named:
        return None
    step = f"Quote a value that contains a {_DELIMITERS[between]}."
    return Problem.of(f"line {line}", "", step, expected=f"{named} columns", actual=actual)


def _columns(head: Sequence[str], source: str) -> dict[str, int]:
    """Return the place of every column.

    The exact name takes precedence over an alias; two columns of equal rank are ambiguous.
    """
    given = _plain(head)
    places = {column: _named(given, (column,)) or _named(given, _OTHER_NAMES[column]) for column in COLUMNS}
    missing = [column for column, found in places.items() if not found]
    if missing:
        raise SiteInvalidError(
            source,
            [
                Problem.of(
                    "line 1",
                    f"column {', '.join(missing)} is missing",
                    "Rename the columns.",
                    expected=", ".join(COLUMNS),
                    actual=", ".join(name.strip() for name in head),
                )
            ],
        )
    problems = [
        Problem.of(
            "line 1",
            f"column {column}",
            "Keep one of them.",
            expected="once",
            actual=", ".join(head[place].strip() for place in found),
        )
        for column, found in places.items()
        if len(found) > 1
    ]
    if problems:
        raise SiteInvalidError(source, problems)
    return {column: found[0] for column, found in places.items()}


def _plain(head: Sequence[str]) -> list[str]:
    return [re.sub(r"[\s-]+", "_", name.strip().lower()) for name in head]


def _named(given: Sequence[str], names: Sequence[str]) -> list[int]:
    return [place for place, name in enumerate(given) if name in names]


_Places = dict[tuple[str, int | None], Node]
_Context = tuple[Site, _Places]


def _machine(
    line: int, row: Sequence[str], columns: dict[str, int], context: _Context, problems: list[Problem]
) -> ManifestMachine | None:
    where = f"line {line}"
    written = {column: row[place] if place < len(row) else "" for column, place in columns.items()}
    # Blanks at the ends of a password may be part of it.
    cells = {column: text if column == "password" else text.strip() for column, text in written.items()}
    empty = [column for column in COLUMNS if not cells[column].strip()]
    if empty:
        problems.append(Problem(where, f"{', '.join(empty)} is empty.", "Fill it in, or remove the line."))
        return None
    wanted = wanted_serial(cells["serial"])
    if wanted:
        problems.append(Problem.of(where, "serial", "Correct it.", expected=wanted, actual=f"{cells['serial']!r}"))
    mac = _mac(where, cells["bmc_mac"], problems)
    node = _node(where, cells, context, problems)
    if node is None or not mac or wanted:
        return None
    if node.serial is not None and node.serial != cells["serial"]:
        problems.append(
            Problem.of(
                where,
                f"{node.name} is at unit {node.unit} of {cells['rack']}",
                "Correct the position in the manifest, or the serial in the site file.",
                expected=f"serial {node.serial} as in the site file",
                actual=cells["serial"],
            )
        )
        return None
    return ManifestMachine(line, node.name, cells["rack"], cells["serial"], mac, cells["password"])


def _mac(where: str, written: str, problems: list[Problem]) -> str:
    """Return a MAC address as six pairs with colons; note a problem and return empty text if it is not valid."""
    if _MAC.fullmatch(written.lower()) is None:
        problems.append(
            Problem.of(
                where, "bmc_mac", "Correct it.", expected="six pairs of hexadecimal digits", actual=f"{written!r}"
            )
        )
        return ""
    digits = re.sub(r"[:.-]", "", written.lower())
    # IEEE 802-2014 8.2.2: the lowest bit of the first octet marks group addresses, including broadcast (all ones).
    if int(digits, 16) == 0 or int(digits[:2], 16) & 1:
        what = "no address" if int(digits, 16) == 0 else "a group address"
        problems.append(
            Problem.of(where, "bmc_mac", "Correct it.", expected="an individual address", actual=f"{written!r}, {what}")
        )
        return ""
    return ":".join(digits[at : at + 2] for at in range(0, 12, 2))


def _node(where: str, cells: dict[str, str], context: _Context, problems: list[Problem]) -> Node | None:
    site, places = context
    digits = cells["unit"].upper().removeprefix("U")
    if _UNIT.fullmatch(digits) is None:
        problems.append(
            Problem.of(where, "unit", "Correct it.", expected="a rack unit such as 17", actual=f"{cells['unit']!r}")
        )
        return None
    if cells["rack"] not in {rack.name for rack in site.racks}:
        problems.append(Problem(where, f"no rack is called {cells['rack']}.", "Correct the name."))
        return None
    node = places.get((cells["rack"], int(digits)))
    if node is None:
        units = ", ".join(str(unit) for rack, unit in places if rack == cells["rack"]) or "none"
        problems.append(
            Problem.of(
                where,
                f"no node is at unit {digits} of {cells['rack']}",
                "Correct the unit.",
                expected=f"one of {units}",
            )
        )
    return node


def _twice(machines: Sequence[ManifestMachine]) -> list[Problem]:
    out = []
    for noun in ("serial", "mac", "node"):
        first: dict[str, int] = {}
        for machine in machines:
            value = getattr(machine, noun)
            line = first.setdefault(value, machine.line)
            if line != machine.line:
                what = f"the position of {value}" if noun == "node" else f"{noun} {value}"
                out.append(
                    Problem(
                        f"line {machine.line}", f"{what} is already on line {line}.", "Correct one of the two lines."
                    )
                )
    return out


def overlay(machines: Sequence[ManifestMachine], before: Any, secrets: str) -> dict[str, Any]:  # noqa: ANN401 - a YAML document
    """Return the overlay: the previous import with these machines merged over it.

    ``secrets``: folder of the passwords, below the project root.
    """
    racks: dict[str, dict[str, Any]] = {}
    for rack in (before or {}).get("racks", []):
        racks[rack["name"]] = {node["name"]: node for node in rack["nodes"]}
    for machine in machines:
        bmc = {"mac": machine.mac, "password": {"file": f"{secrets}/{secret_name(machine.node)}"}}
        racks.setdefault(machine.rack, {})[machine.node] = {"name": machine.node, "serial": machine.serial, "bmc": bmc}
    return {"racks": [{"name": rack, "nodes": list(nodes.values())} for rack, nodes in racks.items()]}


@dataclass(frozen=True, slots=True)
class Earlier:
    """The previous import as it is kept.

    ``strays``: nodes of it that the site file does not have. ``site``: the names of racks and nodes that it has.
    """

    document: Any
    strays: tuple[str, ...]
    site: dict[str, Any]


def earlier(before: Any, site: Site, machines: Sequence[ManifestMachine]) -> Earlier:  # noqa: ANN401 - a YAML document
    """Return what is kept of a previous import: all but machines that this manifest gives again under another node.

    Their nodes were renamed in the site file. Others of nodes that are gone are kept, for their serials: another
    manifest may give them again.
    """
    again = {machine.serial for machine in machines}
    names = {
        "racks": [{"name": rack.name, "nodes": [{"name": node.name} for node in rack.nodes]} for rack in site.racks]
    }
    gone = {(stray.rack, stray.node) for stray in without_strays(names, before)[1]}
    if not gone:
        return Earlier(before, (), names)
    racks, left = [], []
    for rack in before["racks"]:
        lost = {node["name"] for node in rack["nodes"] if (rack["name"], node["name"]) in gone}
        replaced = {node["name"] for node in rack["nodes"] if node["name"] in lost and node.get("serial") in again}
        left += [node["name"] for node in rack["nodes"] if node["name"] in lost - replaced]
        racks.append({**rack, "nodes": [node for node in rack["nodes"] if node["name"] not in replaced]})
    return Earlier({**before, "racks": [rack for rack in racks if rack["nodes"]]}, tuple(left), names)


def secret_name(node: str) -> str:
    """Return the file name of a node's BMC password."""
    return f"{node}-bmc"
