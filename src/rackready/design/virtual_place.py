"""Place of virtual nodes on their hypervisor: NUMA nodes, CPUs and memory. Nothing is given twice."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field

from rackready.model.base import Model
from rackready.model.site import Node, Site
from rackready.model.virtual import Hypervisor, PassedDevice, cpu_numbers
from rackready.profiles import loader

_GIB_KIB = 1 << 20


class Cell(Model):
    """One NUMA cell of a guest, on one NUMA node of the hypervisor."""

    id: int
    host: int = Field(description="NUMA node of the hypervisor, strictly")
    first: int = Field(description="its first virtual processor")
    cpus: list[int] = Field(description="CPU of the hypervisor of each of its virtual processors, in order")
    memory_kib: int

    @property
    def vcpus(self) -> str:
        """Its virtual processors, e.g. 0-23."""
        last = self.first + len(self.cpus) - 1
        return str(self.first) if last == self.first else f"{self.first}-{last}"


@dataclass(frozen=True, slots=True)
class Shortage:
    """What a hypervisor cannot give to a node."""

    node: str
    what: str
    expected: str
    actual: str


def numa_of(site: Site, host: str, device: PassedDevice) -> int | None:
    """Return the NUMA node of a device: as the site says, else from the hypervisor's platform profile, else None."""
    if device.numa is not None:
        return device.numa
    wanted = site.node(host).platform
    if wanted not in loader.known("platform"):
        return None
    platform = loader.platform(wanted)
    for nic in platform.nics:
        gpu = platform.gpu_pci[nic.gpu] if nic.gpu < len(platform.gpu_pci) else ""
        if nic.pci in {device.pci, device.vf_of} or gpu == device.pci:
            return nic.numa
    return None


def on_infiniband(site: Site, host: str, device: PassedDevice) -> bool:
    """Whether a virtual function belongs to a NIC of an InfiniBand fabric: it has GUIDs, and neither MAC nor VLAN."""
    if device.vf_of is None or site.fabric.kind != "infiniband":
        return False
    wanted = site.node(host).platform
    nics = loader.platform(wanted).nics if wanted in loader.known("platform") else []
    known = {nic.pci for nic in nics if nic.pci}
    return not known or device.vf_of in known  # unpublished: the plain form, which suits both link layers


def nodes_used(site: Site, host: Hypervisor, node: Node) -> list[int]:
    """Return the NUMA nodes of the hypervisor that a virtual node uses, in order; its first one where nothing says."""
    machine = node.virtual
    if machine is None:
        return []
    found = [numa_of(site, host.name, device) for device in machine.devices()]
    return sorted({*machine.numa} or {item for item in found if item is not None} or {host.numa[0].id})


def cells_of(site: Site, host: Hypervisor, name: str) -> list[Cell]:
    """Return the NUMA cells of a virtual node. Raises KeyError for a node that is not on this hypervisor."""
    return _placed(site, host)[0][name]


def shortages(site: Site, host: Hypervisor) -> list[Shortage]:
    """Return what the virtual nodes of a hypervisor ask for beyond what it has."""
    return _placed(site, host)[1]


def _placed(site: Site, host: Hypervisor) -> tuple[dict[str, list[Cell]], list[Shortage]]:
    return site.remember(f"virtual cells of {host.name}", lambda: _place(site, host))


def _place(site: Site, host: Hypervisor) -> tuple[dict[str, list[Cell]], list[Shortage]]:
    """Give CPUs and memory to virtual nodes in the order of the site file."""
    reserved = set(cpu_numbers(host.reserved_cpus))
    free = {numa.id: [cpu for cpu in cpu_numbers(numa.cpus) if cpu not in reserved] for numa in host.numa}
    memory = {numa.id: (numa.memory_gib - host.reserved_memory_gib) * _GIB_KIB for numa in host.numa}
    cells: dict[str, list[Cell]] = {}
    short: list[Shortage] = []
    for node in site.nodes():
        machine = node.virtual
        if node.host != host.name or machine is None:
            continue
        used = [numa for numa in nodes_used(site, host, node) if numa in free]
        cells[node.name], first = [], 0
        for at, numa in enumerate(used):
            count = _share(machine.vcpus, len(used), at)
            size = _share(machine.memory_gib, len(used), at) * _GIB_KIB
            short += _lacks(node.name, numa, (count, len(free[numa])), (size, memory[numa]))
            taken, free[numa] = free[numa][:count], free[numa][count:]
            memory[numa] -= size
            if taken:
                cells[node.name].append(Cell(id=at, host=numa, first=first, cpus=taken, memory_kib=size))
            first += count
    return cells, short


def _share(total: int, parts: int, at: int) -> int:
    """Return the share of part ``at``; earlier parts get what is left over."""
    return total // parts + (1 if at < total % parts else 0)


def _lacks(node: str, numa: int, cpus: tuple[int, int], memory: tuple[int, int]) -> list[Shortage]:
    out = []
    if cpus[0] > cpus[1]:
        out.append(Shortage(node, f"CPUs of NUMA node {numa}", f"{cpus[0]} free", str(cpus[1])))
    if memory[0] > memory[1]:
        asked, left = memory[0] // _GIB_KIB, max(memory[1], 0) // _GIB_KIB
        out.append(Shortage(node, f"memory of NUMA node {numa}", f"{asked} GiB free", f"{left} GiB"))
    return out
