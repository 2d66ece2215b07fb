"""Facts of a virtual node's domain, from the site and the profiles alone: what the template writes as libvirt's XML.

Formats: libvirt's domain XML format (hostdev, numatune, memoryBacking, maxphysaddr
since 8.7.0, pcihole64).
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Iterator
from math import ceil
from pathlib import Path
from typing import Literal

from pydantic import Field

from rackready.design.virtual_place import Cell, cells_of, on_infiniband
from rackready.model.base import Line, MacAddress, Model, Name
from rackready.model.site import Node, Site
from rackready.model.virtual import Hypervisor, PassedDevice, VirtualMachine
from rackready.profiles import loader

_GIB_KIB = 1 << 20
_PAGES_KIB = {"1G": 1 << 20, "2M": 1 << 11, "none": None}
_DEFAULT_WINDOW_MIB = 32 << 10
"""QEMU, include/hw/pci-host/q35.h: Q35_PCI_HOST_HOLE64_SIZE_DEFAULT is 1 << 35."""
_RESERVE_MIB = 1 << 10
"""Room for disk, seed, in-band NIC and root ports. Our judgement: their windows are KiB, rounded up to 1 MiB a port."""
_NIC_BARS_MIB = 64
"""Memory windows of one NIC. Our judgement: a ConnectX-7 function has 32 MiB; the preflight reads the real sum."""
_GPU_MORE_MIB = 64
"""A GPU's windows beside its memory: registers and doorbells of 16 and 32 MiB (lspci of H100 captures), rounded up."""
_XAPIC_CPUS = 255
"""More processors need a virtual IOMMU with extended interrupt mode (libvirt domain XML, iommu driver `eim`)."""
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_OID, "rackready domain")
_FIRST_PORT = 1


class DomainDevice(Model):
    """One passed device, with the root port that it is plugged into."""

    pci: str
    kind: Literal["gpu", "nvswitch", "nic", "vf"]
    port: int = Field(description="index of its pcie-root-port")
    mac: MacAddress | None = None
    vlan: int | None = None

    @property
    def source(self) -> str:
        """The attributes of libvirt's address element."""
        domain, bus, rest = self.pci.split(":")
        slot, function = rest.split(".")
        return f"domain='0x{domain}' bus='0x{bus}' slot='0x{slot}' function='0x{function}'"


class DomainFacts(Model):
    """All that the domain's XML says. Sizes in KiB and MiB, as libvirt and OVMF take them."""

    name: Name
    uuid: str
    owner: Line = Field(description="site and node that it belongs to: another owner's domain is never touched")
    accelerator: Literal["kvm", "qemu"]
    vcpus: int
    memory_kib: int
    page_kib: int | None = Field(None, description="size of huge pages; null: normal pages")
    locked: bool = Field(description="its memory is locked: devices read and write it by address")
    cells: list[Cell]
    emulator_cpus: str = Field(description="CPUs of QEMU's own threads; empty: not pinned")
    window_mib: int | None = Field(
        None, description="64-bit memory window for devices; null: QEMU's default holds them"
    )
    eim: bool = Field(description="a virtual IOMMU, for more than 255 processors")
    devices: list[DomainDevice]
    disk: Path
    disk_gib: int
    base: Path
    seed: Path
    nvram: Path
    firmware_code: Path
    firmware_vars: Path
    bridge: str | None = None
    mac: MacAddress
    seed_digest: str = Field("", description="digest of its cloud-init seed: a changed seed is a changed definition")

    @property
    def in_band_port(self) -> int:
        """Index of the root port of the in-band NIC; disk and seed have the two after it."""
        return _FIRST_PORT + len(self.devices)


def hypervisor_of(site: Site, node: Node) -> Hypervisor | None:
    """Return the hypervisor of a virtual node, None if the site does not describe it."""
    return next((found for found in site.hypervisors if found.name == node.host), None)


