"""Latency of each NIC with a partner on its rail, both ways, compared with a published mark and the other rails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from rackready.design.facts import NicFacts, NodeFacts
from rackready.format_error import FormatError
from rackready.gates import base
from rackready.gates.base import Command, FinishedRun, Gate, GateFacts, Outputs, Run
from rackready.gates.engine import nodes_without_nics, pairs
from rackready.gates.engine.pairs import attribute_whole_nodes, retests_of_whole_nodes, rounds
from rackready.gates.engine.shipped_script import command
from rackready.gates.fabric import ib_write_bw_findings, perftest_call, port_errors, rdma_port
from rackready.gates.fabric import latency_findings as kinds
from rackready.gates.fabric.latency_bounds import (
    LEAST_WRITE,
    judge_mark,
    judge_plausible,
    judge_siblings,
    judge_tail,
    write_mark,
)
from rackready.gates.fabric.perftest_call import FAR, judge_call, judge_model, served
from rackready.gates.fabric.perftest_run import (
    ENV,
    PORT,
    client_output,
    nic_of,
    program_argv,
    rails_of,
    require_two_outputs,
    server_address,
)
from rackready.gates.fabric.port_errors import Reading, judge_errors
from rackready.gates.fabric.rdma_port import AFTER, judge_gids, judge_layer, judge_link, judge_port, layer, port_of
from rackready.gates.formats import perftest, perftest_lat
from rackready.gates.formats.perftest_lat import Latency
from rackready.gates.judging import gpu_models
from rackready.gates.judging.expectation import Bound
from rackready.gates.judging.judge import Judge
from rackready.gates.judging.node_topology import rail_parts
from rackready.model.outcome import Criterion, Op, Verdict
from rackready.model.place import Place, unit_of
from rackready.ondevice import rdma_counters

_ROUND_TRIP = 2
"""perftest prints half of the round trip for writes and the whole for reads (its man pages), so a read may take
twice a write's mark."""
Triple = tuple[str, str, NicFacts, NicFacts]


