"""Bounds that are known before a run, computed from profiles, fabric and inputs by the gates' own functions.

Bounds that depend on a run (spread of siblings, thresholds that a node reports, the last pass) are not predicted. A
gate that is not listed here has only such bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch

from rackready.gates.base import Gate, GateFacts
from rackready.gates.fabric import domains
from rackready.gates.fabric.collective import Multi, bounds
from rackready.gates.fabric.ib_write_bw import IbWriteBw
from rackready.gates.fabric.latency import IbWriteLat
from rackready.gates.fabric.latency_bounds import judge_mark, judge_plausible
from rackready.gates.fabric.perftest_call import ASKED
from rackready.gates.fabric.rdma_port import path_mtu
from rackready.gates.formats.perftest import Memory, WriteBandwidth
from rackready.gates.gpu import nvbandwidth
from rackready.gates.gpu.dcgm import DcgmDiagnostic
from rackready.gates.gpu.inventory import Inventory
from rackready.gates.judging.expectation import Bound, judge
from rackready.gates.judging.judge import Judge
from rackready.gates.nccl.single_node import OneNode
from rackready.model.outcome import Criterion

UNKNOWN = (
    "none known before a run: readings are compared with the profile, the inputs above and the node's own reports; "
    "every finding states the expected value, and the record its source"
)


@singledispatch
def predicted(gate: Gate, facts: GateFacts, nodes: Sequence[str]) -> tuple[Criterion, ...]:
    """Return a gate's bounds for a run over these nodes, with inputs and sources; empty if only a run gives them."""
    del gate, facts, nodes
    return ()


@predicted.register
def _(gate: OneNode, facts: GateFacts, nodes: Sequence[str]) -> tuple[Criterion, ...]:
    return _busbw(gate.bounds(facts, nodes[0]))


@predicted.register
def _(gate: Multi, facts: GateFacts, nodes: Sequence[str]) -> tuple[Criterion, ...]:
    members = next(iter(gate.parts(facts, nodes).values()), ())
    return (
        _busbw(bounds(facts, members[0], domains.of_run(facts, members), gate.collective, gate.algorithm))
        if members
        else ()
    )


def _busbw(found: tuple[Bound | None, Bound | None, Bound | None]) -> tuple[Criterion, ...]:
    upper, expected, lower = found
    return judge("busbw", 1.0, "GB/s", upper=upper, expected=expected, lower=lower).criteria


@predicted.register
def _(gate: IbWriteBw, facts: GateFacts, nodes: Sequence[str]) -> tuple[Criterion, ...]:
    gathered = Judge()
    nic = next(iter(facts.nodes[nodes[0]].nics), None)
    if nic is not None:
        mtu, size, count = path_mtu(facts.fabric), gate.inputs.size, gate.inputs.iterations
        result = WriteBandwidth(
            nic.rdma_device, "", "", mtu, None, Memory("none", None), size, count, peak=1.0, average=1.0, call=ASKED
        )
        gate.judge_bandwidth(gathered, nodes[0], nic, gate.expected(facts, nodes[:1], nic, mtu), result)
    return tuple(gathered.criteria)


@predicted.register
def _(gate: IbWriteLat, facts: GateFacts, nodes: Sequence[str]) -> tuple[Criterion, ...]:
    gathered = Judge()
    judge_plausible(gathered, nodes[0], 1.0, gate.least())
    judge_mark(gathered, nodes[0], 1.0, gate.mark(facts.nodes[nodes[0]]))
    return tuple(gathered.criteria)


@predicted.register
def _(gate: nvbandwidth.NvBandwidth, facts: GateFacts, nodes: Sequence[str]) -> tuple[Criterion, ...]:
    gathered = Judge()
    for metric in gate.fleet:  # one for each test
        nvbandwidth.judge_bounds(gathered, facts.nodes[nodes[0]], nodes[0], metric.name, {})
    return tuple(gathered.criteria)


@predicted.register
def _(gate: Inventory, facts: GateFacts, nodes: Sequence[str]) -> tuple[Criterion, ...]:
    del gate
    wanted = facts.nodes[nodes[0]]
    counts = [_count("gpu_count", wanted.platform.gpus, f"platform profile {wanted.platform.id}")]
    links = [_count("nvlinks_active", wanted.gpu.nvlink.links, "GPU profile")] if wanted.gpu.nvlink else []
    return (*counts, *links)


@predicted.register
def _(gate: DcgmDiagnostic, facts: GateFacts, nodes: Sequence[str]) -> tuple[Criterion, ...]:
    del gate
    platform = facts.nodes[nodes[0]].platform
    return (_count("gpus_diagnosed", platform.gpus, f"platform profile {platform.id}"),)


def _count(name: str, bound: int, source: str) -> Criterion:
    gathered = Judge()
    gathered.count(name, "", bound, bound, source)
    return gathered.criteria[0]
