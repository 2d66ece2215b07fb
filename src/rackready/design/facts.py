"""Plain data per host and per switch, computed from the site: the input of every later phase."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from rackready.design.check_groups import domain_nodes, domains_of_nodes
from rackready.design.compute_addresses import NicAddress, compute_addresses
from rackready.design.fabric_software import fabric_software
from rackready.design.overlay import isolated, tenant_vlan
from rackready.design.software_of import software_site
from rackready.design.wiring import cables
from rackready.model.baseline import Baseline
from rackready.model.profile import GpuProfile, PlatformProfile, SwitchProfile
from rackready.model.site import Node, Site, Switch
from rackready.model.software import DriverSet, SoftwareProfile
from rackready.profiles import loader

_NO_STATE = {"source", "files", "apply"}
"""Fields of a baseline that describe how a node comes to its versions, not which it has."""


@dataclass(frozen=True, slots=True)
class NicFacts:
    """One compute NIC of one node, with its cable."""

    rail: int
    rdma_device: str
    netdev: str
    pci: str
    gpu: int
    numa: int
    rate: int
    address: str
    prefix: int
    vlan: int
    switch: str
    port: str
    switch_os: str = ""
    """Operating system of the switch; empty where no cable is declared."""
    gateway: str = ""
    """Host 1 of the subnet, on the leaf of a routed fabric. Nothing has it in a fabric of one tier."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One node."""

    node: Node
    rack: str
    index: int
    platform: PlatformProfile
    gpu: GpuProfile
    software: SoftwareProfile
    driver: str
    nics: tuple[NicFacts, ...]
    baseline: Baseline | None = None
    """Desired firmware and BIOS settings, from the site, else from the platform's profile."""
    persistence: bool = True
    """Whether the site wants persistence mode on."""
    manage_dcgm: bool = True
    """Whether the site has DCGM installed."""
    domain: str = ""
    """NVLink domain that the site file puts the node in; empty: none."""
    domain_nodes: int = 0
    """Nodes that the site file puts in that domain."""


@dataclass(frozen=True, slots=True)
class PortFacts:
    """One cabled port of a switch."""

    port: str
    node: str
    rail: int
    vlan: int
    netdev: str
    description: str


@dataclass(frozen=True, slots=True)
class SwitchFacts:
    """One switch."""

    switch: Switch
    profile: SwitchProfile
    mtu: int
    ports: tuple[PortFacts, ...]
    vlans: tuple[int, ...]


def driver_branch(site: Site) -> int:
    """Return the driver branch of the site's version set; ``software_site`` gives the site of a node's own set."""
    return site.software.driver_branch or loader.software(site.software.set).default_branch


def driver_set(site: Site) -> DriverSet:
    """Return the driver that the site wants, with its packages."""
    return loader.software(site.software.set).driver[driver_branch(site)]


def driver_version(site: Site) -> str:
    """Return the full driver version that the site asks for, for example 580.173.02."""
    return driver_set(site).version


def node_facts(site: Site, name: str) -> NodeFacts:
    """Return the desired state of one node. Raises KeyError if the site has no such node.

    NICs of a RoCE fabric without an address are left out. With planes by port, a NIC has the port of plane 1 only: no
    phase configures the others yet (``deployable``).
    """
    node = site.node(name)
    platform = loader.platform(node.platform)
    own = software_site(site, name)
    software = loader.software(own.software.set)
    baseline = site.baselines.get(platform.id) or platform.baseline
    domain = domains_of_nodes(site).get(name)
    return NodeFacts(
        node,
        site.rack_of(name).name,
        site.position_of(name),
        platform,
        loader.gpu(platform.gpu),
        software,
        driver_version(own),
        _nics(site, node, platform),
        baseline,
        own.software.persistence,
        own.software.manage_dcgm,
        domain.name if domain is not None else "",
        len(domain_nodes(site, domain)) if domain is not None else 0,
    )


def _nics(site: Site, node: Node, platform: PlatformProfile) -> tuple[NicFacts, ...]:
    given = {nic.rail: nic for nic in compute_addresses(site, site.rack_of(node.name), node) if nic.plane == 1}
    unaddressed = site.fabric.kind == "infiniband"
    wired = cables(site)
    systems = site.remember("switch systems", lambda: {switch.name: switch.os for switch in site.switches})
    tenant, out = isolated(site).get(node.name), []
    for nic in platform.nics:
        own = given.get(nic.rail) or (NicAddress(nic.rail, 1, "", 0, 0, "") if unaddressed else None)
        if own is None:
            continue
        switch, port = wired.get((node.name, nic.rail), ("", ""))
        hardware = (nic.rail, nic.rdma_device, nic.netdev, nic.pci, nic.gpu, nic.numa, nic.rate)
        vlan = tenant_vlan(site, tenant, own.vlan)
        out.append(
            NicFacts(*hardware, own.address, own.prefix, vlan, switch, port, systems.get(switch, ""), own.gateway)
        )
    return tuple(out)


