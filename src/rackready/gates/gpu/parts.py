"""Names of GPUs in findings: by place in the chassis, from the PCI addresses in the platform profile."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import lru_cache

from rackready.design.facts import NodeFacts
from rackready.gates.base import GateFacts
from rackready.model.profile import GpuProfile

BY_ADDRESS = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
"""Makes CUDA number GPUs by PCI address, as NVML and the platform do; its default order is fastest first."""


@lru_cache(maxsize=1024)
def short(pci: str) -> str:
    """Return a PCI address as sysfs writes it, without function: 0000:1b:00 (NVML's domain has eight digits)."""
    pieces = pci.strip().lower().split(".", 1)[0].split(":")
    return ":".join([pieces[0][-4:], *pieces[1:]])


FEWER = "See gate node/gpu/sanity/inventory: a GPU is missing."
"""Next step if an output has fewer GPUs than the platform."""
MORE = (
    "Correct the node's platform in site.yml: it has fewer GPUs than the node. "
    "For a captured output: correct --profile or --gpus."
)
"""Next step if an output has more GPUs than the platform."""


def index_of(facts: NodeFacts, pci: str) -> int | None:
    """Return the index of the GPU at a PCI address; None if the platform has none there."""
    return next((at for at, known in enumerate(facts.platform.gpu_pci) if short(known) == short(pci)), None)


def name(facts: NodeFacts, pci: str, position: int | None = None) -> str:
    """Return 'gpu2' for the GPU at an address: by the platform's addresses, else its position, else the address."""
    index = index_of(facts, pci)
    if index is not None:
        return f"gpu{index}"
    return f"gpu{position}" if position is not None else f"GPU at {pci}"


def empty_places(facts: NodeFacts, present: Iterable[str]) -> str:
    """Return ' (none at 0000:61:00.0, the place of gpu3)' for GPUs of the platform that are not present, else ''.

    NVML's own numbers close up when a GPU is missing, so they do not show which one it is.
    """
    found = {short(pci) for pci in present}
    missing = [
        f"{address}, the place of gpu{at}"
        for at, address in enumerate(facts.platform.gpu_pci)
        if short(address) not in found
    ]
    return f" (none at {'; '.join(missing)})" if missing else ""


def numbers(found: Collection[int]) -> str:
    """Return how many GPUs an output has, with their numbers: '1 (GPU 7)'."""
    return f"{len(found)} ({', '.join(f'GPU {number}' for number in sorted(found))})"


def gpus(facts: GateFacts, node: str) -> int:
    """Return how many GPUs the node must have."""
    return facts.nodes[node].platform.gpus


def of_one_serial(gpu: GpuProfile) -> int:
    """Return how many GPUs share a serial number: on a superchip the two of its module.

    Source: nvidia-smi -q of GB200 and GB300 (NVIDIA/k8s-test-infra).
    """
    return 2 if gpu.form == "superchip" else 1
