"""Incast: several nodes write into one port at once. A fabric that is lossless for RoCE drops nothing then, and slows down its senders only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from rackready.design.facts import NicFacts
from rackready.gates import base
from rackready.gates.base import Command, Done, Gate, GateFacts, Outputs, Run, trouble
from rackready.gates.engine import nodes_without_nics, pairs
from rackready.gates.engine.shipped_script import command, document
from rackready.gates.fabric import ib_write_bw_findings, incast_ends, perftest_call, rdma_port
from rackready.gates.fabric import incast_findings as kinds
from rackready.gates.fabric.ib_write_bw import ENV, PORT, WITH_GID, client_of, gid_text, nic_of
from rackready.gates.fabric.perftest_call import judge_call
from rackready.gates.fabric.rdma_port import judge_gids
from rackready.gates.formats import nvue_counters, perftest
from rackready.gates.formats.error import FormatError
from rackready.gates.formats.nvue_counters import PortCounters
from rackready.gates.judging.expectation import IMPLAUSIBLE
from rackready.gates.judging.judge import Judge
from rackready.gates.judging.node_topology import rail_parts
from rackready.model.outcome import Criterion, Op, Verdict
from rackready.ondevice import nic_counters

_LOST = ("packet_seq_err", "implied_nak_seq_err", "local_ack_timeout_err", "rnr_nak_retry_err")
"""Hardware counters (mlx5) that rise at a sender when packets were lost on the way and sent again."""
_DROPPED = ("rx_discards_phy", "tx_discards_phy")
_DROPPED_BY_CLASS = ("rx_prio{prio}_discards", "rx_prio{prio}_buf_discard", "rx_prio{prio}_cong_discard")
"""Packets of one priority that a NIC threw away for want of buffers or because its host was congested (mlx5e per-priority and port buffer counters of
Linux, commits 827a8cb2dd2b and 1297d97f4862): none in the RoCE class, which is lossless."""
_FILLED = 0.5
"""Share of the port's rate that the senders must reach together: below it no queue stands at the port, and nothing was tried. Judgement: a port that is
filled gives about 97 % (payload rate), and congestion control that is set up as the vendor says does not halve that."""
_SHARE = 0.1
"""Share of an even part of what all reached that each sender must have: one that hardly wrote is no incast. Judgement; congestion control is not fair."""
_OTHER_CLASS = 0.01
"""Share of bytes that may be outside of the RoCE class: ARP, LLDP and the exchange over TCP. Judgement."""
_ASTRAY = 0.05
"""Share of notifications that may be missing in their class, since two counters are not read in one moment. Judgement."""
_MARGIN_S = 2
"""What perftest leaves out of a timed test at each end, s: a quarter of its time in whole seconds (src/perftest_parameters.c), 2 by its man page."""
_CLOCK = 0.1
"""How far the time that iterations, size and average give may be from the one asked for: an alarm is late, a clock is not exact. Judgement."""
_NEEDED = {"hardware": ("packet_seq_err", "local_ack_timeout_err"), "interface": ("rx_discards_phy", "tx_discards_phy")}
"""Kinds of counters, and what each must have: without them nothing is known of losses."""


@dataclass(frozen=True, slots=True)
class _Wrote:
    """What a sender says that it wrote: Gb/s, and the bytes of the iterations that it counted. It counts none outside of its margins."""

    average: float
    least: int


class Incast(Gate):
    """Several nodes that write into one port lose nothing: no discards, and pauses and notifications in the RoCE class only."""

    id = "cluster/fabric/stress/incast"
    findings = (
        *ib_write_bw_findings.CLIENT,
        *pairs.FINDINGS,
        rdma_port.OTHER_GIDS,
        perftest_call.CALL_SETTINGS,
        *kinds.FINDINGS,
    )
    covers = frozenset({"nic", "rail", "cable"})
    min_nodes = 3

    class Inputs(base.Inputs):
        """How the port is filled."""

        senders: int = Field(
            4, ge=2, le=32, description="nodes that write into one port at once, as far as there are so many"
        )
        seconds: int = Field(10, ge=5, le=120, description="how long they write, s")
        size: int = Field(1048576, ge=65536, le=1 << 30, description="message size, bytes; at most 1 GiB (judgement)")

    inputs: Inputs

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:
        """For every rail that enough nodes have, one run into each of them, another one first on every rail: its port is filled by the nodes after it.

        Every node must receive, since only who receives shows whether its NIC notifies senders; by that every node
        sends, too: a switch slows senders down at the port by which they enter. A node is in one run at a time, so that
        its memory feeds one rail only; runs that have no node in common go side by side.
        """
        able, bare = nodes_without_nics.split_nodes(facts, nodes)
        rails = sorted({rail for node in able for rail in _rails(facts, node)})
        on = {rail: [node for node in able if rail in _rails(facts, node)] for rail in rails}
        full = {
            rail: members for rail, members in on.items() if len(members) >= self.min_nodes
        }  # one sender is no incast
        return [
            *(
                self._run(facts, some, rail, (rail + step) % len(some))
                for rail, some in full.items()
                for step in range(len(some))
            ),
            *bare,
        ]

    def attribute(self, facts: GateFacts, done: Sequence[Done]) -> dict[str, list[Verdict]]:
        """A node gets what was found on it (`incast_ends`); one that no run took in was not measured."""
        measured, bare = nodes_without_nics.split_runs(done)
        return nodes_without_nics.too_few(self, facts) | incast_ends.attribute(measured) | bare

    def _run(self, facts: GateFacts, nodes: Sequence[str], rail: int, place: int) -> Run:
        senders = min(self.inputs.senders, len(nodes) - 1)
        receiver, *others = [nodes[(place + step) % len(nodes)] for step in range(senders + 1)]
        into = nic_of(facts, receiver, rail)
        commands = list(self._readings(facts, [receiver, *others], rail, "before", 0))
        for number, node in enumerate(others):
            near, port = nic_of(facts, node, rail), str(PORT + 200 + number)
            serve, write = self._argv(into, port), (*self._argv(near, port), into.address)
            commands.append(
                Command(f"server-{node}", receiver, serve, 240, env=ENV, stage=1, role="server", ready_port=int(port))
            )
            commands.append(Command(f"client-{node}", node, write, 120 + self.inputs.seconds, env=ENV, stage=2))
        commands += self._readings(facts, [receiver, *others], rail, "after", 3)
        about = {"rail": str(rail), "receiver": receiver}
        target = f"rail{rail} into {receiver}"
        return Run(target, target, (receiver, *others), tuple(commands), frozenset((receiver, *others)), about=about)

    def _argv(self, nic: NicFacts, port: str) -> tuple[str, ...]:
        what = ("-p", port, "-s", str(self.inputs.size), "-D", str(self.inputs.seconds), "-F", "--report_gbits")
        return ("bash", "-c", WITH_GID, "ib_write_bw", nic.rdma_device, gid_text(nic.address), *what)

    @staticmethod
    def _readings(facts: GateFacts, nodes: Sequence[str], rail: int, when: str, stage: int) -> Iterator[Command]:
        """Counters of every NIC that takes part, and of the switch port at the other end of its cable."""
        ports: dict[str, list[str]] = {}
        for node in nodes:
            nic = nic_of(facts, node, rail)
            yield command(f"{when}-{node}", node, nic_counters, f"{nic.rdma_device}:{nic.netdev}", stage=stage)
            if nic.switch:
                ports.setdefault(nic.switch, []).append(nic.port)
        for switch, names in ports.items():
            yield Command(
                f"{when}-{switch}", switch, ("sh", "-c", nvue_counters.script(names)), timeout_s=120, stage=stage
            )

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Judge that the port was really filled, that nothing was lost anywhere, and that classes were kept apart."""
        if (verdict := nodes_without_nics.nothing_to_judge(facts, run)) is not None:
            return verdict
        gathered = Judge()
        rail, receiver = int(run.about["rail"]), run.about["receiver"]
        wrote = self._filled(gathered, facts, run, outputs, rail)
        if wrote:
            least = wrote | {receiver: sum(wrote.values())}
            for node in run.nodes:
                self._nic(
                    gathered, facts, outputs, (node, nic_of(facts, node, rail)), least[node], receives=node == receiver
                )
            self._switches(gathered, facts, run, outputs, rail)
        if not gathered.fails and not gathered.errors:
            gathered.measured.update(rail_parts(receiver, nic_of(facts, receiver, rail)))
        gathered.transport = "RoCE, host memory"
        return gathered.verdict(run.target)

    def _filled(self, gathered: Judge, facts: GateFacts, run: Run, outputs: Outputs, rail: int) -> dict[str, int]:
        """Return the bytes that each sender wrote at least, none unless all wrote side by side: together they cannot reach more than the port carries."""
        receiver, *others = run.nodes
        into = nic_of(facts, receiver, rail)
        said = {
            node: self._reached(gathered, outputs, (node, nic_of(facts, node, rail)), (receiver, into))
            for node in others
        }
        wrote = {node: one for node, one in said.items() if one is not None}
        if gathered.fails or gathered.errors:
            return {}
        reached = {node: one.average for node, one in wrote.items()}
        total = sum(reached.values())
        where = f"{receiver} {into.rdma_device} (rail {rail})"
        gathered.judged += 1
        gathered.metric("incast_bandwidth", where, total, "Gb/s")
        bound = into.rate * IMPLAUSIBLE
        gathered.criterion(
            Criterion(
                metric="incast_bandwidth",
                op=Op.LE,
                bound=bound,
                unit="Gb/s",
                label="ceiling",
                source=f"{IMPLAUSIBLE} x port rate",
            )
        )
        if total > bound:
            gathered.error(
                where, kinds.NOT_SIDE_BY_SIDE, f"senders together at most {bound:.0f} Gb/s", f"{total:.0f} Gb/s"
            )
        least, source = (
            into.rate * _FILLED,
            f"judgement: {_FILLED} x port rate, below which no queue stands at the port",
        )
        gathered.criterion(
            Criterion(
                metric="incast_bandwidth",
                op=Op.GE,
                bound=least,
                unit="Gb/s",
                label="floor",
                source=source,
                derived=True,
            )
        )
        if total < least:
            gathered.error(where, kinds.NOT_FILLED, f"senders together at least {least:.0f} Gb/s", f"{total:.0f} Gb/s")
        else:
            _all_wrote(gathered, where, reached, total)
        return {} if gathered.errors else {node: one.least for node, one in wrote.items()}

    def _reached(
        self, gathered: Judge, outputs: Outputs, sender: tuple[str, NicFacts], receiver: tuple[str, NicFacts]
    ) -> _Wrote | None:
        node, near = sender
        where = f"{node} {near.rdma_device} -> {receiver[0]} {receiver[1].rdma_device} (rail {near.rail})"
        client = client_of(
            gathered, where, (outputs.get(f"server-{node}"), outputs.get(f"client-{node}")), sender, receiver
        )
        if client is None:
            return None
        try:
            result = perftest.parse(client.stdout)
        except FormatError as error:
            gathered.error(where, kinds.INCAST_UNREADABLE, "one result block in Gb/sec", f"{error} (exit code 0)")
            return None
        before = len(gathered.fails) + len(gathered.errors)
        self._transport(gathered, where, (near, receiver[1]), result)
        wrote = _Wrote(result.average, result.iterations * result.size)
        return wrote if len(gathered.fails) + len(gathered.errors) == before else None

    def _transport(
        self, gathered: Judge, where: str, ends: tuple[NicFacts, NicFacts], result: perftest.WriteBandwidth
    ) -> None:
        """Hold what a sender really did against what it was asked for: device, size, memory, addresses, and time."""
        asked = (ends[0].rdma_device, "Ethernet", self.inputs.size, "none")
        did = (result.device, result.link_type, result.size, result.memory.reach)
        if did != asked:
            expected, actual = (
                f"{device}, link type {link}, {size} bytes a message, GPU memory by {reach}"
                for device, link, size, reach in (asked, did)
            )
            gathered.error(where, kinds.INCAST_SOMETHING_ELSE, expected, actual)
        judge_gids(gathered, where, "ib_write_bw", ends, (result.local, result.remote))
        judge_call(gathered, where, "ib_write_bw", result.call)
        most, margin = self.inputs.seconds, max(_MARGIN_S, self.inputs.seconds // 4)
        least = most - 2 * margin
        lasted = result.iterations * result.size * 8 / 1e9 / result.average if result.average > 0 else 0.0
        if not least * (1 - _CLOCK) <= lasted <= most * (1 + _CLOCK):
            actual = f"{lasted:.1f} s: {result.iterations} x {result.size} bytes at {result.average:.1f} Gb/s"
            gathered.error(where, kinds.INCAST_OTHER_TIME, f"{least} to {most} s", actual)

    # NICs
    # ----------------------------------------------------------------------------------------------------------------

    def _nic(
        self,
        gathered: Judge,
        facts: GateFacts,
        outputs: Outputs,
        end: tuple[str, NicFacts],
        least: int,
        *,
        receives: bool,
    ) -> None:
        """Judge what a NIC counted. ``least``: bytes that went through its port, as the senders say."""
        node, nic = end
        where = f"{node} {nic.rdma_device} (rail {nic.rail})"
        found = _nic_delta(gathered, outputs, node, nic, where)
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
        self._bytes(
            gathered,
            facts,
            (where, nic),
            way,
            {prio: interface.get(f"{way}_prio{prio}_bytes", 0) for prio in range(8)},
            least,
        )
        self._pauses(gathered, facts, where, nic, interface)
        if receives:
            self._notified(gathered, facts, where, nic, found)

    @staticmethod
    def _bytes(
        gathered: Judge, facts: GateFacts, of: tuple[str, NicFacts], way: str, sent: Mapping[int, int], least: int
    ) -> None:
        """Hold the bytes by priority that a NIC sent (``way`` tx) or received (rx): in the RoCE class, and at least those that the senders say they wrote."""
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
                f"at least {least / 1e9:.1f} GB, as the senders say",
                f"{carried / 1e9:.1f} GB",
                direction="received" if way == "rx" else "sent",
            )

    @staticmethod
    def _pauses(gathered: Judge, facts: GateFacts, where: str, nic: NicFacts, interface: Mapping[str, int]) -> None:
        """Hold pause frames: they are counted, and come in the RoCE class alone."""
        qos = facts.fabric.qos
        if f"rx_prio{qos.priority}_pause" not in interface:
            gathered.error(
                where, kinds.NO_PAUSES_COUNTED, f"rx_prio{qos.priority}_pause", "not there", netdev=nic.netdev
            )
        pauses = {
            prio: interface.get(f"rx_prio{prio}_pause", 0) + interface.get(f"tx_prio{prio}_pause", 0)
            for prio in range(8)
        }
        wrong = {prio: value for prio, value in pauses.items() if value and prio != qos.priority}
        everything = interface.get("rx_global_pause", 0) + interface.get("tx_global_pause", 0)
        if wrong or everything:
            actual = ", ".join(
                [f"{value} in priority {prio}" for prio, value in wrong.items()]
                + ([f"{everything} for all"] if everything else [])
            )
            gathered.fail(where, kinds.PAUSES_OF_OTHERS, f"in priority {qos.priority} only", actual)

    @staticmethod
    def _notified(
        gathered: Judge, facts: GateFacts, where: str, nic: NicFacts, found: tuple[Mapping[str, int], Mapping[str, int]]
    ) -> None:
        """A full port must have marked packets, and its NIC must have told the senders, in the class of notifications."""
        hardware, interface = found
        prio = facts.fabric.qos.cnp_priority
        left = interface.get(f"tx_prio{prio}_packets")
        marked, told = hardware.get("np_ecn_marked_roce_packets"), hardware.get("np_cnp_sent")
        if marked is None or told is None:
            gathered.error(where, kinds.NO_CONGESTION_COUNTED, "np_ecn_marked_roce_packets, np_cnp_sent", "not there")
        elif not marked:
            place = f"{nic.switch} {nic.port}" if nic.switch else "the switch port"
            gathered.fail(where, kinds.NO_ECN_MARKS, f"packets marked by {place}", "none")
        elif not told:
            gathered.fail(where, kinds.NO_NOTIFICATIONS, f"sent for {marked} marked packets", "none", netdev=nic.netdev)
        elif left is None:
            gathered.error(where, kinds.NO_CLASS_PACKETS, f"tx_prio{prio}_packets", "not there")
        elif left < told * (1 - _ASTRAY):
            gathered.fail(
                where, kinds.NOTIFICATION_CLASS, f"{told} packets in priority {prio}", left, netdev=nic.netdev
            )

    # switches
    # ------------------------------------------------------------------------------------------------------------

    def _switches(self, gathered: Judge, facts: GateFacts, run: Run, outputs: Outputs, rail: int) -> None:
        ends = [(node, nic_of(facts, node, rail)) for node in run.nodes]
        for node, nic in ends:
            if not nic.switch:
                gathered.error(
                    f"{node} {nic.rdma_device} (rail {rail})", kinds.CABLE_NOT_DECLARED, "switch and port", "none"
                )
        for switch in dict.fromkeys(nic.switch for _, nic in ends if nic.switch):
            found = _switch_delta(gathered, outputs, switch)
            for node, nic in ends:
                if nic.switch == switch and found is not None:
                    self._port(gathered, facts, (node, nic), found.get(nic.port))

    @staticmethod
    def _port(gathered: Judge, facts: GateFacts, end: tuple[str, NicFacts], port: PortCounters | None) -> None:
        node, nic = end
        where = f"{nic.switch} {nic.port} (to {node} rail {nic.rail})"
        if port is None:
            gathered.error(where, kinds.NO_SWITCH_COUNTERS, "the port's", "none")
            return
        gathered.judged += 1
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


