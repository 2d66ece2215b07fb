"""Common part of the gates of NCCL's collectives: launching them, and judging a figure once its transport is proven."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import ClassVar, Literal

from pydantic import Field, field_validator

from rackready.gates import base
from rackready.gates.base import Command, FinishedRun, FleetMetric, Gate, GateFacts, Outputs, Run
from rackready.gates.engine import nodes_without_nics, pairs
from rackready.gates.engine.pairs import bystander
from rackready.gates.fabric import carried, domains, launchers, transport
from rackready.gates.fabric import collective_findings as kinds
from rackready.gates.fabric.rdma_port import headers
from rackready.gates.judging import node_topology
from rackready.gates.judging.expectation import (
    Algorithm,
    Bound,
    Collective,
    Domain,
    Efficiency,
    ceiling,
    floor,
    judge,
    launches,
    reference,
)
from rackready.gates.judging.finding_kinds import FailKind, Kinds
from rackready.gates.judging.judge import Judge
from rackready.gates.nccl.program import (
    Launch,
    Launched,
    argv,
    collectives_run,
    fitting,
    read_launches,
    require_even,
    size_bytes,
    tool_versions,
)
from rackready.model.outcome import Outcome, Verdict
from rackready.model.site import Fabric

WORDS: Mapping[Collective, str] = {
    "all_reduce": "all-reduce",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "alltoall": "alltoall",
}
_NDR = "46-48 of 50 GB/s per NIC on NDR InfiniBand (NVIDIA/nccl-tests issue 290)"
_EFA = (
    "0.85 of B in all_gather and 0.84 of the alltoall ceiling on EFA (NVIDIA/cluster-readiness-engine docs, "
    "validation-results, AWS H100 2 nodes)"
)
DEBUG = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV,NET,P2P,GRAPH", "NCCL_RUNTIME_CONNECT": "0"}
"""Makes NCCL log the ways that it chose, from which the transport is proven.

By default NCCL (2.22 and newer) connects rings only when an algorithm first uses them. NVLS, which big reductions
inside a node use, never does."""
_PAIR = 2


def efficiency(fabric: Fabric) -> Efficiency:
    """Return the share of its NICs' rate that this fabric delivers, with its source."""
    if fabric.nccl_net == "ofi":
        return Efficiency(0.84, _EFA, measured=True)
    if fabric.kind == "infiniband":
        return Efficiency(0.92, _NDR, measured=True)
    return Efficiency(0.92, f"{_NDR}, used for RoCE because no measurement exists", measured=False)


class NcclGate(Gate):
    """One collective on some nodes."""

    collective: ClassVar[Collective] = "all_reduce"
    algorithm: ClassVar[Algorithm] = "default"

    class Inputs(base.Inputs):
        """Settings of the launches."""

        binary: str = Field(
            "", description="nccl-tests program on every node's PATH, or its full path; <collective>_perf when empty"
        )
        size: str | None = Field(
            None,
            pattern=r"^\d+[KMG]$",
            description="largest message, a power of two; when absent, the largest whose buffers fit "
            "into the GPUs' memory, at most 16G",
        )

        @field_validator("size")
        @classmethod
        def _doubles(cls, value: str | None) -> str | None:
            """Each size is twice the previous one: nccl-tests is called with factor two."""
            if value is not None and size_bytes(value).bit_count() != 1:
                raise ValueError("a power of two, e.g. 8G")
            return value

        launches: int | None = Field(
            None,
            ge=1,
            le=50,
            description="number of launches whose median is judged; when absent, it follows from the number of nodes",
        )

    inputs: Inputs

    @property
    def binary(self) -> str:
        """Return the program's name or path."""
        return self.inputs.binary or f"{self.collective}_perf"

    def size(self, facts: GateFacts, nodes: Sequence[str]) -> str:
        """Return the largest message to run: the declared one, or what fits into the smallest GPU of these nodes."""
        return self.inputs.size or fitting(min(facts.nodes[node].gpu.memory.value for node in nodes))

    def count(self, facts: GateFacts) -> int:
        """Return the number of launches for the median."""
        return self.inputs.launches or launches(facts.fleet)

    def tools(self, outputs: Outputs) -> dict[str, str]:
        """Return the versions of nccl-tests and NCCL."""
        return tool_versions(outputs)

    def environment(self, facts: GateFacts, node: str) -> dict[str, str]:
        """Return the variables that are set for NCCL: the site's settings too, which a container would not see."""
        forced = {"NCCL_ALGO": "RING"} if self.algorithm == "ring" else {}
        declared = facts.fabric.nccl.of(facts.nodes[node].platform.id)
        return {**declared, **forced, **DEBUG, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}

    def busbw(self, judge_: Judge, outputs: Outputs, where: str, wanted: Launch, count: int) -> list[Launched] | None:
        """Return every launch with its busbw, or None.

        None when one cannot be judged, gave wrong values or repeats another.
        """
        values = read_launches(judge_, [outputs.get(f"launch{number}") for number in range(count)], where, wanted)
        return None if judge_.errors or judge_.fails or len(values) != count else values


