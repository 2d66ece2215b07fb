"""Scaling: the same collective over more and more nodes, each size compared with what its own hardware can do.

Sizes grow inside one NVLink domain first (1, 2, 4 ... of its nodes, up to the whole), then by whole domains (2, 4 ...
up to all): part of a domain beside a whole one has no bound. Where a domain is one node, that is 1, 2, 4 ... nodes.

The efficiency of a size is its busbw over that of the smallest size that uses the same network: one node inside a
domain, two domains across the fabric. A figure over the fabric divided by one over NVLink is not an efficiency: NICs
bound the one, and links the other (DOMAIN: min(P, B) and P).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from statistics import median
from typing import Literal

from pydantic import Field

from rackready.gates.base import GateFacts, Outputs, Run
from rackready.gates.engine import nodes_without_nics, pairs
from rackready.gates.fabric import carried, collective_findings, domains, transport
from rackready.gates.fabric.collective import Multi, bounds, conclude, judge_busbw
from rackready.gates.fabric.rdma_port import headers
from rackready.gates.judging.expectation import Bound, Domain
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.gates.nccl.program import Launch, collectives_run, read_launches
from rackready.model.outcome import Verdict

_STEP = (
    "It is slow from this number of nodes on: run the pair gate over the nodes that were added, and "
    "check the spine's ports: docs/runbooks/nccl-slow.md"
)
_UNEQUAL = "Run it over domains of equal size and one platform: leave out the nodes that make them unequal (`--limit`)."
_RECORDED = "scaling efficiency is recorded and not judged: the gate set declares no min_efficiency"

Way = Literal["nvlink", "network"]


SCALING_UNEQUAL = ErrorKind(
    "scaling-domains-unequal",
    "NVLink domains are unequal",
    meaning="The NVLink domains take part with different numbers or kinds of nodes, so their scaling "
    "cannot be computed.",
    next_step=_UNEQUAL,
)
SIZE_SLOW = FailKind(
    "scaling-size-slow",
    "{what} is slow",
    meaning="The all-reduce of this number of GPUs reaches less bandwidth than they and their fabric must reach.",
    next_step=_STEP,
    runbook="docs/runbooks/nccl-slow.md",
)

FINDINGS = (SIZE_SLOW, SCALING_UNEQUAL)


def doubled(count: int) -> list[int]:
    """Return 1, 2, 4, ... and the number itself."""
    found = []
    size = 1
    while size < count:
        found.append(size)
        size *= 2
    return [*found, count]


@dataclass(frozen=True, slots=True)
class ScalingStep:
    """One size: its nodes, their domains, and the network of its data."""

    nodes: tuple[str, ...]
    domain: Domain

    @property
    def way(self) -> Way:
        """Return NVLink alone inside one domain, and the network as well across several."""
        return "nvlink" if self.domain.count == 1 else "network"


def steps(facts: GateFacts, nodes: Sequence[str]) -> list[ScalingStep]:
    """Return the sizes in order.

    None where the domains are unequal or of different platforms: those have no bound.
    """
    if domains.of_run(facts, nodes) is None:
        return []
    parts = domains.groups(facts, nodes)
    members = [parts[0][:size] for size in doubled(len(parts[0]))]
    members += [tuple(chain.from_iterable(parts[:count])) for count in doubled(len(parts))[1:]]
    return [ScalingStep(some, domain) for some in members if (domain := domains.of_run(facts, some)) is not None]


class NcclScaling(Multi):
    """All-reduce keeps its bandwidth from one node to all (forced ring): NVLink in a domain, the network across."""

    id = "cluster/fabric/performance/nccl-scaling"
    findings = (
        *collective_findings.FINDINGS,
        *pairs.FINDINGS,
        *FINDINGS,
    )
    algorithm = "ring"

    class Inputs(Multi.Inputs):
        """Settings of the launches, and the share of its bandwidth that a growing run must keep."""

        min_efficiency: float | None = Field(
            None,
            gt=0,
            le=1,
            description="least busbw of any size as a share of the smallest size over the same network; "
            "when absent, recorded and not judged",
        )

    inputs: Inputs

    def run(self, facts: GateFacts, nodes: Sequence[str], name: str) -> Run:
        """Plan counters, one set of launches for every size, then counters.

        Nothing without any size: evaluate reports why.
        """
        count = self.count(facts)
        ordered = tuple(chain.from_iterable(domains.groups(facts, nodes)))
        sizes = steps(facts, nodes)
        if not sizes:
            return Run(id=name, target=name, nodes=ordered, commands=(), claims=frozenset(nodes))
        commands = carried.readings(facts, ordered, "before", 0)
        stage = 1
        for size in sizes:
            launch, key = self.launch(facts, size.nodes), f"n{len(size.nodes)}-launch"
            commands += [
                replace(launch, node=ordered[0], key=f"{key}{number}", stage=stage + number) for number in range(count)
            ]
            stage += count
        commands += carried.readings(facts, ordered, "after", stage)
        return Run(
            id=name,
            target=name,
            nodes=ordered,
            commands=tuple(commands),
            claims=frozenset(nodes),
            launch_from=ordered[0],
        )

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Judge every size against its own bounds, and the bytes of all of them.

        Efficiencies are recorded, and judged where the gate set declares a minimum.
        """
        if (verdict := nodes_without_nics.nothing_to_judge(facts, run)) is not None:
            return verdict
        gathered = Judge()
        sizes = steps(facts, run.nodes)
        if not sizes:
            gathered.error(
                run.target,
                SCALING_UNEQUAL,
                "equal numbers of nodes of one platform in every domain",
                _kinds(facts, run.nodes),
            )
            return gathered.verdict("cluster")
        first: dict[Way, float] = {}
        judged = 0
        for size in sizes:
            found = self._size(gathered, facts, size, outputs, first.get(size.way))
            if found is None:
                continue
            judged += 1
            base = first.setdefault(size.way, found)
            gathered.metric(f"scaling_efficiency_{size.way}", _where(size), found / base, "1")
        if judged > len(first) and self.inputs.min_efficiency is None:
            gathered.remark(_RECORDED)
        rails = judged == len(sizes) and self._bytes_of_all(gathered, facts, run, sizes, outputs)
        conclude(gathered, facts, run.nodes, rails=rails)
        return gathered.verdict("cluster")

    def _mark(self, base: float | None) -> Bound | None:
        """Return the least busbw by the declared efficiency.

        None where none is declared or no smaller size exists.
        """
        share = self.inputs.min_efficiency
        if share is None or base is None:
            return None
        source = f"declared in the gate set: min_efficiency {share} x busbw of the smallest size over the same network"
        return Bound(share * base, source, derived=False, inputs={"min_efficiency": share, "base": base})

    def _size(
        self, gathered: Judge, facts: GateFacts, size: ScalingStep, outputs: Outputs, base: float | None
    ) -> float | None:
        """Judge one size; return the median busbw, or None when it cannot be judged.

        ``base``: busbw of the smallest size over the same network.
        """
        count, where, key = self.count(facts), _where(size), f"n{len(size.nodes)}-launch"
        trial = Judge()
        wanted = Launch(
            self.size(facts, size.nodes),
            domains.ranks(facts, size.nodes),
            size.nodes,
            domains.models(facts, size.nodes),
        )
        values = read_launches(trial, [outputs.get(f"{key}{number}") for number in range(count)], where, wanted)
        gathered.fails += trial.fails
        gathered.errors += trial.errors
        if trial.fails or trial.errors or len(values) != count:
            return None
        texts = [outputs[f"{key}{number}"].stdout for number in range(count)]
        transport.prove(
            gathered, facts, transport.WantedTransport(size.nodes, self.collective, self.algorithm, size.domain), texts
        )
        found = bounds(facts, size.nodes[0], size.domain, self.collective, self.algorithm, self._mark(base))
        judge_busbw(gathered, where, f"all-reduce of {wanted.ranks} GPUs", values, found, SIZE_SLOW)
        return median(one.busbw for one in values)

    def _bytes_of_all(
        self, gathered: Judge, facts: GateFacts, run: Run, sizes: Sequence[ScalingStep], outputs: Outputs
    ) -> bool:
        """Judge each domain's rails against the sum of what its sizes must have moved.

        Return whether any size used rails. Sizes inside one domain of several nodes must have left its rails alone:
        they add nothing.
        """
        moved = collectives_run(self.size(facts, run.nodes)) * self.count(facts)
        tolerance = carried.Tolerance(self.inputs.bytes_tolerance + headers(facts.fabric), self.inputs.share_tolerance)
        over = [size.domain for size in sizes if size.way == "network"]
        if not over:
            carried.judge_idle(gathered, facts, run.nodes, outputs, moved)
            return False
        for place, part in enumerate(domains.groups(facts, run.nodes)):
            shares = [
                carried.must_leave(self.collective, self.algorithm, domain)[1]
                for domain in over
                if place < domain.count
            ]
            total = sum(shares) * moved
            carried.judge_bytes(
                gathered, facts, part, outputs, (total, total, "sum over sizes of 2 (n-1)/n"), tolerance
            )
        return True


def _kinds(facts: GateFacts, nodes: Sequence[str]) -> str:
    """Return the number of domains by size, in words."""
    found = Counter((len(part), facts.nodes[part[0]].platform.id) for part in domains.groups(facts, nodes))
    return ", ".join(f"{count} of {size} x {platform}" for (size, platform), count in sorted(found.items()))


def _where(size: ScalingStep) -> str:
    return f"{len(size.nodes)} node{'s' if len(size.nodes) > 1 else ''}"
