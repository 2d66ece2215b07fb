"""Order of switches: nobody loses both ways at once, and a change that one took back goes to no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackready.design.site import load_site
from rackready.design.wiring import topology_fabric
from rackready.drivers.switch import configure
from rackready.drivers.switch.waves import lower_leafs, waves, with_uppers
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult, PhaseContext
from rackready.model.site import Site

ROOT = Path(__file__).resolve().parents[3]
LEAFS, SPINES = ["leaf-su001-01", "leaf-su002-01"], ["spine-001", "spine-002"]


@pytest.fixture(scope="module")
def two_tier() -> Site:
    return load_site("no-overlay", site_file=ROOT / "tests/golden/sites/two_tier.yml", root=ROOT)


@pytest.fixture(scope="module")
def one_tier() -> Site:
    return load_site("no-overlay", site_file=ROOT / "inventories/sim/site.yml", root=ROOT)


def test_spines_that_serve_one_leaf_are_never_together(two_tier: Site) -> None:
    assert waves(two_tier, [*LEAFS, *SPINES], 8) == [["spine-001"], ["spine-002"], ["leaf-su001-01"], ["leaf-su002-01"]]


def test_leafs_of_one_node_are_never_together(one_tier: Site) -> None:
    assert waves(one_tier, ["leaf02", "leaf01"], 8) == [["leaf01"], ["leaf02"]]


def test_after_the_first_leafs_of_other_nodes_go_together_in_bounded_waves() -> None:
    site = load_site("no-overlay", site_file=ROOT / "inventories/examples/b200-4su-roce.yml", root=ROOT)
    unit = {switch.name: switch.su for switch in topology_fabric(site).switches if switch.tier == "leaf"}
    names = sorted(unit)
    assert len(names) == 32
    found = waves(site, names, 3)
    assert found[0] == names[:1]
    assert sorted(name for wave in found for name in wave) == sorted(names)
    for wave in found:
        assert len(wave) <= 3
        assert len({unit[name] for name in wave}) == len(wave), f"{wave}: two leafs of one node"
    assert max(len(wave) for wave in found) == 3


def test_what_carries_a_nodes_traffic_are_its_leaf_and_all_above(two_tier: Site, one_tier: Site) -> None:
    assert with_uppers(two_tier, ["leaf-su001-01"]) == ["leaf-su001-01", *SPINES]
    assert with_uppers(two_tier, ["spine-001"]) == ["spine-001"]
    assert with_uppers(one_tier, ["leaf01"]) == ["leaf01"]
    assert lower_leafs(two_tier, "spine-001") == set(LEAFS)
    assert lower_leafs(two_tier, "leaf-su001-01") == {"leaf-su001-01"}


@pytest.mark.parametrize("taken_back", [True, False], ids=["reverted", "unreachable"])
def test_only_a_change_that_was_taken_back_stops_the_others(
    two_tier: Site,
    tmp_path: Path,
    taken_back: bool,  # noqa: FBT001 - a case
) -> None:
    done: list[str] = []

    def work(name: str) -> NodeResult:
        done.append(name)
        data = {configure.REVERTED: True} if taken_back else {}
        return NodeResult(Outcome.ERROR, f"{name}: bad", data=data) if name == "spine-001" else NodeResult(Outcome.PASS)

    ctx = PhaseContext(env="sim", root=tmp_path, campaign="c1", check=False)
    out = configure._in_waves(ctx, two_tier, [*LEAFS, *SPINES], work)
    assert done == (["spine-001"] if taken_back else [*SPINES, *LEAFS])
    assert set(out) == {*LEAFS, *SPINES}
    if taken_back:
        assert out["leaf-su001-01"].message == (
            "leaf-su001-01: not changed - Expected: the change kept by spine-001 first "
            "Actual: spine-001 rolled it back. Correct what spine-001 reports, then run again."
        )
        assert out["leaf-su001-01"].touched is False
