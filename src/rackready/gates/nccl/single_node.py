"""Collectives of one node's GPUs over NVLink."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from pydantic import Field, model_validator

from rackready.gates.base import Command, FleetMetric, GateFacts, Outputs, Run
from rackready.gates.fabric import collective_findings, domains, transport
from rackready.gates.fabric.collective import WORDS, NcclGate, bounds, judge_busbw
from rackready.gates.judging import node_topology
from rackready.gates.judging.expectation import Bound
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.gates.nccl import findings as nccl_findings
from rackready.gates.nccl.program import Launch, argv
from rackready.model.base import Told
from rackready.model.outcome import Verdict

_SLOW = (
    "Look for throttling (`nvidia-smi -q -d PERFORMANCE`), NVLink errors (`nvidia-smi nvlink -e`) and jobs on the "
    "node; then compare the GPUs: docs/runbooks/nccl-slow.md."
)


NODE_SLOW = FailKind(
    "nccl-node-slow",
    "{what} is slow",
    meaning="The bandwidth between the node's GPUs is below the minimum for their NVLinks.",
    next_step=_SLOW,
    runbook="docs/runbooks/nccl-slow.md",
)


ONE_GPU = ErrorKind(
    "nccl-one-gpu",
    "{gate} measures nothing",
    meaning="The node has one GPU: a collective of one rank moves nothing, and nccl-tests prints a busbw of 0.",
    next_step="Declare the skip with its reason in site.yml (gates.skip).",
)


class OneNode(NcclGate):
    """One collective of a node's GPUs, with proof that it used NVLink."""

    findings = (
        *nccl_findings.FINDINGS,
        *transport.FINDINGS,
        collective_findings.COLLECTIVE_IMPLAUSIBLE,
        NODE_SLOW,
        ONE_GPU,
    )

    covers = frozenset({"gpu"})
    fleet = (FleetMetric("busbw", effect=0.03),)

    class Inputs(NcclGate.Inputs):
        """The launches, and a published pass mark."""

        published_floor: float | None = Field(
            None,
            gt=0,
            le=100_000,
            description="a published pass mark of exactly this platform, GB/s busbw, at most 10^5 (judgement); "
            "raises the derived floor",
        )
        published_source: Told = Field("", description="source of that mark; required with it")

        @model_validator(mode="after")
        def _has_a_source(self) -> Self:
            if self.published_floor is not None and not self.published_source:
                message = "published_source beside published_floor: an unpublished mark proves nothing"
                raise ValueError(message)
            return self

    inputs: Inputs

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:
        """Return one run per node: as many sequential launches as the fleet requires, one process for all GPUs."""
        return [self._run(facts, node) for node in nodes]

    def _run(self, facts: GateFacts, node: str) -> Run:
        line = argv(self.binary, self.size(facts, (node,)), gpus_per_process=facts.nodes[node].platform.gpus)
        commands = tuple(
            Command(
                key=f"launch{number}",
                node=node,
                argv=line,
                env=self.environment(facts, node),
                timeout_s=900,
                stage=number,
            )
            for number in range(self.count(facts))
        )
        return Run.of_node(node, *commands)

    def bounds(self, facts: GateFacts, node: str) -> tuple[Bound | None, Bound | None, Bound | None]:
        """Return ceiling, reference and floor of a node's busbw."""
        mark = (
            Bound(self.inputs.published_floor, self.inputs.published_source, derived=False)
            if self.inputs.published_floor
            else None
        )
        return bounds(facts, node, node_topology.domain(facts.nodes[node]), self.collective, self.algorithm, mark)

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Judge the paths between the GPUs, and the median busbw of the launches at the largest size."""
        gathered = Judge()
        node, count = run.nodes[0], self.count(facts)
        domain = node_topology.domain(facts.nodes[node])
        if domain.ranks == 1:
            gathered.error(node, ONE_GPU, "at least 2 GPUs", "1", gate=self.id)
            return gathered.verdict(node)
        wanted = Launch(
            self.size(facts, run.nodes), domain.gpus, (node,), domains.models(facts, (node,)), f"{self.collective}_perf"
        )
        values = self.busbw(gathered, outputs, node, wanted, count)
        if values is None:
            return gathered.verdict(node)
        texts = [outputs[f"launch{number}"].stdout for number in range(count)]
        transport.prove(
            gathered, facts, transport.WantedTransport((node,), self.collective, self.algorithm, domain), texts
        )
        found = self.bounds(facts, node)
        judge_busbw(gathered, node, f"{WORDS[self.collective]} of {domain.ranks} GPUs", values, found, NODE_SLOW)
        if not gathered.fails and not gathered.errors:
            gathered.measured.update(f"{node}/gpu{index}" for index in range(domain.gpus))
        return gathered.verdict(node)


class NcclAllReduce(OneNode):
    """All GPUs of a node reduce together at the bandwidth that their NVLinks give."""

    id = "node/gpu/performance/nccl-all-reduce"


class NcclAllGather(OneNode):
    """All GPUs of a node gather from each other over NVLink."""

    id = "node/gpu/performance/nccl-all-gather"
    collective = "all_gather"


class NcclReduceScatter(OneNode):
    """All GPUs of a node reduce and scatter over NVLink."""

    id = "node/gpu/performance/nccl-reduce-scatter"
    collective = "reduce_scatter"


class NcclAlltoall(OneNode):
    """All GPUs of a node send to each other over NVLink."""

    id = "node/gpu/performance/nccl-alltoall"
    collective = "alltoall"
