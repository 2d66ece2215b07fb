"""Readers of what Cisco NX-OS prints: a replacement under way, files, its name, ports, RoCE. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rackready.drivers.switch.base import PortState, RoceState, SwitchError, SwitchUncertainError
from rackready.drivers.switch.cli_tree import Path
from rackready.drivers.switch.lldp_json import colons
from rackready.format_error import FormatError

_FREE = re.compile(r"^Operation Status\s*:\s*(?:Success|Failed)\s*$", re.MULTILINE)
"""Last line of `show rollback status`, which the same engine prints (Cisco's own tests)."""


def free(where: str, status: str) -> None:
    """Return when no replacement is under way, after `show config-replace status`.

    Its output is not published: only nothing at all, and the end of an operation, are understood. Raises
    SwitchUncertainError for anything else.
    """
    if status.strip() and not _FREE.search(status):
        raise SwitchUncertainError(
            where,
            "`show config-replace status`",
            expected="nothing, or `Operation Status: Success` or `Failed`",
            actual=" ".join(status.split())[:300],
            next_step="Nothing was changed: a commit-timeout of somebody may run. Look, and report the output.",
        )


def files(listing: str, pattern: re.Pattern[str]) -> list[str]:
    """Return the names of files of `dir bootflash:` that match."""
    names = [line.split()[-1] for line in listing.splitlines() if re.match(r"^\s*\d+\s+\w{3} \d\d ", line)]
    return [name for name in names if pattern.fullmatch(name)]


def rows(where: str, document: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return interface -> row of `TABLE_interface`; a single row comes without a list. Raises SwitchError."""
    table = document.get("TABLE_interface")
    found = table.get("ROW_interface") if isinstance(table, dict) else None
    listed = [found] if isinstance(found, dict) else found
    if not isinstance(listed, list) or not listed or not all(isinstance(row, dict) for row in listed):
        raise SwitchError(
            where,
            "JSON of its interfaces",
            expected="TABLE_interface with ROW_interface",
            actual=f"keys {', '.join(sorted(document)) or 'none'}",
            next_step="Log in and look whether the user may read it.",
        )
    return {str(row.get("interface")): row for row in listed}


def ports(
    where: str, interfaces: Mapping[str, Mapping[str, Any]], statuses: Mapping[str, Mapping[str, Any]]
) -> dict[str, PortState]:
    """Return the Ethernet ports. Raises SwitchError where a field is missing."""
    out = {}
    for name, row in interfaces.items():
        if not name.startswith("Ethernet"):
            continue
        vlan = statuses.get(name, {}).get("vlan")
        if not {"state", "admin_state", "eth_mtu"} <= set(row) or vlan is None:
            raise SwitchError(
                where,
                f"JSON of {name}",
                expected="state, admin_state, eth_mtu and vlan",
                actual="not all of them",
                next_step="The release may be newer than rackready: report the output.",
            )
        out[name] = PortState(
            admin_up=row["admin_state"] == "up",
            link_up=row["state"] == "up",
            mtu=int(row["eth_mtu"]),
            vlan=int(vlan) if str(vlan).isdigit() else None,
        )
    return out


def addresses(interfaces: Mapping[str, Mapping[str, Any]]) -> frozenset[str]:
    """Return the MAC addresses of all interfaces, of `show interface | json`; a tunnel has none."""
    return frozenset(colons(str(row["eth_hw_addr"])) for row in interfaces.values() if row.get("eth_hw_addr"))


def hostname(document: Mapping[str, Any]) -> str:
    """Return the name of `show hostname | json`, with its domain where one is set. Raises FormatError."""
    found = document.get("hostname")
    if not isinstance(found, str) or not found:
        raise FormatError(f"no `hostname`; keys: {', '.join(sorted(document)) or 'none'}")
    return found


def sessions(document: Mapping[str, Any]) -> dict[str, str]:
    """Return BGP neighbour -> state in lower case, of `show ip bgp summary | json` (nested tables, as NX-API has them).

    What is not there is no session: the neighbour counts as down.
    """
    out: dict[str, str] = {}
    for vrf in _nested([document], "vrf"):
        for neighbour in _nested(_nested(_nested([vrf], "af"), "saf"), "neighbor"):
            out[str(neighbour.get("neighborid"))] = str(neighbour.get("state", "none")).lower()
    return out


def _nested(documents: list[Mapping[str, Any]], name: str) -> list[Mapping[str, Any]]:
    out: list[Mapping[str, Any]] = []
    for document in documents:
        table = document.get(f"TABLE_{name}")
        found = table.get(f"ROW_{name}") if isinstance(table, dict) else None
        listed = found if isinstance(found, list) else [found]
        out += [row for row in listed if isinstance(row, dict)]
    return out


_ROW = re.compile(
    r"^(?P<port>Ethernet\S+)\s+(?P<mode>On|Off|Auto)\s+(?P<oper>On|Off)(?:\s*\((?P<bits>[0-9a-fA-F]+)\))?\s"
)


def roce(where: str, table: str, lines: set[Path]) -> RoceState:
    """Return RoCE as ports with rackready's policy have it: the bitmaps of `show interface priority-flow-control`.

    Raises SwitchError for a table of another form.
    """
    if "Oper(VL bmap)" not in table:
        raise SwitchError(
            where,
            "`show interface priority-flow-control`",
            expected="a table with Oper(VL bmap)",
            actual=" ".join(table.split())[:200] or "no output",
            next_step="The model may have no priority flow control: see its data sheet.",
        )
    served = {_port(path) for path in lines if path[-1] == "service-policy type qos input RACKREADY_IN"}
    seen = {match["port"]: match for line in table.splitlines() if (match := _ROW.match(f"{line.strip()} "))}
    active = [_bits(seen[port]) if port in seen else frozenset() for port in served]
    same = frozenset.intersection(*active) if active else frozenset()
    return RoceState("lossless" if served and all(active) else "off", same, bool(served), _dscp(lines))


def _port(path: Path) -> str:
    return path[0].removeprefix("interface ")


def _bits(row: re.Match[str]) -> frozenset[int]:
    bits = int(row["bits"] or "0", 16) if row["oper"] == "On" else 0
    return frozenset(number for number in range(8) if bits >> number & 1)


def _dscp(lines: set[Path]) -> dict[int, int]:
    """Return DSCP -> priority: a class of DSCPs has a group, whose number is the priority.

    Group 7 is of notifications alone, whatever their priority is: it is at the end of their class's name.
    """
    groups = {
        path[1].removeprefix("class "): int(path[2].rsplit(" ", 1)[1])
        for path in lines
        if path[0] == "policy-map type qos RACKREADY_IN" and path[-1].startswith("set qos-group ")
    }
    out: dict[int, int] = {}
    for path in lines:
        name = path[0].rsplit(" ", 1)[-1]
        if path[0].startswith("class-map type qos ") and path[-1].startswith("match dscp ") and name in groups:
            noted = _NOTED.search(name) if groups[name] == STRICT else None
            priority = int(noted[1]) if noted else groups[name]
            out |= dict.fromkeys(_numbers(path[-1].rsplit(" ", 1)[1]), priority)
    return out


STRICT = 7
"""QoS group with strict priority: Cisco wants it to be the highest (Nexus 9000 QoS guide 10.5(x), "Configuring Queuing
and Scheduling")."""
_NOTED = re.compile(r"^RACKREADY_CNP_([0-7])$")


def _numbers(text: str) -> list[int]:
    spans = [part.partition("-") for part in text.split(",")]
    return [one for low, _, high in spans for one in range(int(low), int(high or low) + 1)]
