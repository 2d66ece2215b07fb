"""Reader of `nvidia-smi nvlink -s` (states and speeds) and `nvidia-smi nvlink -e` (error counters).

The names of counters depend on the driver. If NVML does not report a GPU's links, one line replaces
them, e.g. `NVML: Unable to retrieve NVLink information as all links are inActive` (`Nvlink` in drivers of R590:
NVIDIA/open-gpu-kernel-modules issue 1150). A GPU that does not answer has no heading, only `Unable to determine the
device handle`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from rackready.format_error import FormatError

_GPU = re.compile(r"^GPU (?P<index>\d+): (?P<name>.+?) \(UUID: (?P<uuid>[^)]+)\)$")
_SPEED = re.compile(r"^Link (?P<link>\d+): (?P<speed>\d+(?:\.\d+)?) GB/s$")
_INACTIVE = re.compile(r"^Link (?P<link>\d+): <inactive>$")
_COUNTER = re.compile(r"^Link (?P<link>\d+): (?P<name>[A-Z][A-Za-z0-9 -]*?)\s*: (?P<value>\S.*)$")
_NVML = re.compile(r"^NVML: ?(?P<text>\S.*)$")
_HANDLE = re.compile(r"^Unable to determine the device handle for (?:GPU ?)?(?P<gpu>[0-9A-Fa-f:.]+): (?P<text>\S.*)$")
_RATE = re.compile(r"^\d+(?:\.\d+)?e-\d+$")


@dataclass
class LinkGpu:
    """One GPU, with its model as printed.

    ``speeds``: link -> GB/s, None if inactive. ``counters``: link -> name -> value as printed. ``refused``: NVML's
    message instead of the links; empty if there are links.
    """

    index: int
    uuid: str
    name: str = ""
    speeds: dict[int, float | None] = field(default_factory=dict)
    counters: dict[int, dict[str, str]] = field(default_factory=dict)
    refused: str = ""


@dataclass(frozen=True)
class LinkReport:
    """One output. ``lost``: GPU as printed (number or PCI address) -> the driver's message, if it does not answer."""

    gpus: dict[int, LinkGpu]
    lost: dict[str, str]


def status(text: str) -> LinkReport:
    """Return every GPU's links. Raise FormatError for a line that is neither a GPU nor a link."""
    found = LinkReport({}, {})
    for gpu, line in _lines(text, found):
        speed = _SPEED.match(line)
        match = speed or _INACTIVE.match(line)
        if match is None:
            raise FormatError(f"a line of nvidia-smi nvlink -s that is not known: {line[:80]!r}")
        if int(match["link"]) in gpu.speeds:
            raise FormatError(f"GPU {gpu.index} has link {match['link']} twice")
        gpu.speeds[int(match["link"])] = float(speed["speed"]) if speed else None
    return found


def errors(text: str) -> LinkReport:
    """Return every GPU's counters. Raise FormatError for a line that is neither a GPU nor a counter."""
    found = LinkReport({}, {})
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
    """Return a rate of `nvidia-smi nvlink -e`; 15e-255 means no errors. Raise FormatError for other notations."""
    if text not in {"0", "0.0"} and not _RATE.match(text):
        raise FormatError(f"no bit error rate: {text[:80]!r}")
    return float(text)


def _lines(text: str, found: LinkReport) -> list[tuple[LinkGpu, str]]:
    """Add the GPUs to the report and return the lines of their links."""
    if not text.strip():
        raise FormatError("empty output")
    out: list[tuple[LinkGpu, str]] = []
    gpu: LinkGpu | None = None
    for line in filter(None, (" ".join(raw.split()) for raw in text.splitlines())):
        if match := _GPU.match(line):
            gpu = _new(found, LinkGpu(int(match["index"]), match["uuid"], match["name"]))
        elif match := _HANDLE.match(line):
            found.lost[match["gpu"]] = match["text"].rstrip(".")
        elif gpu is None:
            raise FormatError(f"no list of GPUs and links, but {line[:80]!r}")
        elif match := _NVML.match(line):
            gpu.refused = match["text"].rstrip(".")
        else:
            out.append((gpu, line))
    for gpu in found.gpus.values():
        if gpu.refused and any(of is gpu for of, _ in out):
            raise FormatError(f"GPU {gpu.index} has links, and NVML's refusal to give them")
    return out


def _new(found: LinkReport, gpu: LinkGpu) -> LinkGpu:
    if gpu.index in found.gpus:
        raise FormatError(f"GPU {gpu.index} is there twice: the output of two commands?")
    if any(gpu.uuid == other.uuid for other in found.gpus.values()):
        raise FormatError(f"{gpu.uuid} is there twice")
    return found.gpus.setdefault(gpu.index, gpu)
