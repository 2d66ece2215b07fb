"""Reader of nccl-tests' text table and its JSON document (-J, file version 3).

The footer's average is over all sizes and both placements (BenchTime and run of src/common.cu).
NCCL INFO lines may be between header and rows. ``#wrong`` is N/A if results were not checked: everywhere with -c 0,
and always in place for alltoall and sendrecv, whose data a run in place overwrites (reportErrors in src/alltoall.cu,
src/sendrecv.cu and writeBenchmarkLineBody of src/util.cu, 2.19.6); JSON has null there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rackready import printed_json
from rackready.format_error import TWICE, FormatError, TwoReportsError


@dataclass(frozen=True, slots=True)
class Figure:
    """A printed number. ``half``: half a unit of its last digit, its possible rounding error."""

    value: float
    half: float


@dataclass(frozen=True, slots=True)
class Placement:
    """One message size, out of place or in place. Time in us, bandwidths in GB/s.

    ``wrong``: number of wrong elements; None if not checked.
    """

    time: Figure
    algbw: Figure
    busbw: Figure
    wrong: int | None


@dataclass(frozen=True, slots=True)
class Row:
    """One message size, bytes. ``count``: elements of ``kind``, of all ranks or of one, as the program counts."""

    size: int
    count: int
    kind: str
    """Type of an element, e.g. float."""
    redop: str
    """Operation, e.g. sum; none or empty if there is none."""
    out_of_place: Placement
    in_place: Placement


@dataclass(frozen=True, slots=True)
class CollectiveResult:
    """A whole launch."""

    rows: tuple[Row, ...]
    ranks: int
    hosts: tuple[str, ...]
    devices: tuple[tuple[str, str], ...]
    """(host, GPU model as CUDA names it) of every rank; of JSON, only of the first rank of each process."""
    out_of_bounds: int
    sane: bool
    """The tool printed: out of bounds values OK."""
    average: Figure
    """Average busbw of all rows, out of place and in place."""
    version: str
    processes: frozenset[tuple[str, int]] = frozenset()
    """(host, process id) of its ranks."""
    test: str = ""
    """Name of the program as it prints it, e.g. all_reduce_perf; empty if its version does not."""
    options: Mapping[str, int] = field(default_factory=dict)
    """Printed settings: ``warmup``, ``iters``, ``agg``, ``validation``, ``graph``, ``unalign``, ``blocking``."""

    def at(self, size: int) -> Row | None:
        """Return the row of a requested message size, in bytes.

        all_gather, reduce_scatter and alltoall give every rank a multiple of 16 bytes and print the sum, which is less
        than 16 bytes per rank below the request (NVIDIA/nccl-tests src/all_gather.cu, AllGatherGetCollByteCount).
        """
        return next((row for row in self.rows if size - _STEP * self.ranks < row.size <= size), None)


_RANK = re.compile(
    r"^#\s+Rank\s+(\d+)\s+(?:Group\s+\d+\s+)?Pid\s+(\d+)\s+on\s+(\S+)\s+device\s+(\d+)\s+\[[0-9A-Fa-fx:.]+\]\s+(.+?)\s*$",
    re.MULTILINE,
)
_BOUNDS = re.compile(r"^#\s*Out of bounds values\s*:\s*(\d+)\s+(OK|FAILED)\s*$", re.MULTILINE)
_AVERAGE = re.compile(r"^#\s*Avg bus bandwidth\s*:\s*(\d+(?:\.\d+)?(?:e[+-]\d+)?)\s*(?:\S.*)?$", re.MULTILINE)
_HEADER = re.compile(
    r"^#\s+size\s+count\s+type\s+redop(\s+root)?\s+time\s+algbw\s+busbw\s+(#wrong|error)"
    r"\s+time\s+algbw\s+busbw\s+(#wrong|error)\s*$",
    re.MULTILINE,
)
_VERSION = re.compile(r"nccl-tests version\s+(\S+)")
_TEST = re.compile(r"^# Collective test starting: (?P<name>\w+)\s*$", re.MULTILINE)
_OPTION = re.compile(r"\b(warmup iters|agg iters|iters|validation|graph|unalign): (\d+)")
_OPTIONS = re.compile(r"^# nThread \d+ nGpus \d+ .*$", re.MULTILINE)
_BLOCKING = re.compile(r"^# Blocking Enabled:", re.MULTILINE)
_NAMES = {"warmup iters": "warmup", "agg iters": "agg"}
_JSON_NAMES = {
    "warmup_iters": "warmup",
    "iterations": "iters",
    "aggregated_iterations": "agg",
    "validation": "validation",
    "graph": "graph",
}
_CONCLUDED = re.compile(r"^# Collective test concluded: \w+\s*$", re.MULTILINE)
"""The last line, if the first names the program (writeBenchmarkHeader and writeErrors of src/util.cu)."""
_LEADING = 3
_DIGITS = 6
_COLUMNS = 8
_STEP = 16


def parse(text: str) -> CollectiveResult:
    """Return the result of a launch, from text or JSON. Raise FormatError."""
    stripped = text.lstrip()
    return _parse_json(stripped) if stripped.startswith("{") else _parse_text(text)


def _parse_text(text: str) -> CollectiveResult:
    if not text.strip():
        message = "empty output"
        raise FormatError(message)
    ranks = _RANK.findall(text)
    header = _HEADER.search(text)
    bounds, average = _BOUNDS.search(text), _AVERAGE.search(text)
    if not ranks or header is None:
        message = "no list of ranks and table header: not nccl-tests' output, or cut off before its table"
        raise FormatError(message)
    if (tables := len(_HEADER.findall(text))) > 1:
        message = f"{tables} tables of nccl-tests: {TWICE}"
        raise TwoReportsError(message)
    if bounds is None or average is None:
        message = "no footer (out of bounds values, average): the output is cut off"
        raise FormatError(message)
    if _TEST.search(text) is not None and _CONCLUDED.search(text, bounds.end()) is None:
        message = "no last line (Collective test concluded): the output is cut off"
        raise FormatError(message)
    rows = tuple(
        row
        for line in text[header.end() : bounds.start()].splitlines()
        if (row := _row(line, root=bool(header[1]))) is not None
    )
    numbers = sorted(int(rank[0]) for rank in ranks)
    if not rows or numbers != list(range(len(numbers))):
        message = f"{len(rows)} rows and ranks {numbers}: the output is cut off"
        raise FormatError(message)
    _require_unique(rows)
    version = _VERSION.search(text)
    return CollectiveResult(
        rows=rows,
        ranks=len(numbers),
        hosts=tuple(sorted({rank[2] for rank in ranks})),
        devices=tuple((rank[2], rank[4]) for rank in ranks),
        processes=frozenset((rank[2].split(".")[0], int(rank[1])) for rank in ranks),
        out_of_bounds=int(bounds[1]),
        sane=bounds[2] == "OK",
        average=_average(average[1]),
        version=version[1] if version else "",
        test=name["name"] if (name := _TEST.search(text)) else "",
        options=_options(text),
    )


def _options(text: str) -> dict[str, int]:
    """Return the printed settings (writeDeviceReport of src/util.cu); empty without that line."""
    line = _OPTIONS.search(text)
    if line is None:
        return {}
    found = {_NAMES.get(name, name): int(value) for name, value in _OPTION.findall(line[0])}
    return found | {"blocking": int(_BLOCKING.search(text) is not None)}


def _require_unique(rows: tuple[Row, ...]) -> None:
    """Raise FormatError for a size with two results. Sizes that are too small for the ranks all print as 0."""
    sizes = [row.size for row in rows if row.size]
    twice = sorted({size for size in sizes if sizes.count(size) > 1})
    if twice:
        message = f"{sizes.count(twice[0])} rows of size {twice[0]} instead of one"
        raise FormatError(message)


def _row(line: str, *, root: bool) -> Row | None:
    """Return a row of the table; None for any other line (NCCL INFO, blank).

    Collectives without an operation leave its column empty.
    """
    fields = line.split()
    if not fields or not fields[0].isdigit():
        return None
    before = _LEADING + (len(fields) > _LEADING and fields[_LEADING].isalpha()) + root
    if len(fields) != before + _COLUMNS or not fields[1].isdigit():
        message = f"a row of {len(fields)} columns instead of {before + _COLUMNS}"
        raise FormatError(message)
    cells, redop = fields[before:], fields[_LEADING] if before - root > _LEADING else ""
    return Row(int(fields[0]), int(fields[1]), fields[2], redop, _placement(cells[:4]), _placement(cells[4:]))


def _average(cell: object) -> Figure:
    """Return the footer's average, printed with six digits in all (%g) and without trailing zeros."""
    value = _number(cell)
    return Figure(value, 0.5 * 10.0 ** (math.floor(math.log10(value)) - _DIGITS + 1) if value > 0 else 0.0)


