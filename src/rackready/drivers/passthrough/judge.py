"""Judges what a hypervisor shows, per device: pure. The facts come from ``ondevice.passthrough_facts``."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import Any

from pydantic import Field

from rackready.design.virtual_domain import DomainFacts, taken_mib
from rackready.drivers.passthrough import findings as kinds
from rackready.model.base import Model
from rackready.model.outcome import Finding
from rackready.model.virtual import FabricManager, HugePages, PassedDevice, cpu_numbers

_BAD_DRIVERS = frozenset({"nvidia", "nouveau", "snd_hda_intel"})
"""Drivers that use a GPU or its audio function. A NIC's own driver gives it to libvirt (managed='yes')."""
_BRIDGE = "0x0604"
_KIB_OF = {"1G": 1 << 20, "2M": 1 << 11}
_DEFAULT_WINDOW_MIB = 32 << 10
_ISO = frozenset({"xorriso", "genisoimage", "mkisofs"})
_SHARED = "1"
"""FABRIC_MODE of the shared NVSwitch model (NVIDIA fabric manager user guide)."""


_LIBVIRT = [8, 7]
"""The first libvirt with maxphysaddr in a domain's CPU (libvirt, domain XML format: "since 8.7.0")."""
_LARGE_BAR, _QEMU = 256 << 30, [10, 1]
"""Several windows of 256 GiB (B200) stalled the start of guests for minutes before QEMU 10.1 (ubicloud.com, blog,
"Virtualizing NVidia HGX B200 GPUs with Open Source", 2025-12-15). Distributions backport parts: no refusal.
"""


class Wanted(Model):
    """What a virtual node needs of its hypervisor."""

    facts: DomainFacts
    devices: list[PassedDevice]
    numa: dict[str, int] = Field(description="planned NUMA node of each device whose node is known")
    pages: HugePages
    fabric_manager: FabricManager
    host_cpus: dict[int, str] = Field(description="CPUs of each NUMA node, as the site file says")

    def request(self) -> dict[str, Any]:
        """Return the request for the script that reads the machine."""
        functions = [device.vf_of for device in self.devices if device.vf_of]
        files = [str(path) for path in (self.facts.firmware_code, self.facts.firmware_vars)]
        return {"devices": sorted({*(device.pci for device in self.devices), *functions}), "files": files}


def judge(host: str, wanted: Wanted, seen: dict[str, Any]) -> list[Finding]:
    """Return why a hypervisor cannot run a virtual node, the machine first, then device by device."""
    parts = (_machine, _fabric, _memory, _devices)
    return [finding for part in parts for finding in part(host, wanted, seen)]


def _machine(host: str, wanted: Wanted, seen: dict[str, Any]) -> Iterator[Finding]:
    steps = kinds.HOST_LACKS.steps
    if wanted.facts.accelerator == "kvm" and not seen["kvm"]:
        yield kinds.HOST_LACKS.found(host, "there", "absent", what="/dev/kvm", step=steps[0])
    tools = set(seen["tools"])
    lacks = [name for name in ("virsh", "qemu-img") if name not in tools]
    lacks += [] if tools & _ISO else ["xorriso or genisoimage"]
    for name in lacks:
        yield kinds.HOST_LACKS.found(host, "installed", "not on the PATH", what=name, step=steps[1])
    yield from _libvirt(host, wanted, seen)
    for path, there in sorted(seen["files"].items()):
        if not there:
            yield kinds.HOST_LACKS.found(host, "there", "no such file", what=path, step=steps[2])
    for numa, cpus in sorted(wanted.host_cpus.items()):
        shown = seen["numa"].get(str(numa), {}).get("cpus", "")
        if cpu_numbers(shown) != cpu_numbers(cpus):
            yield kinds.HOST_CPUS.found(host, cpus, shown or "no such NUMA node", numa=numa)
    if wanted.devices and not seen["groups"]:
        actual = f"none; kernel command line: {seen['cmdline'] or 'empty'}"
        step = kinds.IOMMU_OFF.steps[1 if seen["tables"] else 0]
        yield kinds.IOMMU_OFF.found(host, "IOMMU groups", actual, step=step)


def _libvirt(host: str, wanted: Wanted, seen: dict[str, Any]) -> Iterator[Finding]:
    libvirt = seen["versions"]["libvirt"]
    if wanted.facts.accelerator == "kvm" and libvirt < _LIBVIRT:
        expected = f"{_version(_LIBVIRT)} or newer"
        yield kinds.HOST_LACKS.found(host, expected, _version(libvirt), what="libvirt", step=kinds.HOST_LACKS.steps[3])


