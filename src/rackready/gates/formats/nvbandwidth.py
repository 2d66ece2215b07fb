"""Reader of nvbandwidth: its JSON (`-j`) and its text, versions 0.4 to 0.8.

The text names each device from the first version on, JSON from 0.8 on: "GPU Device list" (NVIDIA/nvbandwidth,
output.cpp and json_output.cpp).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rackready import printed_json
from rackready.format_error import TWICE, FormatError

_RUNNING = re.compile(r"^Running (?P<name>\w+)\.$")
_RUNNING_ANY = re.compile(r"^Running \w+\.\s*$", re.MULTILINE)
_SUM = re.compile(r"^SUM (?P<name>\w+) (?P<value>[\d.]+)$")
_LIST = "GPU Device list"
_VERSION = re.compile(r"^nvbandwidth Version: (?P<version>\S+)", re.MULTILINE)
_DEVICE = re.compile(
    r"^(?:Device )?(?P<number>\d+): (?P<name>.+?)(?: "
    r"\((?P<pci>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})(?:\.[0-7])?\)(?:: \(.*\))?)?$"
)
_LISTED = re.compile(r"^Device \d+:")
_ERROR = re.compile(
    r"^(?:\[(?:CUDA_ERROR|cudaError)\w*\] .*|NVML_ERROR: .*|ASSERT in expression .*|(?:ERROR|Error)\b.*|Invalid "
    r"value when checking the pattern .*)$",
    re.MULTILINE,
)
"""Messages of the program and its kernels about a failed copy (error_handling.h, kernels.cu, nvbandwidth.cpp)."""
_STATUSES = frozenset({"Passed", "Waived", "Failed", "Error", "Not Found", "Not Run"})


@dataclass(frozen=True, slots=True)
class TestCase:
    """One test. ``matrix``: rows of GB/s, None for N/A; empty unless it passed."""

    name: str
    status: str
    matrix: tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True, slots=True)
class ListedGpu:
    """One listed GPU. ``pci``: as in sysfs, without function; empty if it is not printed (version 0.4)."""

    name: str
    pci: str


@dataclass(frozen=True, slots=True)
class Bandwidths:
    """A whole run. ``devices``: in the order of their numbers; empty if the output has no list."""

    version: str
    tests: dict[str, TestCase]
    devices: tuple[ListedGpu, ...] = ()


def parse(text: str) -> Bandwidths:
    """Return a run. Raise FormatError."""
    if not text.strip():
        raise FormatError("empty output")
    start = text.find("{")
    if start >= 0 and _RUNNING_ANY.search(text):
        raise FormatError(f"a table and JSON: {TWICE}")
    words = text if start < 0 else text[:start]
    if (complaint := _ERROR.search("\n".join(line.strip() for line in words.splitlines()))) is not None and (
        start >= 0 or _VERSION.search(text)
    ):
        raise FormatError(f"nvbandwidth says: {complaint[0][:160]}")
    return _document(text[start:]) if start >= 0 else _table(text)


def _document(text: str) -> Bandwidths:
    document = printed_json.load(text)
    try:
        found = document["nvbandwidth"]
        if "error" in found:
            raise FormatError(f"nvbandwidth says: {found['error']}")
        tests = [_test(item) for item in found["testcases"]]
        devices = _devices(str(line) for line in found.get(_LIST, []))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"not the JSON of nvbandwidth -j ({type(error).__name__}: {error})") from error
    return Bandwidths(str(found.get("git_version", "")), _unique(tests), devices)


def _test(item: dict[str, Any]) -> TestCase:
    name, status = str(item["name"]), str(item["status"])
    if status not in _STATUSES:
        raise FormatError(f"status {status!r} of {name} is unknown")
    rows = (
        tuple(tuple(_value(cell, name) for cell in row) for row in item["bandwidth_matrix"])
        if status == "Passed"
        else ()
    )
    return TestCase(name, status, rows)


def _value(cell: object, name: str) -> float | None:
    if str(cell).strip() == "N/A":
        return None
    value = float(str(cell))
    if not math.isfinite(value) or value <= 0:
        raise FormatError(f"{name} has {cell!r} where a bandwidth belongs")
    return value


def _devices(lines: Iterable[str]) -> tuple[ListedGpu, ...]:
    """Return the devices of a list. Raise FormatError for another line, or numbers that do not count from 0."""
    out: list[ListedGpu] = []
    for line in lines:
        match = _DEVICE.match(line)
        if match is None or int(match["number"]) != len(out):
            raise FormatError(f"a list of devices with {line[:80]!r} after {len(out)}")
        out.append(ListedGpu(match["name"], _short(match["pci"] or "")))
    return tuple(out)


def _short(pci: str) -> str:
    domain, _, rest = pci.lower().partition(":")
    return f"{domain[-4:]}:{rest}" if rest else ""


def _table(text: str) -> Bandwidths:
    versions = list(_VERSION.finditer(text))
    version = versions[0] if versions else None
    if len(versions) > 1:
        raise FormatError(f"{len(versions)} tables: {TWICE}")
    if version is None:
        raise FormatError(f"no output of nvbandwidth, but {text.strip().splitlines()[0][:80]!r}")
    tests: list[TestCase] = []
    name = ""
    rows: list[tuple[float | None, ...]] = []
    for raw in text.splitlines():
        line = " ".join(raw.split())
        running, total = _RUNNING.match(line), _SUM.match(line)
        if running:
            name, rows = running["name"], []
        elif total and total["name"] == name:
            tests.append(TestCase(name, "Passed", _checked(name, rows, float(total["value"]))))
            name = ""
        elif (
            name
            and re.match(r"^\d+(?: (?:[\d.]+|N/A))+$", line)
            and line.split() != [str(column) for column in range(len(line.split()))]
        ):
            rows.append(tuple(_value(cell, name) for cell in line.split()[1:]))
    if name:
        raise FormatError(f"{name} has no sum: the output is cut off")
    devices = _devices(
        line for raw in text.splitlines() if (line := raw.strip()).startswith("Device ") and _LISTED.match(line)
    )
    return Bandwidths(version["version"], _unique(tests), devices)


def _checked(name: str, rows: list[tuple[float | None, ...]], total: float) -> tuple[tuple[float | None, ...], ...]:
    """Return the rows. Raise FormatError if they do not add up to the sum that the tool prints."""
    if not rows or not math.isclose(
        sum(cell for row in rows for cell in row if cell is not None), total, rel_tol=0.001
    ):
        raise FormatError(f"the rows of {name} do not add up to its sum {total:g}")
    return tuple(rows)


def _unique(tests: list[TestCase]) -> dict[str, TestCase]:
    found = {test.name: test for test in tests}
    if len(found) != len(tests):
        raise FormatError("a test is there twice")
    return found
