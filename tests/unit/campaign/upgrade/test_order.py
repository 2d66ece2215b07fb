"""The order of nodes: canary, failure domains, tenants, NVLink domains, power; and who no wave can take."""

from __future__ import annotations

from rackready.campaign.upgrade.order import Order
from rackready.campaign.upgrade.plan import waves
from rackready.design.handover_of import part_of
from rackready.model.site import Site
from tests.unit.campaign.upgrade.upgrade_sites import site_of
from tests.unit.design.several_sites import BOTH, several

NODES = ["node01", "node02", "node03", "node04"]
ALL = set(NODES)


def order(site: Site, serving: set[str] | None = None) -> list[tuple[str, ...]]:
    return list(waves(site, NODES, ALL if serving is None else serving)[0])


def test_one_canary_then_at_most_half_of_the_nodes_in_service() -> None:
    assert order(site_of()) == [("node01",), ("node02", "node03"), ("node04",)]


def test_wave_size_canary_and_share_are_the_sites() -> None:
    assert order(site_of(upgrade={"tenant_share_pct": 99})) == [("node01",), ("node02", "node03", "node04")]
    assert order(site_of(upgrade={"canary": 2, "wave_size": 1})) == [("node01", "node02"), ("node03",), ("node04",)]


def test_nodes_that_do_not_serve_take_nothing_from_anybody() -> None:
    assert order(site_of(), serving={"node04"})[:2] == [("node01",), ("node02", "node03")]


def test_never_all_of_a_tenant() -> None:
    tenants = [{"name": "ann", "nodes": ["node[01-02]"]}, {"name": "bob", "nodes": ["node[03-04]"]}]
    site = site_of(tenants=tenants, upgrade={"tenant_share_pct": 99})
    assert order(site) == [("node01",), ("node02", "node03"), ("node04",)]


def test_a_tenant_with_one_node_in_service_is_held_and_said() -> None:
    site = site_of(tenants=[{"name": "ann", "nodes": ["node01"]}])
    found, held = waves(site, NODES, ALL)
    assert found == (("node02",), ("node03", "node04"))
    assert held == {
        "node01": "tenant ann: nodes in service - Expected: at least one beside the wave Actual: none. "
        "Bring another node of it into service first."
    }


def test_the_last_node_in_service_is_held() -> None:
    wave = Order(site_of()).next(["node04"], {"node04"}, first=False)
    assert (wave.nodes, list(wave.held)) == ((), ["node04"])


def test_a_wave_stays_behind_one_set_of_leafs() -> None:
    apart = Order(site_of(upgrade={"tenant_share_pct": 99}))
    here, there = frozenset({"leaf01", "leaf02"}), frozenset({"leaf03", "leaf04"})
    apart.leafs = {"node01": here, "node02": there, "node03": here, "node04": there}
    assert apart.next(NODES, ALL, first=False).nodes == ("node01", "node03")
    assert apart.next(["node02", "node04"], ALL, first=False).nodes == ("node02", "node04")


def test_nodes_of_an_nvlink_domain_move_together() -> None:
    site = site_of(upgrade={"wave_size": 1})
    together = Order(site)
    together.units = [("node01",), ("node02", "node03"), ("node04",)]
    assert together.next(["node02", "node03", "node04"], ALL, first=False).nodes == ("node02", "node03")


def test_a_domain_beyond_the_share_is_refused_with_the_setting() -> None:
    together = Order(site_of())
    together.units = [("node01", "node02", "node03")]
    wave = together.next(["node01", "node02", "node03"], ALL, first=True)
    assert wave.held["node01"] == (
        "the scheduler: nodes that go together - Expected: at most 2 of 4 in one wave Actual: 3. "
        "Raise upgrade.tenant_share_pct, now 50."
    )


def test_the_load_that_comes_on_stays_below_the_facilitys_step() -> None:
    """A DGX H100 draws at most 10.2 kW (profiles/platform/dgx_h100.yml)."""
    site = site_of(facility={"power_on": {"max_step_kw": 11}}, upgrade={"tenant_share_pct": 99})
    assert order(site) == [("node01",), ("node02",), ("node03",), ("node04",)]
    found, held = waves(site_of(facility={"power_on": {"max_step_kw": 10}}), NODES, ALL)
    assert found == ()
    assert held["node01"] == (
        "facility.power_on.max_step_kw: load that comes on - Expected: at most 10 kW Actual: 10.2 kW. "
        "Agree a higher limit with the facility."
    )


def test_never_all_nodes_of_one_of_several_schedulers() -> None:
    site = several(*BOTH, upgrade={"tenant_share_pct": 99})
    found = order(site)
    assert found == [("node01",), ("node02", "node03"), ("node04",)], "node03 and node04 share a scheduler"
    found, held = waves(several(*BOTH), ["node01"], {"node01", "node03"})
    assert (found, list(held)) == ((), ["node01"])
    assert held["node01"].startswith("part slurm: nodes in service - Expected: at least one beside the wave")


def test_a_wave_borrows_partners_and_leaves_every_circle_a_node_in_service() -> None:
    found = Order(site_of())
    assert found.beside(["node01"], ALL, 2) == ("node02", "node03")
    assert found.beside(["node02", "node03"], ALL, 2) == ("node01",), "one stays for the scheduler"
    assert found.beside(["node01"], {"node01", "node02"}, 2) == ()
    tenants = [{"name": "ann", "nodes": ["node[01-02]"]}, {"name": "bob", "nodes": ["node[03-04]"]}]
    assert Order(site_of(tenants=tenants)).beside(["node01"], ALL, 3) == ("node03",)


def test_partners_behind_the_waves_leafs_come_first() -> None:
    found = Order(site_of())
    here, there = frozenset({"leaf01", "leaf02"}), frozenset({"leaf03", "leaf04"})
    found.leafs = {"node01": here, "node02": there, "node03": here, "node04": there}
    assert found.beside(["node01"], ALL, 2) == ("node03", "node02")


def test_nodes_of_another_scheduler_are_no_partners() -> None:
    site = several(*BOTH)
    found = Order(site)
    wave = [next(node.name for node in site.nodes())]
    part = part_of(site, wave[0])
    others = [node.name for node in site.nodes() if part_of(site, node.name) != part]
    assert others
    assert not {*found.beside(wave, {node.name for node in site.nodes()}, 4)} & {*others}
