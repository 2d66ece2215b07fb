"""Comparison of a switch's and a host's state with the declared one: pure, every finding at once."""

from __future__ import annotations

from dataclasses import dataclass, field

from rackready.design.qos import QosFacts
from rackready.design.switches import PortConfig, SwitchConfig
from rackready.drivers.switch import findings as kinds
from rackready.drivers.switch.base import PortState, RoceState, SwitchState
from rackready.model.outcome import Finding
from rackready.model.place import Place


@dataclass(frozen=True, slots=True)
class HostQos:
    """QoS state of one host interface. ``pfc``: lossless priorities; ``mtu`` in bytes."""

    trust: str
    pfc: frozenset[int]
    mtu: int
    dscp_priority: dict[int, int] = field(default_factory=dict)
    global_pause: bool = False


def verify_config(config: SwitchConfig, state: SwitchState) -> list[Finding]:
    """Return findings where a switch is not configured as declared; for links that are down, see verify_links."""
    out = [finding for port in config.ports for finding in _port(config.name, port, state.ports.get(port.name))]
    return out + _roce(config.name, config.qos, state.roce)


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
        out.append(kinds.PFC.found(switch, _numbers(wanted), _numbers(state.pfc)))
    return out + _mapping(switch, qos.dscp_to_priority, state.dscp_priority)


def _mapping(where: str, wanted: dict[int, int], actual: dict[int, int]) -> list[Finding]:
    return [
        kinds.DSCP_PRIORITY.found(where, priority, actual.get(dscp, "not mapped"), dscp=dscp)
        for dscp, priority in sorted(wanted.items())
        if actual.get(dscp) != priority
    ]


def _numbers(values: set[int] | frozenset[int]) -> str:
    return ",".join(str(value) for value in sorted(values)) or "none"


def verify_links(config: SwitchConfig, state: SwitchState, nodes: set[str] | None = None) -> list[Finding]:
    """Return findings for cabled ports (of these nodes, when given) whose link is down."""
    out = []
    for port in config.ports:
        seen = state.ports.get(port.name)
        if (nodes is None or port.node in nodes) and (seen is None or not seen.link_up):
            where = f"{config.name} {port.name}"
            out.append(kinds.LINK_DOWN.found(where, "up", "down", nodes=port.nodes, end=port.far_end, rail=port.rail))
    return out


def verify_agreement(
    switch: str, switch_state: SwitchState, port: PortConfig, host: HostQos, host_mtu: int
) -> list[Finding]:
    """Return findings where host and switch disagree on a cable: a half-lossless link drops silently under load."""
    where = Place(port.node, port.netdev, f"and {switch} {port.name}")
    out = []
    if host.pfc != switch_state.roce.pfc:
        text = f"host {_numbers(host.pfc)}, switch {_numbers(switch_state.roce.pfc)}"
        out.append(kinds.ENDS_PFC.found(where, "the same on both ends", text))
    if host.trust != "dscp" or not switch_state.roce.trusts_dscp:
        text = f"host {host.trust}, switch {'dscp' if switch_state.roce.trusts_dscp else 'not dscp'}"
        out.append(kinds.ENDS_TRUST.found(where, "dscp on both ends", text))
    for dscp in sorted(set(host.dscp_priority) & set(switch_state.roce.dscp_priority)):
        ours, theirs = host.dscp_priority[dscp], switch_state.roce.dscp_priority[dscp]
        if ours != theirs and {ours, theirs} & (host.pfc | switch_state.roce.pfc):
            out.append(kinds.ENDS_DSCP.found(where, "the same priority", f"host {ours}, switch {theirs}", dscp=dscp))
    if host.global_pause:
        out.append(kinds.GLOBAL_PAUSE.found(where, "off with PFC", "on at the host"))
    seen = switch_state.ports.get(port.name)
    if host.mtu != host_mtu or (seen is not None and seen.mtu < host.mtu):
        text = f"host {host.mtu}, switch {seen.mtu if seen else 'unknown'}"
        out.append(kinds.ENDS_MTU.found(where, f"host {host_mtu}, switch no less", text))
    return out
