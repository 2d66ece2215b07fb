"""Comparison of a switch's state with the declared one: pure, every finding at once."""

from __future__ import annotations

from rackready.design.qos import QosFacts
from rackready.design.switches import PortConfig, SwitchConfig
from rackready.drivers.switch import findings as kinds
from rackready.drivers.switch.base import PortState, RoceState, SwitchState
from rackready.drivers.switch.ends import numbers
from rackready.model.outcome import Finding
from rackready.model.place import Place


def verify_config(config: SwitchConfig, state: SwitchState) -> list[Finding]:
    """Return findings where a switch is not configured as declared; for links that are down, see verify_links."""
    out = [finding for port in config.ports for finding in _port(config.name, port, state.ports.get(port.name))]
    return [*out, *_gateways(config, state), *_roce(config.name, config.qos, state.roce)]


def _gateways(config: SwitchConfig, state: SwitchState) -> list[Finding]:
    """Return findings for gateways that drop packets which their ports pass."""
    if state.gateway_mtu is None or not config.gateways:
        return []
    wanted, out = config.ports[0].mtu, []
    for vlan in (gateway.vlan for gateway in config.gateways):
        seen = state.gateway_mtu.get(vlan)
        if seen != wanted:
            nodes = list(dict.fromkeys(port.node for port in config.ports if port.vlan == vlan))
            actual = "not listed" if seen is None else f"{seen} bytes"
            out.append(kinds.PORT_MTU.found(Place(config.name, f"Vlan{vlan}"), f"{wanted} bytes", actual, nodes=nodes))
    return out


def _port(switch: str, port: PortConfig, state: PortState | None) -> list[Finding]:
    where = Place(switch, port.name)
    if state is None:
        cabled = f"cabled to {port.far_end}"
        return [kinds.PORT_MISSING.found(where, cabled, "the switch does not list it", nodes=port.nodes)]
    out = []
    if state.vlan != port.vlan:
        out.append(kinds.PORT_VLAN.found(where, port.vlan or "none", state.vlan or "none", nodes=port.nodes))
    if state.mtu != port.mtu:
        out.append(kinds.PORT_MTU.found(where, f"{port.mtu} bytes", f"{state.mtu} bytes", nodes=port.nodes))
    if not state.admin_up:
        out.append(kinds.PORT_OFF.found(where, "admin up", "admin down", nodes=port.nodes))
    return out


def _roce(switch: str, qos: QosFacts, state: RoceState) -> list[Finding]:
    if state.mode != "lossless":
        return [kinds.ROCE_OFF.found(switch, "on, mode lossless", state.mode or "on")]
    out = []
    if not state.trusts_dscp:
        out.append(kinds.DSCP_TRUST.found(switch, "dscp", "not dscp"))
    wanted = {priority for priority, lossless in enumerate(qos.pfc) if lossless}
    if state.pfc != wanted:
        out.append(kinds.PFC.found(switch, numbers(wanted), numbers(state.pfc)))
    return out + _mapping(switch, qos.dscp_to_priority, state.dscp_priority)


def _mapping(where: str, wanted: dict[int, int], actual: dict[int, int]) -> list[Finding]:
    return [
        kinds.DSCP_PRIORITY.found(where, priority, actual.get(dscp, "not mapped"), dscp=dscp)
        for dscp, priority in sorted(wanted.items())
        if actual.get(dscp) != priority
    ]


def verify_links(config: SwitchConfig, state: SwitchState, nodes: set[str] | None = None) -> list[Finding]:
    """Return findings for cabled ports (of these nodes, when given) whose link is down."""
    out = []
    for port in config.ports:
        seen = state.ports.get(port.name)
        if (nodes is None or port.node in nodes) and (seen is None or not seen.link_up):
            where = f"{config.name} {port.name}"
            out.append(kinds.LINK_DOWN.found(where, "up", "down", nodes=port.nodes, end=port.far_end, rail=port.rail))
    return out
