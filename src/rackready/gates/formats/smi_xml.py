"""Reader of `nvidia-smi -q -x`, nvidia-smi's only report with named elements (its text has no stable format).

Element names are those of drivers 550 to 595 (nvsmi_device_v12.dtd, v13). Values that the driver does not report are
N/A, and None here; the gate decides what that means.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from xml.etree import ElementTree as ET

from rackready.format_error import TWICE, FormatError, TwoReportsError

_START = "<nvidia_smi_log"
_END = "</nvidia_smi_log>"
_NOTHING = frozenset(
    {
        "",
        "n/a",
        "[n/a]",
        "unknown error",
        "[unknown error]",
        "requested functionality has been deprecated",
        "not supported",
        "[not supported]",
    }
)
_TIME = "%a %b %d %H:%M:%S %Y"
_KEPT = 16
"""Reports that are kept: one for each run that the runner has at a time. One takes about a MiB."""
_NUMBER = re.compile(r"^(-?\d+(?:\.\d+)?)(?: ?[A-Za-z%/()]+)?$")
_LOST = re.compile(
    r"Unable to determine the device handle for (?:GPU\s*)?(?P<gpu>[^\s]*).*?(?:is lost|Unknown Error)", re.IGNORECASE
)
_INFOROM = re.compile(r"WARNING: info[rR][oO][mM] is corrupted at gpu (?P<pci>[0-9a-fA-F:.]+)")


@dataclass(frozen=True)
class SmiGpu:
    """One GPU of the report; its elements are found by path."""

    pci: str
    """PCI address as NVML prints it: 00000000:1B:00.0."""
    position: int
    element: ET.Element

    def text(self, path: str) -> str | None:
        """Return an element's text; None if it is absent or the driver does not report it."""
        found = _text(self.element, path)
        value = " ".join(found.split()) if found is not None else ""
        return None if value.lower() in _NOTHING else value

    def names(self, path: str) -> bool:
        """Return whether the report has the element. One driver has the same elements for every GPU."""
        return _text(self.element, path) is not None

    def number(self, path: str) -> float | None:
        """Return an element's number, in its printed unit. Raise FormatError if it is not a number."""
        value = self.text(path)
        if value is None:
            return None
        found = _NUMBER.match(value)
        if found is None:
            raise FormatError(f"{path} of {self.pci} is {value!r}, which is no number")
        return float(found[1])


def _text(element: ET.Element, path: str) -> str | None:
    """Return the same as ``findtext``, faster: try the first child of each name. A site makes millions of look-ups."""
    found: ET.Element | None = element
    for tag in path.split("/"):
        found = found.find(tag) if found is not None else None
    return element.findtext(path) if found is None else found.text or ""


@dataclass(frozen=True)
class SmiLog:
    """The whole report."""

    driver: str
    gpus: tuple[SmiGpu, ...]
    lost: tuple[str, ...]
    """GPUs that the tool reports as lost, as printed."""
    corrupt_inforom: tuple[str, ...]
    """PCI addresses of GPUs whose InfoROM the tool reports as corrupt."""
    when: datetime | None = None
    """The node's clock when the report was made; None if not reported."""


class NoDriverError(FormatError):
    """nvidia-smi could not talk to the driver; the text is its reason."""


@lru_cache(maxsize=_KEPT)
def parse(text: str) -> SmiLog:
    """Return the report. Raise FormatError, or NoDriverError with the tool's reason for no report.

    Many gates judge the same report: the last ones are kept, by their whole text. Do not change the result.
    """
    # The case-insensitive search is slow over a whole report, and lost GPUs are rare.
    lost = tuple(found["gpu"].rstrip(":") for found in _LOST.finditer(text)) if "handle" in text.lower() else ()
    corrupt = tuple(found["pci"] for found in _INFOROM.finditer(text)) if "WARNING" in text else ()
    start, end = text.find(_START), text.find(_END)
    if start < 0 and lost:
        return SmiLog("", (), lost, corrupt)
    if start < 0:
        first = " ".join(text.split())[:160]
        if first.startswith(("NVIDIA-SMI", "Failed to initialize NVML", "No devices were found")):
            raise NoDriverError(first)
        raise FormatError("empty output" if not first else f"no report of nvidia-smi -q -x, but {first[:80]!r}")
    if end < 0:
        raise FormatError("the report is cut off: its last element is missing")
    if (reports := text.count(_START)) > 1 or text.count(_END) > 1:
        raise TwoReportsError(f"{max(reports, text.count(_END))} reports of nvidia-smi -q -x: {TWICE}")
    body = text[start : end + len(_END)]
    if "<!ENTITY" in text:
        raise FormatError("the report declares entities, which nvidia-smi's never does")
    try:
        root = _root(body)
        return SmiLog(*_gpus(root), lost, corrupt, _when(root.findtext("timestamp") or ""))
    except ET.ParseError as error:
        raise FormatError(f"the report is damaged: {error}") from error


def _root(body: str) -> ET.Element:
    """Return the report's element. ET.ParseError names the damaged line.

    The parser passes on the blanks between two elements line by line: as one line, a report takes a fifth less time.
    """
    try:
        return ET.fromstring(body.replace("\n", " "))  # noqa: S314 - without entities, which the caller refuses, there is nothing to expand
    except ET.ParseError:
        return ET.fromstring(body)  # noqa: S314 - as above


def _when(text: str) -> datetime | None:
    """Return a report's time, e.g. 'Sun Nov 22 06:00:00 2026', which nvidia-smi prints without a zone."""
    try:
        return datetime.strptime(" ".join(text.split()), _TIME)  # noqa: DTZ007 - it has no zone
    except ValueError:
        return None


def _gpus(root: ET.Element) -> tuple[str, tuple[SmiGpu, ...]]:
    found = tuple(
        SmiGpu(element.get("id", ""), position, element) for position, element in enumerate(root.findall("gpu"))
    )
    attached = (root.findtext("attached_gpus") or "").strip()
    if not attached.isdigit() or int(attached) != len(found):
        raise FormatError(f"the report counts {attached or 'no'} GPUs and describes {len(found)}")
    addresses = [gpu.pci for gpu in found]
    if "" in addresses or len(set(addresses)) != len(addresses):
        raise FormatError("a GPU of the report has no address, or two have the same")
    return (root.findtext("driver_version") or "").strip(), found
