"""A plan as files: a page for people, lists for those who order, pull cables and configure, and JSON for programs. Lists are written as streams."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from rackready.design.addresses import AddressPlan, NodeAddresses
from rackready.design.addresses_fabric import trunk_addresses
from rackready.design.cabling.cords import NO_PART, Cord, cords
from rackready.design.plan import Plan
from rackready.design.subnets import Subnet, managed_by, subnets
from rackready.design.tenants import port_key, tenants
from rackready.model.site import Site
from rackready.render.cable_pages import write_rack_pages
from rackready.render.cables import write_bom, write_csv
from rackready.render.plan_html import plan_html
from rackready.render.plan_text import facts

ADDRESS_COLUMNS = ("device", "network", "rail", "plane", "address", "prefix", "vlan", "gateway", "as_number")

_Row = tuple[object, ...]


def write_plan(plan: Plan, document: Mapping[str, Any], folder: Path) -> list[str]:
    """Write all files of a plan into a folder, which is made when it is not there, and return their names; cable pages as their folder."""
    pages = folder / "cables"
    pages.mkdir(parents=True, exist_ok=True)
    (folder / "plan.html").write_text(page(plan, document), encoding="utf-8")
    (folder / "plan.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    with _opened(folder / "cables.csv") as file:
        write_csv(plan.cables.cables, file)
    with _opened(folder / "bom.csv") as file:
        write_bom(plan.bom, file)
    with _opened(folder / "addresses.csv") as file:
        write_addresses(plan, file)
    with _opened(folder / "networks.csv") as file:
        write_networks(plan, file)
    with _opened(folder / "tenants.csv") as file:
        write_tenants(plan, file)
    with _opened(folder / "cords.csv") as file:
        write_cords(plan, file)
    looks = {rack.name: rack for rack in plan.racks}
    _only(pages, {path.name for path in write_rack_pages(plan.site.name, plan.cables.cables, pages, looks)})
    return ["plan.html", "plan.json", "cables.csv", "cords.csv", "bom.csv", "addresses.csv", "networks.csv", "tenants.csv", "cables/"]


def _opened(path: Path) -> TextIO:
    return path.open("w", encoding="utf-8", newline="")


def _only(folder: Path, wanted: set[str]) -> None:
    """Remove pages of racks that are in the plan no longer: somebody would pull their cables."""
    for path in folder.glob("cables-*.html"):
        if path.name not in wanted:
            path.unlink()


def page(plan: Plan, document: Mapping[str, Any]) -> str:
    """Return the plan as one HTML page."""
    own = [problem for problem in plan.problems if problem not in plan.capacity.problems]
    lines = {name: text for name, text in facts(document) if name in {"nodes", "devices", "fabric", "cables", "power cords", "addresses"}}
    return plan_html(plan.site.name, plan.capacity, plan.racks, plan.fabric if plan.fabric.switches else None, own, lines)


def write_addresses(plan: Plan, file: TextIO) -> None:
    """Write every address as CSV; numbered links between switches name both ends."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(ADDRESS_COLUMNS)
    writer.writerows(_rows(plan.site, plan.addresses))
    if plan.site.topology is not None and not plan.addresses.problems and not plan.problems:
        for trunk, low, high in trunk_addresses(plan.site, plan.fabric):
            writer.writerow((trunk.lower, f"link {trunk.lower_port} to {trunk.upper}", "", "", low, 31, "", "", ""))
            writer.writerow((trunk.upper, f"link {trunk.upper_port} to {trunk.lower}", "", "", high, 31, "", "", ""))


def write_networks(plan: Plan, file: TextIO) -> None:
    """Write every subnet as CSV: with its gateway, VLAN, MTU and the servers to which DHCP is relayed."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(Subnet._fields)
    writer.writerows(["" if cell is None else cell for cell in subnet] for subnet in subnets(plan.site, plan.addresses.nodes))


def write_tenants(plan: Plan, file: TextIO) -> None:
    """Write the tenant of every node as CSV: what is to be set on the ports of its switches, or its partition key with the bit of membership."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(("tenant", "node", "vlan", "vrf", "vni", "pkey"))
    for node, tenant in tenants(plan.site).items():
        writer.writerow((tenant.name, node, tenant.vlan or "", tenant.vrf or "", tenant.vni or "", port_key(tenant)))


def write_cords(plan: Plan, file: TextIO) -> None:
    """Write every power cord as CSV; empty cells are what nobody says."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow((*Cord._fields, "part"))
    writer.writerows((*("" if cell is None else cell for cell in cord), NO_PART) for cord in cords(plan.racks))


def _rows(site: Site, given: AddressPlan) -> Iterator[_Row]:
    for node in given.nodes:
        yield from _node_rows(site, node)
    for switch in given.switches:
        number = switch.asn or ""
        if switch.oob:
            # The AS number stands beside the loopback, which is the router's own address; beside the other one only where there is none.
            yield (*_managed(site, switch.name, "oob", switch.oob), "" if switch.loopback else number)
        if switch.loopback:
            yield (switch.name, "loopback", "", "", switch.loopback, 32, "", "", number)
    yield from ((*_managed(site, name, "oob", address), "") for name, address in given.devices if address)


def _node_rows(site: Site, node: NodeAddresses) -> Iterator[_Row]:
    for network, address in (("in_band", node.in_band), ("oob", node.oob), ("storage", node.storage)):
        if address:
            yield (*_managed(site, node.name, network, address), "")
    for nic in node.nics:
        yield (node.name, "compute", nic.rail, nic.plane, nic.address, nic.prefix, nic.vlan, nic.gateway, "")
    for dpu in node.dpus:
        yield from ((*_managed(site, dpu.name, network, address), "") for network, address in (("oob", dpu.bmc), ("in_band", dpu.os)) if address)


def _managed(site: Site, device: str, network: str, address: str) -> _Row:
    """Return all of a row but the AS number."""
    prefix, vlan, gateway = managed_by(site, network, address)
    return device, network, "", "", address, prefix, vlan, gateway
