"""Addresses of gateways, DHCP servers and numbered links are unique; a subnet's own addresses are refused."""

from __future__ import annotations

from typing import Any

import pytest

from rackready.design.addresses import addresses, number_notes
from rackready.design.endpoints import endpoints
from rackready.design.topology.build import build
from tests.unit.design.written import example, parse, refusals, texts

REMEDY = "Give one of them another address, or change the pools in networks."


def collisions(document: dict[str, Any]) -> tuple[str, ...]:
    site = parse(document)
    fabric = build(site.topology, endpoints(site)) if site.topology is not None else None
    return tuple(texts(addresses(site, fabric).problems))


def test_address_of_a_dhcp_server() -> None:
    document = example("b200-4su-roce")
    document["networks"]["oob"]["dhcp_servers"] = ["10.21.2.12"]
    assert collisions(document) == (f"addresses: 10.21.2.12 is used by a09-n2 and by a DHCP server. {REMEDY}",)


def test_many_addresses_of_one_kind_are_counted() -> None:
    document = example("b200-4su-roce")
    site = parse(document)
    same = site.model_copy(update={"racks": [*site.racks[:2], site.racks[2].model_copy(update={"index": 2})]})
    found = [text for text in texts(addresses(same).problems) if "(compute)" in text]
    pair = "is used by a02-n1 (compute) and by a03-n1 (compute)."
    assert found == [
        f"addresses: 10.128.0.15 {pair} {REMEDY}",
        f"addresses: 10.128.1.15 {pair} {REMEDY}",
        f"addresses: 10.128.2.15 {pair} (and 29 more like this) {REMEDY}",
    ]


def test_management_server_may_serve_dhcp() -> None:
    document = example("mixed-metal-virtual")
    document["networks"]["oob"]["dhcp_servers"] = ["10.50.15.10"]
    document["devices"] = [{"name": "head-1", "kind": "head", "address": "10.50.15.10"}]
    assert collisions(document) == ()


def test_address_of_a_rails_gateway() -> None:
    document = example("mixed-metal-virtual")
    document["devices"] = [{"name": "login-1", "kind": "login", "address": "192.168.3.1"}]
    assert refusals(document) == [
        (
            "devices[0].address: address 192.168.3.1 of device login-1 is the gateway of 192.168.3.0/24 (rail 3). "
            "Give device login-1 another address."
        )
    ]


def test_address_of_a_rails_nic_is_refused_when_the_site_is_loaded() -> None:
    document = example("mixed-metal-virtual")
    document["devices"] = [
        {"name": "login-1", "kind": "login", "address": "192.168.3.12"},
        {"name": "login-2", "kind": "login", "address": "192.168.3.200"},
    ]
    assert refusals(document) == [
        (
            "devices[0].address: address 192.168.3.12 of device login-1 is already used by train-2 on rail 3 "
            "(192.168.3.0/24). "
            "Give device login-1 another address."
        )
    ]


def test_rails_of_a_site_without_networks_are_judged_too() -> None:
    assert refusals(lab(networks=False), given("192.168.2.255", "192.168.1.14")) == [
        (
            "over1.yml: racks[0].nodes[0].address: address 192.168.2.255 of node node04 is the broadcast address of "
            "192.168.2.0/24 (rail 2). "
            "Give node node04 another address."
        ),
        (
            "over1.yml: racks[0].nodes[0].bmc.address: address 192.168.1.14 of the BMC of node04 is already used by "
            "node04 on rail 1 "
            "(192.168.1.0/24). "
            "Give the BMC of node04 another address."
        ),
    ]


def test_address_of_a_numbered_link() -> None:
    document = example("b200-4su-roce")
    document["networks"]["underlay"] = {"links": "numbered", "pool": "10.31.0.0/16"}
    document["devices"] = [{"name": "login-9", "kind": "login", "address": "10.31.0.65"}]
    assert collisions(document) == (f"addresses: 10.31.0.65 is used by login-9 and by spine-001 (port 1). {REMEDY}",)


def test_no_gateway_is_given_in_any_example() -> None:
    for name in ("b200-4su-roce", "gb200-nvl72-8-racks", "h100-1su-infiniband", "mixed-metal-virtual", "lab-4-nodes"):
        assert collisions(example(name)) == ()


