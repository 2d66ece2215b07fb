"""Growth of a cabled fabric moves no cable or is refused with options; the named option holds."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from rackready.design.topology.growth import growth
from rackready.design.topology.types import FabricPlan
from tests.unit.design.topology.fabrics import fabric
from tests.unit.design.written import texts


def test_growth_that_would_move_cables_is_refused() -> None:
    plan = fabric(128, 32, 64, laid_for_su=2)
    assert plan.switches == plan.trunks == ()
    assert texts(plan.problems) == [
        (
            "topology.laid_for_su: from 2 to 4 units (spine 8 to 16 in every plane) - Expected: no cable moved "
            "Actual: 510 of 512 trunks. "
            "Options: at most 2 units; a separate fabric for the others; laid_for_su: 4, once you decide to move "
            "these cables."
        ),
    ]


def test_growth_that_moves_nothing_is_built() -> None:
    laid = fabric(96, 32, 64, laid_for_su=3)
    grown = fabric(128, 32, 64, laid_for_su=3)
    assert laid.problems == grown.problems == ()
    assert growth(laid, grown).moved_trunks == 0


def test_units_that_are_laid_and_not_filled_keep_their_spines() -> None:
    assert fabric(64, 32, 64, laid_for_su=4).counts["spine"] == fabric(128, 32, 64).counts["spine"]


def test_a_site_without_growth_settings_is_warned_of_moved_cables() -> None:
    (note,) = fabric(64, 32, 64).notes[:1]
    assert note == (
        "topology: sized for 2 units; one more would move cables between switches. "
        "Set grow_to_su before the cables are installed, or laid_for_su: 2 afterwards, so that growth is refused."
    )
    assert fabric(96, 32, 64).notes == ()
    assert fabric(64, 32, 64, laid_for_su=2).notes == ()
    assert fabric(64, 32, 64, grow_to_su=2).notes == ()


def test_more_than_any_switch_carries_is_refused_by_its_size() -> None:
    (problem, *_) = texts(fabric(64, 32, 64, tiers=2, laid_for_su=9).problems)
    assert problem.startswith("topology: 288 nodes with 8 links into each plane are 2304 endpoints a plane")


def laid(plan: FabricPlan) -> set[tuple[str, int, str, int]]:
    return {tuple(trunk) for trunk in plan.trunks}


SHAPES = st.tuples(
    st.sampled_from([8, 12, 16, 24]),
    st.integers(1, 4),
    st.sampled_from(["rail_optimized", "fat_tree"]),
    st.sampled_from(["1:1", "2:1"]),
)


@settings(max_examples=60, deadline=None)
@given(
    SHAPES, st.integers(1, 8), st.integers(1, 8), st.integers(1, 4), st.integers(1, 2), st.sampled_from([None, 2, 3])
)
def test_growth_moves_nothing_or_is_refused(
    shape: tuple[int, int, str, str], units: int, more: int, su: int, planes: int, tiers: int | None
) -> None:
    radix, rails, kind, ratio = shape
    fields = {"kind": kind, "oversubscription": ratio, "planes": planes, "tiers": tiers, "laid_for_su": units}
    before, after = (fabric(count * su, su, radix, rails, **fields) for count in (units, units + more))
    if before.problems:
        return
    if not after.problems:
        assert laid(before) <= laid(after)
        assert {(link.switch, link.port, link.node) for link in before.endpoints} <= {
            (link.switch, link.port, link.node) for link in after.endpoints
        }
        assert {switch.name for switch in before.switches} <= {switch.name for switch in after.switches}
    elif after.problems[0].path == "topology.laid_for_su":
        assert not laid(before) <= laid(
            fabric((units + more) * su, su, radix, rails, **(fields | {"laid_for_su": None}))
        )
        most = int(re.search(r"at most (\d+) units", after.problems[0].message)[1])
        assert units <= most < units + more
        assert fabric(most * su, su, radix, rails, **fields).problems == ()
