"""Hypervisors, and what a virtual node gets of its own: processors, memory, whole devices or virtual functions."""

from __future__ import annotations

from ipaddress import IPv4Address
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from rackready.model.base import Line, MacAddress, Model, Name, PathLine, Word

PciAddress = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$", to_lower=True)]
"""PCI address as sysfs writes it: domain:bus:device.function, e.g. 0000:1b:00.0."""

FabricManager = Literal["none", "full", "shared", "vgpu"]
"""none: no NVSwitch; full: the guest has every GPU and NVSwitch and runs the fabric manager (FABRIC_MODE=0); shared:
the host runs it and gives partitions (1); vgpu: vGPU multitenancy (2). NVIDIA fabric manager user guide."""

HugePages = Literal["1G", "2M", "none"]


def cpu_numbers(text: str) -> list[int]:
    """Return the CPUs of a list in the kernel's form, e.g. 0-3,8. Raises ValueError for a malformed list."""
    found: list[int] = []
    for part in filter(None, text.split(",")):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or int(last or first) < int(first):
            message = f"{part!r} is not a CPU or a range such as 0-3"
            raise ValueError(message)
        found += range(int(first), int(last or first) + 1)
    if len(set(found)) != len(found):
        message = f"{text!r} has a CPU twice"
        raise ValueError(message)
    return found


def _is_cpu_list(text: str) -> str:
    cpu_numbers(text)
    return text


CpuList = Annotated[str, AfterValidator(_is_cpu_list)]
"""CPUs in the kernel's form, as in /sys/devices/system/node/node0/cpulist: ``0-55,112-167``."""


class HostNuma(Model):
    """One NUMA node of a hypervisor. The preflight compares it with the machine."""

    id: int = Field(0, ge=0, le=63, description="number of the NUMA node")
    cpus: CpuList = Field(min_length=1, description="its CPUs, as in /sys/devices/system/node/node0/cpulist")
    memory_gib: int = Field(ge=1, description="its memory, GiB")


class Hypervisor(Model):
    """One metal node that runs virtual nodes by libvirt and QEMU."""

    name: Name = Field(description="the metal node that is the hypervisor")
    reach: Literal["ssh", "local"] = Field(
        "ssh", description="ssh: virsh runs there, by the login in access; local: the controller is the hypervisor"
    )
    uri: Line = Field("qemu:///system", min_length=1, description="libvirt URI, as virsh on the hypervisor takes it")
    accelerator: Literal["kvm", "qemu"] = Field(
        "kvm",
        description="kvm: hardware virtualization; qemu: software emulation, far slower and without passthrough, for "
        "rehearsals",
    )
    numa: list[HostNuma] = Field(min_length=1, description="its NUMA nodes")
    reserved_cpus: CpuList = Field("", description="CPUs that no virtual node gets: for the hypervisor itself")
    reserved_memory_gib: int = Field(
        8, ge=0, description="memory of each NUMA node that no virtual node gets, GiB: for the hypervisor itself"
    )
    stop_timeout_s: int = Field(
        120, ge=1, description="longest time from asking a guest to end until its power is cut, in seconds"
    )
    image_pool: PathLine = Field(
        Path("/var/lib/libvirt/images"), description="folder there with base images, and disks of virtual nodes"
    )
    firmware_code: PathLine = Field(
        Path("/usr/share/OVMF/OVMF_CODE_4M.fd"), description="UEFI firmware there; default: Debian's and Ubuntu's"
    )
    firmware_vars: PathLine = Field(
        Path("/usr/share/OVMF/OVMF_VARS_4M.fd"), description="template there of the UEFI variables of a domain"
    )

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        ids = [node.id for node in self.numa]
        cpus = [cpu for node in self.numa for cpu in cpu_numbers(node.cpus)]
        if len(set(ids)) != len(ids):
            message = f"numa ids {ids} - Expected: each NUMA node once Actual: listed twice"
            raise ValueError(message)
        if len(set(cpus)) != len(cpus):
            message = "numa cpus - Expected: each CPU in one NUMA node Actual: a CPU in several"
            raise ValueError(message)
        strange = sorted(set(cpu_numbers(self.reserved_cpus)) - set(cpus))
        if strange:
            message = f"reserved_cpus {strange} - Expected: CPUs of its numa nodes Actual: in none"
            raise ValueError(message)
        return self


class PassedDevice(Model):
    """One PCI device of the hypervisor that a virtual node gets whole, or one SR-IOV virtual function of a NIC."""

    pci: PciAddress = Field(description="PCI address on the hypervisor, of the device or of the virtual function")
    vf_of: PciAddress | None = Field(
        None, description="physical function, where `pci` is a virtual function; the preflight checks it"
    )
    mac: MacAddress | None = Field(None, description="MAC address of a virtual function; a whole NIC has its own")
    vlan: int | None = Field(None, ge=1, le=4094, description="VLAN that the physical function adds to its frames")
    numa: int | None = Field(
        None,
        ge=0,
        le=63,
        description="its NUMA node on the hypervisor; default: from the hypervisor's platform profile",
    )
    bars_mib: int | None = Field(
        None,
        ge=1,
        description="sum of its memory windows (BARs), MiB; default: for a GPU from its memory, for others 64",
    )

    @model_validator(mode="after")
    def _of_a_function(self) -> Self:
        if self.vf_of is None and (self.mac is not None or self.vlan is not None):
            message = f"{self.pci} - Expected: mac and vlan of a virtual function Actual: no vf_of"
            raise ValueError(message)
        if self.vf_of == self.pci:
            message = f"vf_of {self.vf_of} - Expected: another address than pci Actual: the same"
            raise ValueError(message)
        return self


class VirtualMachine(Model):
    """What a virtual node is made of. Without it, a virtual node is planned only."""

    vcpus: int = Field(ge=1, le=512, description="virtual processors, each pinned to one CPU of the hypervisor")
    memory_gib: int = Field(ge=1, description="memory, GiB, divided evenly among its NUMA nodes")
    disk_gib: int = Field(64, ge=2, description="system disk, GiB")
    image: Name | None = Field(
        None, description="base image: <image>.qcow2 in the hypervisor's image pool; default: provisioning.image"
    )
    huge_pages: HugePages = Field(
        "1G", description="size of the huge pages behind its memory; none: normal pages, locked for passthrough"
    )
    gpus: list[PassedDevice] = Field(default_factory=list, description="GPUs that it gets whole")
    nics: list[PassedDevice] = Field(default_factory=list, description="NICs that it gets whole, or virtual functions")
    nvswitches: list[PassedDevice] = Field(
        default_factory=list, description="NVSwitches that it gets; all of them with fabric_manager: full"
    )
    numa: list[int] = Field(
        default_factory=list, description="NUMA nodes of the hypervisor that it uses; default: those of its devices"
    )
    fabric_manager: FabricManager = Field(
        "none", description="who manages NVSwitches: none (there are none), full (the guest), shared or vgpu (the host)"
    )
    bridge: Word | None = Field(None, description="bridge of the hypervisor for the in-band NIC; absent: no such NIC")
    mac: MacAddress | None = Field(None, description="MAC address of the in-band NIC; default: from its name")
    gateway: IPv4Address | None = Field(None, description="router of the in-band network, for cloud-init; absent: DHCP")
    prefix: int = Field(24, ge=1, le=32, description="length of the in-band network's prefix, for cloud-init")

    def devices(self) -> list[PassedDevice]:
        """Return every device that it gets: GPUs, NVSwitches, NICs."""
        return [*self.gpus, *self.nvswitches, *self.nics]