def _placement(cells: Sequence[object]) -> Placement:
    """Return the placement in four cells: time, both bandwidths, wrong elements."""
    return Placement(_figure(cells[0]), _figure(cells[1]), _figure(cells[2]), _wrong(cells[3]))


def _figure(cell: object) -> Figure:
    """Return a number with its rounding error. JSON has six digits after the point (jsonDouble of src/util.cu)."""
    text = str(cell)
    mantissa, _, exponent = text.lower().partition("e")
    digits = len(mantissa.partition(".")[2])
    return Figure(_number(cell), 0.5 * 10.0 ** (int(exponent or 0) - digits) if isinstance(cell, str) else 0.5e-6)


def _number(text: object) -> float:
    try:
        value = float(str(text))
    except ValueError as error:
        message = f"{text!r} where a number should be"
        raise FormatError(message) from error
    if not math.isfinite(value) or value < 0:
        message = f"{text!r} where a bandwidth should be"
        raise FormatError(message)
    return value


def _wrong(cell: object) -> int | None:
    return None if cell is None or str(cell).upper() == "N/A" else int(_number(cell))


def _parse_json(text: str) -> CollectiveResult:
    document = printed_json.load(text)
    try:
        return _from_json(document)
    except (KeyError, TypeError, AttributeError) as error:
        message = f"JSON without {error}"
        raise FormatError(message) from error
    except ValueError as error:
        if isinstance(error, FormatError):
            raise
        message = f"JSON with a value of another type: {error}"
        raise FormatError(message) from error