def lab(*, networks: bool) -> dict[str, Any]:
    document = example("lab-4-nodes")
    if networks:
        document["networks"] = {
            "in_band": {"pool": "10.0.0.0/20"},
            "oob": {"pool": "10.1.0.0/20", "per_rack": 24, "routed": False},
        }
    return document


def given(address: str, bmc: str) -> dict[str, Any]:
    return {"racks": [{"name": "rack01", "nodes": [{"name": "node04", "address": address, "bmc": {"address": bmc}}]}]}


RESERVED = [
    ("10.0.0.64", "10.1.0.0", "network address", "10.0.0.64/26"),
    ("10.0.0.127", "10.1.15.255", "broadcast address", "10.0.0.64/26"),
    ("10.0.0.129", "10.1.0.1", "gateway", "10.0.0.128/26"),
]


@pytest.mark.parametrize(("address", "bmc", "what", "block"), RESERVED)
def test_address_of_a_subnet_itself(address: str, bmc: str, what: str, block: str) -> None:
    at = "over1.yml: racks[0].nodes[0]"
    assert refusals(lab(networks=True), given(address, bmc)) == [
        (
            f"{at}.address: address {address} of node node04 is the {what} of {block} (networks.in_band). "
            "Give node node04 another address."
        ),
        (
            f"{at}.bmc.address: address {bmc} of the BMC of node04 is the {what} of 10.1.0.0/20 (networks.oob). "
            "Give the BMC of node04 another address."
        ),
    ]
    assert str(parse(lab(networks=False), given(address, bmc)).node("node04").address) == address, (
        "a site without networks is not judged"
    )


def test_block_of_a_pool_that_is_one_subnet_has_no_addresses_of_its_own() -> None:
    assert str(parse(lab(networks=True), given("10.0.0.70", "10.1.1.0")).node("node04").bmc.address) == "10.1.1.0"


def test_dhcp_server_on_a_gateway() -> None:
    document = example("b200-4su-roce")
    document["networks"]["in_band"]["dhcp_servers"] = ["10.20.255.1"]
    assert refusals(document) == [
        (
            "networks.in_band.dhcp_servers[0]: address 10.20.255.1 of DHCP server 10.20.255.1 is the gateway of "
            "10.20.255.0/24 (networks.oob). "
            "Give DHCP server 10.20.255.1 another address."
        )
    ]


def newcomer(document: dict[str, Any]) -> None:
    """Put a node in front of all others."""
    document["racks"].insert(
        0,
        {
            "name": "rack00",
            "nodes": [{"name": "node05", "template": "h100", "index": 5, "unit": 1, "address": "192.0.2.15"}],
        },
    )
    document["racks"][0]["nodes"][0]["bmc"] = {"address": "192.0.2.115"}
    document["links"] += [
        {"node": "node05", "rails": f"{rail}-{rail + 3}", "switch": f"leaf0{rail // 5 + 1}", "ports": "swp17-swp20"}
        for rail in (1, 5)
    ]


def test_a_node_with_an_index_keeps_its_addresses_wherever_another_is_added() -> None:
    document = example("lab-4-nodes")
    before = {node.name: node.nics for node in addresses(parse(document)).nodes}
    newcomer(document)
    after = {node.name: node.nics for node in addresses(parse(document)).nodes}
    assert {name: after[name] for name in before} == before
    assert after["node05"][0].address == "192.168.1.15"
    assert number_notes(parse(document)) == []


def test_nodes_whose_addresses_hang_on_their_places_are_named() -> None:
    document = example("lab-4-nodes")
    del document["racks"][0]["nodes"][0]["index"]
    assert number_notes(parse(document)) == [
        (
            "addresses: node01, node02, node03, node04: their compute addresses depend on their positions in the site "
            "file, so a node added before them "
            "renumbers them. Give each node an index, or add nodes only after the last one."
        )
    ]
    assert number_notes(parse(example("b200-4su-roce"))) == []
    newcomer(document)
    document["racks"][0]["nodes"][0]["index"] = 3
    assert refusals(document) == [
        "racks[1].nodes[0]: node number 3 is already used by node node05. Give node node02 its own."
    ]
