"""The fabric's line of a plan: the ratio of every blocking tier, and "non-blocking" only if no tier blocks."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from rackready.design.plan import plan_site
from rackready.design.plan_summary import summary
from rackready.render.plan_text import facts
from tests.unit.design.written import example, parse

FLOW = "and cross-checked by max-flow"


def fabric_line(*, proved: bool = True, **fields: Any) -> str:
    document = example("h100-1su-infiniband")
    document["topology"] |= fields
    plan = plan_site(parse(document))
    if not proved:
        assert plan.fabric.proof is not None
        broken = dataclasses.replace(plan.fabric.proof, problems=("broken",))
        plan = dataclasses.replace(plan, fabric=dataclasses.replace(plan.fabric, proof=broken))
    return dict(facts(summary(plan)))["fabric"]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, f"tiers: 2, planes: 1; proved at leaf 1:1 (non-blocking), {FLOW}"),
        ({"tiers": 3}, f"tiers: 3, planes: 1; proved at leaf 1:1, spine 1:1 (non-blocking), {FLOW}"),
        ({"tiers": 3, "spine_oversubscription": "4:1"}, f"tiers: 3, planes: 1; proved at leaf 1:1, spine 4:1, {FLOW}"),
        ({"oversubscription": "2:1"}, f"tiers: 2, planes: 1; proved at leaf 2:1, {FLOW}"),
        ({"proved": False}, "tiers: 2, planes: 1; NOT PROVED at leaf 1:1"),
    ],
)
def test_line_says_the_ratio_of_every_tier(fields: dict[str, Any], text: str) -> None:
    assert fabric_line(**fields) == f"rail-optimized, infiniband, {text}"


@pytest.mark.parametrize(
    ("cooling", "facility", "text"),
    [
        # By hand, with two switches of 940 W beside the rack, in air: (40,800 + 1,880) W x 3.0 / 12 K = 10,670 m3/h;
        # half of the nodes' heat: (20,400 + 1,880) W x 3.0 / 12 K = 5,570 m3/h and 20.4 kW x 14.3 / 10 K = 29 L/min;
        # all of it: 1,880 W x 3.0 / 12 K = 470 m3/h, 58 L/min.
        ({"kind": "air"}, {"air_rise_k": 12}, "10,670 m3/h of air"),
        (
            {"kind": "hybrid", "liquid_share": 0.5},
            {"air_rise_k": 12, "liquid_rise_k": 10},
            "5,570 m3/h of air, 29 L/min of water",
        ),
        (
            {"kind": "hybrid", "liquid_share": 1},
            {"air_rise_k": 12, "liquid_rise_k": 10},
            "470 m3/h of air, 58 L/min of water",
        ),
        ({"kind": "air"}, {}, None),
    ],
    ids=["air", "both", "liquid", "no-rise"],
)
def test_flows_that_carry_the_heat(cooling: dict[str, Any], facility: dict[str, float], text: str | None) -> None:
    document = example("lab-4-nodes")
    document["racks"][0]["cooling"], document["facility"] = cooling, facility
    # Its switches stand in no rack and nobody publishes what they draw: they would make every sum a least one.
    document["facility"] = {
        **facility,
        "nameplates": [{"model": "sn5600", "max_power_w": 940, "source": "for this sum alone"}],
    }
    assert dict(facts(summary(plan_site(parse(document))))).get("flows") == text