def _from_json(document: dict[str, Any]) -> CollectiveResult:
    config, results = document["config"], document["results"]
    devices = config["devices"]
    of_process = int(config["nthreads"]) * int(config["ngpus"])
    rows = tuple(_json_row(item) for item in results)
    numbers = sorted(int(device["rank"]) for device in devices)
    ranks = len(numbers) * of_process  # a document names only the first rank of each process (writeDeviceReport)
    if not rows or not ranks or numbers != list(range(0, ranks, of_process)) or "end_time" not in document:
        message = f"{len(rows)} results and ranks {numbers}: the document is not complete"
        raise FormatError(message)
    _require_unique(rows)
    bounds = document["out_of_bounds"]
    okay = str(bounds["okay"]).lower()  # a string "true", "false" or "unchecked", not a JSON boolean
    if okay not in {"true", "false", "unchecked"}:
        message = f"out_of_bounds.okay {okay!r} is unknown"
        raise FormatError(message)
    return CollectiveResult(
        rows=rows,
        ranks=ranks,
        hosts=tuple(sorted({str(device["hostname"]) for device in devices})),
        devices=tuple((str(device["hostname"]), str(device["device_info"])) for device in devices),
        processes=frozenset((str(device["hostname"]).split(".")[0], int(device["pid"])) for device in devices),
        out_of_bounds=int(bounds["count"]),
        sane=okay == "true",
        average=_figure(document["average_bus_bandwidth"]["bandwidth"]),
        version=str(document["version"]),
        options=_json_options(config),
    )


def _json_row(item: dict[str, Any]) -> Row:
    return Row(
        int(item["size"]),
        int(item["count"]),
        str(item["type"]),
        str(item["redop"]),
        _json_placement(item["out_of_place"]),
        _json_placement(item["in_place"]),
    )


def _json_placement(found: dict[str, Any]) -> Placement:
    return _placement([found[key] for key in ("time", "alg_bw", "bus_bw", "nwrong")])


def _json_options(config: dict[str, Any]) -> dict[str, int]:
    """Return the settings of a document (writeDeviceReport of src/util.cu), as far as it has them."""
    found = {name: int(config[key]) for key, name in _JSON_NAMES.items() if key in config}
    return found | (
        {"blocking": int(str(config["blocking_collectives"]).lower() == "true")}
        if "blocking_collectives" in config
        else {}
    )
