"""Refuses sites and nodes that can be planned but not deployed yet, before any change."""

from __future__ import annotations

from collections.abc import Sequence

from rackready.design.adaptive_routing import adaptive_problems
from rackready.design.check_provisioning import unready
from rackready.design.fabric_software import fabric_software
from rackready.design.facts import driver_branch, driver_set
from rackready.design.infiniband import manager_nodes, subnets
from rackready.design.names import listed
from rackready.design.overlay import apart, overlay_problems
from rackready.design.planned_switches import switch_problems
from rackready.design.repositories import key_problems
from rackready.design.software_of import software_site
from rackready.design.subnet_roots import root_problems
from rackready.design.switch_systems import system_of
from rackready.design.wiring import topology_fabric, trunk_ends
from rackready.design.written_ports import mixed_ports
from rackready.model.problems import Message, RackreadyError
from rackready.model.site import Node, Site, Switch
from rackready.model.topology import Topology
from rackready.profiles import loader

_SHOWN = 5
NEED_BMC = frozenset({"provision", "deploy"})
"""Commands that talk to BMCs."""
_WRITE_OPENSM = frozenset({"fabric", "deploy", "upgrade"})
"""Commands that write opensm's files. Others measure a fabric as it is, whoever named its roots."""


class NotDeployableError(RackreadyError):
    """The site, or some of its nodes, can be planned but not deployed."""


def require(site: Site, nodes: Sequence[str], command: str) -> None:
    """Refuse what ``rackready <command>`` cannot do on these nodes. Raises NotDeployableError with every reason."""
    reasons = [*apart(site, nodes, command), *refusals(site, nodes, command)]
    if reasons:
        head = f"rackready {command}: site {site.name} can be planned but not deployed; nothing was changed."
        raise NotDeployableError.of(reasons, head=head, tail="`rackready plan` works on it.")


def refusals(site: Site, nodes: Sequence[str], command: str) -> list[Message]:
    """Return why ``rackready <command>`` cannot be done on these nodes, however they are divided among its runs.

    `provision` needs no addresses of NICs: `rackready profile learn` reads them from a machine that runs.
    """
    return [
        *_fabric(site),
        *(root_problems(site) if command in _WRITE_OPENSM else []),
        *_software(site, nodes),
        *key_problems(site, list(nodes)),
        *_nic_stack(site, nodes),
        *_kinds(site, nodes),
        *_deployed(site, nodes, command),
        *([] if command == "provision" else _unpublished(site, nodes)),
        *_unknown(site, nodes, command),
        *(unready(site, nodes) if command in NEED_BMC else []),
    ]


def _fabric(site: Site) -> list[Message]:
    out = []
    if site.fabric.kind == "infiniband":
        out += _subnet_manager(site)
        out += [mixed] if (mixed := mixed_ports(site)) is not None else []
    if site.topology is not None:
        out += _topology(site, site.topology)
    system_limits = [(switch, system_of(switch.os)) for switch in site.switches if _needs_routes(site, switch)]
    plain = [switch.name for switch, system in system_limits if system is not None and not system.routes]
    if plain:
        out.append(
            Message(
                listed(plain, _SHOWN),
                "breakout, speed, FEC or routing",
                expected="a switch system that rackready configures them on",
                actual=", ".join(sorted({switch.os for switch, _ in system_limits if switch.name in plain})),
                next_step="Split its ports and set their speed by hand, and leave them out of the site file.",
            )
        )
    return out


def _needs_routes(site: Site, switch: Switch) -> bool:
    groups = any(group.breakout != 1 or group.speed or group.fec for group in switch.ports)
    return groups or bool(trunk_ends(site).get(switch.name))


