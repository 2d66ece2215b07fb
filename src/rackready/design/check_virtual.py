"""Checks of hypervisors and virtual nodes: each part of a hypervisor is given once, and it has what it gives."""

from __future__ import annotations

from ipaddress import IPv4Network

from rackready.design.site_flaws import Flaw, Loc, Subject
from rackready.design.virtual_place import Shortage, numa_of, on_infiniband, shortages
from rackready.model.site import Node, Site
from rackready.model.virtual import Hypervisor, PassedDevice
from rackready.profiles import loader

_PARTITIONS = (1, 2, 4, 8, 16)
"""GPUs of one partition of an NVSwitch board (fabric manager user guide, shared NVSwitch)."""


def check_virtual(subject: Subject) -> list[Flaw]:
    """Return every contradiction between hypervisors, their nodes and what these get."""
    site = subject.site
    placed = [
        (node, ("racks", r, "nodes", n)) for r, rack in enumerate(site.racks) for n, node in enumerate(rack.nodes)
    ]
    out = _hypervisors(site, subject)
    known = {host.name: host for host in site.hypervisors}
    places: dict[str, Loc] = {node.name: loc for node, loc in placed}
    for node, loc in placed:
        if node.virtual is None:
            continue
        if node.kind == "metal":
            out.append(Flaw((*loc, "virtual"), f"metal node {node.name} has it.", "Remove it, or set kind: virtual."))
        elif node.host in known:
            out += _devices(site, known[node.host], node, loc) + _functions(site, node, loc)
            out += _manager(site, node, loc) + _gateway(node, loc)
    out += _twice(site, places)
    for host in known.values():
        out += [_short(places[item.node], host, item) for item in shortages(site, host)]
    return out


def _hypervisors(site: Site, subject: Subject) -> list[Flaw]:
    kinds = {node.name: node.kind for node in site.nodes()}
    out: list[Flaw] = []
    seen: set[str] = set()
    for h, host in enumerate(site.hypervisors):
        loc: Loc = ("hypervisors", h, "name")
        if host.name in seen:
            out.append(Flaw(loc, f"{host.name} is listed twice.", "Keep one entry for each hypervisor."))
        elif kinds.get(host.name) != "metal" and not subject.lost.of("nodes")(host.name):
            actual = "a virtual node" if host.name in kinds else "no such node"
            step = "Correct the name."
            out.append(Flaw.of(loc, f"hypervisor {host.name}", step, expected="a metal node", actual=actual))
        seen.add(host.name)
    return out


def _devices(site: Site, host: Hypervisor, node: Node, loc: Loc) -> list[Flaw]:
    machine, out = node.virtual, []
    known = {numa.id for numa in host.numa}
    if machine is None:
        return []
    if host.accelerator == "qemu" and machine.devices():
        step = "Set accelerator: kvm on the hypervisor, or remove the devices."
        what = f"devices of {node.name}"
        out.append(Flaw.of((*loc, "virtual"), what, step, expected="accelerator: kvm", actual="qemu (emulated)"))
    if strange := sorted(set(machine.numa) - known):
        named = ", ".join(map(str, strange))
        step = "Correct it, or add the NUMA node to the hypervisor."
        out.append(
            Flaw.of(
                (*loc, "virtual", "numa"), f"NUMA nodes of {host.name}", step, expected=str(sorted(known)), actual=named
            )
        )
    for key in ("gpus", "nvswitches", "nics") if len(host.numa) > 1 else ():
        for place, device in enumerate(getattr(machine, key)):
            if numa_of(site, host.name, device) not in known:
                out.append(_unknown_numa(host, node, device, (*loc, "virtual", key, place, "numa"), sorted(known)))
    return out


def _unknown_numa(host: Hypervisor, node: Node, device: PassedDevice, loc: Loc, known: list[int]) -> Flaw:
    step = (
        "Write numa beside pci of this device: "
        f"`cat /sys/bus/pci/devices/{device.pci}/numa_node` on {host.name} shows it."
    )
    what = f"NUMA node of {device.pci} of {node.name}"
    return Flaw.of(loc, what, step, expected=f"one of {known}", actual="not known")


