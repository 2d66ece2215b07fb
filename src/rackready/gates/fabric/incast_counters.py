"""Counters of NICs and switch ports during an incast: losses, classes, pauses and notifications."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rackready.design.facts import NicFacts
from rackready.drivers.switch.counters import PortCounters
from rackready.drivers.switch.registry import driver_for
from rackready.format_error import FormatError
from rackready.gates.base import GateFacts, Outputs, Run, trouble
from rackready.gates.engine.shipped_script import document
from rackready.gates.fabric import incast_findings as kinds
from rackready.gates.fabric.perftest_run import nic_of
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Criterion, Op
from rackready.model.place import Place
from rackready.ondevice import nic_counters

_LOST = ("packet_seq_err", "implied_nak_seq_err", "local_ack_timeout_err", "rnr_nak_retry_err")
"""Hardware counters (mlx5) that rise at a sender when packets were lost on the way and sent again."""
_DROPPED = ("rx_discards_phy", "tx_discards_phy")
_DROPPED_BY_CLASS = ("rx_prio{prio}_discards", "rx_prio{prio}_buf_discard", "rx_prio{prio}_cong_discard")
"""Packets of one priority that a NIC dropped for lack of buffers or because its host was congested (mlx5e
per-priority and port buffer counters of Linux, commits 827a8cb2dd2b and 1297d97f4862): none in the RoCE class, which
is lossless."""
_OTHER_CLASS = 0.01
"""Share of bytes that may be outside the RoCE class: ARP, LLDP and the exchange over TCP. Judgement."""
_ASTRAY = 0.05
"""Share of notifications that may be missing in their class, since two counters are not read at the same moment.
Judgement."""
_NEEDED = {"hardware": ("packet_seq_err", "local_ack_timeout_err"), "interface": ("rx_discards_phy", "tx_discards_phy")}
"""Kinds of counters that each NIC must have: without them losses are unknown."""


def judge_nic(
    gathered: Judge,
    facts: GateFacts,
    outputs: Outputs,
    end: tuple[str, NicFacts],
    least: int,
    *,
    receives: bool,
) -> None:
    """Judge a NIC's counters. ``least``: bytes through its port, as the senders report."""
    node, nic = end
    where = Place(node, nic.rdma_device, f"(rail {nic.rail})")
    found = _nic_growth(gathered, outputs, node, nic, where)
    if found is None:
        return
    hardware, interface = found
    gathered.judged += 1
    dropped = (*_DROPPED, *(name.format(prio=facts.fabric.qos.priority) for name in _DROPPED_BY_CLASS))
    lost = {name: hardware.get(name, 0) for name in _LOST if hardware.get(name, 0)} | {
        name: interface[name] for name in dropped if interface.get(name)
    }
    gathered.metric("lost_packets", where, float(sum(lost.values())), "1")
    if lost:
        gathered.fail(
            where,
            kinds.PACKETS_LOST,
            "0",
            ", ".join(f"{name} {value}" for name, value in sorted(lost.items())),
            netdev=nic.netdev,
        )
    way = "rx" if receives else "tx"
    _judge_bytes(
        gathered,
        facts,
        (where, nic),
        way,
        {prio: interface.get(f"{way}_prio{prio}_bytes", 0) for prio in range(8)},
        least,
    )
    _judge_pauses(gathered, facts, where, nic, interface)
    if receives:
        _judge_notifications(gathered, facts, where, nic, found)


def _judge_bytes(
    gathered: Judge, facts: GateFacts, of: tuple[str, NicFacts], way: str, sent: Mapping[int, int], least: int
) -> None:
    """Judge the bytes by priority that a NIC sent (``way`` tx) or received (rx).

    They must be in the RoCE class, and at least those that the senders report as written.
    """
    (where, nic), qos = of, facts.fabric.qos
    total, carried = sum(sent.values()), sent[qos.priority]
    others = {prio: value for prio, value in sent.items() if prio not in {qos.priority, qos.cnp_priority} and value}
    gathered.metric(f"{way}_bytes", where, float(carried), "B")
    source = "derived: the sum of the senders' iterations x size, in the RoCE class"
    gathered.criterion_once(
        (way, least),
        lambda: Criterion(
            metric=f"{way}_bytes", op=Op.GE, bound=least, unit="B", label="identity", source=source, derived=True
        ),
    )
    if not total:
        gathered.error(where, kinds.NO_CLASS_BYTES, f"{way}_prio*_bytes that grow", "none")
    elif sum(others.values()) > _OTHER_CLASS * total:
        actual = ", ".join(f"{value / total:.0%} in priority {prio}" for prio, value in sorted(others.items()))
        gathered.fail(
            where, kinds.DATA_CLASS, f"priority {qos.priority} (DSCP {qos.dscp})", actual, device=nic.rdma_device
        )
    elif carried < least:
        gathered.fail(
            where,
            kinds.PORT_BYTES,
            f"at least {least / 1e9:.1f} GB, as the senders report",
            f"{carried / 1e9:.1f} GB",
            direction="received" if way == "rx" else "sent",
        )