def _topology(site: Site, topology: Topology) -> list[Message]:
    """Return what of a topology cannot be configured."""
    fabric, networks = topology_fabric(site), site.networks
    out = [
        Message("topology", str(problem), expected="a fabric that can be built", next_step="Run `rackready plan`.")
        for problem in fabric.problems
    ]
    if topology.planes > 1 and topology.planes_by == "port":
        step = "rackready configures one port per NIC. Plan by rail, or one plane."
        out.append(Message("topology.planes_by", "port", expected="rail", next_step=step))
    needed = (
        ("networks.compute", networks.compute if networks else None, "Give it a pool: rails need a subnet each."),
        ("networks.loopbacks", networks.loopbacks if networks else None, "Give it a pool: BGP needs a router id."),
    )
    if topology.link == "roce":
        out += [Message(key, "none", expected="a pool", next_step=step) for key, value, step in needed if value is None]
    out += switch_problems(site, fabric)
    out += adaptive_problems(site)
    out += overlay_problems(site)
    known = {switch.name for switch in site.switches}
    absent = [switch.name for switch in fabric.switches if switch.name not in known]
    if absent and topology.link == "roce":
        step = "Add each to switches: with its system, address and password."
        out.append(Message(listed(absent, _SHOWN), "access to the switch", expected="known", next_step=step))
    return out


def _subnet_manager(site: Site) -> list[Message]:
    """Return what rackready lacks to bring up an InfiniBand fabric: somebody must manage its subnet."""
    if site.fabric.infiniband is None:
        step = "Add fabric.infiniband with its subnet_manager: opensm with nodes, ufm, or external."
        return [Message("fabric.infiniband", "not given", expected="a subnet manager", next_step=step)]
    if site.fabric.infiniband.subnet_manager == "ufm" and len(subnets(site)) > 1:
        names = listed(["+".join(subnet.switches) for subnet in subnets(site)], _SHOWN)
        step = "One UFM manages one subnet. Join the leafs by a topology of one plane, or set external."
        return [Message("fabric.infiniband.ufm", names, expected="one subnet", next_step=step)]
    unknown = sorted(set(manager_nodes(site)) - {node.name for node in site.nodes()})
    if unknown:
        step = "Correct the name."
        return [
            Message("fabric.infiniband.nodes", listed(unknown, _SHOWN), expected="nodes of the site", next_step=step)
        ]
    bare = [subnet for subnet in subnets(site) if not subnet.managers]
    if bare and site.fabric.infiniband.subnet_manager == "opensm":
        names = listed(["+".join(subnet.switches) for subnet in bare], _SHOWN)
        step = "Add a node that is cabled to it to fabric.infiniband.nodes."
        return [Message(names, "no subnet manager", expected="a node with opensm in each subnet", next_step=step)]
    return []


def _software(site: Site, nodes: Sequence[str]) -> list[Message]:
    out = []
    for platform, set_, own in sorted(_stacks(site, nodes), key=lambda stack: stack[:2]):
        chosen, driver = loader.software(set_), driver_set(own)
        lacks = fabric_software(chosen, driver, loader.platform(platform)).lacks
        if lacks:
            why = "; ".join(chosen.absent[key] for key in lacks if key in chosen.absent)
            actual = f"none, because {why}" if why else "none"
            out.append(
                Message(
                    f"version set {chosen.id}",
                    " and ".join(lacks),
                    expected=f"packages that {platform} needs",
                    actual=actual,
                    next_step="Choose another set (software.set), or add your own beside site.yml (profiles/software/) "
                    f"with {' and '.join(lacks)}.",
                )
            )
    return out


def _stacks(site: Site, nodes: Sequence[str]) -> list[tuple[str, str, Site]]:
    """Return each (server model, version set) of these nodes once, with the site as such a node sees it."""
    found: dict[tuple[str, str, int], Site] = {}
    for name in nodes:
        own = software_site(site, name)
        found.setdefault((site.node(name).platform, own.software.set, driver_branch(own)), own)
    return [(platform, set_, own) for (platform, set_, _), own in found.items()]


