"""Addresses: stable when anything is added, unique, and refused if a pool is exhausted."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackready.design.addresses import AddressPlan, addresses, trunk_addresses
from rackready.design.addresses_fabric import trunk_problem
from rackready.design.endpoints import endpoints, unit_of
from rackready.design.placement import place_switches
from rackready.design.topology.build import build
from rackready.design.topology.types import FabricPlan
from rackready.model.site import Site
from tests.unit.design.written import example, parse, refusals


def planned(site: Site) -> tuple[FabricPlan, AddressPlan]:
    assert site.topology is not None
    fabric = build(site.topology, endpoints(site))
    assert fabric.problems == ()
    return fabric, addresses(site, fabric)


def small(racks: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the B200 site with other racks."""
    document = example("b200-4su-roce")
    document["racks"] = racks
    document |= {"halls": [], "facility": None, "tenants": [], "deliveries": [], "other_fabrics": []}
    node = {"name": "{rack}-n[1-4]", "template": "b200", "unit": {"first": 3, "step": 11}}
    document["templates"]["racks"] = {"gpu": {"nodes": [node]}}
    return document


def rack(number: int, nodes: str = "[1-4]") -> dict[str, Any]:
    return {
        "name": f"r{number:03d}",
        "template": "gpu",
        "nodes": [{"name": f"{{rack}}-n{nodes}", "template": "b200", "unit": {"first": 3, "step": 11}}],
    }


def cables(site: Site, names: set[str]) -> dict[tuple[str, int, int], tuple[str, int]]:
    """Return (node, rail, plane) to (switch, port) for these nodes."""
    fabric, _ = planned(site)
    return {
        (link.node, link.nic, link.plane): (link.switch, link.port) for link in fabric.endpoints if link.node in names
    }


def by_name(plan: AddressPlan) -> dict[str, Any]:
    return {node.name: node for node in plan.nodes}


def test_what_a_node_gets() -> None:
    site = parse(example("b200-4su-roce"))
    _, plan = planned(site)
    node = by_name(plan)["a09-n2"]
    assert unit_of(site, site.rack_of("a09-n2")) == 2
    assert (node.in_band, node.oob, node.storage) == ("10.21.2.12", "10.20.8.12", "10.22.2.12")
    assert [(nic.rail, nic.address, nic.vlan, nic.gateway) for nic in node.nics[:2]] == [
        (1, "10.128.8.44", 901, "10.128.8.1"),
        (2, "10.128.9.44", 902, "10.128.9.1"),
    ]
    assert [(dpu.name, dpu.bmc, dpu.os) for dpu in node.dpus] == [
        ("a09-n2-dpu1", "10.20.8.16", "10.21.2.16"),
        ("a09-n2-dpu2", "10.20.8.20", "10.21.2.20"),
    ]


def test_what_switches_get() -> None:
    _, plan = planned(parse(example("b200-4su-roce")))
    found = {switch.name: switch for switch in plan.switches}
    leaf, spine = found["leaf-su002-r1"], next(switch for name, switch in found.items() if name.startswith("spine"))
    assert (leaf.loopback, leaf.asn, leaf.oob) == ("10.30.0.9", 4200000000 + 100000 + 8 * 8, "10.20.32.234")
    assert (spine.loopback, spine.asn) == ("10.30.8.1", 4200000000 + 8)
    leafs = [switch for switch in plan.switches if switch.name.startswith("leaf")]
    assert len({switch.asn for switch in leafs}) == len(leafs)


def test_no_address_is_given_twice_in_any_example() -> None:
    for name in ("b200-4su-roce", "gb200-nvl72-8-racks", "h100-1su-infiniband"):
        fabric, plan = planned(parse(example(name)))
        assert plan.problems == (), name
        assert place_switches(parse(example(name)), fabric).problems == ()