def bounds(
    facts: GateFacts,
    node: str,
    domain: Domain | None,
    collective: Collective,
    algorithm: Algorithm,
    mark: Bound | None = None,
) -> tuple[Bound | None, Bound | None, Bound | None]:
    """Return ceiling, reference and floor of a run; all None where domains are unequal."""
    if domain is None:
        return None, None, None
    published = (
        node_topology.published(facts.nodes[node], collective, domain.ranks, algorithm) if domain.count == 1 else None
    )
    expected = reference(domain, collective, algorithm, published=published, efficiency=efficiency(facts.fabric))
    lower = floor(expected, domain, collective, published=mark, single=domain.count <= _PAIR)
    return ceiling(domain, collective, algorithm), expected, lower


def judge_busbw(
    gathered: Judge,
    where: str,
    what: str,
    launched: Sequence[Launched],
    found: tuple[Bound | None, Bound | None, Bound | None],
    slow: FailKind,
) -> bool:
    """Judge the median and, where it passes, the other sizes and placements; return whether it passed.

    ``slow``: the finding of a median below its floor. A figure without any bound is noted as fleet pending.
    """
    values = [one.busbw for one in launched]
    value = median(values)
    upper, expected, lower = found
    result = judge("busbw", value, "GB/s", upper=upper, expected=expected, lower=lower)
    gathered.judged += 1
    gathered.metric("busbw", where, value, "GB/s")
    gathered.criteria.extend(item for item in result.criteria if item not in gathered.criteria)
    spread = f"{value:.1f} GB/s (median of {len(values)}: {', '.join(f'{one:.1f}' for one in values)})"
    if result.outcome == Outcome.FAIL:
        gathered.fail(where, slow, result.expected, spread, what=what)
    elif result.outcome == Outcome.ERROR:
        gathered.error(where, kinds.COLLECTIVE_IMPLAUSIBLE, result.expected, spread, what=what)
    elif result.pending:
        gathered.fleet_pending = True
    if result.outcome == Outcome.PASS:
        require_even(gathered, where, what, launched)
    return result.outcome == Outcome.PASS


