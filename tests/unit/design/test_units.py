"""Scalable units of racks without ``networks``: one size for all racks, filled in the order of their numbers."""

from __future__ import annotations

from typing import Any

import pytest

from rackready.design.endpoints import endpoints, unit_size
from rackready.design.topology.build import build
from rackready.design.topology.types import FabricPlan
from rackready.model.site import Site
from tests.unit.design.written import example, refusals

SITE: dict[str, Any] = {
    "schema": "rackready/site/v1",
    "name": "units",
    "access": {"user": "root", "private_key": "key"},
    "software": {"set": "hgx-r580-debian12", "mirror": {"url": "http://192.0.2.2", "suite": "./", "key": "mirror.asc"}},
    "fabric": {"kind": "infiniband"},
    "gates": {"set": "bringup"},
    "handover": {"kind": "file", "path": "ready.json"},
    "topology": {"leaf": {"model": "qm9700"}, "link": "infiniband"},
}


def site_of(racks: dict[str, int], *platforms: str) -> Site:
    """Return a site of so many nodes in each rack; the last of ``platforms`` fills the second half of the racks."""
    written, count = [], 0
    for place, (rack, size) in enumerate(racks.items()):
        platform = platforms[0] if 2 * place < len(racks) else platforms[-1]
        nodes = []
        for number in range(1, size + 1):
            count += 1
            bmc = {"address": f"10.0.0.{count}", "username": "admin", "password": {"env": "BMC"}}
            nodes.append({"name": f"{rack}-n{number}", "platform": platform, "address": f"10.0.1.{count}", "bmc": bmc})
        written.append({"name": rack, "nodes": nodes})
    return Site.model_validate(SITE | {"racks": written})


def built(site: Site) -> FabricPlan:
    assert site.topology is not None
    return build(site.topology, endpoints(site), platform_su_nodes=unit_size(site))


SIXTEEN = {f"a{number:02d}": 4 for number in range(1, 17)}


@pytest.mark.parametrize("platform", ["dgx_h200", "xe9680_h200", "xd670_h100"])
def test_a_unit_of_a_platform_without_a_published_size_fills_a_leaf(platform: str) -> None:
    site = site_of(SIXTEEN, platform)
    plan = built(site)
    assert plan.problems == ()
    assert (unit_size(site), plan.counts["units"], plan.counts["leaf"], plan.counts["spine"]) == (32, 2, 16, 8)


def test_the_size_of_a_unit_is_one_for_all_racks() -> None:
    # The profile of the XE9680 has no size of a unit, that of DGX H100 has 32.
    plan = built(site_of(SIXTEEN, "dgx_h100", "xe9680_h100"))
    assert plan.problems == ()
    assert (plan.counts["units"], plan.counts["leaf"]) == (2, 16)


def test_a_shorter_rack_keeps_its_place_in_the_order_of_numbers() -> None:
    plan = built(site_of({f"a{number:02d}": 4 for number in range(1, 9)} | {"a09": 1}, "dgx_h100"))
    assert plan.problems == ()
    assert {(link.switch, link.port) for link in plan.endpoints if link.node == "a09-n1" and link.nic == 1} == {
        ("leaf-su002-r1", 1)
    }


def test_nics_of_dgx_a100_are_refused_on_switches_with_faster_lanes() -> None:
    document = example("h100-1su-infiniband")
    document["templates"]["nodes"]["h100"]["platform"] = "dgx_a100"
    (text,) = (text for text in refusals(document) if text.startswith("topology.leaf"))
    assert text == (
        "topology.leaf.model: qm9700: lanes of a link of 200 Gb/s to the NICs of dgx_a100 - "
        "Expected: 4, as its QSFP56 ports have Actual: 2. rackready cannot plan switches that run their lanes at half "
        "their rate. Use a switch whose ports have that rate, such as one with a profile of your own, or describe the "
        "cables by links."
    )
