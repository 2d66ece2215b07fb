"""Roots of up/down routing: opensm takes small leafs for roots unless it is told the top tier by GUIDs."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from rackready.design.deployable import refusals
from rackready.design.infiniband import infiniband_vars
from rackready.design.site import parse_site
from rackready.design.subnet_roots import root_names
from rackready.model.site import Site
from rackready_sim.ibtwin import ibsim
from rackready_sim.ibtwin.losses import sweep
from rackready_sim.ibtwin.topology import guid, twin_of
from tests.unit.infiniband.fabrics import plan_of, site_text
from tests.unit.infiniband.twins import LACKING, REASON

SPINES = ["spine-001", "spine-002"]
GUIDS = {"spine-001": "0xb83fd20300f00002", "spine-002": "0xb83fd20300f00001"}


def site(guids: dict[str, str], count: int = 12, **infiniband: object) -> Site:
    """Return a site in units of four nodes: 12 nodes have 24 leafs of 4 adapters, and two spines."""
    document = yaml.safe_load(site_text(count, 4))
    document["fabric"]["infiniband"] = {"subnet_manager": "opensm", "nodes": ["a01-n1"], **infiniband}
    document["switches"] = [{"name": name, "model": "qm9700", "guid": own} for name, own in guids.items()]
    return parse_site(document, source="roots", base=Path("/base"))


def reasons(own: Site) -> list[str]:
    return [str(reason) for reason in refusals(own, [], "fabric")]


def test_opensm_is_told_the_guids_of_the_top_tier() -> None:
    own = site(GUIDS)
    assert root_names(own) == SPINES
    assert infiniband_vars(own)["opensm_root_guids"] == sorted(GUIDS.values())
    assert reasons(own) == []


def test_small_leafs_without_the_guids_of_all_roots_are_refused() -> None:
    step = (
        "Add each to switches, with its guid (`ibnetdiscover -S` on a node prints them, before opensm runs, too), "
        "or choose another routing_engine. opensm takes leafs with few of the adapters for roots."
    )
    head = "guid - Expected: known: a root of updn Actual: not given."
    assert reasons(site({})) == [f"spine-001, spine-002: {head} {step}"]
    assert not [str(reason) for reason in refusals(site({}), [], "gate run")], "a gate writes no file of opensm"
    assert [str(reason) for reason in refusals(site({}), [], "upgrade")] == reasons(site({}))
    some = site({"spine-001": GUIDS["spine-001"]})
    assert reasons(some) == [f"spine-002: {head} {step}"]
    assert "opensm_root_guids" not in infiniband_vars(some), "ways over the other spine would be lost"


@pytest.mark.parametrize(
    ("count", "infiniband"),
    [
        (8, {}),
        (12, {"routing_engine": "minhop"}),
        (12, {"subnet_manager": "external", "nodes": []}),
    ],
    ids=["16 leafs of equal size", "an engine without roots", "not our manager"],
)
def test_sites_on_which_opensm_takes_no_leaf_for_a_root_need_no_guids(
    count: int, infiniband: dict[str, object]
) -> None:
    own = site({}, count, **infiniband)
    assert reasons(own) == []
    assert "opensm_root_guids" not in infiniband_vars(own)


@pytest.mark.skipif(bool(LACKING), reason=REASON)
def test_opensm_takes_leafs_for_roots_unless_it_is_told_them(tmp_path: Path) -> None:
    """The real one, whose roots are in its dump."""
    twin = twin_of(plan_of(tmp_path, 12, 4)[1])

    def roots_after(told: list[str]) -> set[int]:
        sweep(sim, "updn", told)
        return {int(line, 16) for line in (tmp_path / "opensm-updn-roots.dump").read_text(encoding="utf-8").split()}

    spines = [twin.switches[name] for name in SPINES]
    with ibsim.running(twin, tmp_path, twin.adapters[min(twin.adapters)]) as sim:
        assert roots_after([]) == {guid(node) for node in twin.switches.values()}
        assert roots_after(spines) == {guid(node) for node in spines}