class Multi(NcclGate):
    """One collective over several nodes at once, with proof of its transport and of each rail's traffic."""

    findings: ClassVar[Kinds] = (*pairs.FINDINGS, *kinds.FINDINGS, kinds.COLLECTIVE_SLOW)

    covers = frozenset({"gpu", "nic", "rail", "cable"})
    fleet = (FleetMetric("busbw", effect=0.03, of="run"),)
    min_nodes = 2

    class Inputs(NcclGate.Inputs):
        """Settings of the launches, and tolerances of the rails."""

        bytes_tolerance: float = Field(
            0.05, gt=0, lt=1, description="how far the bytes that left a node may be from what the collective must move"
        )
        share_tolerance: float = Field(0.2, gt=0, lt=1, description="how far a rail may be from its even share")
        mpi: Literal["pmix", "pmi2"] = Field(
            "pmix", description="srun plugin that connects the MPI processes; the nodes' MPI must support it"
        )
        image: str = Field("", description="container image with nccl-tests and MPI, for the launcher mpijob")

    inputs: Inputs

    def parts(self, facts: GateFacts, nodes: Sequence[str]) -> dict[str, tuple[str, ...]]:  # noqa: ARG002 - others group by what the site says
        """Return target -> nodes that run together."""
        return {self.scope: tuple(nodes)}

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:
        """Plan one run per group of at least two nodes.

        Counters of every node, the launches from the group's first node, counters again.
        """
        able, bare = nodes_without_nics.split_nodes(facts, nodes)
        return [
            *(
                self.run(facts, members, name)
                for name, members in self.parts(facts, able).items()
                if len(members) >= self.min_nodes
            ),
            *bare,
        ]

    def follow_up(self, facts: GateFacts, done: Sequence[FinishedRun]) -> list[Run]:
        """Repeat a failed run that blames some nodes without them, so that the others need not wait."""
        out = []
        for item in done:
            rest = [node for node in item.run.nodes if node not in item.verdict.blamed]
            if item.verdict.blamed and len(rest) >= self.min_nodes:
                out.append(self.run(facts, rest, f"{item.run.target}/without {'+'.join(item.verdict.blamed)}"))
        return out

    def attribute(self, facts: GateFacts, done: Sequence[FinishedRun]) -> dict[str, list[Verdict]]:
        """Return each node's verdict.

        A blamed node gets what was found on it. Any other node gets the verdict of its last run, unless that blames
        others only.
        """
        out = {node: [verdict_of_lone_node(self.id, node)] for node, known in facts.nodes.items() if known.nics}
        for item in done:
            for node in item.run.nodes:
                mine = [finding for finding in item.verdict.findings if finding.node == node]
                waits = item.verdict.blamed and node not in item.verdict.blamed
                out[node] = [
                    item.verdict.model_copy(update={"findings": mine})
                    if mine
                    else bystander(item.verdict, node)
                    if waits
                    else item.verdict
                ]
        return out

    def launch(self, facts: GateFacts, nodes: Sequence[str]) -> Command:
        """Return the command of one launch."""
        per_node = facts.nodes[nodes[0]].platform.gpus
        wanted = ",".join(carried.devices(facts, nodes[0]))
        hcas = {} if facts.fabric.nccl_net == "ofi" else {"NCCL_IB_HCA": f"={wanted}"}
        tests = argv(self.binary, self.size(facts, nodes), gpus_per_process=1)
        environment = {**self.environment(facts, nodes[0]), **hcas}
        program = launchers.Program(tests, environment, per_node, self.inputs.mpi, self.inputs.image)
        return launchers.command(facts.launcher, facts, nodes, program)

    def run(self, facts: GateFacts, nodes: Sequence[str], name: str) -> Run:
        """Declare the measurement of one group."""
        count = self.count(facts)
        launch = self.launch(facts, nodes)
        commands = carried.readings(facts, nodes, "before", 0)
        commands += [replace(launch, key=f"launch{number}", stage=1 + number) for number in range(count)]
        commands += carried.readings(facts, nodes, "after", 1 + count)
        return Run(
            id=name,
            target=name,
            nodes=tuple(nodes),
            commands=tuple(commands),
            claims=frozenset(nodes),
            launch_from=nodes[0],
        )

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Judge NCCL's transport, each rail's traffic, and the median busbw of the largest message."""
        if (verdict := nodes_without_nics.nothing_to_judge(facts, run)) is not None:
            return verdict
        gathered = Judge()
        where = run.target.split("/without", 1)[0]
        count = self.count(facts)
        wanted = Launch(
            self.size(facts, run.nodes),
            domains.ranks(facts, run.nodes),
            run.nodes,
            domains.models(facts, run.nodes),
            f"{self.collective}_perf",
        )
        values = self.busbw(gathered, outputs, where, wanted, count)
        if values is None:
            transport.unseen(
                gathered,
                facts,
                run.nodes,
                [found.stdout for number in range(count) if (found := outputs.get(f"launch{number}"))],
            )
            conclude(gathered, facts, run.nodes, rails=False)
            return gathered.verdict(where)
        domain = domains.of_run(facts, run.nodes)
        texts = [outputs[f"launch{number}"].stdout for number in range(count)]
        transport.prove(
            gathered, facts, transport.WantedTransport(run.nodes, self.collective, self.algorithm, domain), texts
        )
        self._bytes(gathered, facts, run, outputs, domain)
        what = f"{WORDS[self.collective]} of {wanted.ranks} GPUs on {len(run.nodes)} nodes"
        judge_busbw(
            gathered,
            where,
            what,
            values,
            bounds(facts, run.nodes[0], domain, self.collective, self.algorithm),
            kinds.COLLECTIVE_SLOW,
        )
        conclude(gathered, facts, run.nodes, rails=domain is not None and domain.count > 1)
        return gathered.verdict(where)

    def _bytes(self, gathered: Judge, facts: GateFacts, run: Run, outputs: Outputs, domain: Domain | None) -> None:
        """Judge the counters; an error if domains are unequal, because the expected bytes are then unknown."""
        moved = collectives_run(self.size(facts, run.nodes)) * self.count(facts)
        if domain is None:
            gathered.error(
                run.target, kinds.DOMAINS_UNEQUAL, "equal numbers of nodes from every domain", "other numbers"
            )
        elif domain.count == 1:
            carried.judge_idle(gathered, facts, run.nodes, outputs, moved)
        else:
            least, most, formula = carried.must_leave(self.collective, self.algorithm, domain)
            tolerance = carried.Tolerance(
                self.inputs.bytes_tolerance + headers(facts.fabric), self.inputs.share_tolerance
            )
            carried.judge_bytes(gathered, facts, run.nodes, outputs, (least * moved, most * moved, formula), tolerance)


def conclude(gathered: Judge, facts: GateFacts, nodes: Sequence[str], *, rails: bool) -> None:
    """Record what a good run measured, and which nodes a bad one blames: those that are named, unless all are.

    ``rails``: the run used the rails. Inside one NVLink domain they are idle, and an idle rail was not measured.
    """
    if not gathered.fails and not gathered.errors:
        for node in nodes:
            of_node = facts.nodes[node]
            gathered.measured.update(f"{node}/gpu{index}" for index in range(of_node.platform.gpus))
            gathered.measured.update(
                part for nic in of_node.nics for part in node_topology.rail_parts(node, nic) if rails
            )
    at_fault = {node for node in nodes for finding in gathered.fails if finding.node == node}
    gathered.blamed |= at_fault if at_fault != set(nodes) else set()


def verdict_of_lone_node(gate: str, node: str) -> Verdict:
    """Return the verdict of a node that is in no group: it was not measured."""
    gathered = Judge()
    gathered.error(
        node, kinds.NODE_ALONE, "at least 2 nodes in its group", "no other node that can take part", gate=gate
    )
    return gathered.verdict(node).model_copy(update={"outcome": Outcome.NOT_RUN})
