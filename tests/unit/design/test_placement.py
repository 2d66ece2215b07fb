"""Positions of switches: an added unit moves no existing switch, with any number of planes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from rackready.design.addresses_fabric import switch_addresses
from rackready.design.placement import place_switches
from rackready.design.topology.types import FabricPlan
from rackready.model.site import Site, SwitchSlot
from tests.unit.design.topology.fabrics import fabric
from tests.unit.design.written import example, parse

SLOTS = [
    SwitchSlot(rack=f"{tier}-{number:03d}", tier=tier, units="1-40", step=1)
    for tier in ("leaf", "spine", "core")
    for number in range(1, 60)
]
SITE: Site = parse(example("b200-4su-roce")).model_copy(
    update={"switch_slots": SLOTS, "switches": [], "other_fabrics": []}
)


def places(plan: FabricPlan) -> dict[str, tuple[str, int]]:
    assert plan.problems == ()
    placement = place_switches(SITE, plan)
    assert placement.problems == ()
    return placement.places


def test_leafs_stand_unit_by_unit_and_in_each_plane_by_plane() -> None:
    found = places(fabric(8, 4, 8, 2, planes=2))
    assert [name for name in found if "leaf" in name] == [
        *("p1-leaf-su001-r1", "p1-leaf-su001-r2", "p2-leaf-su001-r1", "p2-leaf-su001-r2"),
        *("p1-leaf-su002-r1", "p1-leaf-su002-r2", "p2-leaf-su002-r1", "p2-leaf-su002-r2"),
    ]


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 6), st.integers(1, 4))
def test_added_units_move_no_switch(planes: int, rails: int, units: int, more: int) -> None:
    """Spines are sized for the end (``grow_to_su``); pods come with their units."""
    fields = {"planes": planes, "tiers": 3, "grow_to_su": units + more}
    before, after = (places(fabric(4 * count, 4, 16, rails, **fields)) for count in (units, units + more))
    assert {name: after[name] for name in before} == before


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 6), st.integers(1, 4), st.sampled_from([None, 2, 3]))
def test_added_spines_and_cores_move_no_switch(
    planes: int, rails: int, units: int, more: int, tiers: int | None
) -> None:
    """Without growth settings: more spines and cores come, and those of later planes keep slots and addresses."""
    before, after = (fabric(4 * count, 4, 16, rails, planes=planes, tiers=tiers) for count in (units, units + more))
    if after.problems or before.counts["tiers"] != after.counts["tiers"]:
        return
    old, new = places(before), places(after)
    assert {name: new[name] for name in old} == old
    numbers = [
        {own.name: (own.loopback, own.asn, own.oob) for own in switch_addresses(SITE, plan)[0]}
        for plan in (before, after)
    ]
    assert {name: numbers[1][name] for name in numbers[0]} == numbers[0]