def _fabric(host: str, wanted: Wanted, seen: dict[str, Any]) -> Iterator[Finding]:
    if wanted.fabric_manager != "shared":
        return
    if seen["fabric_mode"] != _SHARED:
        yield kinds.FABRIC_MODE.found(host, _SHARED, seen["fabric_mode"] or "no fabric manager on the hypervisor")
    elif seen["partitions"] is not None:
        yield from _partition(host, wanted, seen["partitions"])


def _partition(host: str, wanted: Wanted, partitions: list[dict[str, int]]) -> Iterator[Finding]:
    """Yield a finding unless a partition of as many GPUs is active; which GPUs it has, PCI addresses do not tell."""
    gpus = _gpus(wanted)
    active = [item["gpus"] for item in partitions if item["active"]]
    if gpus not in active:
        actual = f"active ones of {', '.join(map(str, sorted(active)))}" if active else "none is active"
        yield kinds.PARTITION.found(host, "active", actual, gpus=gpus)


def notes(wanted: Wanted, seen: dict[str, Any]) -> list[str]:
    """Return what a person should know of a fit hypervisor."""
    out = []
    bars = [size for found in seen["devices"].values() if found for size in found["bars"]]
    qemu = seen["versions"]["qemu"]
    if sum(size >= _LARGE_BAR for size in bars) > 1 and qemu < _QEMU:
        out.append(
            f"QEMU {_version(qemu)} may stall for minutes at the start with GPU windows of 256 GiB: "
            f"{_version(_QEMU)} does not"
        )
    if wanted.fabric_manager == "shared" and seen["partitions"] is None:
        out.append(
            f"partitions were not looked at, no fmpm: activate one of {_gpus(wanted)} GPUs before the guest starts, "
            "see docs/howto/virtual.md"
        )
    return out


def _gpus(wanted: Wanted) -> int:
    return sum(device.kind == "gpu" for device in wanted.facts.devices)


def _version(parts: list[int]) -> str:
    return ".".join(map(str, parts)) or "of unknown version"


def _memory(host: str, wanted: Wanted, seen: dict[str, Any]) -> Iterator[Finding]:
    size = _KIB_OF.get(wanted.pages)
    if size is None:
        return
    for cell in wanted.facts.cells:
        need = ceil(cell.memory_kib / size)
        free = seen["numa"].get(str(cell.host), {}).get("free", {}).get(wanted.pages, 0)
        if free < need:
            yield kinds.PAGES.found(host, need, free, size=wanted.pages, numa=cell.host)


def _devices(host: str, wanted: Wanted, seen: dict[str, Any]) -> Iterator[Finding]:
    given = {device.pci for device in wanted.devices}
    sizes: list[tuple[int, int]] = []
    for device in wanted.devices:
        found, where = seen["devices"][device.pci], f"{host} {device.pci}"
        if found is None:
            yield kinds.ABSENT.found(where, "a device", "none")
            continue
        sizes.append((_mib(sum(found["bars"])), _mib(max(found["bars"], default=0))))
        yield from _device(where, device, found, given)
        planned = wanted.numa.get(device.pci)
        if planned is not None and found["numa"] not in {planned, -1}:  # -1: the firmware says none
            yield kinds.NUMA.found(where, planned, found["numa"])
    window = wanted.facts.window_mib or _DEFAULT_WINDOW_MIB
    need = taken_mib(sizes)
    if need > window:
        yield kinds.WINDOW.found(host, f"{need} MiB or more", f"{window} MiB")


def _mib(size: int) -> int:
    """Return bytes as MiB, at least the 1 MiB of a root port's granularity."""
    return max(1, ceil(size / (1 << 20)))


def _device(where: str, device: PassedDevice, found: dict[str, Any], given: set[str]) -> Iterator[Finding]:
    if found["driver"] in _BAD_DRIVERS:
        yield kinds.DRIVER.found(where, "vfio-pci or none", found["driver"], driver=found["driver"])
    others = sorted(
        name
        for name, member in found["members"].items()
        if name not in given and not member["class"].startswith(_BRIDGE) and member["driver"] != "vfio-pci"
    )
    if others:
        yield kinds.GROUP.found(where, "nothing else of the hypervisor", ", ".join(others), group=found["group"])
    if 0 in found["bars"]:
        yield kinds.UNPLACED.found(where, "an address for each", f"{found['bars'].count(0)} without")
    if found["physfn"] != (device.vf_of or ""):
        yield kinds.FUNCTION.found(where, device.vf_of or "none: a whole device", found["physfn"] or "none")