def domain_facts(site: Site, name: str) -> DomainFacts:
    """Return the facts of a virtual node's domain.

    Raises KeyError for an unknown node, ValueError for one that lacks `virtual` or the entry of its hypervisor
    (`deployable.require` refuses both before).
    """
    node = site.node(name)
    host, machine = hypervisor_of(site, node), node.virtual
    if host is None or machine is None:
        message = f"{name}: no hypervisor, or no `virtual`"
        raise ValueError(message)
    image = machine.image or (site.provisioning.image if site.provisioning else None) or "base"
    place = host.image_pool
    return DomainFacts(
        name=name,
        uuid=str(uuid.uuid5(_NAMESPACE, f"{site.name}/{name}")),
        owner=f"{site.name}/{name}",
        accelerator=host.accelerator,
        vcpus=machine.vcpus,
        memory_kib=machine.memory_gib * _GIB_KIB,
        page_kib=_PAGES_KIB[machine.huge_pages],
        locked=bool(machine.devices()),
        cells=cells_of(site, host, name),
        emulator_cpus=host.reserved_cpus,
        window_mib=window_mib(site, node),
        eim=machine.vcpus > _XAPIC_CPUS,
        devices=list(_devices(site, host, machine)),
        disk=place / f"{name}.qcow2",
        disk_gib=machine.disk_gib,
        base=place / f"{image}.qcow2",
        seed=place / f"{name}-seed.iso",
        nvram=place / f"{name}-vars.fd",
        firmware_code=host.firmware_code,
        firmware_vars=host.firmware_vars,
        bridge=machine.bridge,
        mac=machine.mac or _mac(site.name, name),
    )


def window_mib(site: Site, node: Node) -> int | None:
    """Return the 64-bit memory window in MiB: what the devices take at their alignment, up to the next power of two.

    None where QEMU's default holds it. A window that is too small hides devices, the boot disk among them: eight GPUs
    of 512 GiB with an 8 TiB window, one unusable; with 16 TiB all worked (tianocore/edk2, pull request 12997).
    OVMF puts the window at a multiple of its size above the memory, so 16 TiB end at 32 TiB: 45 bits of the 46 that it
    uses (tianocore/edk2, OvmfPkg/Library/PlatformInitLib/MemDetect.c).
    """
    if node.virtual is None or not node.virtual.devices():
        return None
    need = taken_mib((total, 1 << (total.bit_length() - 1)) for total in bars_mib(site, node))
    window = 1 << (need - 1).bit_length()
    return window if window > _DEFAULT_WINDOW_MIB else None


def taken_mib(devices: Iterable[tuple[int, int]]) -> int:
    """Return what devices take of the window, MiB, from the sum of each one's memory windows and the largest of them.

    Each is behind a root port of its own, whose window is aligned to the largest: a GPU of 512 GiB and some MiB takes
    1 TiB (tianocore/edk2, MdeModulePkg/Bus/Pci/PciBusDxe/PciResourceSupport.c, CalculateResourceAperture).
    """
    return _RESERVE_MIB + sum(ceil(total / largest) * largest for total, largest in devices)


def bars_mib(site: Site, node: Node) -> list[int]:
    """Return the sum of the memory windows of each passed device of a node, MiB. Windows are powers of two."""
    machine = node.virtual
    if machine is None:
        return []
    gpu = _gpu_mib(site, node) if machine.gpus else 0
    own = [(device, gpu) for device in machine.gpus]
    own += [(device, _NIC_BARS_MIB) for device in (*machine.nvswitches, *machine.nics)]
    return [device.bars_mib or default for device, default in own]


def _gpu_mib(site: Site, node: Node) -> int:
    memory = ceil(loader.gpu(loader.platform(site.node(str(node.host)).platform).gpu).memory.value)
    return (1 << (memory - 1).bit_length()) + _GPU_MORE_MIB


def _devices(site: Site, host: Hypervisor, machine: VirtualMachine) -> Iterator[DomainDevice]:
    """Yield the devices. ``vf``: libvirt sets its MAC address through the physical function.

    It cannot on InfiniBand, and refuses the start: the kernel's ipoib has ndo_set_vf_guid and no ndo_set_vf_mac
    (libvirt, src/hypervisor/virhostdev.c, virHostdevSetNetConfig; Linux, drivers/infiniband/ulp/ipoib/ipoib_main.c).
    Such a function is passed as any other device.
    """
    kinds: list[tuple[Literal["gpu", "nvswitch", "nic"], list[PassedDevice]]] = [
        ("gpu", machine.gpus),
        ("nvswitch", machine.nvswitches),
        ("nic", machine.nics),
    ]
    port = _FIRST_PORT
    for kind, devices in kinds:
        for device in devices:
            yield DomainDevice(
                pci=device.pci,
                kind="vf" if device.vf_of and not on_infiniband(site, host.name, device) else kind,
                port=port,
                mac=device.mac,
                vlan=device.vlan,
            )
            port += 1


def _mac(site: str, name: str) -> str:
    """Return a MAC address below QEMU's prefix 52:54:00, from the name: it stays when the domain is made again."""
    digest = hashlib.sha256(f"{site}/{name}".encode()).digest()
    return "52:54:00:" + ":".join(f"{byte:02x}" for byte in digest[:3])


__all__ = ["DomainDevice", "DomainFacts", "bars_mib", "domain_facts", "hypervisor_of", "taken_mib", "window_mib"]
