"""Planes by rail: each plane is a subnet with its own manager, and each NIC has its leaf."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.design.deployable import refusals
from rackready.design.facts import node_facts, switch_facts
from rackready.design.infiniband import infiniband_vars, opensm_instances, subnets
from rackready.design.plan import lay
from rackready.design.site import parse_site
from rackready.drivers.ib.planned import planned_cables
from rackready.model.site import Site
from tests.unit.design.written import example, parse
from tests.unit.infiniband.fabrics import site_text

MANAGERS = ["a01-n1", "a01-n2"]


def site(planes: int = 2, **fabric: Any) -> Site:
    """Return a site of 8 nodes in two scalable units, whose rails are in so many planes."""
    document = yaml.safe_load(site_text(8, 4))
    document["topology"] |= {"planes": planes, "planes_by": "rail"}
    document["fabric"]["infiniband"] = {"subnet_manager": "opensm", "nodes": MANAGERS} | fabric
    return parse_site(document, source="planes", base=Path("/base"))


def test_each_plane_is_a_subnet_with_its_own_managers() -> None:
    own = site()
    found = {subnet.name: subnet for subnet in subnets(own)}
    assert list(found) == ["plane1", "plane2"]
    assert {len(subnet.switches) for subnet in found.values()} == {8}
    rails = {name: {int(switch[-1]) for switch in subnet.switches} for name, subnet in found.items()}
    assert rails == {"plane1": {1, 3, 5, 7}, "plane2": {2, 4, 6, 8}}
    assert [(item["name"], item["rdma_device"], item["priority"]) for item in opensm_instances(own, "a01-n2")] == [
        ("plane1", "mlx5_0", 14),
        ("plane2", "mlx5_3", 14),
    ]
    assert refusals(own, [], "fabric") == []


def test_a_fabric_of_one_plane_keeps_its_name() -> None:
    assert [subnet.name for subnet in subnets(site(1))] == ["fabric"]


@pytest.mark.parametrize("planes", [1, 2, 4])
def test_every_nic_has_the_leaf_to_which_its_cable_is_planned(planes: int) -> None:
    own = site(planes)
    planned = {(cable.a.device, cable.a.port): cable.b.end for cable in planned_cables(lay(own)).cables}
    nics = [(node.name, nic) for node in own.nodes() for nic in node_facts(own, node.name).nics]
    assert [(nic.switch, nic.port) for _, nic in nics] == [planned[node, nic.rdma_device] for node, nic in nics]


def test_the_roots_of_all_planes_are_told() -> None:
    document = yaml.safe_load(site_text(8, 4))
    document["topology"] |= {"planes": 2, "planes_by": "rail"}
    document["fabric"]["infiniband"] = {"subnet_manager": "opensm", "nodes": MANAGERS}
    guids = {f"p{plane}-spine-001": f"0xb83fd20300f0000{plane}" for plane in (1, 2)}
    document["switches"] = [{"name": name, "model": "qm9700", "guid": guid} for name, guid in guids.items()]
    own = parse_site(document, source="planes", base=Path("/base"))
    assert infiniband_vars(own)["opensm_root_guids"] == sorted(guids.values())


def test_one_ufm_does_not_manage_two_planes() -> None:
    ufm = {"url": "https://192.0.2.7", "token": {"env": "UFM_TOKEN"}}
    [reason] = refusals(site(subnet_manager="ufm", ufm=ufm, nodes=[]), [], "fabric")
    assert str(reason).endswith(
        "One UFM manages one subnet. Join the leafs by a topology of one plane, or set external."
    )


def test_leafs_of_every_plane_of_a_routed_fabric_have_the_ports_of_their_rail() -> None:
    document = example("b200-4su-roce")
    document["topology"] |= {"planes": 2, "planes_by": "rail"}
    for rack in document["racks"]:
        rack.pop("switch_slots", None)
    login = {"os": "cumulus_nvue", "address": "192.0.2.50", "password": {"env": "SWITCH_PASSWORD"}}
    document["switches"] = [{"name": "p2-leaf-su001-r2", "model": "sn5600_2x400", **login}]
    own = parse(document)
    nics = node_facts(own, own.nodes()[0].name).nics
    assert {nic.switch[:3] for nic in nics} == {"p1-", "p2-"}
    assert all(nic.address for nic in nics)
    ports = switch_facts(own, "p2-leaf-su001-r2").ports
    assert ({port.rail for port in ports}, len(ports)) == ({2}, 32)