def _nic_stack(site: Site, nodes: Sequence[str]) -> list[Message]:
    if site.software.nic_stack == "inbox":
        return []
    sets = (loader.software(id_) for id_ in sorted({set_ for _, set_, _ in _stacks(site, nodes)}))
    return [
        (
            Message(
                "software.nic_stack",
                "doca",
                expected=f"packages of DOCA-OFED for {chosen.os} (doca_ofed of version set {chosen.id})",
                actual="none, because no source names them",
                next_step="Set software.nic_stack: inbox, or add a set beside site.yml (profiles/software/) with "
                "doca_ofed and its source.",
            )
        )
        for chosen in sets
        if chosen.doca_ofed is None
    ]


def _kinds(site: Site, nodes: Sequence[str]) -> list[Message]:
    """Return virtual nodes that the site does not describe, and modes that rackready only plans."""
    virtual = [site.node(name) for name in nodes if site.node(name).kind == "virtual"]
    out = []
    plain = [node.name for node in virtual if node.virtual is None]
    if plain:
        step = "Add `virtual` to each (docs/howto/virtual.md), or exclude them with --limit."
        out.append(Message(listed(plain, _SHOWN), "virtual", expected="what they are made of", next_step=step))
    known = {host.name for host in site.hypervisors}
    lost = sorted({str(node.host) for node in virtual if node.virtual is not None and node.host not in known})
    if lost:
        step = "Add each to hypervisors with its NUMA nodes, or exclude its virtual nodes with --limit."
        out.append(Message(listed(lost, _SHOWN), "hypervisors", expected="an entry", actual="none", next_step=step))
    vgpu = [node.name for node in virtual if node.virtual is not None and node.virtual.fabric_manager == "vgpu"]
    if vgpu:
        step = "rackready makes no vGPU devices. Pass whole GPUs, or exclude them with --limit."
        out.append(
            Message(listed(vgpu, _SHOWN), "fabric_manager", expected="full or shared", actual="vgpu", next_step=step)
        )
    return out


def _deployed(site: Site, nodes: Sequence[str], command: str) -> list[Message]:
    """Return virtual nodes of a whole deployment: its first states ask a BMC, which they lack."""
    virtual = [name for name in nodes if site.node(name).virtual is not None]
    if command != "deploy" or not virtual:
        return []
    step = "Run `rackready provision` for them, then the later phases one by one, or exclude them with --limit."
    return [Message(listed(virtual, _SHOWN), "kind virtual", expected="metal", next_step=step)]


def _unpublished(site: Site, nodes: Sequence[str]) -> list[Message]:
    out = []
    for platform in sorted({site.node(name).platform for name in nodes}):
        missing = loader.platform(platform).unpublished()
        if missing:
            node = next(name for name in nodes if site.node(name).platform == platform)
            out.append(
                Message(
                    loader.place("platform", platform),
                    " and ".join(missing),
                    expected="known",
                    actual="not published",
                    next_step=f"Read them from a machine that runs: `rackready profile learn {node} --write`.",
                )
            )
    return out


def _unknown(site: Site, nodes: Sequence[str], command: str) -> list[Message]:
    chosen = [site.node(name) for name in nodes if site.node(name).kind == "metal"]
    wanted = [("serial number", _no_serial)]
    if command in NEED_BMC:
        wanted += [("address of the BMC", _no_address), ("password of the BMC", _no_password)]
    out = []
    for what, is_unknown in wanted:
        names = [node.name for node in chosen if is_unknown(node)]
        if names:
            step = "Import the vendor's manifest (`rackready import manifest FILE.csv`), or exclude them with --limit."
            out.append(Message(listed(names, _SHOWN), what, expected="known", actual="not given yet", next_step=step))
    return out


def _no_serial(node: Node) -> bool:
    return node.serial is None


def _no_address(node: Node) -> bool:
    return node.bmc.address is None


def _no_password(node: Node) -> bool:
    return node.bmc.password is None
