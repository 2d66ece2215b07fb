"""Readers of what Arista EOS prints: pending sessions, its names, ports, RoCE. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rackready.drivers.switch.base import (
    PortState,
    Revision,
    RevisionState,
    RoceState,
    SwitchError,
    SwitchUncertainError,
)
from rackready.drivers.switch.cli_tree import Path
from rackready.drivers.switch.lldp_json import colons
from rackready.format_error import FormatError

MOST_PENDING = 5
"""`maxOpenSessions` of `show configuration sessions detail | json` (arista-eosplus/pyeapi issue 184)."""
_DEFAULT_TC = (1, 0, 2, 3, 4, 5, 6, 7)
"""Default traffic class of each block of eight DSCPs, and of each CoS (Arista, "Quality of Service")."""
_STATES = {
    "pending": RevisionState.CANDIDATE,
    "pendingCommitTimer": RevisionState.UNCONFIRMED,
    "committed": RevisionState.OTHER,
    "completed": RevisionState.OTHER,
    "aborted": RevisionState.OTHER,
}
"""State of a session -> ours. napalm issue 2166: `pendingCommitTimer` up to 4.31; since 4.32 a session is `committed`
at once, and the document names the one whose timer runs."""
_TIMER = "commitTimerSessionName"


def default_maps() -> list[str]:
    """Return the maps that EOS has before any configuration, as `qos map` lines without their first two words."""
    dscp = [f"dscp {dscp} to traffic-class {_DEFAULT_TC[dscp // 8]}" for dscp in range(64)]
    return dscp + [f"traffic-class {number} to tx-queue {number}" for number in range(8)]


def neighbours(document: Mapping[str, Any]) -> dict[str, str]:
    """Return BGP neighbour -> state in lower case, of `show bgp neighbors vrf all | json` (ANTA reads the same list).

    One of an interface is named by it: in `ifName`, or after the `%` of its link-local address. What is not there is no
    session: the neighbour counts as down.
    """
    vrfs = document.get("vrfs")
    default = vrfs.get("default") if isinstance(vrfs, dict) else None
    peers = default.get("peerList") if isinstance(default, dict) else None
    out: dict[str, str] = {}
    for peer in peers if isinstance(peers, list) else []:
        address, _, interface = str(peer.get("peerAddress", "")).partition("%")
        out[_long(str(peer.get("ifName") or interface or address))] = str(peer.get("state", "none")).lower()
    return out


def names(document: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of `show hostname | json`. Raises FormatError."""
    return frozenset({_field(document, "hostname"), _field(document, "fqdn")})


def chassis(document: Mapping[str, Any]) -> frozenset[str]:
    """Return the switch's MAC address, of `show version | json`. Raises FormatError."""
    return frozenset({colons(_field(document, "systemMacAddress"))})


def _field(document: Mapping[str, Any], key: str) -> str:
    found = document.get(key)
    if not isinstance(found, str) or not found:
        raise FormatError(f"no `{key}`; keys: {', '.join(sorted(document)) or 'none'}")
    return found


def sessions(where: str, document: Mapping[str, Any]) -> list[Revision]:
    """Return the sessions of `show configuration sessions detail | json`.

    Raises SwitchUncertainError for a form, or a state, that no published output has.
    """
    found = document.get("sessions")
    timer = document.get(_TIMER, "")
    if not isinstance(found, dict) or not isinstance(timer, str) or (timer and timer not in found):
        raise _unknown(where, f"keys {', '.join(sorted(document)) or 'none'}")
    out = []
    for name, one in found.items():
        state = one.get("state") if isinstance(one, dict) else None
        if state not in _STATES:
            raise _unknown(where, f"state {state!r} of session {name}")
        out.append(Revision(str(name), RevisionState.UNCONFIRMED if name == timer else _STATES[state], _user(one)))
    return out


def _user(session: Mapping[str, Any]) -> str:
    instances = session.get("instances")
    users = [one.get("user", "") for one in instances.values()] if isinstance(instances, dict) else []
    return str(session.get("commitUser") or next(iter(users), ""))


def _unknown(where: str, actual: str) -> SwitchUncertainError:
    return SwitchUncertainError(
        where,
        "`show configuration sessions detail | json`",
        expected="the form of EOS up to 4.31, or of 4.32 and later",
        actual=actual,
        next_step="Nothing was reverted. Look at the running configuration, and report the output.",
    )


def objects(where: str, document: Mapping[str, Any], key: str) -> dict[str, Mapping[str, Any]]:
    """Return name -> object below a key. Raises SwitchError where there is none."""
    found = document.get(key)
    if not isinstance(found, dict) or not found or not all(isinstance(one, dict) for one in found.values()):
        raise SwitchError(
            where,
            f"JSON of its {key}",
            expected="an object for each interface",
            actual=f"keys {', '.join(sorted(document)) or 'none'}",
            next_step="Log in and look whether the user may read it.",
        )
    return found


def ports(
    where: str,
    interfaces: Mapping[str, Mapping[str, Any]],
    statuses: Mapping[str, Mapping[str, Any]],
    lines: set[Path],
) -> dict[str, PortState]:
    """Return the Ethernet ports.

    EOS shows the frame size of the hardware for a bridged port (10178 bytes), whatever `mtu` says: the smaller of the
    two counts. A routed port shows its own MTU. Raises SwitchError where a field is missing.
    """
    out = {}
    for name, one in interfaces.items():
        if not name.startswith("Ethernet"):
            continue
        status, mtu = one.get("interfaceStatus"), one.get("mtu")
        if not isinstance(status, str) or not isinstance(mtu, int):
            raise _no_field(where, name, "interfaceStatus, mtu")
        vlan = statuses.get(name, {}).get("vlanInformation")
        if not isinstance(vlan, dict):
            raise _no_field(where, name, "vlanInformation")
        bridged = vlan.get("interfaceMode") == "bridged"
        written = next((int(path[1].split()[1]) for path in lines if _is_mtu(path, name)), mtu)
        out[name] = PortState(
            admin_up=status not in {"disabled", "errdisabled"},
            link_up=status == "connected",
            mtu=min(mtu, written) if bridged else mtu,
            vlan=int(vlan["vlanId"]) if bridged and "vlanId" in vlan else None,
        )
    return out


