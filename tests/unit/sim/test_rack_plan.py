"""What the simulated rack consists of: addresses, names and cables, computed from the site."""

from __future__ import annotations

from ipaddress import IPv4Network
from pathlib import Path

import pytest

from rackready.model.site import Site
from rackready_sim.definition import site_without_overlay
from rackready_sim.errors import SimError
from rackready_sim.plan import (
    RackPlan,
    Trunk,
    build_plan,
    choose_subnet,
    clone_id,
    loopback_candidates,
    subnet_candidates,
)
from tests.unit.design.several_sites import BOTH, several

ROOT = Path(__file__).resolve().parents[3]
SUBNET = IPv4Network("10.64.7.0/24")


@pytest.fixture(scope="module")
def site() -> Site:
    return site_without_overlay(ROOT, "sim")


@pytest.fixture(scope="module")
def plan(site: Site) -> RackPlan:
    return build_plan(site, clone="ab12cd", subnet=SUBNET, loopback="127.9.8")


def test_machines_have_the_addresses_that_their_kind_has(plan: RackPlan) -> None:
    assert {name: machine.address for name, machine in plan.machines.items()} == {
        "mirror": "10.64.7.2",
        "slurmctl": "10.64.7.5",
        "leaf01": "10.64.7.21",
        "leaf02": "10.64.7.22",
        "node01": "10.64.7.11",
        "node02": "10.64.7.12",
        "node03": "10.64.7.13",
        "node04": "10.64.7.14",
    }
    assert plan.bmcs == {
        "node01": "127.9.8.101",
        "node02": "127.9.8.102",
        "node03": "127.9.8.103",
        "node04": "127.9.8.104",
    }
    assert plan.machines["node01"].container == "rr-ab12cd-node01"


def test_interface_names_fit_the_kernel(plan: RackPlan) -> None:
    longest = max(f"{plan.bridge}-{machine.octet}r16" for machine in plan.machines.values())
    assert len(longest) <= 15


def test_rails_one_to_four_go_to_the_first_leaf(plan: RackPlan) -> None:
    cables = plan.cables["node02"]
    assert [(cable.rail, cable.switch, cable.port) for cable in cables] == [
        *((rail, "leaf01", f"swp{rail + 4}") for rail in range(1, 5)),
        *((rail, "leaf02", f"swp{rail}") for rail in range(5, 9)),
    ]
    macs = [cable.mac for cables in plan.cables.values() for cable in cables]
    assert len(set(macs)) == len(macs) == 32


def test_later_nodes_do_not_meet_the_switches(site: Site) -> None:
    rack = site.racks[0]
    node = rack.nodes[0]
    many = [node.model_copy(update={"name": f"node{number:03d}"}) for number in range(1, 121)]
    large = site.model_copy(update={"racks": [rack.model_copy(update={"nodes": many})], "links": []})
    plan = build_plan(large, clone="ab12cd", subnet=SUBNET, loopback="127.9.8")
    addresses = [machine.address for machine in plan.machines.values()]
    assert len(set(addresses)) == len(addresses)
    assert all(int(address.rsplit(".", 1)[1]) < 255 for address in [*addresses, *plan.bmcs.values()])


def test_a_site_larger_than_a_simulated_rack_is_refused(site: Site) -> None:
    rack = site.racks[0]
    many = [rack.nodes[0].model_copy(update={"name": f"node{number:03d}"}) for number in range(1, 122)]
    large = site.model_copy(update={"racks": [rack.model_copy(update={"nodes": many})], "links": []})
    with pytest.raises(SimError, match="Expected: at most 120 nodes and 10 switches Actual: 121 nodes, 2 switches"):
        build_plan(large, clone="ab12cd", subnet=SUBNET, loopback="127.9.8")


def test_a_site_with_several_schedulers_is_refused() -> None:
    with pytest.raises(SimError) as caught:
        build_plan(several(*BOTH), clone="ab12cd", subnet=SUBNET, loopback="127.9.8")
    assert str(caught.value) == (
        "the scheduler of the simulated rack - Expected: one Actual: slurm, kubernetes. Rehearse each part by a site "
        "file of its own, with its nodes and its scheduler."
    )


def test_two_clones_have_different_names_and_begin_at_different_networks() -> None:
    one, two = clone_id(Path("/srv/one")), clone_id(Path("/srv/two"))
    assert one != two
    assert choose_subnet(one, []) != choose_subnet(two, [])
    assert loopback_candidates(one)[0] != loopback_candidates(two)[0]


def test_a_network_that_is_taken_is_passed_over() -> None:
    first, second = subnet_candidates("000000")[:2]
    assert choose_subnet("000000", [first]) == second
    wide = IPv4Network("10.64.0.0/11")
    assert not choose_subnet("000000", [wide]).overlaps(wide)


def test_no_free_network_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(
        SimError,
        match=r"a free /24 in 10\.64\.0\.0/10 Actual: every one overlaps a route of this machine\. Remove a route",
    ):
        choose_subnet("000000", [IPv4Network("10.0.0.0/8")])


@pytest.mark.parametrize("clone", ["000000", "ffffff", "ab12cd", "0000fe"])
def test_bmcs_never_lie_in_the_first_loopback_network(clone: str) -> None:
    for candidate in loopback_candidates(clone):
        octets = [int(part) for part in candidate.split(".")]
        assert octets[0] == 127
        assert 1 <= octets[1] <= 254
        assert 0 <= octets[2] <= 255


def test_switches_of_two_tiers_are_cabled_once() -> None:
    plan = build_plan(site_without_overlay(ROOT, "sim-spine"), clone="ab12cd", subnet=SUBNET, loopback="127.9.8")
    ends = [end for trunk in plan.trunks for end in ((trunk.lower, trunk.lower_port), (trunk.upper, trunk.upper_port))]
    assert len(ends) == len(set(ends)) == 64
    assert Trunk("leaf-su001-01", "swp9s0", "spine-001", "swp1s0") in plan.trunks
    assert {cable.switch for cable in plan.cables["node03"]} == {"leaf-su002-01"}


def test_a_rack_of_leafs_alone_has_no_cables_between_switches(plan: RackPlan) -> None:
    assert plan.trunks == ()
