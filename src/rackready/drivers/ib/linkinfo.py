"""Reads ``iblinkinfo -l``: one line for each port, with its state and the far end.

Shape: rdma-core infiniband-diags/iblinkinfo.c (print_port). Down ports have an empty far end.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rackready.drivers.ib.text import LANE_GBPS, SIGNAL_GBPS, guid_of, unknown

_TOOL = "iblinkinfo -l"
_LINE = re.compile(
    r'0x(?P<guid>[0-9a-f]{16}) "(?P<name>.*?)"\s+(?P<lid>\d+)\s+(?P<port>\d+)\[[ \d]*\] =='
    r"\(\s*(?:(?P<width>\d+)X\s+(?P<signal>[\d.]+) Gbps(?: \(FDR10\))?\s+)?"
    r"(?P<state>[A-Za-z]+)/\s*(?P<phys>[A-Za-z]+)\)"
    r"(?: \(HOQ:\d+ VL_Stall:\d+\))?==>\s+"
    r"(?:0x(?P<far_guid>[0-9a-f]{16})\s+(?P<far_lid>\d+)\s+(?P<far_port>\d+)\[[ \d]*\] "
    r'"(?P<far_name>.*)" \((?P<could>.*)\)'
    r'|\[  \] "" \( \)|"Port not available")$'
)


@dataclass(frozen=True, slots=True)
class LinkLine:
    """One port. ``width`` in lanes and ``rate`` in Gb/s are 0 while it is down; ``far_*`` are then empty."""

    guid: int
    name: str
    lid: int
    port: int
    state: str
    physical: str
    width: int = 0
    speed: str = ""
    far_guid: int = 0
    far_port: int = 0
    far_name: str = ""
    could_be: str = ""
    """What both ends could do beyond this, as the tool prints it: ``Could be 12X``."""

    @property
    def rate(self) -> int:
        """Return the data rate, Gb/s, rounded down; 0 while it is down."""
        return int(self.width * LANE_GBPS[self.speed]) if self.speed else 0


def read_iblinkinfo(text: str) -> tuple[LinkLine, ...]:
    """Return every port of an ``iblinkinfo -l`` text. Raises IbTextError for an unknown line, or without a port."""
    lines = [(number, line.rstrip()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines:
        raise unknown(_TOOL, 0, "", "a line for each port")
    return tuple(_line(number, line) for number, line in lines)


def _line(number: int, line: str) -> LinkLine:
    found = _LINE.match(line)
    if found is None or (found["signal"] is not None and found["signal"] not in SIGNAL_GBPS):
        raise unknown(_TOOL, number, line, "GUID, name, LID, port, state and far end of a port")
    if (found["state"] == "Down") != (found["width"] is None):
        raise unknown(_TOOL, number, line, "width and speed of a port that is not down, and of no other")
    return LinkLine(
        guid_of(found["guid"]),
        found["name"].strip(),
        int(found["lid"]),
        int(found["port"]),
        found["state"],
        found["phys"],
        int(found["width"] or 0),
        SIGNAL_GBPS[found["signal"]] if found["signal"] else "",
        guid_of(found["far_guid"] or "0"),
        int(found["far_port"] or 0),
        found["far_name"] or "",
        (found["could"] or "").strip(),
    )
