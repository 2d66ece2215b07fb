"""Both ends of a cable compared with each other and with the site, setting by setting: pure.

A setting that an end does not report is not judged: it is listed as unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from rackready.design.ecn import EcnThresholds
from rackready.design.qos import QosFacts
from rackready.design.switches import PortConfig
from rackready.drivers.switch import findings as kinds
from rackready.drivers.switch.base import PortState, RoceState, SwitchState
from rackready.model.finding_kinds import FindingKind
from rackready.model.outcome import Finding
from rackready.model.place import Place


@dataclass(frozen=True, slots=True)
class HostQos:
    """QoS state of one host interface. ``pfc``: lossless priorities; ``mtu`` in bytes. None: not reported."""

    trust: str
    pfc: frozenset[int]
    mtu: int
    dscp_priority: dict[int, int] = field(default_factory=dict)
    global_pause: bool = False
    ecn: bool | None = None
    """Whether it notifies of marked packets, and slows down when notified."""
    speed: int | None = None
    """Gb/s."""
    fec: str | None = None
    cm_version: str | None = None
    """RoCE version that rdma_cm uses: v1 or v2."""
    cm_tos: int | None = None
    """ToS of rdma_cm's connections."""
    verbs_tos: int | None = None
    """ToS of all of a port's programs; None where the driver leaves it to each."""
    gid_types: tuple[str, ...] | None = None
    """Types of the GIDs of its address."""
    gid_index: int | None = None
    """Index of the RoCE v2 GID of its address."""
    unread: str = ""
    """What the node cannot read of the interface, and why; empty: nothing."""


@dataclass(frozen=True, slots=True)
class Intent:
    """What both ends of a cable should have. ``gid_index``: what the site tells NCCL; None: NCCL looks for itself."""

    qos: QosFacts
    host_mtu: int
    speed: int | None = None
    """Gb/s: of the port, else of the NIC; None: nothing to compare with but the other end."""
    gid_index: int | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting at both ends, in words. An end that is None does not report it; ``ABSENT``: it has no such setting.

    ``wanted``: (host, switch); empty: no intent, so that only a difference between the ends counts.
    """

    kind: FindingKind
    name: str
    wanted: tuple[str, str]
    host: str | None
    switch: str | None
    dscp: int | None = None

    def wrong(self) -> tuple[str, ...]:
        """Return the wrong ends: host, switch, both of them, or either where nothing tells which."""
        known = {end: value for end, value in (("host", self.host), ("switch", self.switch)) if _tells(value)}
        if any(self.wanted):
            want = dict(zip(("host", "switch"), self.wanted, strict=True))
            return tuple(end for end, value in known.items() if want[end] and value != want[end])
        return ("host or switch",) if len(set(known.values())) > 1 else ()

    @property
    def of_switch(self) -> bool:
        """Whether only the switch is wrong, in a setting that a switch usually has for all of its ports."""
        return self.kind in _SWITCH_WIDE and self.wrong() == ("switch",)

    def unknown(self) -> tuple[str, ...]:
        """Return the ends that do not report the setting."""
        return tuple(end for end, value in (("host", self.host), ("switch", self.switch)) if value is None)

    def found(self, where: Place) -> Finding | None:
        """Return the finding of this setting on a cable; None if no end is known to be wrong."""
        wrong = self.wrong()
        if not wrong:
            return None
        ends = [("host", self.host, self.wanted[0]), ("switch", self.switch, self.wanted[1])]
        shown = [(end, value if value is not None else "unknown", want) for end, value, want in ends if value != ABSENT]
        wants = {want for _, _, want in shown if want}
        if len(wants) > 1:
            expected = ", ".join(f"{end} {want}" for end, _, want in shown)
        else:
            both = len(shown) > 1
            expected = f"{wants.pop()}{' at both ends' if both else ''}" if wants else "the same at both ends"
        actual = ", ".join(f"{end} {value}" for end, value, _ in shown)
        return self.kind.found(where, expected, f"{actual}; wrong: {' and '.join(wrong)}", dscp=self.dscp)


_SWITCH_WIDE = (kinds.ENDS_PFC, kinds.ENDS_TRUST, kinds.ENDS_DSCP, kinds.ENDS_ECN, kinds.WATCHDOG, kinds.ECN_THRESHOLDS)
ABSENT = "-"
"""An end that has no such setting: a switch has no GID."""


def _tells(value: str | None) -> bool:
    return value is not None and value != ABSENT


def settings(state: SwitchState, port: PortConfig, host: HostQos, intent: Intent) -> Iterator[Setting]:
    """Yield every setting of a cable that both ends, or the host and the site, must agree on."""
    roce, seen, qos = state.roce_at(port.name), state.ports.get(port.name), intent.qos
    lossless = frozenset(priority for priority, on in enumerate(qos.pfc) if on)
    yield Setting(kinds.ENDS_PFC, "PFC", _both(numbers(lossless)), numbers(host.pfc), numbers(roce.pfc))
    trust = "dscp" if roce.trusts_dscp else "not dscp"
    yield Setting(kinds.ENDS_TRUST, "trust", _both("dscp"), host.trust, trust)
    yield from _dscp(host.dscp_priority, roce.dscp_priority, qos, lossless)
    pause = "on" if host.global_pause else "off"
    yield Setting(kinds.GLOBAL_PAUSE, "global pause", ("off", ""), pause, ABSENT)
    mtu = (str(intent.host_mtu), str(port.mtu))
    yield Setting(kinds.ENDS_MTU, "MTU", mtu, str(host.mtu), None if seen is None else str(seen.mtu))
    marks = None if roce.ecn is None else _on(qos.priority in roce.ecn)
    yield Setting(kinds.ENDS_ECN, "ECN", _both("on"), None if host.ecn is None else _on(host.ecn), marks)
    yield from _switch_only(port, seen, roce)
    speeds = (_rate(host.speed), None if seen is None else _rate(seen.speed))
    yield Setting(kinds.ENDS_SPEED, "speed", _both(_rate(intent.speed) or ""), *speeds)
    yield Setting(kinds.ENDS_FEC, "FEC", _both(port.fec or ""), host.fec, None if seen is None else seen.fec)
    yield from _host_only(host, intent)


def _dscp(host: dict[int, int], switch: dict[int, int], qos: QosFacts, lossless: frozenset[int]) -> Iterator[Setting]:
    """Yield the site's DSCPs, and others that one end puts into a lossless priority."""
    for dscp, priority in sorted(qos.dscp_to_priority.items()):
        ends = (str(host.get(dscp, "not mapped")), str(switch.get(dscp, "not mapped")))
        yield Setting(kinds.ENDS_DSCP, f"DSCP {dscp}", _both(str(priority)), *ends, dscp=dscp)
    for dscp in sorted(set(host) & set(switch) - set(qos.dscp_to_priority)):
        ours, theirs = host[dscp], switch[dscp]
        if ours != theirs and {ours, theirs} & lossless:
            yield Setting(kinds.ENDS_DSCP, f"DSCP {dscp}", ("", ""), str(ours), str(theirs), dscp)


