"""Link rates between GPUs of one server model, from profiles: GB/s of one direction, and the carrier."""

from __future__ import annotations

from dataclasses import dataclass

from rackready.model.profile import GpuProfile, PlatformProfile

_BITS = 8
_PAIR = 2


@dataclass(frozen=True, slots=True)
class LinkRates:
    """Rate of one GPU and direction, bytes a second; None: not published."""

    rate: float | None
    carrier: str


def domain(platform: PlatformProfile, gpu: GpuProfile) -> int:
    """Return the number of GPUs connected by NVLink: of the rack, the server, a bridged pair, or 1."""
    if gpu.nvlink is not None:
        return platform.nvlink_domain or platform.gpus
    return _PAIR if gpu.nvlink_bridge is not None else 1


def between(platform: PlatformProfile, gpu: GpuProfile, gpus: int) -> LinkRates:
    """Return the slowest link in a group of that many GPUs placed as closely as possible."""
    if gpus <= domain(platform, gpu):
        if gpu.nvlink is not None:
            return LinkRates(gpu.nvlink.per_gpu.value * 1e9, "NVLink")
        if gpu.nvlink_bridge is not None:
            return LinkRates(gpu.nvlink_bridge.value / 2 * 1e9, "NVLink bridge")
    if gpus <= platform.gpus:
        return LinkRates(gpu.pcie.rate.value * 1e9, "PCIe") if gpu.pcie else LinkRates(None, "PCIe")
    return network(platform)


def network(platform: PlatformProfile) -> LinkRates:
    """Return one GPU's share of the server's compute network."""
    if not platform.nics:
        return LinkRates(None, "network")
    return LinkRates(sum(nic.rate for nic in platform.nics) / _BITS / platform.gpus * 1e9, "network")


def all_reduce(size: float, gpus: int, rate: float) -> float:
    """Return the seconds of a ring all-reduce of ``size`` bytes: a reduce-scatter and an all-gather."""
    return 2 * half(size, gpus, rate)


def half(size: float, gpus: float, rate: float) -> float:
    """Return the seconds of a ring all-gather or reduce-scatter of ``size`` bytes: (n - 1) / n x size / rate."""
    return (gpus - 1) / gpus * size / rate
