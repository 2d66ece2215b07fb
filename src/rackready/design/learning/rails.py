"""Compute NICs of a machine, each with the GPU behind the same PCIe switch, else of the same NUMA node.

Numbers in names are never used for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rackready.design.learning.parts import Nic, Parts
from rackready.model.profile import PlatformNic

_SWITCH = 2
"""Bridges that two devices behind one PCIe switch share: the root port and the switch's upstream port."""
_MELLANOX = "0x15b3"
_BLUEFIELD = frozenset({"0xa2d2", "0xa2d6", "0xa2dc", "0xa2df"})
"""BlueField, BlueField-2, -3 and -4 (torvalds/linux, drivers/net/ethernet/mellanox/mlx5/core/main.c)."""


@dataclass(frozen=True, slots=True)
class Rail:
    """A compute NIC and the index of its GPU. ``doubtful``: other GPUs are as near."""

    nic: Nic
    gpu: int
    doubtful: tuple[int, ...] = ()


def rails(parts: Parts) -> tuple[list[Rail], list[Nic]]:
    """Return the compute NICs in the order of their GPUs, and the other NICs.

    A compute NIC speaks RDMA, shares a PCIe switch with a GPU, and is no part of the GPU board.
    """
    near = {nic.pci: _nearest(parts, nic) for nic in parts.nics if nic.rdma and not nic.managed}
    found: list[Rail] = []
    taken: set[int] = set()
    # Cards with one nearest GPU first: they leave fewer GPUs to cards that several GPUs are equally near to.
    for nic in sorted((nic for nic in parts.nics if near.get(nic.pci)), key=lambda nic: (len(near[nic.pci]), nic.pci)):
        gpus = near[nic.pci]
        gpu = next((index for index in gpus if index not in taken), gpus[0])
        taken.add(gpu)
        found.append(Rail(nic, gpu, tuple(index for index in gpus if index != gpu)))
    found.sort(key=lambda rail: (rail.gpu, rail.nic.pci))
    rest = [nic for nic in parts.nics if not near.get(nic.pci)]
    return found, rest


def _nearest(parts: Parts, nic: Nic) -> list[int]:
    """Return the indexes of the GPUs that share most bridges with a NIC; none when no switch is shared."""
    counts = [nic.shared(gpu) for gpu in parts.gpus]
    most = max(counts, default=0)
    return [index for index, count in enumerate(counts) if count == most] if most >= _SWITCH else []


def like_published(parts: Parts, published: Sequence[PlatformNic]) -> list[Nic]:
    """Return the cards that may be the published compute NICs, in PCI order: ConnectX of their rate, no DPUs.

    One without an RDMA device is among them: its driver may not be loaded.
    """
    rates = {None, *(nic.rate for nic in published)}
    mellanox = (nic for nic in parts.nics if nic.vendor == _MELLANOX and not nic.managed)
    found = (nic for nic in mellanox if nic.device not in _BLUEFIELD)
    return sorted((nic for nic in found if nic.rate in rates), key=lambda nic: nic.pci)


def by_numa(parts: Parts, published: Sequence[PlatformNic], before: Sequence[PlatformNic] = ()) -> list[Rail]:
    """Return the compute NICs of a machine whose GPUs and NICs have root ports of their own (GB200).

    As many cards as published go to the GPUs of their NUMA node, in PCI order; none are returned where their number
    differs. ``before``: pairs that the operator confirmed.
    """
    cards = {nic.pci: nic for nic in parts.nics}
    pairs = [(nic.pci, nic.gpu) for nic in sorted(before, key=lambda nic: nic.rail)]
    if not pairs or any(pci not in cards or gpu >= len(parts.gpus) for pci, gpu in pairs):
        pairs = _paired(parts, published)
    alike = {
        index: [at for at, gpu in enumerate(parts.gpus) if gpu.numa == parts.gpus[index].numa] for _, index in pairs
    }
    return [Rail(cards[pci], gpu, tuple(other for other in alike[gpu] if other != gpu)) for pci, gpu in pairs]


def _paired(parts: Parts, published: Sequence[PlatformNic]) -> list[tuple[str, int]]:
    """Return (PCI address, GPU) of every published compute NIC, in the order of GPUs; empty where they do not match."""
    left = like_published(parts, published)
    found: list[tuple[str, int]] = []
    for numa in sorted({gpu.numa for gpu in parts.gpus}):
        gpus = [index for index, gpu in enumerate(parts.gpus) if gpu.numa == numa]
        near = [nic for nic in left if nic.numa == numa]
        wanted = sorted(nic.gpu for nic in published if nic.gpu in gpus)
        if len(near) != len(wanted):
            return []
        found += [(nic.pci, gpu) for nic, gpu in zip(near, wanted, strict=True)]
    return sorted(found, key=lambda pair: pair[1]) if len(found) == len(left) == len(published) else []