@pytest.mark.parametrize(
    ("per_rack", "text"),
    [
        (
            # at unit 35, host 31 - 35 would be in the block of the rack before
            27,
            (
                "networks.oob.per_rack: a block of /27 has no room for 4 BMCs and leaf-su001-r7, leaf-su001-r8, "
                "leaf-su002-r1 and 19 more at the top of the block. Use larger blocks in networks.oob (per_rack: 24), "
                "or lower networks.rack_slots."
            ),
        ),
        (26, None),
    ],
)
def test_switches_get_no_address_outside_their_block(per_rack: int, text: str | None) -> None:
    document = example("b200-4su-roce")
    document |= {"nic_plans": [], "other_fabrics": [], "tenants": []}
    document["racks"][2]["devices"], document["racks"][3]["switch_slots"] = [], []
    document["networks"]["oob"]["per_rack"] = per_rack
    _, plan = planned(parse(document))
    assert [str(problem) for problem in plan.problems] == ([text] if text else [])
    spine = next(switch.oob for switch in plan.switches if switch.name == "spine-008")
    assert spine == ("" if text else "10.20.8.172")


def test_numbered_links_have_a_pair_each() -> None:
    site = parse(example("gb200-nvl72-8-racks"))
    fabric, _ = planned(site)
    pairs = list(trunk_addresses(site, fabric))
    assert len(pairs) == len(fabric.trunks) > 0
    assert max(Counter(address for _, *ends in pairs for address in ends).values()) == 1
    assert all(int(low.rsplit(".", 1)[1]) % 2 == 0 for _, low, _ in pairs)


def test_pool_of_numbered_links_that_is_too_small() -> None:
    document = example("gb200-nvl72-8-racks")
    document["networks"]["underlay"]["pool"] = "10.45.0.0/20"
    site = parse(document)
    fabric, _ = planned(site)
    text = (
        "networks.underlay.pool: 10.45.0.0/20 has 4096 addresses - Expected: 6144 or more. "
        "Give it a /19, or use unnumbered links."
    )
    assert str(trunk_problem(site, fabric)) == text


def test_loopback_pool_that_is_too_small() -> None:
    document = example("b200-4su-roce")
    document["networks"]["loopbacks"] = "10.30.0.0/27"
    _, plan = planned(parse(document))
    assert str(plan.problems[0]) == (
        "networks.loopbacks: leaf-su002-r8 is leaf 16 of plane 1 - Expected: at most 15 per tier in 10.30.0.0/27. "
        "Enlarge the pool."
    )


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(1, 64), min_size=2, max_size=8, unique=True), st.data())
def test_racks_that_are_added_anywhere_renumber_nothing(numbers: list[int], data: st.DataObject) -> None:
    kept = data.draw(st.lists(st.sampled_from(numbers), min_size=1, max_size=len(numbers) - 1, unique=True))
    before = by_name(addresses(parse(small([rack(number) for number in kept]))))
    after = by_name(addresses(parse(small([rack(number) for number in numbers]))))
    assert {name: after[name] for name in before} == before


@settings(max_examples=8, deadline=None)
@given(st.sets(st.integers(1, 4), min_size=1, max_size=3), st.integers(1, 60))
def test_nodes_that_are_added_to_a_rack_renumber_nothing(slots: set[int], number: int) -> None:
    some = "[" + ",".join(str(slot) for slot in sorted(slots)) + "]"
    before = by_name(addresses(parse(small([rack(number, some)]))))
    after = by_name(addresses(parse(small([rack(number + 1), rack(number)]))))
    assert {name: after[name] for name in before} == before


@settings(max_examples=8, deadline=None)
@given(
    st.lists(st.integers(1, 24), min_size=2, max_size=6, unique=True),
    st.sets(st.integers(1, 4), min_size=1, max_size=3),
)
def test_nodes_and_racks_that_are_added_move_no_cable_of_a_node(numbers: list[int], slots: set[int]) -> None:
    some = "[" + ",".join(str(slot) for slot in sorted(slots)) + "]"
    few = parse(small([rack(number, some) for number in numbers[1:]]))
    many = parse(small([rack(number) for number in numbers]))
    names = {node.name for node in few.nodes()}
    assert cables(many, names) == cables(few, names)


