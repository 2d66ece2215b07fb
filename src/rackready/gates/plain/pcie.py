"""PCIe path of every GPU from `lspci -D -nn -vvv`, whose bridges show the buses behind them.

Lines as pciutils prints them: lspci.c (show_htype1), ls-caps.c (cap_express_link).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rackready.design.facts import NodeFacts
from rackready.format_error import FormatError
from rackready.gates.base import Command
from rackready.gates.plain.nvidia import SMI
from rackready.gates.plain.source import Given, LackError, Source, begins, document, lack, only
from rackready.gates.records.offline import Captured
from rackready.ondevice import pcie_path

_WORDS = "lspci -D -nn -vvv"
LSPCI = Source("lspci", _WORDS, begins(r"^(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] \S.*: "))
_REPORT = replace(SMI, needed=False)
_HEAD = re.compile(r"^(?:(?P<domain>[0-9a-f]{4,8}):)?(?P<bus>[0-9a-f]{2}):(?P<place>[0-9a-f]{2}\.[0-7]) ")
_NUMBERS = re.compile(
    r" \[(?P<kind>[0-9a-f]{4})\]: .*\[(?P<vendor>[0-9a-f]{4}):[0-9a-f]{4}\](?: \(rev (?P<revision>[0-9a-f]{2})\))?"
)
_BEHIND = re.compile(
    r"^\tBus: primary=[0-9a-f]{2}, secondary=(?P<first>[0-9a-f]{2}), subordinate=(?P<last>[0-9a-f]{2})", re.MULTILINE
)
_CAN = re.compile(r"^\t\tLnkCap:\t.*?Speed (?P<speed>[\d.]+GT/s|unknown), Width x(?P<width>\d+)", re.MULTILINE)
_RUNS = re.compile(r"^\t\tLnkSta:\tSpeed (?P<speed>[\d.]+GT/s|unknown)[^,\n]*, Width x(?P<width>\d+)", re.MULTILINE)
_ROOT = re.compile(r"^\tCapabilities: \[[0-9a-f]+\] Express \(v\d+\) Root Port\b", re.MULTILINE)
_GPUS = frozenset({"0300", "0302"})
"""VGA and 3D controllers, as in ``pcie_path``."""
_NVIDIA = "10de"


@dataclass(frozen=True, slots=True)
class _Device:
    """One device of the list. ``behind``: numbers of the buses behind a bridge."""

    domain: str
    bus: int
    address: str
    kind: str
    vendor: str
    revision: str
    text: str
    behind: range

    def above(self, other: _Device) -> bool:
        return self.domain == other.domain and other.bus in self.behind

    def link(self) -> dict[str, Any]:
        """Return its end of a link in ``pcie_path``'s form; values that lspci lacks are null, as sysfs's unknown is."""
        most, now = _CAN.search(self.text), _RUNS.search(self.text)
        values: dict[str, float | None] = {
            "current_link_speed": None,
            "max_link_speed": None,
            "current_link_width": None,
            "max_link_width": None,
        }
        for name, found in (("max", most), ("current", now)):
            if found is not None and int(found["width"]):
                values[f"{name}_link_width"] = float(found["width"])
                values[f"{name}_link_speed"] = (
                    None if found["speed"] == "unknown" else float(found["speed"].removesuffix("GT/s"))
                )
        return {"pci": self.address, "vendor": f"0x{self.vendor}", **values, "correctable": None}


class PciePath:
    """Maker of ``pcie_path``'s document."""

    def sources(self, facts: NodeFacts, command: Command) -> Sequence[Source]:  # noqa: ARG002 - the same for all
        """Return lspci, and nvidia-smi's report, which is recognised but not enough."""
        return (LSPCI, _REPORT)

    def make(self, facts: NodeFacts, command: Command, given: Given) -> Captured:  # noqa: ARG002 - the same for all
        """Return the document."""
        found = only(given, LSPCI)
        if found is None:
            actual = "nvidia-smi -q -x shows only the GPU's own link" if only(given, SMI) else "not given"
            raise LackError([lack(facts.node.name, "links of the bridges above each GPU", LSPCI, actual)])
        if found.exit_code != 0:
            raise FormatError(f"lspci ended with exit code {found.exit_code}")
        devices = _devices(found.text)
        gpus = sorted(
            (one for one in devices if one.vendor == _NVIDIA and one.kind in _GPUS), key=lambda one: one.address
        )
        return document(pcie_path.FORMAT, gpus=[_path(facts, gpu, devices) for gpu in gpus])


def _path(facts: NodeFacts, gpu: _Device, devices: Sequence[_Device]) -> dict[str, Any]:
    """Return a GPU with its links, from the GPU up to the root port. Raise LackError if the list has no root port."""
    above = sorted((one for one in devices if one.above(gpu)), key=lambda one: one.behind.start, reverse=True)
    if not above or not _ROOT.search(above[-1].text):
        actual = (
            f"no bridge leads to {gpu.address}"
            if not above
            else f"{above[-1].address}, the highest bridge of {gpu.address}, is not a root port"
        )
        raise LackError([lack(facts.node.name, "links up to the root port", LSPCI, actual)])
    return {
        "pci": gpu.address,
        "revision": f"0x{gpu.revision}" if gpu.revision else None,
        "links": [one.link() for one in (gpu, *above)],
    }


def _devices(text: str) -> list[_Device]:
    """Return all devices. Raise FormatError: no list, no numbers, or no permission to read capabilities."""
    if "<access denied>" in text:
        raise FormatError(f"capabilities: <access denied>; run `{_WORDS}` as root")
    blocks: list[list[str]] = []
    for line in text.splitlines():
        if _HEAD.match(line):
            blocks.append([line])
        elif blocks and (line.startswith("\t") or not line.strip()):
            blocks[-1].append(line)
        else:
            raise FormatError(f"not the first line of a device: {line[:60]!r}")
    found = [_device("\n".join(block)) for block in blocks]
    twice = {one.address for one in found if sum(one.address == other.address for other in found) > 1}
    if not found or twice:
        raise FormatError(f"{min(twice)} is in the list twice" if twice else "no list of devices")
    return found


def _device(block: str) -> _Device:
    head, numbers, behind = _HEAD.match(block), _NUMBERS.search(block.split("\n", 1)[0]), _BEHIND.search(block)
    if head is None or numbers is None:
        raise FormatError(f"no numbers of class and vendor: {block[:60]!r}; run `{_WORDS}`")
    domain = head["domain"] or "0000"
    buses = range(int(behind["first"], 16), int(behind["last"], 16) + 1) if behind else range(0)
    address = f"{domain}:{head['bus']}:{head['place']}"
    return _Device(
        domain,
        int(head["bus"], 16),
        address,
        numbers["kind"],
        numbers["vendor"],
        numbers["revision"] or "",
        block,
        buses,
    )
