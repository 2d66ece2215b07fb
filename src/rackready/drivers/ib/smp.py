"""Reads subnet management data of one port: smpquery portinfo and pkeys, and sminfo.

Shapes: rdma-core infiniband-diags/smpquery.c (port_info, pkey_table), sminfo.c, libibmad/dump.c.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rackready.drivers.ib.text import LANE_GBPS, SIGNAL_GBPS, guid_of, unknown

_FIELD = re.compile(r"(?P<name>[A-Za-z0-9]+):\.+(?P<value>.*)$")
_WIDTH = re.compile(r"(\d+)X$")
_SIGNAL = re.compile(r"([\d.]+) Gbps$")
_STATES = {"Down", "Initialize", "Armed", "Active"}
_NO_EXTENDED = "No Extended Speed"
"""LinkSpeedExtActive of a port that runs at up to QDR (libibmad/dump.c: mad_dump_linkspeedext)."""
_BLOCK = 8
_ROW = re.compile(r"\s*(\d+):((?: 0x[0-9a-f]{4}){8})$")
_CAPACITY = re.compile(r"(\d+) pkeys capacity for this port$")
_SMINFO = re.compile(
    r"sminfo: sm lid (?P<lid>\d+) sm guid 0x(?P<guid>[0-9a-f]+), activity count (?P<count>\d+) "
    r"priority (?P<priority>\d+) state (?P<state>\d) SMINFO_(?P<name>[A-Z_]+)$"
)


@dataclass(frozen=True, slots=True)
class PortInfo:
    """State of one port. ``speed`` is empty and ``width`` 0 unless it is up; ``mtu`` in bytes, 0 if not told."""

    lid: int
    state: str
    physical: str
    width: int
    speed: str
    mtu: int

    @property
    def rate(self) -> int:
        """Return the data rate, Gb/s, rounded down; 0 while it is down."""
        return int(self.width * LANE_GBPS[self.speed]) if self.speed else 0


@dataclass(frozen=True, slots=True)
class SubnetManager:
    """The master that answers. ``state``: MASTER, STANDBY, DISCOVER or NOTACT."""

    lid: int
    guid: int
    activity: int
    priority: int
    state: str


def read_portinfo(text: str) -> PortInfo:
    """Return the state of a port. Raises IbTextError for a missing or unknown state, width or speed."""
    fields = {found["name"]: found["value"].strip() for line in text.splitlines() if (found := _FIELD.match(line))}
    state, physical = fields.get("LinkState", ""), fields.get("PhysLinkState", "")
    if state not in _STATES or not physical or not fields.get("Lid", "").isdigit():
        raise unknown("smpquery portinfo", 0, text[:200], f"Lid, PhysLinkState and LinkState ({', '.join(_STATES)})")
    mtu = fields.get("NeighborMTU", "")
    if state == "Down":
        return PortInfo(int(fields["Lid"]), state, physical, 0, "", 0)
    extended = fields.get("LinkSpeedExtActive", _NO_EXTENDED)
    speed = _SIGNAL.match(fields.get("LinkSpeedActive", "") if extended == _NO_EXTENDED else extended)
    width = _WIDTH.match(fields.get("LinkWidthActive", ""))
    if width is None or speed is None or speed[1] not in SIGNAL_GBPS:
        told = f"{fields.get('LinkWidthActive')} {fields.get('LinkSpeedActive')} {extended}"
        raise unknown("smpquery portinfo", 0, told, "the width and speed of a port that is up")
    return PortInfo(
        int(fields["Lid"]),
        state,
        physical,
        int(width[1]),
        SIGNAL_GBPS[speed[1]],
        int(mtu) if mtu.isdigit() else 0,
    )


def read_pkeys(text: str) -> frozenset[int]:
    """Return the partition keys of a port, with their membership bit (0x8000: full member).

    Raises IbTextError if rows are missing: a part of the table proves no isolation.
    """
    keys: list[int] = []
    capacity = None
    for number, line in enumerate(text.splitlines(), 1):
        if found := _ROW.match(line):
            if int(found[1]) != len(keys):
                raise unknown("smpquery pkeys", number, line, f"row {len(keys)}")
            keys += [int(word, 16) for word in found[2].split()]
        elif found := _CAPACITY.match(line):
            capacity = int(found[1])
        elif line.strip():
            raise unknown("smpquery pkeys", number, line, "a row of 8 keys, or the capacity")
    if capacity is None or len(keys) != -(-capacity // _BLOCK) * _BLOCK:
        raise unknown("smpquery pkeys", 0, f"{len(keys)} keys", f"all of the {capacity or 'unknown number of'} keys")
    return frozenset(key for key in keys if key & 0x7FFF)


def read_first_pkey(text: str) -> str:
    """Return the partition key at index 0 of a table that ``read_pkeys`` took: "0x8011", or "0x0000" for no key."""
    return next(found[2].split()[0] for line in text.splitlines() if (found := _ROW.match(line)))


def read_sminfo(text: str) -> SubnetManager:
    """Return the subnet manager that answers. Raises IbTextError for any other text: there is none, or none answers."""
    found = next((found for line in text.splitlines() if (found := _SMINFO.match(line.strip()))), None)
    if found is None:
        raise unknown("sminfo", 0, text[:200], "the LID, GUID, priority and state of a subnet manager")
    return SubnetManager(
        int(found["lid"]), guid_of(found["guid"]), int(found["count"]), int(found["priority"]), found["name"]
    )