def switch_facts(site: Site, name: str) -> SwitchFacts:
    """Return the desired state of one switch. Raises KeyError if the site has no such switch."""
    switch = next((item for item in site.switches if item.name == name), None)
    if switch is None:
        raise KeyError(name)
    ports = [*site.remember("ports", lambda: _ports(site)).get(name, [])]
    ports.sort(key=lambda port: (len(port.port), port.port))
    return SwitchFacts(
        switch,
        loader.switch(switch.model),
        site.fabric.switch_mtu,
        tuple(ports),
        tuple(sorted({port.vlan for port in ports})),
    )


def _ports(site: Site) -> dict[str, list[PortFacts]]:
    """Return the cabled ports of every switch, in the order of nodes."""
    out: dict[str, list[PortFacts]] = {}
    for item in site.nodes():
        for nic in node_facts(site, item.name).nics:
            out.setdefault(nic.switch, []).append(
                PortFacts(nic.port, item.name, nic.rail, nic.vlan, nic.netdev, f"{item.name} rail{nic.rail}")
            )
    return out


def _unset(software: SoftwareProfile) -> set[str]:
    """Return fields that a set without them has no digest of: a new field of ours voids no evidence."""
    return {"absent"} if software.cuda_compat else {"absent", "cuda_compat"}


def _of_software(facts: NodeFacts) -> dict[str, Any]:
    """Return the version set as data, without the packages that only other servers get: adding those voids nothing."""
    software = facts.software
    wanted = software.model_dump(mode="json", exclude=_unset(software))
    fabric = fabric_software(software, software.of_version(facts.driver), facts.platform)
    if not fabric.subnet_manager:
        wanted["nvlsm"] = ""
    for driver in wanted["driver"].values():
        driver["fabric_nvlink5"] = driver["fabric_nvlink5"] if fabric.subnet_manager else {}
        driver["imex"] = driver["imex"] if fabric.imex else {}
        if not driver["precompiled"]:
            del driver["precompiled"]
    return wanted


_PLANNED_GPU: dict[str, Any] = {
    "form": True,
    "memory_nominal": True,
    "memory_bandwidth": True,
    "compute": True,
    "nvlink_bridge": True,
    "mig": True,
    "kernel_modules": True,
}
_PLANNED_PLATFORM: dict[str, Any] = {
    **dict.fromkeys(
        (
            "su_nodes",
            "weight",
            "typical_power",
            "transient_power",
            "psus",
            "fed",
            "cooling",
            "airflow",
            "other_nics",
            "max_power",
            "rack_units",
            "source",
            "baseline",
            "redfish",
            "nic_path",
            "host_path",
        ),
        True,
    ),
    "nics": {"__all__": {"cage": True, "planes": True, "port": True}},
}
"""Fields of profiles that no role sets and no measurement depends on.

(BMC gates judge by values, supplies and cooling of the last pass, which describe the server as it is. Desired firmware
and BIOS come from the facts of the node, which prefer the values of the site.)
"""


def fabric_document(site: Site) -> dict[str, Any]:
    """Return the fabric as data."""
    return site.fabric.model_dump(mode="json", exclude=absent_fields(site))


def absent_fields(site: Site) -> dict[str, Any]:
    """Return the fields of the fabric that it does not use and that came later: evidence of old has none of them.

    The way to UFM is one of them: another address or login changes no node.
    """
    fabric = site.fabric
    out: dict[str, Any] = {"infiniband": fabric.infiniband is None or {"ufm"}}
    out |= {} if fabric.qos.ecn else {"qos": {"ecn"}}
    return out | ({"address_manager": True} if fabric.address_manager == "auto" else {})


def desired_digest(site: Site, name: str) -> str:
    """Return the SHA-256 (hex) of the desired state of one node. Evidence with another digest does not count.

    Addresses of management networks, credentials and the mirror's URL are left out: they are ways to reach a node, not
    its state. So are figures of profiles that only plans use: a better source for a server's weight voids no
    measurement; and packages that the server's model does not get.
    """
    facts = node_facts(site, name)
    wanted = {
        "platform": facts.platform.model_dump(mode="json", exclude=_PLANNED_PLATFORM),
        "gpu": facts.gpu.model_dump(mode="json", exclude=_PLANNED_GPU),
        "serial": facts.node.serial,
        "software": _of_software(facts),
        "driver": facts.driver,
        "fabric": fabric_document(site),
        "baseline": facts.baseline.model_dump(mode="json", exclude=_NO_STATE) if facts.baseline is not None else None,
        "nics": [[nic.rail, nic.netdev, nic.address, nic.vlan, nic.switch, nic.port] for nic in facts.nics],
        **({} if facts.persistence else {"persistence": False}),
        **({} if facts.manage_dcgm else {"manage_dcgm": False}),
    }
    return hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()