class IbWriteLat(Gate):
    """Each NIC answers a partner on its rail within the mark and as fast as other rails (host memory, both ways)."""

    id = "pair/fabric/performance/ib-write-lat"
    findings = (
        *rdma_port.FINDINGS,
        *ib_write_bw_findings.CLIENT,
        *port_errors.FINDINGS,
        *perftest_call.FINDINGS,
        *pairs.FINDINGS,
        *gpu_models.FINDINGS,
        ib_write_bw_findings.ONE_OUTPUT_BOTH_WAYS,
        *kinds.FINDINGS,
    )
    after_fail = True
    covers = frozenset({"nic", "rail", "cable"})
    min_nodes = 2
    program: ClassVar[str] = "ib_write_lat"
    verb: ClassVar[str] = "write"

    class Inputs(base.Inputs):
        """Settings of perftest."""

        size: int = Field(2, ge=1, le=4096, description="message size, bytes")
        iterations: int = Field(
            10000, ge=1000, le=100_000_000, description="messages of each direction; at most 10^8 (judgement)"
        )
        effect: float = Field(
            0.2,
            gt=0,
            lt=2,
            description="declared effect: a NIC fails only when it is behind its siblings by more than "
            "half of this share",
        )
        tail: float = Field(
            10,
            gt=1,
            le=1000,
            description="a NIC's own 99 % percentile may be at most this times the median of the other "
            "rails' ones; judgement: a busy host moves it less than that",
        )
        gpudirect: Literal["dmabuf", "peermem"] = Field(
            "dmabuf", description="how the NIC reaches GPU memory, where the gate uses it"
        )

    inputs: Inputs

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:
        """Pair nodes so that every one is measured.

        All rails of a pair are one run, because they are compared with each other.
        """
        able, bare = nodes_without_nics.split_nodes(facts, nodes)
        return [*(self._run(facts, first, second) for pairing in rounds(able) for first, second in pairing), *bare]

    def follow_up(self, facts: GateFacts, done: Sequence[FinishedRun]) -> list[Run]:
        """Measure both ends of a failed run with a third partner, to find the bad end."""
        measured, _ = nodes_without_nics.split_runs(done)
        return [self._run(facts, node, partner) for node, partner in retests_of_whole_nodes(measured)]

    def attribute(self, facts: GateFacts, done: Sequence[FinishedRun]) -> dict[str, list[Verdict]]:
        """Clear the end that passes with another partner."""
        measured, bare = nodes_without_nics.split_runs(done)
        return nodes_without_nics.too_few(self, facts) | attribute_whole_nodes(measured) | bare

    def _run(self, facts: GateFacts, first: str, second: str) -> Run:
        rails = rails_of(facts, first, second)
        commands = [
            command("link-first", first, rdma_counters, *[nic_of(facts, first, rail).rdma_device for rail in rails]),
            command("link-second", second, rdma_counters, *[nic_of(facts, second, rail).rdma_device for rail in rails]),
        ]
        for stage, (way, near, far) in enumerate((("forth", first, second), ("back", second, first))):
            for rail in rails:
                other = nic_of(facts, far, rail)
                commands += [
                    self._server(facts, f"server-{way}{rail}", far, other, 1 + 2 * stage),
                    self._client(facts, f"{way}{rail}", (near, far), rail, 2 + 2 * stage),
                ]
        commands += [
            command(
                f"after-{end}", node, rdma_counters, *[nic_of(facts, node, rail).rdma_device for rail in rails], stage=5
            )
            for end, node in (("first", first), ("second", second))
        ]
        about = {"first": first, "second": second}
        return Run(
            id=f"{first}+{second}",
            target=f"{first}+{second}",
            nodes=(first, second),
            commands=tuple(commands),
            claims=frozenset({first, second}),
            about=about,
        )

    def options(self, nic: NicFacts) -> tuple[str, ...]:
        """Return what is measured and how."""
        del nic
        return ()

    def _argv(self, facts: GateFacts, nic: NicFacts) -> tuple[str, ...]:
        what = (
            "-p",
            str(PORT + 100 + nic.rail),
            "-s",
            str(self.inputs.size),
            "-n",
            str(self.inputs.iterations),
            "-F",
            *self.options(nic),
        )
        return (*program_argv(facts, self.program, nic), *what)

    def _server(self, facts: GateFacts, key: str, node: str, nic: NicFacts, stage: int) -> Command:
        return Command(
            key=key,
            node=node,
            argv=self._argv(facts, nic),
            env=ENV,
            timeout_s=180,
            stage=stage,
            role="server",
            ready_port=PORT + 100 + nic.rail,
        )

    def _client(self, facts: GateFacts, key: str, ends: tuple[str, str], rail: int, stage: int) -> Command:
        node, far = ends
        argv = (*self._argv(facts, nic_of(facts, node, rail)), server_address(facts, far, nic_of(facts, far, rail)))
        return Command(key=key, node=node, argv=argv, env=ENV, timeout_s=120, stage=stage)

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Judge links, transport, and each NIC's typical latency against the mark and the other rails of this pair."""
        if (verdict := nodes_without_nics.nothing_to_judge(facts, run)) is not None:
            return verdict
        gathered = Judge()
        first, second = run.about["first"], run.about["second"]
        rails = rails_of(facts, first, second)
        if not rails:
            gathered.error(run.target, kinds.NO_COMMON_RAIL, "a rail that both nodes have", "none")
        up = [rail for rail in rails if self._links(gathered, facts, outputs, (first, second), rail)]
        for way, near, far in (("forth", first, second), ("back", second, first)):
            ends = {rail: (near, far, nic_of(facts, near, rail), nic_of(facts, far, rail)) for rail in up}
            read = {rail: self._read(gathered, facts, outputs, way, ends[rail]) for rail in up}
            found = {
                rail: one
                for rail, one in read.items()
                if one is not None
                and judge_plausible(gathered, place(*ends[rail]), min(one.average, one.typical), self.least())
            }
            self._judge(gathered, facts, found, near, far)
        for rail in self._good(gathered, facts, (first, second), up):
            where = place(second, first, nic_of(facts, second, rail), nic_of(facts, first, rail))
            require_two_outputs(
                gathered, where, self.program, (outputs.get(f"forth{rail}"), outputs.get(f"back{rail}"))
            )
        good = self._good(gathered, facts, (first, second), up)
        for end, node in (("first", first), ("second", second)):
            self._carried(gathered, outputs, end, node, [nic_of(facts, node, rail) for rail in good])
        for rail in self._good(gathered, facts, (first, second), good):
            gathered.measured.update(
                part for node in (first, second) for part in rail_parts(node, nic_of(facts, node, rail))
            )
        return gathered.verdict(run.target)

    @staticmethod
    def _good(gathered: Judge, facts: GateFacts, nodes: Sequence[str], rails: Sequence[int]) -> list[int]:
        """Return the rails without a finding on the NIC of either end."""
        bad = {finding.unit for finding in [*gathered.fails, *gathered.errors]}
        return [
            rail for rail in rails if not bad & {unit_of(node, nic_of(facts, node, rail).rdma_device) for node in nodes}
        ]

    def _carried(self, gathered: Judge, outputs: Outputs, end: str, node: str, nics: Sequence[NicFacts]) -> None:
        """Judge each port after the run: still up, no errors counted, and at least the messages themselves sent.

        Each end sends them, as client or in answer.
        """
        ports: dict[str, tuple[Reading, Reading]] = {}
        least = self.inputs.size * self.inputs.iterations
        for nic in nics:
            where = Place(node, nic.rdma_device, f"(rail {nic.rail})")
            before, after = (port_of(gathered, outputs.get(f"{when}-{end}"), where, nic) for when in ("link", "after"))
            if before is None or after is None or not judge_port(gathered, after, node, nic, AFTER):
                continue
            ports[where] = (before, after)
            moved = after["xmit_bytes"] - before["xmit_bytes"]
            gathered.judged += 1
            gathered.metric("xmit_bytes", f"{node}/{nic.rdma_device}", float(moved), "B")
            if moved < least:
                gathered.fail(where, kinds.LATENCY_PORT_BYTES, f"at least {least} bytes", f"{moved} bytes")
        if ports:
            source = "derived: size x iterations, which each end sends at least once: as client, or in answer"
            gathered.criterion(
                Criterion(
                    metric="xmit_bytes", op=Op.GE, bound=least, unit="B", label="identity", source=source, derived=True
                )
            )
            judge_errors(gathered, node, ports)

    @staticmethod
    def _links(gathered: Judge, facts: GateFacts, outputs: Outputs, nodes: tuple[str, str], rail: int) -> bool:
        ends = zip(("link-first", "link-second"), nodes, strict=True)
        return all([judge_link(gathered, outputs.get(key), node, nic_of(facts, node, rail)) for key, node in ends])  # noqa: C419 - both ends are looked at

    def _read(self, gathered: Judge, facts: GateFacts, outputs: Outputs, way: str, ends: Triple) -> Latency | None:
        near, far, one, other = ends
        where = place(near, far, one, other)
        answers = (outputs.get(f"server-{way}{one.rail}"), outputs.get(f"{way}{one.rail}"))
        client = client_output(gathered, where, answers, (near, one), (far, other), self.program)
        if client is None:
            return None
        try:
            result = perftest_lat.parse(client.stdout)
        except FormatError as error:
            gathered.error(
                where,
                kinds.LATENCY_UNREADABLE,
                "one result block in microseconds",
                f"{error} (exit code 0)",
                program=self.program,
            )
            return None
        before = len(gathered.fails) + len(gathered.errors)
        self._transport(gathered, facts, where, (one, other), result)
        judge_call(gathered, where, self.program, result.call)
        far_memory = served(gathered, where, self.program, answers[0])
        for node, used in ((near, result.memory), (far, far_memory)):
            if used is not None:
                judge_model(gathered, facts, where, self.program, node, used)
        if far_memory is not None:
            self._far_memory(gathered, where, other, far_memory)
        return result if len(gathered.fails) + len(gathered.errors) == before else None

    def _transport(
        self, gathered: Judge, facts: GateFacts, where: str, ends: tuple[NicFacts, NicFacts], result: Latency
    ) -> None:
        """Judge what was really measured: verb, device, size, link type, addresses, memory."""
        nic, on_gpu = ends[0], result.memory.reach != "none"
        gathered.judged += 1
        wanted = (self.verb, nic.rdma_device, self.inputs.size, bool(self.options(nic)))
        actual = (result.verb, result.device, result.size, on_gpu)
        if actual != wanted:
            gathered.error(where, kinds.LATENCY_SOMETHING_ELSE, _words(wanted), _words(actual), program=self.program)
        if wanted[-1]:
            self._gpu(gathered, where, nic, result.memory)
        if result.iterations != self.inputs.iterations:
            asked, sent = (f"{count} messages" for count in (self.inputs.iterations, result.iterations))
            gathered.error(where, kinds.LATENCY_SOMETHING_ELSE, asked, sent, program=self.program)
        if judge_layer(gathered, where, facts.fabric, result.link_type) and facts.fabric.kind == "roce":
            judge_gids(gathered, where, self.program, ends, (result.local, result.remote))
        gathered.transport = f"{layer(facts.fabric).name}, {_memory(on_gpu=on_gpu)}"

    def _far_memory(self, gathered: Judge, where: str, nic: NicFacts, used: perftest.Memory) -> None:
        """Judge the memory that the server reports: a read goes there."""
        wanted, on_gpu = bool(self.options(nic)), used.reach != "none"
        if on_gpu != wanted:
            gathered.error(
                where, kinds.LATENCY_OTHER_MEMORY, _memory(on_gpu=wanted), _memory(on_gpu=on_gpu), program=self.program
            )
        elif wanted:
            self._gpu(gathered, where, nic, used, FAR)

    def _gpu(self, gathered: Judge, where: str, nic: NicFacts, used: perftest.Memory, end: str = "") -> None:
        if used.gpu not in {None, nic.gpu}:
            gathered.error(
                where, kinds.LATENCY_OTHER_GPU, f"gpu{nic.gpu}", f"gpu{used.gpu}", program=self.program, end=end
            )

    def least(self) -> Bound:
        """Return the smallest plausible latency, us."""
        return LEAST_WRITE

    def mark(self, of_node: NodeFacts) -> Bound:
        """Return the mark of the node's GPU, or else the largest of any GPU."""
        return write_mark(of_node)

    def _judge(self, gathered: Judge, facts: GateFacts, found: dict[int, Latency], near: str, far: str) -> None:
        mark = self.mark(facts.nodes[near])
        rails = sorted(found)
        values = [found[rail].typical for rail in rails]
        for index, rail in enumerate(rails):
            one, other = nic_of(facts, near, rail), nic_of(facts, far, rail)
            where = place(near, far, one, other)
            gathered.metric("latency_typical", where, values[index], "us")
            gathered.metric("latency_p99", where, found[rail].p99, "us")
            judge_mark(gathered, where, found[rail].average, mark)
            others = values[:index] + values[index + 1 :]
            judge_siblings(
                gathered,
                where,
                (values[index], others),
                self.inputs.effect,
                facts.fleet * len(values),
                known=not mark.derived,
            )
            tails = [found[other].p99 for other in rails if other != rail]
            judge_tail(gathered, where, found[rail].p99, tails, self.inputs.tail)


