"""Reader of `nvidia-smi topo -m`: the distance of every GPU from every NIC, and the CPUs near it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from rackready.format_error import TWICE, FormatError

_NAME = re.compile(r"^(?:GPU|NIC)\d+$|^mlx5_\w+$")
_LEGEND = re.compile(r"^(?P<nic>NIC\d+): (?P<device>\S+)$")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_CPUS = re.compile(r"^\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*$")
_CELL = re.compile(r"^(?:X|NV\d+|PIX|PXB|PHB|NODE|SYS)$")


@dataclass(frozen=True, slots=True)
class Topology:
    """``gpus``: their numbers; ``distance``: (GPU, RDMA device) -> word; ``links``: (GPU, GPU) -> word."""

    gpus: tuple[int, ...]
    devices: tuple[str, ...]
    distance: dict[tuple[int, str], str]
    links: dict[tuple[int, int], str]
    affinity: Mapping[int, str] = field(default_factory=dict)
    """GPU -> CPUs near it as a list such as 0-55,112-167; without the GPUs for which none is printed (N/A)."""


def parse(text: str) -> Topology:
    """Return the matrix. Raise FormatError if a cell, a row or a NIC's name is missing or unknown."""
    lines = [_COLOURS.sub("", line) for line in text.splitlines()]
    headers = [number for number, line in enumerate(lines) if "GPU0" in line.split() and not line.startswith("GPU0")]
    if len(headers) > 1:
        raise FormatError(f"{len(headers)} matrices: {TWICE}")
    at = headers[0] if headers else None
    if at is None:
        first = text.strip().splitlines()[0][:80] if text.strip() else ""
        raise FormatError("empty output" if not first else f"no matrix of GPUs, but {first!r}")
    columns = [word for word in lines[at].split() if _NAME.match(word)]
    names = {found["nic"]: found["device"] for line in lines if (found := _LEGEND.match(line.strip()))}
    gpus = tuple(int(name[3:]) for name in columns if name.startswith("GPU"))
    listed = [(words[0], words[1:]) for line in lines[at + 1 :] if (words := line.split()) and _NAME.match(words[0])]
    rows = dict(listed)
    if len(rows) != len(listed) or set(rows) - set(columns):
        raise FormatError(f"rows of {', '.join(name for name, _ in listed)} under columns of {', '.join(columns)}")
    distance, links = _cells(columns, gpus, rows, names)
    near = _affinity(lines[at], gpus, rows, len(columns))
    return Topology(
        gpus, tuple(_device(name, names) for name in columns if not name.startswith("GPU")), distance, links, near
    )


def _affinity(heading: str, gpus: tuple[int, ...], rows: dict[str, list[str]], columns: int) -> dict[int, str]:
    """Return GPU -> its CPUs: the field after the cells, where the heading goes on with it."""
    if "CPU Affinity" not in heading:
        return {}
    after = {gpu: rows[f"GPU{gpu}"][columns:] for gpu in gpus}
    return {gpu: rest[0] for gpu, rest in after.items() if rest and _CPUS.match(rest[0])}


def _cells(
    columns: list[str], gpus: tuple[int, ...], rows: dict[str, list[str]], names: dict[str, str]
) -> tuple[dict[tuple[int, str], str], dict[tuple[int, int], str]]:
    distance, links = {}, {}
    for gpu in gpus:
        cells = rows.get(f"GPU{gpu}", [])[: len(columns)]
        if len(cells) != len(columns):
            raise FormatError(f"the row of GPU{gpu} is missing or cut off")
        for name, cell in zip(columns, cells, strict=True):
            if not _CELL.match(cell):
                raise FormatError(f"GPU{gpu} to {name} is {cell!r}, which is unknown")
            if name.startswith("GPU"):
                links[gpu, int(name[3:])] = cell
            else:
                distance[gpu, _device(name, names)] = cell
    return distance, links


def _device(name: str, names: dict[str, str]) -> str:
    """Return the RDMA device of a column: newer drivers print NIC0, and a legend below."""
    if name.startswith("NIC") and name not in names:
        raise FormatError(f"the legend does not say what {name} is")
    return names.get(name, name)
