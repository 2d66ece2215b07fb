"""All-reduce of one node's GPUs over NVLink."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from pydantic import Field

from rackready.gates import base, hardware
from rackready.gates.base import Command, Gate, GateFacts, Outputs, Run
from rackready.gates.expectation import FLEET_PENDING, Bound, ceiling, floor, judge, launches, reference
from rackready.gates.judge import Judge
from rackready.gates.nccl import Launch, argv, read_launch, tool_versions
from rackready.model.outcome import Verdict

_SLOW = (
    "Look for throttling (`nvidia-smi -q -d PERFORMANCE`), NVLink errors (`nvidia-smi nvlink -e`) and jobs on the node; "
    "then compare the GPUs: docs/runbooks/nccl-slow.md."
)


class NcclAllReduce(Gate):
    """All GPUs of a node reduce together at the bandwidth that their NVLinks give."""

    id = "node/gpu/performance/nccl-all-reduce"
    covers = frozenset({"gpu"})
    fleet = (base.FleetMetric("busbw", effect=0.03),)

    class Inputs(base.Inputs):
        """How the launches are made."""

        binary: str = Field("all_reduce_perf", description="nccl-tests program on the node's PATH, or its full path")
        size: str = Field("16G", pattern=r"^\d+[KMG]$", description="largest message: a power of two of which three fit into GPU memory")
        launches: int | None = Field(None, ge=1, le=50, description="launches whose median is judged; from the number of nodes when absent")
        published_floor: float | None = Field(None, gt=0, description="a published pass mark of this very platform, GB/s busbw; raises the derived floor")
        published_source: str = Field("", description="where that mark is published")

    inputs: Inputs

    def _launches(self, facts: GateFacts) -> int:
        return self.inputs.launches or launches(facts.fleet)

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:
        """As many launches per node as the size of the fleet asks for, one after the other."""
        return [self._run(facts, node) for node in nodes]

    def _run(self, facts: GateFacts, node: str) -> Run:
        line = argv(self.inputs.binary, self.inputs.size, gpus_per_process=facts.nodes[node].platform.gpus)
        commands = tuple(Command(key=f"launch{number}", node=node, argv=line, timeout_s=900, stage=number) for number in range(self._launches(facts)))
        return Run(id=node, target=node, nodes=(node,), commands=commands)

    def tools(self, outputs: Outputs) -> dict[str, str]:
        """Return the versions of nccl-tests and NCCL."""
        return tool_versions(outputs)

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Judge the median busbw of the declared launches at the largest size."""
        node = run.nodes[0]
        gathered = Judge()
        count = facts.nodes[node].platform.gpus
        found = [
            read_launch(gathered, outputs.get(f"launch{number}"), node, number, Launch(self.inputs.size, count, (node,)))
            for number in range(self._launches(facts))
        ]
        values = [value for value in found if value is not None]
        if gathered.errors or gathered.fails or len(values) != self._launches(facts):
            return gathered.verdict(node)
        self._judge(gathered, facts, node, values)
        return gathered.verdict(node)

    def _judge(self, gathered: Judge, facts: GateFacts, node: str, values: list[float]) -> None:
        of_node = facts.nodes[node]
        where = hardware.domain(of_node)
        published = hardware.published(of_node, "all_reduce", where.ranks, "default")
        mark = Bound(self.inputs.published_floor, self.inputs.published_source or "gate input", derived=False) if self.inputs.published_floor else None
        expected = reference(where, "all_reduce", published=published)
        value = median(values)
        result = judge("busbw", value, "GB/s", upper=ceiling(where, "all_reduce"), expected=expected, lower=floor(expected, where, published=mark))
        gathered.judged += 1
        gathered.metric("busbw", node, value, "GB/s")
        gathered.criteria.extend(result.criteria)
        gathered.transport = "NVLink (one process)"
        spread = f"{value:.1f} GB/s (median of {len(values)}: {', '.join(f'{one:.1f}' for one in values)})"
        if result.outcome == "fail":
            gathered.fail(node, f"all-reduce of {where.ranks} GPUs is slow", result.expected, spread, _SLOW)
        elif result.outcome == "error":
            gathered.error(
                node,
                f"all-reduce of {where.ranks} GPUs is implausible",
                result.expected,
                spread,
                "Check the node's platform profile: topology, file or units are not what they seem.",
            )
        else:
            gathered.measured.update(f"{node}/gpu{index}" for index in range(where.gpus))
            gathered.note = FLEET_PENDING if result.pending else None
