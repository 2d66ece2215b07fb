"""Scaling: the same collective on 1, 2, 4, ... nodes up to all, each size judged against what its own hardware can do."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from rackready.gates.base import Command, GateFacts, Outputs, Run
from rackready.gates.fabric import carried, domains, transport
from rackready.gates.fabric.collective import Multi, bounds, conclude, judge_busbw
from rackready.gates.judge import Judge
from rackready.gates.nccl import Launch, collectives_run, read_launch
from rackready.model.outcome import Verdict

_STEP = "It is slow from this number of nodes on: run the pair gate over the nodes that were added, and look at the spine's ports: docs/runbooks/nccl-slow.md"
_WHOLE = "cluster/fabric/performance/nccl-all-reduce-ring"


def steps(count: int) -> list[int]:
    """Return 1, 2, 4, ... and the number itself."""
    found = []
    size = 1
    while size < count:
        found.append(size)
        size *= 2
    return [*found, count]


class NcclScaling(Multi):
    """All-reduce keeps its bandwidth from one node to all (forced ring), each number of nodes held against its own bound."""

    id = "cluster/fabric/performance/nccl-scaling"
    algorithm = "ring"

    def run(self, facts: GateFacts, nodes: Sequence[str], name: str) -> Run:
        """Counters, then one set of launches for every number of nodes, then counters."""
        count = self.count(facts)
        commands = carried.readings(facts, nodes, "before", 0)
        stage = 1
        for size in steps(len(nodes)):
            line = self.line(facts, nodes[:size])
            commands += [Command(key=f"n{size}-launch{number}", node=nodes[0], argv=line, timeout_s=1800, stage=stage + number) for number in range(count)]
            stage += count
        commands += carried.readings(facts, nodes, "after", stage)
        return Run(id=name, target=name, nodes=tuple(nodes), commands=tuple(commands), claims=frozenset(nodes), launch_from=nodes[0])

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Judge every number of nodes against its own bounds; the efficiency over one node's figure is recorded, and judged by those bounds alone."""
        gathered = Judge()
        figures: dict[int, float] = {}
        for size in steps(len(run.nodes)):
            found = self._size(gathered, facts, run.nodes[:size], outputs)
            if found is not None:
                figures[size] = found
        rails = False
        if len(figures) == len(steps(len(run.nodes))):
            rails = self._bytes_of_all(gathered, facts, run, outputs)
        for size, value in figures.items():
            if size > 1 and 1 in figures:
                gathered.metric("scaling_efficiency", f"{size} nodes", value / figures[1], "1")
        conclude(gathered, facts, run.nodes, rails=rails)
        return gathered.verdict("cluster")

    def _size(self, gathered: Judge, facts: GateFacts, nodes: Sequence[str], outputs: Outputs) -> float | None:
        """Judge one number of nodes; returns the median busbw, None when it cannot be judged."""
        count, size = self.count(facts), len(nodes)
        where = f"{size} node{'s' if size > 1 else ''}"
        trial = Judge()
        wanted = Launch(self.inputs.size, domains.ranks(facts, nodes), tuple(nodes))
        read = [read_launch(trial, outputs.get(f"n{size}-launch{number}"), where, number, wanted) for number in range(count)]
        gathered.fails += trial.fails
        gathered.errors += trial.errors
        values = [value for value in read if value is not None]
        if trial.fails or trial.errors or len(values) != count:
            return None
        domain = domains.of_run(facts, nodes)
        texts = [outputs[f"n{size}-launch{number}"].stdout for number in range(count)]
        transport.prove(gathered, facts, transport.Wanted(tuple(nodes), self.collective, self.algorithm, domain), texts)
        found = bounds(facts, nodes[0], domain, self.collective, self.algorithm)
        judge_busbw(gathered, where, f"all-reduce of {wanted.ranks} GPUs", values, found, _STEP)
        return median(values)

    def _bytes_of_all(self, gathered: Judge, facts: GateFacts, run: Run, outputs: Outputs) -> bool:
        """Hold each node's rails against the sum of what the sizes that it took part in must have moved; returns whether any went over rails.

        Inside one NVLink domain of several servers they must have rested. How the trays of several such domains share what leaves a domain
        is NCCL's choice, so nothing is computed for a single node there, and without bytes there is no proof.
        """
        moved = collectives_run(self.inputs.size) * self.count(facts)
        tolerance = carried.Tolerance(self.inputs.bytes_tolerance, self.inputs.share_tolerance)
        of_size = {size: domains.of_run(facts, run.nodes[:size]) for size in steps(len(run.nodes))}
        if any(domain is None or (domain.count > 1 and domain.boards > 1) for domain in of_size.values()):
            step = f"Run it over the nodes of one NVLink domain, or {_WHOLE} over whole domains."
            gathered.error(run.target, "bytes over the rails not proved", "what each node must have sent", "unequal or several NVLink domains", step)
            return False
        if all(domain.count == 1 for domain in of_size.values() if domain is not None):
            carried.judge_idle(gathered, facts, run.nodes, outputs, moved)
            return False
        for place, node in enumerate(run.nodes):
            total = 0.0
            for size, domain in of_size.items():
                if place < size and domain is not None and domain.count > 1:
                    total += carried.must_leave(self.collective, self.algorithm, domain)[1] * moved
            carried.judge_bytes(gathered, facts, (node,), outputs, (total, total, "sum over sizes of 2 (n-1)/n"), tolerance)
        return True
