"""Lists of a plan as tables, for CSV and the workbook: orders, cables, racks, configuration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rackready.design.addresses import AddressPlan, NodeAddresses
from rackready.design.addresses_fabric import trunk_addresses
from rackready.design.cabling.cords import NO_PART, Cord, cords
from rackready.design.capacity.cooling_loss import cdus_of, served_racks
from rackready.design.plan import Plan
from rackready.design.subnets import Subnet, managed_by, subnets
from rackready.design.tenants import port_key, tenants
from rackready.model.site import Site
from rackready.render.cables import BOM_COLUMNS, CSV_COLUMNS, CSV_NUMBERS, bom_rows, cable_rows
from rackready.render.tables import Row, Table

ADDRESS_COLUMNS = ("device", "network", "rail", "plane", "address", "prefix", "vlan", "gateway", "as_number")
COOLING_COLUMNS = ("cdu", "rack", "liquid_kw", "partial", "other_cdus")
PORT_COLUMNS = ("platform", "port", "network", "state", "nodes", "why")
ELEVATION_COLUMNS = ("rack", "unit", "height_u", "device", "kind", "model")
"""``unit``: lowest unit of the device; empty for a device without one, such as a zero-U PDU."""


def plan_tables(plan: Plan) -> list[Table]:
    """Return every table of a plan. Its name is also the name of its CSV and its sheet."""
    return [
        Table("cables", CSV_COLUMNS, lambda: cable_rows(plan.cables.cables), CSV_NUMBERS),
        Table("cords", (*Cord._fields, "part"), lambda: _cords(plan)),
        Table("bom", BOM_COLUMNS, lambda: bom_rows(plan.bom), free=frozenset({"part", "description", "source"})),
        Table("ports", PORT_COLUMNS, lambda: _ports(plan), free=frozenset({"why"})),
        Table("elevations", ELEVATION_COLUMNS, lambda: _elevations(plan)),
        Table("cooling", COOLING_COLUMNS, lambda: _cooling(plan)),
        Table("addresses", ADDRESS_COLUMNS, lambda: _addresses(plan)),
        Table("networks", Subnet._fields, lambda: _networks(plan)),
        Table("tenants", ("tenant", "node", "vlan", "vrf", "vni", "pkey"), lambda: _tenants(plan)),
    ]


def _ports(plan: Plan) -> Iterator[Row]:
    """Yield server ports outside the compute fabric: each state (cabled, unused, not cabled) with its node count."""
    for port, count in plan.cables.node_ports:
        yield port.platform, port.port, port.network, port.state, count, port.why


def _elevations(plan: Plan) -> Iterator[Row]:
    """Yield the devices of every rack, racks by name, from the top unit down."""
    for rack in plan.racks:
        for device in sorted(rack.devices, key=lambda device: (-(device.unit or 0), device.name)):
            yield rack.name, device.unit, device.model.rack_units, device.name, device.kind, device.model.label


def _cooling(plan: Plan) -> Iterator[Row]:
    """Yield the coolant distribution unit of every rack, and the rack's heat into liquid if published."""
    for cdu, rack, watts, partial, others in served_racks(cdus_of(plan.site), plan.racks):
        yield cdu, rack, round(watts / 1000, 1), "at least" if partial else "", others


def _addresses(plan: Plan) -> Iterator[Row]:
    """Yield every address; numbered links between switches name both ends."""
    yield from _rows(plan.site, plan.addresses)
    if plan.site.topology is not None and not plan.addresses.problems and not plan.problems:
        for trunk, low, high in trunk_addresses(plan.site, plan.fabric):
            yield trunk.lower, f"link {trunk.lower_port} to {trunk.upper}", "", "", low, 31, "", "", ""
            yield trunk.upper, f"link {trunk.upper_port} to {trunk.lower}", "", "", high, 31, "", "", ""


def _networks(plan: Plan) -> Iterable[Row]:
    """Return every subnet with gateway, VLAN, MTU and DHCP relay targets."""
    return subnets(plan.site, plan.addresses.nodes)


def _tenants(plan: Plan) -> Iterator[Row]:
    """Yield every node's tenant: settings of its switch ports, or its partition key with the membership bit."""
    for node, tenant in tenants(plan.site).items():
        yield tenant.name, node, tenant.vlan or "", tenant.vrf or "", tenant.vni or "", port_key(tenant)


def _cords(plan: Plan) -> Iterator[Row]:
    """Yield every power cord; an empty cell is unknown."""
    return ((*cord, NO_PART) for cord in cords(plan.racks))


def _rows(site: Site, given: AddressPlan) -> Iterator[Row]:
    for node in given.nodes:
        yield from _node_rows(site, node)
    for switch in given.switches:
        number = switch.asn or ""
        if switch.oob:
            # The AS number goes beside the loopback, the router's own address; beside another address only without one.
            yield (*_managed(site, switch.name, "oob", switch.oob), "" if switch.loopback else number)
        if switch.loopback:
            yield (switch.name, "loopback", "", "", switch.loopback, 32, "", "", number)
    yield from ((*_managed(site, name, "oob", address), "") for name, address in given.devices if address)


def _node_rows(site: Site, node: NodeAddresses) -> Iterator[Row]:
    for network, address in (("in_band", node.in_band), ("oob", node.oob), ("storage", node.storage)):
        if address:
            yield (*_managed(site, node.name, network, address), "")
    for nic in node.nics:
        yield (node.name, "compute", nic.rail, nic.plane, nic.address, nic.prefix, nic.vlan, nic.gateway, "")
    for dpu in node.dpus:
        yield from (
            (*_managed(site, dpu.name, network, address), "")
            for network, address in (("oob", dpu.bmc), ("in_band", dpu.os))
            if address
        )


def _managed(site: Site, device: str, network: str, address: str) -> Row:
    """Return a row without the AS number."""
    prefix, vlan, gateway = managed_by(site, network, address)
    return device, network, "", "", address, prefix, vlan, gateway
