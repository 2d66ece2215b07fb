"""Profiles: facts about hardware and software that do not change from site to site, each figure with its source."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from rackready.model.base import Model, ProfileId, Rate


class Figure(Model):
    """A number with its unit and where it comes from."""

    value: float
    unit: str = Field(min_length=1)
    source: str = Field(min_length=5, description="document, issue or file that gives it; 'derived: ...' with the formula when computed")


class NvLink(Model):
    """NVLink of one GPU."""

    links: int = Field(ge=1, le=72, description="links that must be active on every GPU")
    speed: Figure = Field(description="raw rate of one link and direction as NVML and nvidia-smi print it, MB/s")
    ring: Figure = Field(description="what one link carries in NCCL's model, GB/s")
    per_gpu: Figure = Field(description="marketing rate of one GPU and direction, GB/s: the ceiling of a ring")


class PowerAndClocks(Model):
    """What optimize sets."""

    limit: Figure = Field(description="power limit, W")
    min_limit: Figure = Field(description="lowest power limit that the card takes, W")
    sm_clock_max: Figure = Field(description="highest SM clock, MHz: optimize locks to it")
    sm_clock_min: Figure = Field(description="lowest SM clock that may be locked, MHz")


class GpuProfile(Model):
    """One GPU model."""

    id: ProfileId
    product_name: str = Field(description="name as NVML gives it")
    pci_device_id: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{4}$")] = Field(description="PCI device id; vendor is 10de")
    architecture: str
    memory: Figure = Field(description="memory.total as NVML gives it, MiB")
    nvlink: NvLink | None = Field(description="null for GPUs without NVLink")
    power: PowerAndClocks
    min_driver_branch: int = Field(description="first driver branch that supports it")
    min_driver_source: str
    max_driver_branch: int | None = Field(None, description="last driver branch that supports it; null when the newest does")
    collectives: dict[str, Figure] = Field(default_factory=dict, description="measured busbw of a healthy single node, GB/s, by '<collective>/<n>/<algorithm>'")


class PlatformNic(Model):
    """One compute NIC of a server model."""

    rail: int = Field(ge=1, le=16)
    rdma_device: str = Field(description="device below /sys/class/infiniband, e.g. mlx5_0")
    netdev: str = Field(description="network interface name, e.g. enp26s0np0")
    pci: str = Field(description="PCI address (domain:bus:device.function)")
    gpu: int = Field(ge=0, description="index of the GPU behind the same PCIe switch")
    numa: int = Field(ge=0)
    rate: Rate


class PlatformProfile(Model):
    """One server model."""

    id: ProfileId
    manufacturer: str = Field(description="as Redfish gives it")
    product: str = Field(description="as Redfish gives it")
    gpu: ProfileId
    gpus: int = Field(ge=1, le=16)
    gpu_pci: list[str] = Field(description="PCI address of every GPU, by index")
    nvswitch: bool = Field(description="GPUs are joined by NVSwitches: the fabric manager is needed")
    nics: list[PlatformNic]
    rack_units: int = Field(ge=1)
    max_power: Figure = Field(description="highest draw of the whole server, W")
    source: str


class SwitchProfile(Model):
    """One switch model."""

    id: ProfileId
    ports: str = Field(description="range of its ports, e.g. swp1-swp64")
    os: list[ProfileId] = Field(min_length=1, description="network operating systems that it runs")
    rate: Rate
    source: str


class SoftwareProfile(Model):
    """A set of versions known to work together. Package versions are full apt versions, installed exactly and held."""

    id: ProfileId
    os: str = Field(description="operating system of nodes, e.g. debian12")
    driver: dict[int, str] = Field(description="driver branch to full driver version (no packaging suffix), e.g. 580: 580.173.02")
    default_branch: int
    package_suffix: str = Field(description="what the repository appends to the driver version in package versions, e.g. '-1'")
    open_modules: bool = Field(description="open kernel modules are used")
    cuda: str = Field(description="CUDA toolkit major.minor, e.g. '13.0'")
    cuda_packages: dict[str, str] = Field(description="CUDA package to version")
    container_toolkit: str = Field(description="version of the four Container Toolkit packages")
    dcgm: str = Field(description="version of the DCGM packages")
    nccl: str = Field(description="version of libnccl2")
    nccl_tests: str = Field(description="version of the nccl-tests package that the site's mirror carries")
    perftest: str = Field(description="version of the perftest package, built with CUDA, that the site's mirror carries")
    doca: str = Field(description="version of the NIC user space (mlnx-tools)")
    source: str


class GateSetEntry(Model):
    """One gate of a set."""

    id: str
    required: bool = Field(default=True, description="a node without a pass of it is not handed over")
    inputs: dict[str, object] = Field(default_factory=dict, description="overrides of the gate's typed inputs")
    after_boot: bool = Field(default=False, description="evidence made before the node's present boot does not count")
    max_age_hours: float | None = Field(None, gt=0, description="evidence older than this many hours does not count; null: it does not age")


class GateSet(Model):
    """Gates that are run together, in this order."""

    id: ProfileId
    description: str
    gates: list[GateSetEntry] = Field(min_length=1)
