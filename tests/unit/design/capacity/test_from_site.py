"""From a site to racks with figures: what stands in a rack, what draws nothing, what is not published; and the examples hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackready.design.capacity.from_site import capacity_of, device_model, platform_model, racks_of, switch_model
from rackready.design.site import load_site
from rackready.model.site import Device, Site
from rackready.profiles import loader

ROOT = Path(__file__).resolve().parents[4]


def example(name: str) -> Site:
    return load_site("no-overlay", site_file=ROOT / f"inventories/examples/{name}.yml", root=Path("/checkout"))


def test_figures_come_from_profiles() -> None:
    profile = loader.platform("dgx_h100")
    model = platform_model("dgx_h100")
    assert (model.max_w, model.rack_units) == (profile.max_power.value, 8)
    assert profile.psus is not None
    assert (model.psus, model.psu_min) == (profile.psus.count, profile.psus.min_count) == (6, 4)


def test_every_shipped_profile_can_be_taken() -> None:
    for wanted in loader.known("platform"):
        assert platform_model(wanted).max_w
    for wanted in loader.known("switch"):
        assert switch_model(wanted).rack_units >= 1


def test_devices_by_what_the_site_gives() -> None:
    storage = device_model(Device(name="s1", kind="storage", height_u=4, max_power_w=1800))
    assert (storage.label, storage.rack_units, storage.max_w, storage.weight_kg) == ("storage", 4, 1800, None)
    assert device_model(Device(name="l1", kind="login")).max_w is None, "nobody said: not published"
    assert device_model(Device(name="p1", kind="pdu", height_u=0)).max_w == 0


def test_lab_of_four_nodes() -> None:
    site = example("lab-4-nodes")
    racks = racks_of(site)
    assert [len(rack.devices) for rack in racks] == [len(rack.nodes) for rack in site.racks]
    assert capacity_of(site).totals.max_w == sum(loader.platform(node.platform).max_power.value for node in site.nodes())


def test_virtual_nodes_draw_nothing() -> None:
    site = example("mixed-metal-virtual")
    names = {device.name for rack in racks_of(site) for device in rack.devices}
    virtual = {node.name for node in site.nodes() if node.kind == "virtual"}
    assert virtual
    assert names.isdisjoint(virtual)


@pytest.mark.parametrize("name", ["h100-1su-infiniband", "b200-4su-roce", "gb200-nvl72-8-racks"])
def test_examples_survive_every_single_loss_that_they_do_not_accept(name: str) -> None:
    report = capacity_of(example(name))
    assert report.problems == ()
    assert report.losses
    assert [case.element for case in report.losses if case.fails and case.accepted is None] == []


def test_switch_trays_of_an_nvl72_rack_fill_it_up_to_its_published_draw() -> None:
    rack = next(rack for rack in capacity_of(example("gb200-nvl72-8-racks")).racks if rack.name == "r01")
    assert (round(rack.max_w / 1000), rack.unpublished) == (120, ())