def _judge_pauses(gathered: Judge, facts: GateFacts, where: str, nic: NicFacts, interface: Mapping[str, int]) -> None:
    """Judge pause frames: they are counted, and occur in the RoCE class only."""
    qos = facts.fabric.qos
    if f"rx_prio{qos.priority}_pause" not in interface:
        gathered.error(where, kinds.NO_PAUSES_COUNTED, f"rx_prio{qos.priority}_pause", "missing", netdev=nic.netdev)
    pauses = {
        prio: interface.get(f"rx_prio{prio}_pause", 0) + interface.get(f"tx_prio{prio}_pause", 0) for prio in range(8)
    }
    wrong = {prio: value for prio, value in pauses.items() if value and prio != qos.priority}
    everything = interface.get("rx_global_pause", 0) + interface.get("tx_global_pause", 0)
    if wrong or everything:
        actual = ", ".join(
            [f"{value} in priority {prio}" for prio, value in wrong.items()]
            + ([f"{everything} for all"] if everything else [])
        )
        gathered.fail(where, kinds.PAUSES_OF_OTHERS, f"in priority {qos.priority} only", actual)


def _judge_notifications(
    gathered: Judge, facts: GateFacts, where: str, nic: NicFacts, found: tuple[Mapping[str, int], Mapping[str, int]]
) -> None:
    """Judge marks and notifications.

    A full port must have marked packets, and its NIC must have notified the senders, in the class of notifications.
    """
    hardware, interface = found
    prio = facts.fabric.qos.cnp_priority
    left = interface.get(f"tx_prio{prio}_packets")
    marked, told = hardware.get("np_ecn_marked_roce_packets"), hardware.get("np_cnp_sent")
    if marked is None or told is None:
        gathered.error(where, kinds.NO_CONGESTION_COUNTED, "np_ecn_marked_roce_packets, np_cnp_sent", "missing")
    elif not marked:
        place = f"{nic.switch} {nic.port}" if nic.switch else "the switch port"
        gathered.fail(where, kinds.NO_ECN_MARKS, f"packets marked by {place}", "none")
    elif not told:
        gathered.fail(where, kinds.NO_NOTIFICATIONS, f"sent for {marked} marked packets", "none", netdev=nic.netdev)
    elif left is None:
        gathered.error(where, kinds.NO_CLASS_PACKETS, f"tx_prio{prio}_packets", "missing")
    elif left < told * (1 - _ASTRAY):
        gathered.fail(where, kinds.NOTIFICATION_CLASS, f"{told} packets in priority {prio}", left, netdev=nic.netdev)


def judge_switches(gathered: Judge, facts: GateFacts, run: Run, outputs: Outputs, rail: int) -> None:
    """Judge the counters of the switch ports to which the NICs of a rail are cabled."""
    ends = [(node, nic_of(facts, node, rail)) for node in run.nodes]
    for node, nic in ends:
        if not nic.switch:
            gathered.error(
                Place(node, nic.rdma_device, f"(rail {rail})"), kinds.CABLE_NOT_DECLARED, "switch and port", "none"
            )
    for switch, os in dict.fromkeys((nic.switch, nic.switch_os) for _, nic in ends if nic.switch):
        found = _switch_growth(gathered, outputs, switch, os)
        for node, nic in ends:
            if nic.switch == switch and found is not None:
                _judge_port(gathered, facts, (node, nic), found.get(nic.port))