def gateways(interfaces: Mapping[str, Mapping[str, Any]]) -> dict[int, int]:
    """Return VLAN -> MTU of its interface; EOS gives one 1500 bytes unless it is configured."""
    found = {name.removeprefix("Vlan"): one.get("mtu") for name, one in interfaces.items() if name.startswith("Vlan")}
    return {int(vlan): mtu for vlan, mtu in found.items() if vlan.isdigit() and isinstance(mtu, int)}


def _is_mtu(path: Path, port: str) -> bool:
    return len(path) == 2 and path[0] == f"interface {port}" and path[1].startswith("mtu ")  # noqa: PLR2004 - section, line


def _no_field(where: str, port: str, fields: str) -> SwitchError:
    return SwitchError(
        where,
        f"JSON of {port}",
        expected=f"{fields}",
        actual="not all of them",
        next_step="The release may be newer than rackready: report the output.",
    )


_ROW = re.compile(r"^(?P<port>Et\S+)\s+(?P<on>Yes|No)\s+(?P<priorities>[0-7](?:[,-][0-7])*)?\s*(?P<active>Yes|No)\b")


def roce(where: str, table: str, lines: set[Path]) -> RoceState:
    """Return RoCE as ports have it that rackready gave its profile: `show priority-flow-control` and the maps.

    The switch is lossless if PFC is active on each of them, on the same priorities. Raises SwitchError for a table of
    another form.
    """
    if not re.search(r"^Port\s+Enabled\s+Priorities\s+Active", table, re.MULTILINE):
        raise SwitchError(
            where,
            "`show priority-flow-control`",
            expected="a table with Port, Enabled, Priorities, Active",
            actual=" ".join(table.split())[:200] or "no output",
            next_step="The model may have no priority flow control: see its data sheet.",
        )
    served = {path[0].removeprefix("interface ") for path in lines if path[-1].startswith("service-profile ")}
    rows = {_long(match["port"]): match for line in table.splitlines() if (match := _ROW.match(line.strip()))}
    active = [_paused(rows.get(port)) for port in served]
    same = frozenset.intersection(*active) if active else frozenset()
    trusted = {path[0].removeprefix("interface ") for path in lines if path[-1] == "qos trust dscp"}
    mode = "lossless" if served and all(active) else "off"
    return RoceState(mode, same, bool(served) and served <= trusted, _dscp(lines))


def _long(port: str) -> str:
    return re.sub(r"^Et(?=\d)", "Ethernet", port)


def _paused(row: re.Match[str] | None) -> frozenset[int]:
    """Return the priorities that a port pauses now."""
    return _numbers(row["priorities"]) if row is not None and row["on"] == row["active"] == "Yes" else frozenset()


def _numbers(text: str | None) -> frozenset[int]:
    spans = [part.partition("-") for part in (text or "").split(",") if part]
    return frozenset(number for low, _, high in spans for number in range(int(low), int(high or low) + 1))


def _dscp(lines: set[Path]) -> dict[int, int]:
    found = {dscp: _DEFAULT_TC[dscp // 8] for dscp in range(64)}
    for path in lines:
        if match := re.fullmatch(r"qos map dscp (\d+) to traffic-class (\d)", path[-1]):
            found[int(match[1])] = int(match[2])
    return found


_NEIGHBOURS = re.compile(
    r"^(?P<head> *neighbor interface )Et(?:hernet)?(?P<ports>\d[\d/,-]*)(?P<rest> .*)$", re.MULTILINE
)
_HEADER = re.compile(r"^interface Ethernet(\d[\d/]*) *$", re.MULTILINE)
_Numbers = tuple[int, ...]


def neighbours_apart(text: str) -> str:
    """Return a configuration with a line for each neighbour of a port, with the port's long name.

    EOS shows ports with the same group and AS in one line: `neighbor interface Et1-2 peer-group Underlay remote-as
    65001` (vEOS 4.27.2F), Et1/1-2, Et49/1-52/1. A range has all ports between its ends that the configuration has.
    """
    there = [_port(name) for name in _HEADER.findall(text)]

    def apart(match: re.Match[str]) -> str:
        names = ("/".join(map(str, port)) for port in _listed(match["ports"], there))
        return "\n".join(f"{match['head']}Ethernet{name}{match['rest']}" for name in names)

    return _NEIGHBOURS.sub(apart, text)


def _listed(text: str, there: list[_Numbers]) -> list[_Numbers]:
    """Return the ports of a list. A number without its cage is of the cage before it."""
    out: list[_Numbers] = []
    last: _Numbers = ()
    for part in text.split(","):
        low, _, high = part.partition("-")
        first = _port(low, last)
        last = _port(high, first)
        between = [port for port in there if len(port) == len(first) and first <= port <= last]
        out += between if high else [first]
    return out


def _port(name: str, before: _Numbers = ()) -> _Numbers:
    numbers = tuple(int(number) for number in name.split("/") if number)
    return (*before[: len(before) - len(numbers)], *numbers)
