"""RDMA writes between two nodes, NIC to NIC on one rail, from GPU memory to GPU memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from pydantic import Field

from rackready.design.facts import NicFacts
from rackready.format_error import FormatError
from rackready.gates import base
from rackready.gates.base import Command, FinishedRun, FleetMetric, Gate, GateFacts, Outputs, Run
from rackready.gates.engine import nodes_without_nics, pairs
from rackready.gates.engine.pairs import attribute, retests, rounds
from rackready.gates.engine.shipped_script import command
from rackready.gates.fabric import ib_write_bw_findings as kinds
from rackready.gates.fabric import memory_link, perftest_call, port_errors, rdma_port
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
from rackready.gates.fabric.port_errors import judge_errors
from rackready.gates.fabric.rdma_port import (
    AFTER,
    headers,
    judge_gids,
    judge_layer,
    judge_link,
    judge_port,
    layer,
    path_mtu,
    payload_rate,
    port_of,
)
from rackready.gates.formats import perftest
from rackready.gates.judging import gpu_models, pair_fleet
from rackready.gates.judging.expectation import Bound, judge
from rackready.gates.judging.judge import Judge
from rackready.gates.judging.node_topology import rail_parts
from rackready.model.outcome import Criterion, Op, Verdict
from rackready.model.place import Place
from rackready.ondevice import rdma_counters

_LOOK = (
    "One pair does not show which of its two NICs is slow: measure each with another partner (`rackready "
    "gate run`, twice `--node`), and compare both cables, PCIe widths and the errors of both ports with "
    "those of a good rail"
)
_OF_GPU_LINK = 0.85
"""Share of the payload rate of that link: its packets are larger than the smallest, and NICs wait for its answers."""


class IbWriteBw(Gate):
    """Each NIC writes to and is written by a partner on its rail at its port's rate, GPU memory to GPU memory."""

    id = "pair/fabric/performance/ib-write-bw"
    findings = (
        *rdma_port.FINDINGS,
        *port_errors.FINDINGS,
        *perftest_call.FINDINGS,
        *pairs.FINDINGS,
        *gpu_models.FINDINGS,
        *kinds.FINDINGS,
    )
    after_fail = True
    covers = frozenset({"nic", "rail", "cable"})
    fleet = (FleetMetric("bw_average", effect=0.03, of="run", look=_LOOK),)
    """One direction from NIC to NIC is one unit: both ends share its figure, and a third partner shows which end is
    slow."""
    min_nodes = 2

    class Inputs(base.Inputs):
        """Settings of perftest, and the share of the port's rate that is enough."""

        size: int = Field(8388608, ge=65536, le=1 << 30, description="message size, bytes; at most 1 GiB (judgement)")
        iterations: int = Field(
            2000, ge=100, le=100_000_000, description="messages per direction; at most 10^8 (judgement)"
        )
        gpu_memory: bool = Field(True, description="write from and to GPU memory (GPUDirect RDMA over dma-buf)")  # noqa: FBT003
        gpudirect: Literal["dmabuf", "peermem"] = Field(
            "dmabuf", description="how the NIC reaches GPU memory: dma-buf, or the module nvidia_peermem"
        )
        bytes_tolerance: float = Field(
            0.05, gt=0, lt=1, description="how far the bytes that left a port may be from those that were written"
        )
        floor_share: float = Field(
            0.95, gt=0, le=1, description="share of the derived payload rate below which a NIC fails"
        )

    inputs: Inputs

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:
        """Pair nodes so that every one is measured; each rail of a pair is a run of its own, in both directions."""
        able, bare = nodes_without_nics.split_nodes(facts, nodes)
        pairs = [pair for pairing in rounds(able) for pair in pairing]
        return [
            *(
                self._run(facts, first, second, rail)
                for first, second in pairs
                for rail in rails_of(facts, first, second)
            ),
            *bare,
        ]

    def follow_up(self, facts: GateFacts, done: Sequence[FinishedRun]) -> list[Run]:
        """Measure both ends of a run that failed or is behind its fleet with a third partner, to find the bad end."""
        measured, _ = nodes_without_nics.split_runs(done)
        return [
            self._run(facts, first, second, rail, again=True)
            for first, second, rail in retests(pair_fleet.suspected(self, facts, measured))
        ]

    def acquitted(self, runs: Mapping[str, Collection[str]], slow: Collection[str]) -> frozenset[tuple[str, str]]:
        """Clear a NIC that passes with another partner, where its partner does not."""
        return pair_fleet.acquitted(runs, slow)

    def attribute(self, facts: GateFacts, done: Sequence[FinishedRun]) -> dict[str, list[Verdict]]:
        """Blame the end that fails with two partners; clear the end that passes with another."""
        measured, bare = nodes_without_nics.split_runs(done)
        return nodes_without_nics.too_few(self, facts) | attribute(measured) | bare

    def _run(self, facts: GateFacts, first: str, second: str, rail: int, *, again: bool = False) -> Run:
        near, far = nic_of(facts, first, rail), nic_of(facts, second, rail)
        target = f"{first}+{second}/rail{rail}"
        commands = (
            command("link-first", first, rdma_counters, near.rdma_device),
            command("link-second", second, rdma_counters, far.rdma_device),
            self._server(facts, "server-forth", second, far, 1),
            self._client(facts, "client-forth", (first, second), rail, 2),
            self._server(facts, "server-back", first, near, 3),
            self._client(facts, "client-back", (second, first), rail, 4),
            command("after-first", first, rdma_counters, near.rdma_device, stage=5),
            command("after-second", second, rdma_counters, far.rdma_device, stage=5),
        )
        claims = frozenset({f"{first}/{near.rdma_device}", f"{second}/{far.rdma_device}"})
        about = {"rail": str(rail), "first": first, "second": second, "again": "yes" if again else ""}
        return Run(
            id=target + ("/again" if again else ""),
            target=target,
            nodes=(first, second),
            commands=commands,
            claims=claims,
            about=about,
        )

    def _options(self, nic: NicFacts) -> tuple[str, ...]:
        dmabuf = ("--use_cuda_dmabuf",) if self.inputs.gpudirect == "dmabuf" else ()
        gpu = (f"--use_cuda={nic.gpu}", *dmabuf) if self.inputs.gpu_memory else ()
        return (
            "-p",
            str(PORT + nic.rail),
            "-s",
            str(self.inputs.size),
            "-n",
            str(self.inputs.iterations),
            "-F",
            "--report_gbits",
            *gpu,
        )

    def _argv(self, facts: GateFacts, nic: NicFacts) -> tuple[str, ...]:
        return (*program_argv(facts, "ib_write_bw", nic), *self._options(nic))

    def _server(self, facts: GateFacts, key: str, node: str, nic: NicFacts, stage: int) -> Command:
        return Command(
            key=key,
            node=node,
            argv=self._argv(facts, nic),
            env=ENV,
            timeout_s=300,
            stage=stage,
            role="server",
            ready_port=PORT + nic.rail,
        )

    def _client(self, facts: GateFacts, key: str, ends: tuple[str, str], rail: int, stage: int) -> Command:
        node, far = ends
        argv = (*self._argv(facts, nic_of(facts, node, rail)), server_address(facts, far, nic_of(facts, far, rail)))
        return Command(key=key, node=node, argv=argv, env=ENV, timeout_s=180, stage=stage)

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Judge link state, transport and bandwidth of both directions."""
        if (verdict := nodes_without_nics.nothing_to_judge(facts, run)) is not None:
            return verdict
        gathered = Judge()
        rail = int(run.about["rail"])
        first, second = run.about["first"], run.about["second"]
        near, far = nic_of(facts, first, rail), nic_of(facts, second, rail)
        up = [
            judge_link(gathered, outputs.get("link-first"), first, near),
            judge_link(gathered, outputs.get("link-second"), second, far),
        ]
        if all(up):
            self._direction(gathered, facts, outputs, "forth", (first, near), (second, far))
            self._direction(gathered, facts, outputs, "back", (second, far), (first, near))
        if not gathered.fails and not gathered.errors:
            require_two_outputs(
                gathered, run.target, "ib_write_bw", (outputs.get("client-forth"), outputs.get("client-back"))
            )
        if not gathered.fails and not gathered.errors:
            for end, node, nic in (("first", first, near), ("second", second, far)):
                self._carried(gathered, outputs, end, (node, nic), self.inputs.bytes_tolerance + headers(facts.fabric))
        if not gathered.fails and not gathered.errors:
            gathered.measured.update((*rail_parts(first, near), *rail_parts(second, far)))
        return gathered.verdict(run.target)

    def _direction(
        self,
        gathered: Judge,
        facts: GateFacts,
        outputs: Outputs,
        name: str,
        sender: tuple[str, NicFacts],
        receiver: tuple[str, NicFacts],
    ) -> None:
        where = Place(
            sender[0],
            sender[1].rdma_device,
            f"-> {receiver[0]} {receiver[1].rdma_device} (rail {sender[1].rail})",
            nodes=[receiver[0]],
        )
        client = client_output(
            gathered, where, (outputs.get(f"server-{name}"), outputs.get(f"client-{name}")), sender, receiver
        )
        if client is None:
            return
        try:
            result = perftest.parse(client.stdout)
        except FormatError as error:
            gathered.error(where, kinds.WRITE_UNREADABLE, "one result block in Gb/sec", f"{error} (exit code 0)")
            return
        before = len(gathered.errors)
        far = served(gathered, where, "ib_write_bw", outputs.get(f"server-{name}"))
        judge_call(gathered, where, "ib_write_bw", result.call)
        for node, used in ((sender[0], result.memory), (receiver[0], far)):
            if used is not None:
                judge_model(gathered, facts, where, "ib_write_bw", node, used)
        told = (
            self._transport(gathered, facts, where, (sender[1], receiver[1]), result) and len(gathered.errors) == before
        )
        if told and self._far_memory(gathered, where, receiver[1], far):
            expected = self.expected(facts, (sender[0], receiver[0]), sender[1], result.mtu)
            self.judge_bandwidth(gathered, where, sender[1], expected, result)

    def _transport(
        self,
        gathered: Judge,
        facts: GateFacts,
        where: str,
        ends: tuple[NicFacts, NicFacts],
        result: perftest.WriteBandwidth,
    ) -> bool:
        before, nic = len(gathered.fails) + len(gathered.errors), ends[0]
        gathered.judged += 1
        asked = (nic.rdma_device, self.inputs.iterations, self.inputs.size)
        if (result.device, result.iterations, result.size) != asked:
            expected, actual = (
                f"{device}, {count} x {size} bytes"
                for device, count, size in (asked, (result.device, result.iterations, result.size))
            )
            gathered.error(where, kinds.WRITE_SOMETHING_ELSE, expected, actual)
        if result.peak <= 0 and self.inputs.iterations <= perftest.NO_PEAK:
            expected = f"a peak of at least the average, {result.average:.2f} Gb/s"
            gathered.error(where, kinds.WRITE_NO_PEAK, expected, f"{result.peak:.2f} Gb/s")
        if judge_layer(gathered, where, facts.fabric, result.link_type) and facts.fabric.kind == "roce":
            judge_gids(gathered, where, "ib_write_bw", ends, (result.local, result.remote))
        self._memory(gathered, where, nic, result.memory)
        wanted = path_mtu(facts.fabric)
        if result.mtu != wanted:
            gathered.fail(where, kinds.PATH_MTU, wanted, result.mtu)
        gathered.transport = f"{layer(facts.fabric).name}, {nic.rdma_device}, GPU memory by {result.memory.reach}"
        return len(gathered.fails) + len(gathered.errors) == before

    def _memory(self, gathered: Judge, where: str, nic: NicFacts, used: perftest.Memory, end: str = "") -> None:
        """Judge the memory of one end, and how its NIC reached it. ``end``: words behind the finding's title."""
        asked = self.inputs.gpudirect if self.inputs.gpu_memory else "none"
        if self.inputs.gpu_memory and used.reach == "none":
            gathered.error(where, kinds.GPU_MEMORY_NOT_USED, "GPUDirect RDMA (dma-buf)", "host memory", end=end)
        elif used.reach != asked:
            words = {
                "dmabuf": "GPU memory by dma-buf",
                "peermem": "GPU memory by nvidia_peermem",
                "none": "host memory",
            }
            gathered.error(where, kinds.OTHER_MEMORY, words[asked], words[used.reach], end=end)
        elif self.inputs.gpu_memory and used.gpu not in {None, nic.gpu}:
            gathered.error(where, kinds.OTHER_GPU, f"gpu{nic.gpu}", f"gpu{used.gpu}", end=end)

    def _far_memory(self, gathered: Judge, where: str, nic: NicFacts, used: perftest.Memory | None) -> bool:
        """Judge the receiver's memory, as far as its server reports it."""
        before = len(gathered.errors)
        if used is not None:
            self._memory(gathered, where, nic, used, FAR)
        return len(gathered.errors) == before

    def _carried(self, gathered: Judge, outputs: Outputs, end: str, of: tuple[str, NicFacts], tolerance: float) -> None:
        """Compare the port's count of bytes sent with what perftest wrote: the data used this port and no other."""
        node, nic = of
        where = Place(node, nic.rdma_device, f"(rail {nic.rail})")
        found = [port_of(gathered, outputs.get(f"{when}-{end}"), where, nic) for when in ("link", "after")]
        before, after = found
        if before is None or after is None or not judge_port(gathered, after, node, nic, AFTER):
            return
        judge_errors(gathered, node, {where: (before, after)})
        expected, moved = self.inputs.size * self.inputs.iterations, after["xmit_bytes"] - before["xmit_bytes"]
        gathered.judged += 1
        gathered.metric("xmit_bytes", f"{node}/{nic.rdma_device}", float(moved), "B")
        source = f"derived: size x iterations, within {tolerance:.0%} (packet headers take 2 % of a path MTU of 4096)"
        gathered.criterion(
            Criterion(
                metric="xmit_bytes", op=Op.EQ, bound=expected, unit="B", label="identity", source=source, derived=True
            )
        )
        if abs(moved - expected) > tolerance * expected:
            gathered.fail(
                where,
                kinds.WRITE_OTHER_PORT,
                f"{expected / 1e9:.1f} GB within {tolerance:.0%}",
                f"{moved / 1e9:.1f} GB",
            )

    def expected(self, facts: GateFacts, nodes: Sequence[str], nic: NicFacts, mtu: int) -> Bound:
        """Return the payload rate of the slowest part, Gb/s: the port, or the PCIe link to the memory."""
        port = payload_rate(nic.rate, mtu, layer(facts.fabric))
        of_memory = memory_link.of_gpu if self.inputs.gpu_memory else memory_link.of_host
        links = [of_memory(facts.nodes[node]) for node in nodes]
        return min([port, *(link for link in links if link is not None)], key=lambda bound: bound.value)

    def _bounds(self, nic: NicFacts, expected: Bound) -> tuple[Bound, Bound]:
        """Return the rate that a direction cannot exceed, and the floor."""
        name = next((key for key in memory_link.WORDS if key in expected.inputs), "")
        link = expected.inputs.get(name)
        if isinstance(link, float):
            share = min(self.inputs.floor_share, _OF_GPU_LINK)
            lower = f"{share} x payload rate of {memory_link.WORDS[name]}: derived reference, as in gate nvbandwidth"
            upper = Bound(min(float(nic.rate), link), f"rate of {memory_link.WORDS[name]}", inputs={name: link})
        else:
            share = self.inputs.floor_share
            lower = (
                f"{share} x payload rate; published marks of 400 Gb/s NICs are 380 (azurehpc-health-checks, H100) and "
                "384 (oci-hpc)"
            )
            upper = Bound(float(nic.rate), "port rate", derived=False, inputs={"rate": float(nic.rate)})
        return upper, Bound(share * expected.value, lower, inputs={"reference": expected.value, "share": share})

    def judge_bandwidth(
        self, gathered: Judge, where: str, nic: NicFacts, expected: Bound, result: perftest.WriteBandwidth
    ) -> None:
        """Judge a direction's bandwidth between its floor and the rate of the slowest part.

        ``expected``: payload share of that rate, Gb/s.
        """
        upper, lower = self._bounds(nic, expected)
        verdict = judge("bw_average", result.average, "Gb/s", upper=upper, expected=expected, lower=lower)
        gathered.metric("bw_average", where, result.average, "Gb/s")
        gathered.criteria.extend(verdict.criteria)
        cable = f"cable {nic.switch} {nic.port}" if nic.switch else "its cable"
        if verdict.outcome == "fail" and memory_link.GPU in expected.inputs:
            gathered.fail(where, kinds.WRITE_SLOW_TO_GPU, verdict.expected, f"{result.average:.1f} Gb/s")
        elif verdict.outcome == "fail":
            gathered.fail(where, kinds.WRITE_SLOW, verdict.expected, f"{result.average:.1f} Gb/s", cable=cable)
        elif verdict.outcome == "error":
            gathered.error(where, kinds.WRITE_IMPLAUSIBLE, verdict.expected, f"{result.average:.1f} Gb/s")


class IbWriteBwHost(IbWriteBw):
    """Each NIC writes to and is written by a partner on its rail at its port's rate, host memory to host memory."""

    id = "pair/fabric/performance/ib-write-bw-host"

    class Inputs(IbWriteBw.Inputs):
        """Settings of perftest, and the share of the port's rate that is enough."""

        gpu_memory: bool = Field(
            False,  # noqa: FBT003
            description="write from and to GPU memory: this gate is about host memory, to tell GPU paths from NICs",
        )

    inputs: Inputs