def _judge_port(gathered: Judge, facts: GateFacts, end: tuple[str, NicFacts], port: PortCounters | None) -> None:
    node, nic = end
    where = Place(nic.switch, nic.port, f"(to {node} rail {nic.rail})", nodes=[node])
    if port is None:
        gathered.error(where, kinds.NO_SWITCH_COUNTERS, "the port's", "none")
        return
    gathered.judged += 1
    _judge_counted(gathered, facts, where, port)
    dropped = {
        prio: into + out
        for prio, (into, out) in enumerate(zip(port.dropped_in, port.dropped_out, strict=True))
        if into + out
    }
    gathered.metric("switch_discards", where, float(sum(dropped.values())), "1")
    gathered.metric("switch_ecn_marked", where, float(port.marked), "1")
    if dropped:
        actual = ", ".join(f"{value} in priority {prio}" for prio, value in dropped.items())
        gathered.fail(where, kinds.FRAMES_DROPPED, "0", actual, port=nic.port)
    if port.errors:
        gathered.fail(where, kinds.PORT_ERRORS, "0", port.errors)
    wrong = {prio: value for prio, value in enumerate(port.pauses) if value and prio != facts.fabric.qos.priority}
    if wrong:
        actual = ", ".join(f"{value} in priority {prio}" for prio, value in wrong.items())
        gathered.fail(where, kinds.SWITCH_PAUSES, f"in priority {facts.fabric.qos.priority} only", actual)


def _judge_counted(gathered: Judge, facts: GateFacts, where: Place, port: PortCounters) -> None:
    """Judge that the queues of data, notifications and the rest are counted, and the groups of data and the rest."""
    qos = facts.fabric.qos
    groups, queues = sorted({0, qos.priority}), sorted({0, qos.priority, qos.cnp_priority})
    missing = [f"group {one}" for one in groups if one in port.uncounted_in]
    missing += [f"queue {one}" for one in queues if one in port.uncounted_out]
    if missing:
        expected = f"counters of groups {', '.join(map(str, groups))} and queues {', '.join(map(str, queues))}"
        gathered.error(where, kinds.SWITCH_UNCOUNTED, expected, f"none of {', '.join(missing)}")


def _nic_growth(
    gathered: Judge, outputs: Outputs, node: str, nic: NicFacts, where: str
) -> tuple[dict[str, int], dict[str, int]] | None:
    """Return by how much the counters of the NIC's hardware and driver grew, or None when that is unknown."""
    readings: list[dict[str, dict[str, int]]] = []
    for key in (f"before-{node}", f"after-{node}"):
        output = outputs.get(key)
        if gathered.trouble(trouble(output, where, "reading of NIC counters")) or output is None:
            return None
        try:
            readings.append(_counters(document(output, nic_counters.FORMAT), nic.rdma_device))
        except (FormatError, KeyError, TypeError) as error:
            gathered.error(where, kinds.NIC_COUNTERS_UNREADABLE, "a complete document", error)
            return None
    before, after = readings
    missing = [
        name for kind, names in _NEEDED.items() for name in names if name not in before[kind] or name not in after[kind]
    ]
    lost = [name for kind in _NEEDED for name in sorted(before[kind].keys() ^ after[kind].keys())]
    if missing or lost:
        gathered.error(
            where,
            kinds.NIC_COUNTERS_MISSING,
            f"{', '.join(name for names in _NEEDED.values() for name in names)} before and after",
            f"no {[*missing, *lost][0]}",
        )
        return None
    back = sorted(
        name
        for kind in _NEEDED
        for name in after[kind]
        if after[kind][name] < before[kind][name] and name != "lifespan"
    )
    if back:
        gathered.error(where, kinds.NIC_COUNTERS_WENT_BACK, "numbers that grow", f"{back[0]} went back")
        return None
    hardware, interface = ({name: after[kind][name] - before[kind][name] for name in after[kind]} for kind in _NEEDED)
    return hardware, interface


def _counters(found: dict[str, Any], device: str) -> dict[str, dict[str, int]]:
    """Return the counters of one port by kind. Raises FormatError when one of them is not a number."""
    port, out = found["ports"][device], {}
    for kind in _NEEDED:
        values = port[kind]
        if not isinstance(values, dict) or any(
            not isinstance(value, int) or isinstance(value, bool) for value in values.values()
        ):
            message = f"{device}: {kind} holds something that is not a number"
            raise FormatError(message)
        out[kind] = values
    return out


def _switch_growth(gathered: Judge, outputs: Outputs, switch: str, os: str) -> dict[str, PortCounters] | None:
    readings = []
    for key in (f"before-{switch}", f"after-{switch}"):
        output = outputs.get(key)
        if gathered.trouble(trouble(output, switch, "reading of switch counters")) or output is None:
            return None
        try:
            readings.append(driver_for(switch, os).parse_counters(output.stdout, output.exit_code))
        except FormatError as error:
            gathered.error(switch, kinds.SWITCH_COUNTERS_UNREADABLE, "the counters of every port", error)
            return None
    before, after = readings
    try:
        return {port: after[port].since(before[port]) for port in after if port in before}
    except FormatError as error:
        gathered.error(switch, kinds.SWITCH_COUNTERS_WENT_BACK, "numbers that grow", error)
        return None
