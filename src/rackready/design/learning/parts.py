"""The document of ``ondevice/platform_parts.py``, checked."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class _Shape(BaseModel):
    """Nothing is converted: a number in quotes is not a number."""

    model_config = ConfigDict(strict=True, frozen=True)


class PciDevice(_Shape):
    """One PCI function. ``bridges``: the bridges above it, root port first."""

    pci: str
    vendor: str | None
    device: str | None
    numa: int
    bridges: list[str]

    def shared(self, other: PciDevice) -> int:
        """Return how many bridges lead to both: the nearer two devices are, the more."""
        count = 0
        for own, its in zip(self.bridges, other.bridges, strict=False):
            if own != its:
                break
            count += 1
        return count


class Netdev(_Shape):
    """One network interface of a card."""

    name: str
    mac: str | None


class Nic(PciDevice):
    """One network controller. ``managed``: it is a part of the GPU board. ``rate``: Gb/s, None when unknown."""

    netdevs: list[Netdev]
    rdma: list[str]
    rate: int | None
    firmware: str | None
    board: str | None
    managed: bool


class DriverGpu(_Shape):
    """What the driver reports of one GPU."""

    name: str | None
    fabric: str | None


class Driver(_Shape):
    """What the driver reports."""

    version: str | None
    gpus: dict[str, DriverGpu]


class Cpu(_Shape):
    """Processors; ``numa_nodes``: NUMA nodes with processors."""

    model: str
    sockets: int
    cores: int
    threads: int
    numa_nodes: int


class Memory(_Shape):
    """Memory modules and their size in all."""

    modules: int
    gib: int


class Drive(_Shape):
    """One drive of the server itself."""

    model: str
    bytes: int


class Slot(_Shape):
    """One slot of SMBIOS."""

    name: str
    usage: str
    pci: str


class Chassis(_Shape):
    """The chassis; ``units`` is None where the firmware gives no height."""

    units: int | None


class Parts(_Shape):
    """Everything that was read. ``unread``: kind -> why it could not be read."""

    machine: dict[str, str | None]
    secure_boot: str = "unknown"
    gpus: list[PciDevice]
    nvswitches: list[PciDevice]
    nics: list[Nic]
    driver: Driver | None
    cpu: Cpu | None
    memory: Memory | None
    drives: list[Drive] | None
    slots: list[Slot] | None
    chassis: Chassis | None
    unread: dict[str, str]