class IbReadLatGpu(IbWriteLat):
    """Each NIC reads a partner's GPU memory on its rail as fast as the other rails do.

    perftest has no write latency for GPU memory.
    """

    id = "pair/fabric/performance/ib-read-lat-gpu"
    program = "ib_read_lat"
    verb = "read"

    def options(self, nic: NicFacts) -> tuple[str, ...]:
        """Return the options for the GPU beside the NIC.

        perftest refuses CUDA with ib_write_lat: "latency tests with read/send verbs only".
        """
        return (f"--use_cuda={nic.gpu}", *(("--use_cuda_dmabuf",) if self.inputs.gpudirect == "dmabuf" else ()))

    def mark(self, of_node: NodeFacts) -> Bound:
        """Return twice the mark of writes: no source gives one for reads of GPU memory."""
        write = super().mark(of_node)
        source = (
            f"derived: {_ROUND_TRIP} x the mark of writes, whose half round trip perftest prints; "
            f"{write.source.removeprefix('derived: ')}"
        )
        return Bound(_ROUND_TRIP * write.value, source, derived=True, inputs={**write.inputs, "write": write.value})

    def least(self) -> Bound:
        """Return twice the smallest plausible latency of writes."""
        write = super().least()
        return Bound(
            _ROUND_TRIP * write.value,
            f"{_ROUND_TRIP} x that of writes, whose half round trip perftest prints; {write.source}",
        )


def place(near: str, far: str, one: NicFacts, other: NicFacts) -> Place:
    """Return a direction: the end that begins, and the other."""
    return Place(near, one.rdma_device, f"-> {far} {other.rdma_device} (rail {one.rail})", nodes=[far])


def _words(found: tuple[str, str, int, bool]) -> str:
    verb, device, size, gpu = found
    return f"{verb} of {size} bytes on {device}, {_memory(on_gpu=gpu)}"


def _memory(*, on_gpu: bool) -> str:
    return "GPU memory" if on_gpu else "host memory"