def test_place_in_the_unit_is_that_of_rack_and_slot() -> None:
    found = cables(parse(small([rack(1, "[2]"), rack(9, "[1,3]"), rack(16, "[4]")])), {"r001-n2", "r009-n3", "r016-n4"})
    assert {name: end for (name, rail, _), end in found.items() if rail == 1} == {
        "r001-n2": ("leaf-su001-r1", 2),
        "r009-n3": ("leaf-su002-r1", 3),
        "r016-n4": ("leaf-su002-r1", 32),
    }


@settings(max_examples=8, deadline=None)
@given(st.permutations(list(range(1, 7))))
def test_order_of_the_file_does_not_matter(order: list[int]) -> None:
    straight = by_name(addresses(parse(small([rack(number) for number in range(1, 7)]))))
    assert by_name(addresses(parse(small([rack(number) for number in order])))) == straight


def test_added_units_renumber_no_switch() -> None:
    few, many = example("b200-4su-roce"), example("b200-4su-roce")
    few["racks"] = [{"name": "a[01-16]", "template": "gpu"}, *few["racks"][1:]]
    few["tenants"], few["deliveries"] = [], []
    few["other_fabrics"][2]["racks"] = ["a[01-16]"]
    _, before = planned(parse(few))
    _, after = planned(parse(many))
    known = {switch.name: (switch.loopback, switch.asn) for switch in after.switches}
    assert all(known[switch.name] == (switch.loopback, switch.asn) for switch in before.switches)


def test_address_given_by_hand_is_kept_and_its_double_refused() -> None:
    document = example("lab-4-nodes")
    document["networks"] = {"in_band": {"pool": "10.0.0.0/20"}, "oob": {"pool": "10.1.0.0/20", "per_rack": 24}}
    del document["racks"][0]["nodes"][0]["address"]
    overlay = {"racks": [{"name": "rack01", "nodes": [{"name": "node04", "address": "10.0.0.12"}]}]}
    assert str(parse(copy.deepcopy(document)).node("node02").address) == "10.0.0.12"
    assert refusals(document, overlay) == [
        (
            "over1.yml: racks[0].nodes[0].address: address 10.0.0.12 is already used by node node02. "
            "Give node node04 its own."
        )
    ]


REFUSED = [
    (
        {"racks": [rack(300)]},
        (
            "racks[0]: rack r300 is number 300, but networks.oob.pool 10.20.0.0/16 has room for 256 racks of /24. "
            "Use a larger pool or smaller blocks, or give the rack a lower index."
        ),
    ),
    (
        {"racks": [rack(1, "[1-5]")]},
        (
            "racks[0].nodes[0]: node r001-n5 has number 5 - Expected: 1 to 4 within its rack (networks.rack_slots). "
            "Add a slot, or change the name."
        ),
    ),
    (
        {"racks": [rack(1), {**rack(1), "name": "s001"}]},
        "racks[1].index: number 1 is already used by rack r001. Give rack s001 its own.",
    ),
    (
        {
            "racks": [
                {
                    **rack(1),
                    "name": "middle",
                    "nodes": [{"name": "n[1-2]", "template": "b200", "unit": {"first": 1, "step": 10}}],
                }
            ]
        },
        "racks[0].index: is required and missing: the name middle has no number to derive addresses from. Add it.",
    ),
    (
        {"racks": [{**rack(1), "su": 1}, {**rack(62), "su": 1}]},
        (
            "racks[1]: racks r001 and r062 are both in unit 1, whose subnets (/24) have room for 61 consecutive racks. "
            "Number the racks of a unit consecutively, or use larger subnets in networks.compute."
        ),
    ),
    (
        {"racks": [{**rack(1), "su": 513}]},
        (
            "racks[0]: rack r001 is in unit 513, but networks.compute.pool 10.128.0.0/12 has subnets (/24) for 512 "
            "units. "
            "Use a larger pool or smaller subnets in networks.compute."
        ),
    ),
]


@pytest.mark.parametrize(("part", "text"), REFUSED)
def test_refused(part: dict[str, Any], text: str) -> None:
    assert text in refusals(small(part["racks"]))