def _functions(site: Site, node: Node, loc: Loc) -> list[Flaw]:
    """Check that virtual functions on InfiniBand have none of the keys that only Ethernet knows."""
    out = []
    for n, device in enumerate(node.virtual.nics if node.virtual else []):
        given = [name for name in ("mac", "vlan") if getattr(device, name) is not None]
        if given and on_infiniband(site, str(node.host), device):
            step = "Remove it. docs/howto/virtual.md says how to give the function its GUIDs."
            what = f"InfiniBand function {device.pci} of {node.name}"
            actual = " and ".join(given)
            out.append(
                Flaw.of((*loc, "virtual", "nics", n), what, step, expected="neither mac nor vlan", actual=actual)
            )
    return out


def _gateway(node: Node, loc: Loc) -> list[Flaw]:
    """Check the router that cloud-init is given: a node reaches no other network by an address outside its own."""
    machine = node.virtual
    if machine is None or machine.gateway is None:
        return []
    network = IPv4Network((node.address, machine.prefix), strict=False)
    if machine.gateway in network and machine.gateway != node.address:
        return []
    what, expected = f"router of {node.name}", f"another address than {node.address} in {network}"
    step = "Correct gateway, prefix or the node's address."
    return [Flaw.of((*loc, "virtual", "gateway"), what, step, expected=expected, actual=str(machine.gateway))]


def _manager(site: Site, node: Node, loc: Loc) -> list[Flaw]:
    """Check the fabric manager mode against the board of the hypervisor."""
    machine, here = node.virtual, (*loc, "virtual", "fabric_manager")
    wanted = site.node(str(node.host)).platform
    if machine is None or not machine.gpus or wanted not in loader.known("platform"):
        return []
    board, mode, gpus = loader.platform(wanted), machine.fabric_manager, len(machine.gpus)
    if not board.nvswitch or mode == "none":
        if board.nvswitch == (mode != "none"):
            return []
        asked, step = ("full or shared", "Set full for a node with every GPU, else shared.")
        if not board.nvswitch:
            asked, step = "none", "Set it to none."
        what = f"NVSwitches of {wanted}" if board.nvswitch else f"{wanted} has no NVSwitch"
        return [Flaw.of(here, what, step, expected=asked, actual=mode)]
    switches = int(board.nvswitches.value) if board.nvswitches else 0
    wants = {
        "full": ("GPUs", gpus, [board.gpus], "Give it every GPU, or set shared."),
        "shared": ("GPUs", gpus, list(_PARTITIONS), "Give it as many GPUs as a partition has."),
    }
    wrong = [wants[mode]] if mode in wants and gpus not in wants[mode][2] else []
    if mode == "full" and len(machine.nvswitches) != switches:
        step = "List each in virtual.nvswitches: the guest's fabric manager needs all of them."
        wrong.append(("NVSwitches", len(machine.nvswitches), [switches], step))
    if mode == "shared" and machine.nvswitches:
        step = "Remove them: the hypervisor's fabric manager needs them."
        wrong.append(("NVSwitches", len(machine.nvswitches), [0], step))
    return [
        Flaw.of(
            here,
            f"{part} of {node.name}",
            step,
            expected=f"{' or '.join(map(str, allowed))} for {mode}",
            actual=str(actual),
            kind=part,
        )
        for part, actual, allowed, step in wrong
    ]


def _twice(site: Site, places: dict[str, Loc]) -> list[Flaw]:
    first: dict[tuple[str, str], str] = {}
    out = []
    for node in site.nodes():
        devices = node.virtual.devices() if node.virtual else []
        for device in devices:
            before = first.setdefault((str(node.host), device.pci), node.name)
            if before != node.name or sum(item.pci == device.pci for item in devices) > 1:
                text = f"device {device.pci} of {node.host} is already given to {before}."
                out.append(Flaw((*places[node.name], "virtual"), text, "Give each device to one node, once."))
    return list({(flaw.loc, flaw.message): flaw for flaw in out}.values())


def _short(loc: Loc, host: Hypervisor, item: Shortage) -> Flaw:
    step = "Give its virtual nodes less, or place them elsewhere."
    what = f"{item.what} of {host.name} for {item.node}"
    return Flaw.of((*loc, "virtual"), what, step, expected=item.expected, actual=item.actual)