def _rails(facts: GateFacts, node: str) -> frozenset[int]:
    return frozenset(nic.rail for nic in facts.nodes[node].nics)


def _all_wrote(gathered: Judge, where: str, reached: Mapping[str, float], total: float) -> None:
    """Hold each sender against its even part of what all reached together, Gb/s."""
    least = _SHARE * total / len(reached)
    idle = {node: value for node, value in reached.items() if value < least}
    if idle:
        actual = ", ".join(f"{value:.1f} Gb/s from {node}" for node, value in idle.items())
        expected = f"at least {least:.1f} Gb/s from every sender ({_SHARE:g} of an even part)"
        gathered.error(where, kinds.NOT_ALL_WROTE, expected, actual, nodes=sorted(idle))


def _nic_delta(
    gathered: Judge, outputs: Outputs, node: str, nic: NicFacts, where: str
) -> tuple[dict[str, int], dict[str, int]] | None:
    """Return what the NIC's hardware and driver counted on top; None when that cannot be known."""
    readings: list[dict[str, dict[str, int]]] = []
    for key in (f"before-{node}", f"after-{node}"):
        output = outputs.get(key)
        if gathered.trouble(trouble(output, where, "reading of NIC counters")) or output is None:
            return None
        try:
            readings.append(_reading(document(output, nic_counters.FORMAT), nic.rdma_device))
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


