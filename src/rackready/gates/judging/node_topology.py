"""Topology of a node for its collectives, from the profiles."""

from __future__ import annotations

from rackready.design.facts import NicFacts, NodeFacts
from rackready.gates.judging.expectation import Bound, Domain

_IN_SWITCH_REDUCTION = frozenset({"hopper", "blackwell"})
_BITS = 8
_LANE = 4.0
"""GB/s of a lane of generation 5: 32 GT/s (PCI Express Base Specification 5.0), as profiles count (x16: 64 GB/s)."""
TLP_BYTES, TLP_PAYLOAD = 24, 128
"""A PCIe packet carries at least 128 bytes (Max_Payload_Size) and about 24 of header, sequence and check.

Source: PCI Express Base Specification. One L40S (Gen4 x16, 256 bytes) behind a NIC of 400 Gb/s reads 28.4 of 32 GB/s
(gds-bench.farmgpu.net/nfsordma).
"""


def gpu_link(facts: NodeFacts) -> float | None:
    """Return the rate of the PCIe path of a GPU, GB/s a direction; None if it is not published.

    A server may connect it with fewer lanes or by an older generation, of which each has half the rate of the next.
    """
    own, path = facts.gpu.pcie, facts.platform.gpu_path
    if own is None:
        return None
    share = 1.0 if path is None else path.lanes / own.lanes * 2.0 ** (path.gen - own.gen)
    return own.rate.value * min(1.0, share)


def gpu_link_payload(facts: NodeFacts) -> float | None:
    """Return the same without the headers of its packets."""
    rate = gpu_link(facts)
    return None if rate is None else rate * TLP_PAYLOAD / (TLP_PAYLOAD + TLP_BYTES)


def host_link(facts: NodeFacts) -> float | None:
    """Return the rate of the path between the memory of the host and a GPU or NIC, GB/s a direction.

    None where the profile names none: it limits nothing then.
    """
    path = facts.platform.host_path
    return None if path is None else path.lanes * _LANE * 2.0 ** (path.gen - 5)


def domain(facts: NodeFacts, count: int = 1) -> Domain:
    """Return the NVLink domain of one node, ``count`` of them."""
    link = facts.gpu.nvlink
    nic_rate = sum(nic.rate for nic in facts.platform.nics) / _BITS / facts.platform.gpus
    through = gpu_link_payload(facts)
    if link is None:
        return Domain(gpus=facts.platform.gpus, count=count, nvlink=0.0, nic=nic_rate, gpu_link=through)
    return Domain(
        gpus=facts.platform.gpus,
        count=count,
        nvlink=link.per_gpu.value,
        nic=nic_rate,
        gpu_link=through,
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
