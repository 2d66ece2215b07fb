"""Verification of the way between switches: each cable's link and BGP session, and the prefixes that are announced."""

from __future__ import annotations

from rackready.design.switches import PortConfig, SwitchConfig
from rackready.drivers.switch import findings as kinds
from rackready.drivers.switch.base import SwitchState
from rackready.model.outcome import Finding
from rackready.model.place import Place


def trunk_ports(config: SwitchConfig) -> list[PortConfig]:
    """Return the ports to other switches."""
    return [port for port in config.ports if port.peer]


def verify_trunks(config: SwitchConfig, state: SwitchState, sessions: dict[str, str]) -> list[Finding]:
    """Return findings for trunks without a link, an established session, or the adaptive routing that the site wants.

    ``sessions``: BGP neighbour (a port, or the address at the far end) -> its state. Sessions are counted per cable:
    of several unnumbered links between two switches, only one may come up (sonic-buildimage#12042).
    """
    out = []
    for port in trunk_ports(config):
        where, seen = Place(config.name, port.name), state.ports.get(port.name)
        if config.adaptive_routing and state.adaptive is not None and port.name not in state.adaptive:
            out.append(kinds.ADAPTIVE_OFF.found(where, "on", "off"))
        if seen is None or not seen.link_up:
            out.append(kinds.TRUNK_DOWN.found(where, "up", "down" if seen else "not listed", end=port.far_end))
            continue
        actual = sessions.get(port.peer_address or port.name, "none")
        if config.routing is not None and actual != ESTABLISHED:
            out.append(kinds.SESSION_DOWN.found(where, ESTABLISHED, actual, end=port.far_end))
    return out


def verify_announced(config: SwitchConfig, announced: frozenset[str] | None) -> list[Finding]:
    """Return findings for prefixes that the switch should announce and does not. ``announced`` None: not reported."""
    if announced is None:
        return []
    return [
        kinds.NOT_ANNOUNCED.found(config.name, "announced", "not announced", prefix=prefix)
        for prefix in config.announced
        if prefix not in announced
    ]


ESTABLISHED = "established"
"""State of a BGP session that works (RFC 4271, 8.2.2), in lower case."""