def _reading(found: dict[str, Any], device: str) -> dict[str, dict[str, int]]:
    """Return the counters of one port by kind. Raises FormatError when one of them is no number."""
    port, out = found["ports"][device], {}
    for kind in _NEEDED:
        values = port[kind]
        if not isinstance(values, dict) or any(
            not isinstance(value, int) or isinstance(value, bool) for value in values.values()
        ):
            message = f"{device}: {kind} holds something that is no number"
            raise FormatError(message)
        out[kind] = values
    return out


def _switch_delta(gathered: Judge, outputs: Outputs, switch: str) -> dict[str, PortCounters] | None:
    readings = []
    for key in (f"before-{switch}", f"after-{switch}"):
        output = outputs.get(key)
        if gathered.trouble(trouble(output, switch, "reading of switch counters")) or output is None:
            return None
        try:
            readings.append(nvue_counters.parse(output.stdout, output.exit_code))
        except FormatError as error:
            gathered.error(switch, kinds.SWITCH_COUNTERS_UNREADABLE, "NVUE's JSON of every port", error)
            return None
    before, after = readings
    try:
        return {port: after[port].since(before[port]) for port in after if port in before}
    except FormatError as error:
        gathered.error(switch, kinds.SWITCH_COUNTERS_WENT_BACK, "numbers that grow", error)
        return None
