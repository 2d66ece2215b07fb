"""Where a switch sends a packet on: by Ethernet address on a bridge, or by route to the next switch."""

from __future__ import annotations

import json
import subprocess
import zlib
from typing import Any, NamedTuple

from ..perf import wire

_ROCE_PORT = "4791"
"""UDP port of RoCE v2 (IBTA, annex 17). Routes with several paths choose one by addresses and ports."""
_UDP = "17"
"""As a number: names need /etc/protocols."""
_FIRST_PORT, _PORTS = 49152, 16384


class Hop(NamedTuple):
    """The port that a packet leaves by, None if it is unknown, and whether another switch is behind it."""

    port: str | None
    routed: bool = False


def leave(target: bytes, told: dict[str, Any]) -> Hop:
    """Return where a packet goes: its Ethernet address ``target`` is a host's, or one of this router's own."""
    port = _port_of(target)
    if port is not None or "to" not in told:
        return Hop(port)
    flow = zlib.crc32(f"{told.get('from')} {told['to']} {told.get('queue', 0)}".encode())
    source = str(_FIRST_PORT + flow % _PORTS)
    found = _ip("route", "get", str(told["to"]), "ipproto", _UDP, "sport", source, "dport", _ROCE_PORT)
    device = found[0].get("dev", "") if found else ""
    if device.startswith("swp"):
        return Hop(device, routed=True)
    neighbours = _ip("neigh", "show", str(told["to"]), "dev", device) if device.startswith("vlan") else []
    address = neighbours[0].get("lladdr") if neighbours else None
    return Hop(_port_of(wire.mac(address)) if address else None)


def _port_of(address: bytes) -> str | None:
    """Return the port behind which an Ethernet address was seen."""
    for item in _json("bridge", "-json", "fdb", "show"):
        if wire.mac(item.get("mac", "00")) == address and item["ifname"].startswith("swp"):
            name: str = item["ifname"]
            return name
    return None


def _ip(*words: str) -> list[dict[str, Any]]:
    return _json("ip", "-json", *words)


def _json(*argv: str) -> list[dict[str, Any]]:
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    found: list[dict[str, Any]] = json.loads(done.stdout or "[]")
    return found
