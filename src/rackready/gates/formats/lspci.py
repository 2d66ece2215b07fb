"""Reader of `lspci -D -vvv` of PCI bridges: their buses and access control services."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rackready.format_error import TWICE, FormatError

_DEVICE = re.compile(r"^([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) (.+?): ")
"""A host bridge's domain has four digits; Linux numbers those behind a Volume Management Device from 10000.

drivers/pci/controller/vmd.c
"""
_BUS = re.compile(r"^\tBus: primary=([0-9a-f]{2}), secondary=([0-9a-f]{2}), subordinate=([0-9a-f]{2})", re.MULTILINE)
_PORT = re.compile(
    r"^\tCapabilities: \[[0-9a-f]+\] Express \(v\d+\) (Root Port|Upstream Port|Downstream Port|PCI-Express to "
    r"PCI/PCI-X Bridge)",
    re.MULTILINE,
)
_CONTROL = re.compile(r"^\t\tACSCtl:\t(.+)$", re.MULTILINE)
_FLAG = re.compile(r"^(\w+)([+-])$")


@dataclass(frozen=True, slots=True)
class Bridge:
    """One bridge. ``acs``: its enabled access control services; None if it has no such capability."""

    address: str
    port: str
    secondary: int
    subordinate: int
    acs: frozenset[str] | None

    def above(self, address: str) -> bool:
        """Return whether a device is below this bridge."""
        domain, _, rest = address.partition(":")
        return domain == self.address.partition(":")[0] and self.secondary <= int(rest[:2], 16) <= self.subordinate


def parse(text: str) -> list[Bridge]:
    """Return all bridges. Raise FormatError: empty, cut off, or without the right to read capabilities."""
    if not text.strip():
        raise FormatError("empty output")
    if "<access denied>" in text:
        raise FormatError("capabilities: <access denied>, because lspci ran without root")
    blocks: list[list[str]] = []
    for line in text.splitlines():
        if line.startswith("\t") and blocks:
            blocks[-1].append(line)
        elif _DEVICE.match(line):
            blocks.append([line])
        elif line.strip():
            raise FormatError(f"not the first line of a device: {line[:60]!r}")
    bridges = [_bridge("\n".join(block)) for block in blocks]
    if len({bridge.address for bridge in bridges}) != len(bridges):
        raise FormatError(f"a bridge is there twice: {TWICE}")
    return bridges


def _bridge(block: str) -> Bridge:
    address = block.split(" ", 1)[0]
    bus, port = _BUS.search(block), _PORT.search(block)
    if bus is None:
        raise FormatError(f"{address} without its bus numbers: the output is cut off")
    return Bridge(address, port[1] if port else "", int(bus[2], 16), int(bus[3], 16), _acs(address, block))


def _acs(address: str, block: str) -> frozenset[str] | None:
    if "Access Control Services" not in block and "ACSC" not in block:
        return None
    control = _CONTROL.search(block)
    flags = [_FLAG.match(word) for word in control[1].split()] if control else []
    if not flags or any(flag is None for flag in flags):
        raise FormatError(f"{address} with access control services, but no ACSCtl line: the output is cut off")
    return frozenset(flag[1] for flag in flags if flag is not None and flag[2] == "+")
