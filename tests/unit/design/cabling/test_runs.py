"""From a site to runs: ports of both ends, service in the own rack, and notes and problems for the rest."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import yaml

from rackready.design.cabling.plan import plan_cables
from rackready.design.cabling.runs import SiteRuns, floor_plan, site_runs
from rackready.design.cabling.sockets import nic_socket, switch_ports
from rackready.design.endpoints import endpoints
from rackready.design.topology.build import build
from rackready.profiles import loader
from tests.unit.design.cabling.kit import ROOT, catalogue, lab, parse
from tests.unit.design.written import texts

EXAMPLES = ROOT / "inventories/examples"


def runs_of(document: dict[str, Any]) -> SiteRuns:
    site = parse(document)
    return site_runs(site, build(site.topology, endpoints(site)) if site.topology else None)


def example(name: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((EXAMPLES / f"{name}.yml").read_text(encoding="utf-8"))
    return document


def test_ports_of_a_switch_say_cage_and_connector() -> None:
    split = switch_ports("sn5600", 400)
    assert split is not None
    assert split.lanes == 4
    assert [(socket.port, socket.cage, socket.sub, socket.connectors) for socket in split.sockets[:3]] == [
        ("swp1s0", "swp1", 0, 2),
        ("swp1s1", "swp1", 1, 2),
        ("swp2s0", "swp2", 0, 2),
    ]
    whole = switch_ports("sn5600", 800)
    assert whole is not None
    assert (whole.lanes, len(whole.sockets)) == (8, 64)


def test_two_ports_of_an_infiniband_switch_share_a_cage() -> None:
    ports = switch_ports("qm9700", 400)
    assert ports is not None
    assert [(socket.port, socket.cage, socket.sub) for socket in ports.sockets[:3]] == [
        ("IB1/1/1", "IB1/1/1", 0),
        ("IB1/1/2", "IB1/1/1", 1),
        ("IB1/2/1", "IB1/2/1", 0),
    ]


def test_a_rate_that_a_switch_does_not_have_has_no_ports() -> None:
    assert switch_ports("qm9700", 800) is None


def test_nics_of_a_dgx_share_four_cages_and_planes_share_one() -> None:
    sockets = [nic_socket("dgx_h100", rail, 1, 1, 4) for rail in range(1, 9)]
    cages = Counter((socket.cage, socket.connectors) for socket in sockets if socket)
    assert cages == {(f"OSFP{number}", 2): 2 for number in (1, 2, 3, 4)}
    first, second = (nic_socket("dgx_b300", 1, plane, 2, 4) for plane in (1, 2))
    assert first is not None
    assert second is not None
    assert (first.cage, first.sub, second.cage, second.sub, first.connectors) == ("rail1", 0, "rail1", 1, 2)
    assert first.port != second.port


def test_the_lab_has_every_rail_and_its_bmcs() -> None:
    found = runs_of(lab())
    assert found.problems == []
    assert Counter(run.kind for run in found.runs) == {"compute": 32, "oob": 6}
    assert found.notes == [
        (
            "in-band: 16 ports of nodes are not cabled: no in-band switch is in their rack, and no declared "
            "fabric serves it."
        ),
        (
            "storage: 8 ports of nodes are not cabled: no storage switch is in their rack, and no declared fabric "
            "serves it."
        ),
    ]
    management = {
        run.a.device.name: (run.a_port, run.b.device.name, run.b_port)
        for run in found.runs
        if run.a.device.name.startswith("leaf")
    }
    # Units 40 and 42, counted down from swp48.
    assert management == {"leaf01": ("eth0", "oob01", "swp9"), "leaf02": ("eth0", "oob01", "swp7")}


def test_unknown_management_ports_are_listed_as_missing() -> None:
    document = lab()
    rack = document["racks"][0]["name"]
    document["devices"] = [
        {"name": "ufm-1", "kind": "ufm", "rack": rack, "unit": 36},
        {"name": "head-1", "kind": "head", "rack": rack, "unit": 37, "management": {"name": "bmc", "cage": "rj45"}},
        {
            "name": "head-2",
            "kind": "head",
            "rack": rack,
            "unit": 38,
            "management": {"name": "bmc", "rate": 25, "cage": "sfp28"},
        },
        {
            "name": "pdu-1",
            "kind": "pdu",
            "rack": rack,
            "height_u": 0,
            "index": 1,
            "management": {"name": "net", "cage": "rj45"},
        },
        {"name": "cdu-1", "kind": "cdu", "height_u": 0},
        {"name": "panel-1", "kind": "patch_panel", "rack": rack, "unit": 39},
    ]
    found = runs_of(document)
    assert [(run.a_port, run.b_port) for run in found.runs if run.a.device.name == "head-1"] == [("bmc", "swp12")]
    assert [note for note in found.notes if "management" in note] == [
        (
            "out-of-band: management ports of ufm-1 are not cabled: the site does not define the management port "
            "of devices of kind ufm (management)."
        ),
        "out-of-band: management ports of head-2 are not cabled: sn2201 has no sfp28 ports of 25 Gb/s.",
        "out-of-band: management ports of pdu-1 are not cabled: they have no unit in their rack.",
        "out-of-band: management ports of cdu-1 are not cabled: the site does not place them in a rack.",
    ]


def test_a_management_port_never_takes_the_port_of_a_node_that_may_come() -> None:
    document = lab()
    document["networks"] = {"rack_slots": 40, "oob": {"pool": "10.1.0.0/20", "per_rack": 24}}
    assert (
        "out-of-band: management ports of leaf01, leaf02 are not cabled: oob01 has 48 ports, too few for its rack."
        in runs_of(document).notes
    )


def test_a_switch_with_unpublished_management_port_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = loader.switch("qm9700").model_copy(update={"management": None})
    known = loader.switch
    monkeypatch.setattr(loader, "switch", lambda name: silent if name == "qm9700" else known(name))
    notes = runs_of(example("h100-1su-infiniband")).notes
    # 12 of the compute fabric and two of the storage fabric.
    text = (
        "management ports of 14 switches and devices (leaf-su001-r1, ...) are not cabled: the management port of "
        "qm9700 is not published in its profile."
    )
    assert f"out-of-band: {text}" in notes


def test_a_node_that_is_added_moves_no_out_of_band_cable() -> None:
    def ports(document: dict[str, Any]) -> dict[str, str]:
        return {run.a.device.name: run.b_port for run in runs_of(document).runs if run.kind == "oob"}

    fewer = lab()
    del fewer["racks"][0]["nodes"][1]
    fewer["links"] = [link for link in fewer["links"] if link["node"] != "node02"]
    for node in fewer["racks"][0]["nodes"]:
        node["slot"] = int(node["name"][-2:])
    assert ports(fewer).items() <= ports(lab()).items()


def test_ports_of_another_rate_than_their_switch_are_noted() -> None:
    document = lab()
    document["switches"][-1].update(role="in_band")
    notes = runs_of(document).notes
    assert sorted(note for note in notes if note.startswith("in-band")) == [
        "in-band: 8 ports of nodes are not cabled: sn2201 has no ports of 100 Gb/s.",
        "in-band: 8 ports of nodes are not cabled: sn2201 has no ports of 400 Gb/s.",
    ]


def test_a_port_is_cabled_into_the_network_of_the_nic_plan() -> None:
    document = lab()
    # A third of the in-band ports carries storage here; the switch that serves storage has ports of their rate.
    document["nic_plans"] = [{"name": "h100", "platform": "dgx_h100", "nics": [{"name": "slot1p2", "role": "storage"}]}]
    document["switches"].append(
        {**document["switches"][0], "name": "stor01", "role": "storage", "unit": 46, "address": "192.0.2.24"}
    )
    found = runs_of(document)
    assert Counter(run.a_port for run in found.runs if run.kind == "storage") == {
        "slot1p1": 4,
        "slot1p2": 4,
        "slot2p1": 4,
    }
    assert (
        "in-band: 12 ports of nodes are not cabled: no in-band switch is in their rack, and no declared fabric "
        "serves it."
    ) in found.notes


def test_an_out_of_band_switch_that_is_too_small_is_noted() -> None:
    document = lab()
    document["racks"][0]["nodes"][3]["slot"] = 49
    assert (
        "out-of-band: 1 ports of nodes are not cabled: oob01 has 48 ports, too few for its rack."
        in runs_of(document).notes
    )


def test_switches_without_a_place_are_a_note_when_none_has_one() -> None:
    found = runs_of(yaml.safe_load((ROOT / "inventories/sim/site.yml").read_text(encoding="utf-8")))
    assert found.runs == []
    assert found.problems == []
    assert (
        found.notes[0] == "compute fabric: 2 switches have no place, so its cables are not listed. "
        "Add switch_slots, or rack and unit of switches."
    )


def test_a_switch_without_a_place_beside_others_that_have_one_is_a_problem() -> None:
    document = lab()
    del document["switches"][1]["unit"]
    assert texts(runs_of(document).problems) == [
        "leaf02: place - Expected: rack and unit Actual: not given; 16 cables end there. Add its rack and unit."
    ]


def test_racks_without_a_place_are_one_problem_each() -> None:
    document = lab()
    document["racks"].append({"name": "rack02"})
    for switch in document["switches"]:
        switch["rack"] = "rack02"
    assert texts(runs_of(document).problems) == [
        (
            "rack02: hall, row and position - Expected: given Actual: not given; 32 cables leave it. "
            "Add them to the rack."
        )
    ]


def test_a_site_without_halls_reports_unknown_lengths() -> None:
    found = runs_of(example("mixed-metal-virtual"))
    assert found.problems == []
    assert found.notes[-1] == (
        "32 cables between racks are not listed: the site has no halls, so their "
        "lengths are not known. "
        "Add halls, and the hall, row and position of racks."
    )


def test_the_floor_plan_counts_rows_in_their_order() -> None:
    plan = floor_plan(parse(example("h100-1su-infiniband")))
    assert (plan.places["a03"].row, plan.places["a03"].position) == (0, 3)
    assert plan.places["net09"].row == 1


@pytest.mark.parametrize("name", ["h100-1su-infiniband", "b200-4su-roce", "gb200-nvl72-8-racks"])
def test_every_cable_of_the_examples_has_a_part_at_each_end(name: str) -> None:
    found = runs_of(example(name))
    plan = plan_cables(found.runs, found.floor, catalogue(), found.notes)
    assert (found.problems, plan.problems) == ([], ())
    assert plan.cables
    assert all(cable.cable_part and cable.a_part and cable.b_part for cable in plan.cables)
    assert all(cable.stock_m >= cable.length_m > 0 for cable in plan.cables)
    assert len({cable.label for cable in plan.cables}) == len(plan.cables)
    ends = [(run.a.device.name, run.a_port) for run in found.runs] + [
        (run.b.device.name, run.b_port) for run in found.runs
    ]
    assert len(set(ends)) == len(ends)
    assert plan.notes == tuple(found.notes)
