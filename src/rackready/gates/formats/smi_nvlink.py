"""Reads `nvidia-smi nvlink -s` (states and speeds) and `nvidia-smi nvlink -e` (error counters), of all drivers: the counters' names differ."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from rackready.gates.formats.error import FormatError

_GPU = re.compile(r"^GPU (?P<index>\d+): (?P<name>.+?) \(UUID: (?P<uuid>[^)]+)\)$")
_SPEED = re.compile(r"^Link (?P<link>\d+): (?P<speed>\d+(?:\.\d+)?) GB/s$")
_INACTIVE = re.compile(r"^Link (?P<link>\d+): <inactive>$")
_COUNTER = re.compile(r"^Link (?P<link>\d+): (?P<name>[A-Z][A-Za-z0-9 -]*?)\s*: (?P<value>\S.*)$")
_RATE = re.compile(r"^\d+(?:\.\d+)?e-\d+$")


@dataclass(slots=True)
class LinkGpu:
    """One GPU, with its model as printed. ``speeds``: link -> GB/s, None when it is inactive. ``counters``: link -> name -> value as printed."""

    index: int
    uuid: str
    name: str = ""
    speeds: dict[int, float | None] = field(default_factory=dict)
    counters: dict[int, dict[str, str]] = field(default_factory=dict)


def status(text: str) -> dict[int, LinkGpu]:
    """Return every GPU's links. Raises FormatError for a line that is neither a GPU nor a link."""
    found: dict[int, LinkGpu] = {}
    for gpu, line in _lines(text, found):
        speed = _SPEED.match(line)
        match = speed or _INACTIVE.match(line)
        if match is None:
            raise FormatError(f"a line of nvidia-smi nvlink -s that is not known: {line[:80]!r}")
        if int(match["link"]) in gpu.speeds:
            raise FormatError(f"GPU {gpu.index} has link {match['link']} twice")
        gpu.speeds[int(match["link"])] = float(speed["speed"]) if speed else None
    return found


def errors(text: str) -> dict[int, LinkGpu]:
    """Return every GPU's counters. Raises FormatError for a line that is neither a GPU nor a counter."""
    found: dict[int, LinkGpu] = {}
    for gpu, line in _lines(text, found):
        match = _COUNTER.match(line)
        if match is None:
            if _INACTIVE.match(line):
                continue
            raise FormatError(f"a line of nvidia-smi nvlink -e that is not known: {line[:80]!r}")
        link, name, value = match.group("link", "name", "value")
        counters = gpu.counters.setdefault(int(link), {})
        if name in counters:
            raise FormatError(f"GPU {gpu.index} link {link} has {name} twice")
        counters[name] = value
    return found


def bit_error_rate(text: str) -> float:
    """Return a rate as `nvidia-smi nvlink -e` prints it: 15e-255 is the floor, meaning none. Raises FormatError for any other notation."""
    if text not in {"0", "0.0"} and not _RATE.match(text):
        raise FormatError(f"no bit error rate: {text[:80]!r}")
    return float(text)


def _lines(text: str, found: dict[int, LinkGpu]) -> list[tuple[LinkGpu, str]]:
    if not text.strip():
        raise FormatError("empty output")
    out: list[tuple[LinkGpu, str]] = []
    gpu: LinkGpu | None = None
    for raw in text.splitlines():
        line = " ".join(raw.split())
        if match := _GPU.match(line):
            gpu = LinkGpu(int(match["index"]), match["uuid"], match["name"])
            if gpu.index in found:
                raise FormatError(f"GPU {gpu.index} is there twice")
            found[gpu.index] = gpu
        elif line and gpu is None:
            raise FormatError(f"no list of GPUs and links, but {line[:80]!r}")
        elif line and gpu is not None:
            out.append((gpu, line))
    return out
