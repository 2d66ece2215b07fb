"""Comparison of a switch's and a host's state with the declared one: pure, every finding at once."""

from __future__ import annotations

from dataclasses import dataclass, field

from rackready.design.qos import QosFacts
from rackready.design.switches import PortConfig, SwitchConfig
from rackready.drivers.switch.base import PortState, RoceState, SwitchState
from rackready.model.outcome import Finding

_PLAN = "Run `rackready fabric --check` to see the difference, then `rackready fabric`."
_CABLE = "Check the cable, the transceiver and that the node is powered on."


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
    where = f"{switch} {port.name}"
    if state is None:
        return [
            Finding(
                where=where,
                what="port not there",
                expected=f"cabled to {port.node} {port.netdev}",
                actual="the switch does not list it",
                next_step=_CABLE,
            )
        ]
    out = []
    if state.vlan != port.vlan:
        out.append(
            Finding(
                where=where,
                what="access VLAN",
                expected=str(port.vlan),
                actual=str(state.vlan or "none"),
                next_step=_PLAN,
            )
        )
    if state.mtu != port.mtu:
        out.append(
            Finding(where=where, what="MTU", expected=f"{port.mtu} bytes", actual=f"{state.mtu} bytes", next_step=_PLAN)
        )
    if not state.admin_up:
        out.append(
            Finding(where=where, what="port switched off", expected="admin up", actual="admin down", next_step=_PLAN)
        )
    return out


def _roce(switch: str, qos: QosFacts, state: RoceState) -> list[Finding]:
    if not state.enabled or state.mode != "lossless":
        actual = state.mode or "on" if state.enabled else "off"
        return [Finding(where=switch, what="RoCE", expected="on, mode lossless", actual=actual, next_step=_PLAN)]
    out = []
    if not state.trusts_dscp:
        out.append(Finding(where=switch, what="trust", expected="dscp", actual="not dscp", next_step=_PLAN))
    wanted = {priority for priority, lossless in enumerate(qos.pfc) if lossless}
    if state.pfc != wanted:
        out.append(
            Finding(
                where=switch,
                what="PFC priorities",
                expected=_numbers(wanted),
                actual=_numbers(state.pfc),
                next_step=_PLAN,
            )
        )
    return out + _mapping(switch, qos.dscp_to_priority, state.dscp_priority)


def _mapping(where: str, wanted: dict[int, int], actual: dict[int, int]) -> list[Finding]:
    return [
        Finding(
            where=where,
            what=f"priority of DSCP {dscp}",
            expected=str(priority),
            actual=str(actual.get(dscp, "not mapped")),
            next_step=_PLAN,
        )
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
            out.append(
                Finding(
                    where=where,
                    what=f"link to {port.node} {port.netdev} (rail {port.rail})",
                    expected="up",
                    actual="down",
                    next_step=_CABLE,
                )
            )
    return out


def verify_agreement(
    switch: str, switch_state: SwitchState, port: PortConfig, host: HostQos, host_mtu: int
) -> list[Finding]:
    """Return findings where host and switch disagree on a cable: a half-lossless link drops silently under load."""
    where, step = (
        f"{port.node} {port.netdev} and {switch} {port.name}",
        "Run `rackready fabric` again; if it stays, read both ends as docs/runbooks/fabric.md says.",
    )
    out = []
    if host.pfc != switch_state.roce.pfc:
        text = f"host {_numbers(host.pfc)}, switch {_numbers(switch_state.roce.pfc)}"
        out.append(
            Finding(
                where=where, what="PFC priorities differ", expected="the same on both ends", actual=text, next_step=step
            )
        )
    if host.trust != "dscp" or not switch_state.roce.trusts_dscp:
        text = f"host {host.trust}, switch {'dscp' if switch_state.roce.trusts_dscp else 'not dscp'}"
        out.append(
            Finding(where=where, what="trust differs", expected="dscp on both ends", actual=text, next_step=step)
        )
    for dscp in sorted(set(host.dscp_priority) & set(switch_state.roce.dscp_priority)):
        ours, theirs = host.dscp_priority[dscp], switch_state.roce.dscp_priority[dscp]
        if ours != theirs and {ours, theirs} & (host.pfc | switch_state.roce.pfc):
            out.append(
                Finding(
                    where=where,
                    what=f"DSCP {dscp}",
                    expected="the same priority",
                    actual=f"host {ours}, switch {theirs}",
                    next_step=step,
                )
            )
    if host.global_pause:
        out.append(
            Finding(where=where, what="global pause", expected="off with PFC", actual="on at the host", next_step=step)
        )
    seen = switch_state.ports.get(port.name)
    if host.mtu != host_mtu or (seen is not None and seen.mtu < host.mtu):
        text = f"host {host.mtu}, switch {seen.mtu if seen else 'unknown'}"
        out.append(
            Finding(where=where, what="MTU", expected=f"host {host_mtu}, switch no less", actual=text, next_step=step)
        )
    return out
