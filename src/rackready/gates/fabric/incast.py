"""Incast: several nodes write into one port at once; a lossless RoCE fabric drops nothing and slows the senders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import Field

from rackready.design.facts import NicFacts
from rackready.drivers.switch.registry import driver_for
from rackready.format_error import FormatError
from rackready.gates import base
from rackready.gates.base import Command, FinishedRun, Gate, GateFacts, Outputs, Run
from rackready.gates.engine import nodes_without_nics, pairs
from rackready.gates.engine.shipped_script import command
from rackready.gates.fabric import ib_write_bw_findings, incast_ends, perftest_call, rdma_port
from rackready.gates.fabric import incast_findings as kinds
from rackready.gates.fabric.incast_counters import judge_nic, judge_switches
from rackready.gates.fabric.perftest_call import judge_call
from rackready.gates.fabric.perftest_run import ENV, PORT, client_output, nic_of, roce_argv
from rackready.gates.fabric.rdma_port import judge_gids
from rackready.gates.formats import perftest
from rackready.gates.judging.expectation import IMPLAUSIBLE
from rackready.gates.judging.judge import Judge
from rackready.gates.judging.node_topology import rail_parts
from rackready.model.outcome import Criterion, Op, Verdict
from rackready.model.place import Place
from rackready.ondevice import nic_counters

_FILLED = 0.5
"""Share of the port's rate that the senders must reach together: below it no queue builds up at the port, and
nothing was tested. Judgement: a full port gives about 97 % (payload rate), and congestion control set up as the
vendor says does not halve that."""
_SHARE = 0.1
"""Share of an even part of the total that each sender must reach: one that hardly wrote makes no incast. Judgement;
congestion control is not fair."""
_MARGIN_S = 2
"""What perftest leaves out of a timed test at each end, s: a quarter of its time in whole seconds
(src/perftest_parameters.c), 2 by its man page."""
_CLOCK = 0.1
"""How far the time from iterations, size and average may be from the one asked for: an alarm is late, a clock is not
exact. Judgement."""


_ON_INFINIBAND = "the gate judges RoCE's congestion control; InfiniBand's credits lose nothing: nothing to judge"


@dataclass(frozen=True, slots=True)
class _Wrote:
    """A sender's report: Gb/s, and the bytes of the iterations that it counted.

    It counts none outside its margins.
    """

    average: float
    least: int


class Incast(Gate):
    """Several nodes write into one port without loss: no discards; pauses and notifications in the RoCE class only."""

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
        """Number of senders, their time and message size."""

        senders: int = Field(
            4, ge=2, le=32, description="number of nodes that write into one port at once, if there are so many"
        )
        seconds: int = Field(10, ge=5, le=120, description="how long they write, s")
        size: int = Field(1048576, ge=65536, le=1 << 30, description="message size, bytes; at most 1 GiB (judgement)")

    inputs: Inputs

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:
        """Plan one run into each node on every rail that enough nodes have.

        The next nodes in order fill its port, and the order starts with another node on every rail. Every node must
        receive, since only a receiver shows whether its NIC notifies senders. So every node also sends: a switch slows
        senders down at the port where they enter. A node is in one run at a time, so its memory feeds one rail only;
        runs without a common node run side by side.
        """
        if facts.fabric.kind == "infiniband":
            return [Run(id="InfiniBand", target="nodes on InfiniBand", nodes=tuple(nodes), commands=())]
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

    def attribute(self, facts: GateFacts, done: Sequence[FinishedRun]) -> dict[str, list[Verdict]]:
        """Return each node's verdict: what was found on it (`incast_ends`), or that no run measured it."""
        measured, bare = nodes_without_nics.split_runs(done)
        return nodes_without_nics.too_few(self, facts) | incast_ends.attribute(measured) | bare

    def _run(self, facts: GateFacts, nodes: Sequence[str], rail: int, place: int) -> Run:
        senders = min(self.inputs.senders, len(nodes) - 1)
        receiver, *others = [nodes[(place + step) % len(nodes)] for step in range(senders + 1)]
        into = nic_of(facts, receiver, rail)
        commands = list(self._readings(facts, [receiver, *others], rail, "before", 0))
        for number, node in enumerate(others):
            near, port = nic_of(facts, node, rail), str(PORT + 200 + number)
            serve, write = self._argv(facts, into, port), (*self._argv(facts, near, port), into.address)
            commands.append(
                Command(f"server-{node}", receiver, serve, 240, env=ENV, stage=1, role="server", ready_port=int(port))
            )
            commands.append(Command(f"client-{node}", node, write, 120 + self.inputs.seconds, env=ENV, stage=2))
        commands += self._readings(facts, [receiver, *others], rail, "after", 3)
        about = {"rail": str(rail), "receiver": receiver}
        target = f"rail{rail} into {receiver}"
        return Run(target, target, (receiver, *others), tuple(commands), frozenset((receiver, *others)), about=about)

    def _argv(self, facts: GateFacts, nic: NicFacts, port: str) -> tuple[str, ...]:
        what = ("-p", port, "-s", str(self.inputs.size), "-D", str(self.inputs.seconds), "-F", "--report_gbits")
        return (*roce_argv(facts, "ib_write_bw", nic), *what)

    @staticmethod
    def _readings(facts: GateFacts, nodes: Sequence[str], rail: int, when: str, stage: int) -> Iterator[Command]:
        """Return the commands that read the counters of a run.

        They cover every NIC that takes part, and the switch port at the other end of its cable.
        """
        ports: dict[tuple[str, str], list[str]] = {}
        for node in nodes:
            nic = nic_of(facts, node, rail)
            yield command(f"{when}-{node}", node, nic_counters, f"{nic.rdma_device}:{nic.netdev}", stage=stage)
            if nic.switch:
                ports.setdefault((nic.switch, nic.switch_os), []).append(nic.port)
        for (switch, os), names in ports.items():
            line = driver_for(switch, os).counters_command(names)
            yield Command(f"{when}-{switch}", switch, (line,), timeout_s=120, stage=stage)

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Judge that the port was filled, that nothing was lost, and that classes were kept apart."""
        if (verdict := nodes_without_nics.nothing_to_judge(facts, run)) is not None:
            return verdict
        if facts.fabric.kind == "infiniband":
            gathered = Judge()
            gathered.nothing(_ON_INFINIBAND)
            return gathered.verdict(run.target)
        gathered = Judge()
        rail, receiver = int(run.about["rail"]), run.about["receiver"]
        wrote = self._filled(gathered, facts, run, outputs, rail)
        if wrote:
            least = wrote | {receiver: sum(wrote.values())}
            for node in run.nodes:
                judge_nic(
                    gathered, facts, outputs, (node, nic_of(facts, node, rail)), least[node], receives=node == receiver
                )
            judge_switches(gathered, facts, run, outputs, rail)
        if not gathered.fails and not gathered.errors:
            gathered.measured.update(rail_parts(receiver, nic_of(facts, receiver, rail)))
        gathered.transport = "RoCE, host memory"
        return gathered.verdict(run.target)

    def _filled(self, gathered: Judge, facts: GateFacts, run: Run, outputs: Outputs, rail: int) -> dict[str, int]:
        """Return the bytes that each sender wrote at least; none unless all wrote side by side.

        Together they cannot reach more than the port carries.
        """
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
        where = Place(receiver, into.rdma_device, f"(rail {rail})")
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
            f"judgement: {_FILLED} x port rate, below which no queue builds up at the port",
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
        where = Place(
            node,
            near.rdma_device,
            f"-> {receiver[0]} {receiver[1].rdma_device} (rail {near.rail})",
            nodes=[receiver[0]],
        )
        client = client_output(
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
        """Compare what a sender did with what it was asked for: device, size, memory, addresses and time."""
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


def _rails(facts: GateFacts, node: str) -> frozenset[int]:
    return frozenset(nic.rail for nic in facts.nodes[node].nics)


def _all_wrote(gathered: Judge, where: str, reached: Mapping[str, float], total: float) -> None:
    """Compare each sender's rate with an even share of the total, Gb/s."""
    least = _SHARE * total / len(reached)
    idle = {node: value for node, value in reached.items() if value < least}
    if idle:
        actual = ", ".join(f"{value:.1f} Gb/s from {node}" for node, value in idle.items())
        expected = f"at least {least:.1f} Gb/s from every sender ({_SHARE:g} of an even share)"
        gathered.error(where, kinds.NOT_ALL_WROTE, expected, actual, nodes=sorted(idle))
