"""Topology of a node for its collectives, from the profiles."""

from __future__ import annotations

from rackready.design.facts import NicFacts, NodeFacts
from rackready.gates.judging.expectation import Bound, Domain

_IN_SWITCH_REDUCTION = frozenset({"hopper", "blackwell"})
_BITS = 8


def domain(facts: NodeFacts, count: int = 1) -> Domain:
    """Return the NVLink domain of one node, ``count`` of them."""
    link = facts.gpu.nvlink
    nic_rate = sum(nic.rate for nic in facts.platform.nics) / _BITS / facts.platform.gpus
    if link is None:
        return Domain(gpus=facts.platform.gpus, count=count, nvlink=0.0, nic=nic_rate)
    return Domain(
        gpus=facts.platform.gpus,
        count=count,
        nvlink=link.per_gpu.value,
        nic=nic_rate,
        nvls=facts.platform.nvswitch and facts.gpu.architecture in _IN_SWITCH_REDUCTION,
        link_ring=link.links * link.ring.value,
    )


def rail_parts(node: str, nic: NicFacts) -> tuple[str, ...]:
    """Return the parts (coverage) that a run over one NIC measures: NIC, rail, and cable if the site has one."""
    cable = (f"{node}/rail{nic.rail}/cable",) if nic.switch else ()
    return (f"{node}/{nic.rdma_device}", f"{node}/rail{nic.rail}", *cable)


def published(facts: NodeFacts, collective: str, ranks: int, algorithm: str) -> Bound | None:
    """Return the measured figure of the GPU profile for a collective; None if it has none."""
    figure = facts.gpu.collectives.get(f"{collective}/{ranks}/{algorithm}")
    return (
        None if figure is None else Bound(figure.value, figure.source, derived=False, inputs={"profile": facts.gpu.id})
    )
