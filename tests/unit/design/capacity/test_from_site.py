"""From a site to racks with figures: equipment, zero draws, unpublished figures, and the examples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rackready.design.capacity.from_site import capacity_of, device_model, platform_model, racks_of, switch_model
from rackready.design.plan import fabric_of, plan_site
from rackready.design.site import load_site
from rackready.model.site import Device, Site
from rackready.model.supply import Psus
from rackready.profiles import loader
from tests.unit.design.written import example as written
from tests.unit.design.written import parse, refusals

ROOT = Path(__file__).resolve().parents[4]
_ALL = sorted([*loader.known("platform"), *loader.known("switch")])
MODELS = f"{', '.join(_ALL[:4])} and {len(_ALL) - 4} more"
WAY_OUT = "Correct the id; for devices, set max_power_w instead."


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
    assert capacity_of(site).totals.max_w == sum(
        loader.platform(node.platform).max_power.value for node in site.nodes()
    )


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


def test_a_login_takes_no_switch_out_of_its_rack() -> None:
    """A planned switch is listed in the site file for its login alone: its place, load and cords stay those planned."""
    document = written("b200-4su-roce")
    before = plan_site(parse(document))
    login = {"os": "cumulus_nvue", "model": "sn5600_2x400", "password": {"env": "SWITCHES"}}
    names = [switch.name for switch in before.fabric.switches]
    document["switches"] = [
        {"name": name, "address": f"10.20.250.{number}", **login} for number, name in enumerate(names, 10)
    ]
    after = plan_site(parse(document))
    assert after.problems == before.problems == ()
    assert [rack.max_w for rack in after.capacity.racks] == [rack.max_w for rack in before.capacity.racks]
    places = ({(rack.name, d.unit, d.name) for rack in plan.racks for d in rack.devices} for plan in (before, after))
    assert next(places) == next(places)
    assert after.bom == before.bom, "cords and switches"


def test_figures_of_the_site_replace_the_profile_and_are_noted() -> None:
    document = written("h100-1su-infiniband")
    source = "nameplate of the delivered switches"
    document["facility"]["nameplates"] = [{"model": "qm9700", "max_power_w": 1700, "weight_kg": 15, "source": source}]
    report = capacity_of(parse(document), fabric_of(parse(document)))
    rack = next(rack for rack in report.racks if rack.name == "net09")
    assert "qm9700" not in rack.unpublished
    assert f"figures of qm9700 are stated by the site ({source})" in report.notes


def test_missing_figures_are_reported_with_the_way_to_state_them() -> None:
    document = written("h100-1su-infiniband")
    document["facility"].pop("nameplates", None)
    for device in document["racks"][2]["devices"]:
        device.pop("max_power_w", None)
    document["templates"]["devices"]["server"].pop("max_power_w")
    report = capacity_of(parse(document), fabric_of(parse(document)))
    way = "max_power_w of devices of kind head, login, storage, ufm and facility.nameplates for qm9700, sn2201, sn4600c"
    assert f"an unpublished draw is judged once the site states it: {way}" in report.notes
    assert not any(case.judged for case in report.losses if case.element.startswith("busway"))


@pytest.mark.parametrize(
    ("plates", "texts"),
    [
        (
            [{"model": "qm9999", "max_power_w": 1, "source": "our own reading"}],
            [
                (
                    "facility.nameplates[0].model: no server or switch profile is called 'qm9999' - "
                    f"Expected: one of {MODELS}. {WAY_OUT}"
                )
            ],
        ),
        (
            [{"model": "qm9700", "weight_kg": 15, "source": "our own reading"}] * 2,
            ["facility.nameplates[1].model: qm9700 has a nameplate already. Keep one nameplate per model."],
        ),
        (
            [{"model": "qm9700", "source": "our own reading"}],
            ["facility.nameplates[0]: state at least one power or weight. Correct it."],
        ),
    ],
)
def test_nameplates_that_cannot_be_meant(plates: list[dict[str, Any]], texts: list[str]) -> None:
    document = written("h100-1su-infiniband")
    document["facility"]["nameplates"] = plates
    assert refusals(document) == texts


@pytest.mark.parametrize(
    ("psus", "words"), [({"psus": 1}, "psus_needed 2 of 1 psus"), ({}, "psus_needed 2 of unknown psus")]
)
def test_more_supplies_needed_than_there_are(psus: dict[str, int], words: str) -> None:
    document = written("h100-1su-infiniband")
    document["devices"] = [{"name": "store", "kind": "storage", "psus_needed": 2, **psus}]
    expected = "Expected: psus, and psus_needed no greater than psus"
    assert refusals(document) == [f"devices[0]: {words} - {expected}. Correct it."]


def test_an_inlet_has_its_source() -> None:
    with pytest.raises(ValueError, match="inlet and inlet_source go together"):
        Psus(count=2, inlet="C14", source="a data sheet")
