"""Servers as they are built, where their platform profile does not say: a machine does not follow its description.

A packaged HGX profile has no PCI addresses, since cards come with the order. The simulated machine has its own, which
`rackready profile learn` finds out. They are the same whatever a profile says, so that a wrong profile is found.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rackready.design.facts import NicFacts, NodeFacts, node_facts
from rackready.model.server_parts import HostParts
from rackready.model.site import Site


@dataclass(frozen=True, slots=True)
class _Built:
    """One product. ``nic_buses``: bus of the card behind the same switch as each GPU."""

    gpu_buses: tuple[int, ...]
    nic_buses: tuple[int, ...]
    host: HostParts


_HGX = _Built(
    # GPUs as on a DGX H100, which has the same board (profiles/platform/dgx_h100.yml). Cards: judgement, other buses
    # than there. Their names follow from the addresses, as inbox drivers give them: systemd's net_id and rdma-core's
    # NAME_FALLBACK (enp26s0np0 and rocep26s0 for 1a:00.0).
    gpu_buses=(0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF),
    nic_buses=(0x1A, 0x42, 0x51, 0x60, 0x9C, 0xC2, 0xD0, 0xDE),
    host=HostParts(
        cpu_model="8480+",
        sockets=2,
        cores=56,
        threads=2,
        numa_nodes=2,
        dimms=32,
        memory_gib=2048,
        drives=10,
        source="judgement: as an operator's HPE Cray XD670 with H100 (two 8480+, 32 DIMMs of 64 GB, eight data drives)",
    ),
)
_PRODUCTS = {"SYS-821GE-TNHR": _HGX}


def machine_facts(site: Site, node: str) -> NodeFacts:
    """Return the facts of a node with the hardware that its machine is built of. Raise KeyError if there is none."""
    facts = node_facts(site, node)
    built = _PRODUCTS.get(facts.platform.product)
    if built is None:
        return facts
    platform = facts.platform.model_copy(
        update={"gpu_pci": [_address(bus) for bus in built.gpu_buses], "host": built.host}
    )
    return replace(facts, platform=platform, nics=tuple(_nic(built, nic) for nic in facts.nics))


def _nic(built: _Built, nic: NicFacts) -> NicFacts:
    gpu = nic.rail - 1
    bus = built.nic_buses[gpu]
    numa = gpu // (len(built.gpu_buses) // built.host.numa_nodes)
    return replace(
        nic, rdma_device=f"rocep{bus}s0", netdev=f"enp{bus}s0np0", pci=_address(bus), gpu=gpu, numa=numa, rate=400
    )


def _address(bus: int) -> str:
    return f"0000:{bus:02x}:00.0"