def _switch_only(port: PortConfig, seen: PortState | None, roce: RoceState) -> Iterator[Setting]:
    """Yield what only the switch sets. What a system does not report is compared as configuration alone."""
    if seen is not None and seen.watchdog is not None:
        yield Setting(kinds.WATCHDOG, "PFC watchdog", ("", "on"), ABSENT, _on(seen.watchdog))
    if port.ecn is not None and port.ecn.speed is None and roce.thresholds is not None:
        low, high = roce.thresholds
        actual = port.ecn if port.ecn.covers(low, high) else EcnThresholds(low, high)
        yield Setting(kinds.ECN_THRESHOLDS, "ECN thresholds", ("", str(port.ecn)), ABSENT, str(actual))


def _host_only(host: HostQos, intent: Intent) -> Iterator[Setting]:
    """Yield what only the host sets: how its RDMA traffic is addressed and marked."""
    tos = str(intent.qos.tos)
    yield Setting(kinds.ENDS_TOS, "ToS", (tos, ""), _text(host.cm_tos), ABSENT)
    if host.verbs_tos is not None:
        yield Setting(kinds.ENDS_TOS, "ToS", (tos, ""), str(host.verbs_tos), ABSENT)
    version = None if host.cm_version is None else f"{host.cm_version} for rdma_cm"
    yield Setting(kinds.ENDS_GID, "RoCE version", ("v2 for rdma_cm", ""), version, ABSENT)
    if host.gid_types is None:
        yield Setting(kinds.ENDS_GID, "GID", ("RoCE v2", ""), None, ABSENT)
    elif host.gid_index is None:
        yield Setting(kinds.ENDS_GID, "GID", ("RoCE v2", ""), " and ".join(host.gid_types) or "none", ABSENT)
    elif intent.gid_index is not None:
        want = f"RoCE v2 at index {intent.gid_index}"
        yield Setting(kinds.ENDS_GID, "GID", (want, ""), f"RoCE v2 at index {host.gid_index}", ABSENT)


def _both(value: str) -> tuple[str, str]:
    return value, value


def _on(value: bool) -> str:  # noqa: FBT001 - a setting's value
    return "on" if value else "off"


def _text(value: int | None) -> str | None:
    return None if value is None else str(value)


def _rate(value: int | None) -> str | None:
    return None if value is None else f"{value} Gb/s"


def numbers(values: Iterable[int]) -> str:
    """Return priorities in words."""
    return ",".join(str(value) for value in sorted(values)) or "none"
