"""The whole plan: every example plans without problems and always the same; problems give no partial plan."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackready.design.deployable import refusals
from rackready.design.device_facts import device_facts
from rackready.design.diff import FieldChange, difference
from rackready.design.plan import Plan, lay, plan_site
from rackready.design.plan_summary import summary
from tests.unit.design.written import EXAMPLES, Change, change, example, parse

NAMES = sorted(path.stem for path in EXAMPLES.glob("*.yml"))
SMALL = [name for name in NAMES if "100k" not in name]
"""The plan of 100,000 GPUs takes about ten seconds: it is made once."""
EXPECTED_CABLES = {
    "b200-4su-roce": 2946,
    "gb200-nvl72-8-racks": 1224,
    "gpus-100k-three-tier": 300_448,
    "h100-1su-infiniband": 740,
}


def planned(name: str, *changes: Change) -> Plan:
    document = example(name)
    for apply in changes:
        apply(document)
    return plan_site(parse(document))


def plain(plan: Plan) -> str:
    return (
        json.dumps(summary(plan))
        + json.dumps(device_facts(plan))
        + "\n".join(cable.label for cable in plan.cables.cables)
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_example_plans_without_a_problem(name: str) -> None:
    plan = planned(name)
    assert plan.problems == ()
    assert len(plan.cables.cables) == EXPECTED_CABLES.get(name, 0)
    assert all(not cable.problem for cable in plan.cables.cables)
    assert len(plan.addresses.nodes) == len(plan.site.nodes())
    facts = device_facts(plan)
    assert {key.removeprefix("node ") for key in facts if key.startswith("node ")} == {
        node.name for node in plan.site.nodes()
    }


@pytest.mark.parametrize("name", SMALL)
def test_plan_is_deterministic(name: str) -> None:
    assert plain(planned(name)) == plain(planned(name))


def test_written_links_are_planned_like_a_fabric() -> None:
    plan = planned("lab-4-nodes")
    assert plan.fabric.counts == {"leaf": 2, "tiers": 1, "planes": 1, "nodes": 4, "devices": 0, "endpoint_cables": 32}
    assert plan.fabric.endpoints[0].port == 1
    assert plan.fabric.spof == (
        (
            "leaf01 to leaf02 (2 switches), each: the only leaf of 4 rails for 4 nodes: after its loss they keep 4 of "
            "8 rails (50.0 % lost)."
        ),
    )


def test_every_link_is_a_fact_of_both_of_its_ends() -> None:
    facts = device_facts(planned("h100-1su-infiniband"))
    for key, own in facts.items():
        for field, text in own.items():
            far, _, port = text.partition(" ")
            if key.startswith("switch ") and field.startswith("port ") and f"switch {far}" in facts:
                assert (
                    facts[f"switch {far}"][f"port {port}"]
                    == f"{key.removeprefix('switch ')} {field.removeprefix('port ')}"
                )
            if field.startswith("link "):
                assert (
                    facts[f"switch {far}"][f"port {port}"]
                    == f"{key.removeprefix('node ')} rail {field.split()[1].split('.')[0]}"
                )


def test_fabric_that_cannot_be_built_is_a_problem_at_its_place_and_lists_no_cable() -> None:
    plan = planned("h100-1su-infiniband", change("topology.leaf", {"model": "qm9700", "radix": 128}))
    assert [str(problem) for problem in plan.problems] == [
        (
            "topology.leaf.radix: ports of qm9700 at 400 Gb/s - Expected: at most 64 Actual: 128. "
            "Remove radix, or use a larger model."
        ),
        (
            "topology.spine.radix: ports of qm9700 at 400 Gb/s - Expected: at most 64 Actual: 128. "
            "Remove radix, or use a larger model."
        ),
        (
            "topology.core.radix: ports of qm9700 at 400 Gb/s - Expected: at most 64 Actual: 128. "
            "Remove radix, or use a larger model."
        ),
    ]
    assert plan.cables.cables == ()
    assert "compute fabric: it has problems, so no cables are listed." in plan.notes


def test_wrong_stock_is_a_problem_at_its_place() -> None:
    plan = planned("h100-1su-infiniband", change("cable_stock", {"MFP7E10": [4]}))
    assert [problem.path for problem in plan.problems] == ["cable_stock.MFP7E10"]
    assert plan.problems[0].message.endswith("m Actual: 4 m. Correct it, or add its part number to profiles/parts.")


def test_negative_spares_are_refused() -> None:
    with pytest.raises(ValueError, match="spares - Expected: 0 percent or more Actual: -1"):
        plan_site(parse(example("lab-4-nodes")), spares_pct=-1)


def test_difference_names_fields() -> None:
    before = device_facts(planned("lab-4-nodes"))
    after = device_facts(planned("lab-4-nodes", change("links.0.ports", "swp2-swp17")))
    found = difference(before, after)
    assert (found.added, found.removed) == ((), ())
    assert list(found.changed) == ["node node01", "node node02", "node node03", "node node04", "switch leaf01"]
    assert found.changed["node node01"][0] == FieldChange("link 1.1", "leaf01 swp1", "leaf01 swp2")
    assert FieldChange("port swp17", "", "node04 rail 4") in found.changed["switch leaf01"]
    assert FieldChange("port swp1", "node01 rail 1", "") in found.changed["switch leaf01"]


B200 = "b200-4su-roce"


@pytest.mark.parametrize(
    ("path", "value", "change_of"),
    [
        (
            "tenants.0.vlan",
            1300,
            (
                "node a01-n1",
                "tenant",
                "research, VLAN 1201, VRF research, VNI 100201",
                "research, VLAN 1300, VRF research, VNI 100201",
            ),
        ),
        (
            "networks.oob.dhcp_servers",
            ["10.20.255.12"],
            (
                "node a01-n1",
                "BMC network",
                "/24, gateway 10.20.0.1, MTU 1500, DHCP relayed to 10.20.255.10 and 10.20.255.11",
                "/24, gateway 10.20.0.1, MTU 1500, DHCP relayed to 10.20.255.12",
            ),
        ),
        (
            "networks.storage.mtu",
            1500,
            ("node a01-n1", "storage network", "/26, gateway 10.22.0.1, MTU 9000", "/26, gateway 10.22.0.1, MTU 1500"),
        ),
        (
            "networks.storage.vlan",
            77,
            (
                "node a01-n1",
                "storage network",
                "/26, gateway 10.22.0.1, MTU 9000",
                "/26, gateway 10.22.0.1, MTU 9000, VLAN 77",
            ),
        ),
        (
            "nic_plans.0.bonds.0.mode",
            "active-backup",
            ("node a01-n1", "bond bond0", "802.3ad of bf3-1p2, bf3-2p2", "active-backup of bf3-1p2, bf3-2p2"),
        ),
        (
            "nic_plans.0.dpus.0.os",
            "bf-bundle-3.2",
            (
                "node a01-n1",
                "DPU dpu1",
                "dpu mode, bf-bundle-3.1, bf3-1p1, bf3-1p2",
                "dpu mode, bf-bundle-3.2, bf3-1p1, bf3-1p2",
            ),
        ),
        (
            "nic_plans.0.nics.+",
            {"name": "rail1", "role": "compute", "rail": 1, "gpu": 0},
            ("node a01-n1", "port rail1", "", "compute, rail 1, plane 1, GPU 0"),
        ),
        (
            "networks.underlay",
            {"links": "numbered", "pool": "10.64.0.0/12"},
            ("switch leaf-su001-r1", "address of swp17s0", "", "10.64.0.64/31"),
        ),
    ],
    ids=["tenant", "relay", "mtu", "vlan", "bond", "dpu", "affinity", "numbered"],
)
def test_device_facts_of_the_site_are_compared(path: str, value: object, change_of: tuple[str, str, str, str]) -> None:
    before, after = device_facts(planned(B200)), device_facts(planned(B200, change(path, value)))
    key, *fields = change_of
    assert FieldChange(*fields) in difference(before, after).changed[key]


def test_partition_keys_are_compared_as_ports_hold_them() -> None:
    before = device_facts(planned("h100-1su-infiniband"))
    after = device_facts(planned("h100-1su-infiniband", change("tenants.0.full_member", value=False)))
    found = difference(before, after).changed
    assert found["node a01-n1"] == (
        FieldChange("tenant", "research, partition key 0x8011", "research, partition key 0x0011"),
    )
    assert len(found) == 16


def test_nothing_is_different_from_itself() -> None:
    facts = device_facts(planned("mixed-metal-virtual"))
    assert not difference(facts, facts)


def test_facts_of_some_devices_are_those_of_all_and_the_others_are_named() -> None:
    plan = planned("h100-1su-infiniband")
    every = device_facts(plan)
    some = ["node a01-n1", "switch leaf-su001-r3", "node gone"]
    found = device_facts(plan, some)
    assert list(found) == list(every)
    assert {key: own for key, own in found.items() if own} == {key: every[key] for key in some[:2]}
    assert difference({}, device_facts(plan, ())) == difference({}, every)
    before = {key: every[key] for key in some[:2]} | {"node gone": {"rack": "a01"}}
    assert difference(before, device_facts(plan, before)) == difference(before, every)


def test_what_is_laid_has_the_facts_of_the_whole_plan() -> None:
    site = parse(example("b200-4su-roce"))
    assert device_facts(lay(site)) == device_facts(plan_site(site))


texts = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz"))
sites = st.dictionaries(st.sampled_from(["node a", "node b", "switch c"]), texts)


@settings(max_examples=60, deadline=None)
@given(sites, sites)
def test_difference_is_complete_and_turns_round(
    before: dict[str, dict[str, str]], after: dict[str, dict[str, str]]
) -> None:
    there, back = difference(before, after), difference(after, before)
    assert (there.added, there.removed) == (back.removed, back.added)
    assert bool(there) is (before != after)
    rebuilt = {key: dict(own) for key, own in before.items() if key not in there.removed}
    for key, fields in there.changed.items():
        for item in fields:
            rebuilt[key][item.field] = item.after
        rebuilt[key] = {name: text for name, text in rebuilt[key].items() if text}
    rebuilt |= {key: after[key] for key in there.added}
    assert rebuilt == after


def test_vlans_of_tenants_that_overlap_are_refused() -> None:
    """Each tenant takes a VLAN for every rail, from its own on."""
    document = example(B200)
    document["tenants"][1]["vlan"] = 1204
    expected = (
        "tenant product: its VLANs from 1204 overlap those of tenant research from 1201. "
        "Leave 8 VLANs to each: one for each rail and plane."
    )
    assert [str(problem) for problem in plan_site(parse(document)).problems] == [expected]


def test_switches_that_contradict_the_plan_are_refused() -> None:
    """A wrong name would become a switch beside the fabric, and another model would have other ports and power."""
    document = example(B200)
    login = {"os": "sonic", "model": "sn5600_2x400", "password": {"env": "SWITCHES"}}
    document["switches"] = [
        {"name": "leaf-su001-01", "address": "10.20.250.10", **login},
        {"name": "spine-001", "address": "10.20.250.11", **login, "model": "sn5600"},
        {"name": "border-1", "address": "10.20.250.13", **login, "role": "in_band"},
    ]
    site = parse(document)
    expected = [
        (
            "switch spine-001: model - Expected: sn5600_2x400 as planned Actual: sn5600. Correct model of spine-001 in "
            "switches, or the model in topology."
        ),
        (
            "switches: leaf-su001-01 - Expected: names of the plan, or in links Actual: not planned. "
            "Near leaf-su001-01: leaf-su001-r1. Correct the names, or set role for switches of other networks."
        ),
    ]
    assert [str(problem) for problem in plan_site(site).problems if "switch" in problem.path] == expected
    assert [text for text in map(str, refusals(site, [], "fabric")) if text in expected] == expected
