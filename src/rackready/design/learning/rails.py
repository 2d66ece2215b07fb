"""Compute NICs of a machine, each with the GPU behind the same PCIe switch. Numbers in names are never used for it."""

from __future__ import annotations

from dataclasses import dataclass

from rackready.design.learning.parts import Nic, Parts

_SWITCH = 2
"""Bridges that two devices behind one PCIe switch share: the root port and the switch's upstream port."""


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
