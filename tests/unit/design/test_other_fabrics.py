"""Fabrics beside the compute fabric: every node port has a cable or a reason; counts match NVIDIA's."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from rackready.design.cabling.other_ports import plug, uplink_ports
from rackready.design.other_fabrics import other_layout
from rackready.design.other_summary import node_ports, other_fabrics
from rackready.design.plan import Plan, plan_site
from rackready.model.problems import SiteInvalidError
from tests.unit.design.written import change, example, parse

H100, B200 = "h100-1su-infiniband", "b200-4su-roce"


def planned(document: dict[str, Any]) -> Plan:
    return plan_site(parse(document))


def problems(document: dict[str, Any]) -> list[str]:
    return [str(problem) for problem in planned(document).problems]


def refused(document: dict[str, Any]) -> list[str]:
    with pytest.raises(SiteInvalidError) as caught:
        parse(document)
    return [str(problem) for problem in caught.value.problems]


def by_kind(plan: Plan) -> Counter[str]:
    return Counter(cable.run.kind for cable in plan.cables.cables)


def fabric(document: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(item for item in document["other_fabrics"] if item["name"] == name)
    return found


@pytest.mark.parametrize(("name", "counts"), [(H100, (155, 62, 0)), (B200, (640, 0, 0))])
def test_every_port_of_a_node_has_a_cable_or_a_reason(name: str, counts: tuple[int, int, int]) -> None:
    plan = planned(example(name))
    assert plan.problems == ()
    found = [
        sum(network[state] for network in node_ports(plan).values()) for state in ("cabled", "unused", "not_cabled")
    ]
    assert tuple(found) == counts
    assert not [note for note in plan.notes if "not_cabled" in note], (
        "nothing is left that the site could say something about"
    )


def superpod() -> dict[str, Any]:
    """DGX SuperPOD H100 of four units, 127 nodes: RA-11333-001 V11, tables 4, 7 and 8.

    Six in-band leafs in three pairs under two spines are our reading of its 24 leaf-core and 6 ISL cables; it does not
    say how its 16 storage switches split.
    """
    document = example(H100)
    gpu = document["templates"]["racks"]["gpu"]
    document["topology"] = {
        "link": "infiniband",
        "leaf": {"model": "qm9700"},
        "reserved": [{"su": 4, "slot": 32, "devices": {"ufm-1": [1, 2], "ufm-2": [3, 4]}}],
    }
    document["halls"] = [{"name": "hall-1", "rows": ["a", "b", "net"], "row_pitch_m": 3.0, "tray_height_m": 2.8}]
    gpu["row"] = {"first": 0, "every": 16, "text": "row{n}"}
    document["halls"][0]["rows"] = ["row0", "row1", "net"]
    gpu["position"] = {"first": 1, "cycle": 16}
    gpu["feeds"][0].update({"from": "busway-{n}"})
    document["facility"]["power"] = [
        {"name": "grid", "kind": "utility", "rating_kw": 6000, "loss_accepted": "one utility in this test"},
        {"name": "ups-[1-3]", "kind": "ups", "fed_by": ["grid"], "rating_kw": 2400},
        {"name": "busway-[1-3]", "kind": "busway", "fed_by": ["ups-{n}"], "rating_kw": 2400},
    ]
    nodes = {"template": "h100", "unit": {"first": 3, "step": 10}}
    server = {"kind": "head", "template": "server"}
    net: dict[str, Any] = {
        "hall": "hall-1",
        "row": "net",
        "height_u": 52,
        "feeds": [{"name": "pdu-[1-2]", "from": "busway-{n}", "breaker_a": 100, "volts": 415}],
        "devices": [
            {
                "name": "{rack}-pdu[1-2]",
                "kind": "pdu",
                "height_u": 0,
                "index": {"first": 1},
                "management": {"name": "net", "cage": "rj45"},
            }
        ],
    }
    document["templates"]["racks"]["net"] = net
    document["racks"] = [
        {"name": "a[01-31]", "template": "gpu", "nodes": [{"name": "{rack}-n[1-4]", **nodes}]},
        {"name": "a32", "template": "gpu", "row": "row1", "position": 16, "nodes": [{"name": "a32-n[1-3]", **nodes}]},
        *({"name": f"net{number}", "template": "net", "position": number - 30} for number in range(37, 43)),
    ]
    slots: list[dict[str, Any]] = []
    # 64 InfiniBand switches (32 + 16 compute, 16 storage), 8 in-band and 8 out-of-band ones over six racks.
    for number, tier, units in (
        (37, "leaf", "1-11"),
        (38, "leaf", "1-11"),
        (39, "leaf", "1-10"),
        (40, "spine", "1-10"),
        (41, "spine", "1-6"),
    ):
        slots.append({"rack": f"net{number}", "tier": tier, "units": units})
    for name, number, tier, units, step in (
        ("storage", 41, "leaf", "8-12", 1),
        ("storage", 42, "leaf", "1-5", 1),
        ("storage", 42, "spine", "6-11", 1),
        ("in-band", 37, "leaf", "20-22", 2),
        ("in-band", 38, "leaf", "20-22", 2),
        ("in-band", 39, "leaf", "20-22", 2),
        ("in-band", 40, "spine", "20-20", 1),
        ("in-band", 41, "spine", "20-20", 1),
        ("oob", 42, "leaf", "30-35", 1),
        ("oob-net", 39, "leaf", "30-31", 1),
    ):
        slots.append({"fabric": name, "rack": f"net{number}", "tier": tier, "units": units, "step": step})
    document["switch_slots"] = slots
    pair = {"ufm-1": "ufm-2", "ufm-2": "ufm-1"}
    servers = [
        {"name": name, "rack": "net40", "unit": 40 + place, "pair": other, "fabric_ports": 2}
        for place, (name, other) in enumerate(pair.items())
    ]
    document["devices"] = [{**server, **item, "kind": "ufm"} for item in servers]
    document["devices"] += [
        {**server, "name": f"ufm-{n}", "kind": "ufm", "rack": "net41", "unit": 37 + n} for n in (3, 4)
    ]
    document["devices"] += [{**server, "name": f"head-{n}", "rack": f"net{36 + n}", "unit": 45} for n in (1, 2, 3, 4)]
    for device in document["devices"]:
        if device["kind"] == "ufm":
            device["ports"] = []  # their in-band ports are not in table 8
    document["other_fabrics"] = [
        {
            "name": "in-band",
            "role": "in_band",
            "leaf": "sn4600c",
            "rate": 100,
            "racks_per_leaf": 14,
            "leafs": 2,
            "uplinks": 4,
            "spine": "sn4600c",
            "spines": 2,
            "peer_links": 2,
            "downlinks": 8,
        },
        {
            "name": "storage",
            "role": "storage",
            "leaf": "qm9700",
            "racks_per_leaf": 7,
            "leafs": 2,
            "uplinks": 24,
            "spine": "qm9700",
            "spines": 6,
        },
        {
            "name": "oob",
            "role": "oob",
            "leaf": "sn2201",
            "racks": ["a[01-32]"],
            "racks_per_leaf": 6,
            "uplinks": 2,
            "uplink_to": "in-band",
        },
        {
            "name": "oob-net",
            "role": "oob",
            "leaf": "sn2201",
            "racks": ["net[37-42]"],
            "racks_per_leaf": 3,
            "uplinks": 2,
            "uplink_to": "in-band",
        },
    ]
    del document["tenants"]
    return document


def test_superpod_of_127_nodes_has_the_counts_of_its_reference_architecture() -> None:
    plan = planned(superpod())
    assert plan.problems == ()
    models = Counter((switch.fabric, switch.tier) for switch in other_layout(plan.site).switches)
    # Table 7: 8 in-band, 8 out-of-band, 16 storage switches, 38 racks, 96 + 12 PDUs, 4 UFM appliances.
    assert models[("in-band", "leaf")] + models[("in-band", "spine")] == 8
    assert models[("oob", "leaf")] + models[("oob-net", "leaf")] == 8
    assert models[("storage", "leaf")] + models[("storage", "spine")] == 16
    ordered = Counter({line.group: 0 for line in plan.bom})
    for line in plan.bom:
        ordered[line.group] += line.needed
    assert (ordered["rack"], ordered["pdu"], ordered["ufm"]) == (38, 96 + 12, 4)
    # Table 8, storage: 254 QSFP112 transceivers (980-9I693-00NS00) in the DGX systems.
    assert next(line.needed for line in plan.bom if line.part == "MMA1Z00-NS400") == 254
    kinds = by_kind(plan)
    # Table 4: 1,020 cables to nodes and UFM, 1,024 between leafs and spines. Table 8: 254 in-band cables to nodes and 8
    # to management servers, 24 leaf to core and 6 ISL, 16 uplinks out-of-band to in-band; 494 storage cables of which
    # 254 end in nodes.
    assert (kinds["compute"], kinds["trunk"]) == (1_020, 1_024)
    assert (kinds["in_band"], kinds["in_band_trunk"], kinds["oob_trunk"]) == (254 + 8, 24 + 6, 16)
    assert (kinds["storage"], kinds["storage_trunk"]) == (254, 494 - 254)
    # Table 8: 127 nodes, 64 InfiniBand switches, 8 servers (UFM and management), 8 in-band switches, 108 PDUs.
    assert kinds["oob"] == 127 + 64 + 8 + 8 + 108
    # The 889 ports beside the compute fabric: 5 of 7 of every node have a cable, two are unused on purpose.
    assert {network: tuple(counts.values()) for network, counts in node_ports(plan).items()} == {
        "in_band": (254, 254, 0),
        "oob": (127, 0, 0),
        "storage": (254, 0, 0),
    }


def test_rack_that_is_added_moves_no_cable_beside_the_compute_fabric() -> None:
    document = example(B200)
    document["racks"][0]["name"] = "a[01-24]"
    document["tenants"], document["deliveries"] = [], []
    fabric(document, "oob")["racks"] = ["a[01-24]"]
    kinds = {"in_band", "storage", "oob", "in_band_trunk", "storage_trunk"}
    fewer, all_of_them = (
        {cable.label for cable in planned(item).cables.cables if cable.run.kind in kinds}
        for item in (document, example(B200))
    )
    assert fewer
    assert fewer < all_of_them


def test_two_leafs_share_the_ports_of_a_bond() -> None:
    plan = planned(example(B200))
    ends = {
        cable.a_port: cable.b_device
        for cable in plan.cables.cables
        if cable.a_device == "a09-n1" and cable.run.kind == "in_band"
    }
    assert ends == {"bf3-1p2": "in-band-leaf-003", "bf3-2p2": "in-band-leaf-004"}


def test_oversubscription_is_counted_from_the_cables() -> None:
    found = {item["name"]: item for item in other_fabrics(planned(example(B200)))}
    # 16 racks x 4 nodes x 400 Gb/s down, 32 x 400 Gb/s up.
    assert found["storage"]["fullest_leaf"] == {"name": "storage-leaf-004", "down_gbps": 25_600, "up_gbps": 12_800}
    # The two links to its peer are no way up.
    assert found["in-band"]["fullest_leaf"]["up_gbps"] == 400


def test_cage_takes_the_plug_of_a_slower_link() -> None:
    assert [plug("qsfp112", rate, 4) for rate in (400, 200, 100)] == ["qsfp112", "qsfp56", "qsfp28"]
    assert plug("rj45", 1, 1) == "rj45"
    bom = {line.part for line in planned(example(B200)).bom}
    assert {"MFA1A00-C030"} <= bom, "an in-band port of a BlueField-3 at 100 Gb/s takes a QSFP28 cable"


def test_uplinks_of_an_out_of_band_switch_are_its_own_ports() -> None:
    ports = uplink_ports("sn2201")
    assert ports is not None
    assert [socket.port for socket in ports.sockets] == ["swp49", "swp50", "swp51", "swp52"]
    plan = planned(example(B200))
    ends = [
        (cable.a_port, cable.b_device)
        for cable in plan.cables.cables
        if cable.a_device == "oob-leaf-001" and cable.run.kind == "oob_trunk"
    ]
    assert ends == [("swp49", "in-band-spine-001"), ("swp50", "in-band-spine-002")]


def test_leafs_that_nothing_joins_are_noted() -> None:
    document = example(B200)
    del (
        fabric(document, "storage")["spine"],
        fabric(document, "storage")["spines"],
        fabric(document, "storage")["uplinks"],
    )
    document["racks"][-1]["switch_slots"].pop()
    text = (
        "storage: nothing connects its leafs to each other. "
        "Add spines, or uplink_to with uplinks, unless your own network connects them."
    )
    assert text in planned(document).notes


@pytest.mark.parametrize(
    ("name", "fields", "expected"),
    [
        (
            "in-band",
            {"racks_per_leaf": 32},
            (
                "other_fabrics[0] (in-band): ports of a01, a02, a03, a04, a05, a06, a07, a08 and 25 more on a leaf "
                "- Expected: at most 1 (58 for 32 racks)"
                " Actual: 4. Lower racks_per_leaf to 14, or use a larger leaf."
            ),
        ),
        (
            "in-band",
            {"racks_per_leaf": 64},
            (
                "other_fabrics[0] (in-band): racks_per_leaf - "
                "Expected: at most 58, because sn4600c has 58 ports for racks Actual: 64. "
                "Lower it, or use a larger leaf."
            ),
        ),
        (
            "in-band",
            {"downlinks": 4},
            (
                "other_fabrics[3] (oob-net): ports that in-band reserves for uplinks of others - "
                "Expected: at least 5 on in-band-spine-001 Actual: 4."
                " Raise downlinks of in-band to 5."
            ),
        ),
        (
            "in-band",
            {"rate": 400},
            (
                "other_fabrics[0] (in-band): ports of sn4600c - Expected: some of 400 Gb/s Actual: none. "
                "Use another model, or set rate."
            ),
        ),
        (
            "storage",
            {"rate": 800, "uplinks": 0, "spine": None, "spines": 0},
            (
                "other_fabrics: storage: 256 ports of nodes are not cabled: they run at most 400 Gb/s, but links of "
                "storage run 800."
                " Correct the fabric, or declare the ports unused in a NIC plan."
            ),
        ),
        (
            "oob",
            {"uplinks": 5},
            (
                "other_fabrics[2] (oob): uplinks - Expected: at most 4 Actual: 5, more than sn2201 has ports for. "
                "Lower uplinks."
            ),
        ),
        (
            "storage",
            {"spines": 1, "uplinks": 48},
            (
                "other_fabrics[1] (storage): leafs - Expected: numbers up to 2, because sn5600_2x400 has no more "
                "ports Actual: storage-leaf-003."
                " Use more spines, or fewer uplinks."
            ),
        ),
    ],
)
def test_fabric_that_does_not_fit_is_a_problem(name: str, fields: dict[str, Any], expected: str) -> None:
    document = example(B200)
    fabric(document, name).update(fields)
    assert expected in problems(document)


def test_switches_without_a_slot_are_a_problem() -> None:
    document = example(B200)
    document["racks"][-1]["switch_slots"][0]["units"] = "1-2"
    assert (
        "switch_slots: 3 oob leaf switches, but only 2 slots (oob-leaf-003 is the first without). Add slots for 1 more."
        in problems(document)
    )


@pytest.mark.parametrize(
    ("name", "fields", "expected"),
    [
        (
            "storage",
            {"leaf": "sn9999"},
            "other_fabrics[1].leaf: switch profile 'sn9999' does not exist - Expected: one of",
        ),
        (
            "oob",
            {"racks": ["a[01-40]"]},
            (
                "other_fabrics[2].racks[0]: no racks are called a33, a34, a35, a36, a37, a38, a39, a40. "
                "Correct the name or the range."
            ),
        ),
        (
            "oob",
            {"uplink_to": "core"},
            (
                "other_fabrics[2].uplink_to: no other fabric is called core - "
                "Expected: one of in-band, storage, oob-net. Correct the name."
            ),
        ),
        ("oob-net", {"name": "oob"}, "other_fabrics[3].name: fabric oob is given twice. Give each its own name."),
        (
            "oob",
            {"racks": ["a[01-32]", "net33"]},
            "other_fabrics[3].racks: rack net33 is already served by oob, which is also out-of-band.",
        ),
        (
            "oob",
            {"uplinks": 0},
            (
                "other_fabrics[2]: uplinks - Expected: uplinks with spine or uplink_to, and none without "
                "Actual: one of them alone"
            ),
        ),
        (
            "storage",
            {"uplinks": 31},
            "other_fabrics[1]: uplinks: 31 over 2 spines - Expected: a number that 2 divides Actual: 31",
        ),
        ("oob", {"peer_links": 1}, "other_fabrics[2]: peer_links - Expected: leafs: 2 Actual: leafs: 1"),
    ],
)
def test_slips_are_named(name: str, fields: dict[str, Any], expected: str) -> None:
    document = example(B200)
    fabric(document, name).update(fields)
    assert any(text.startswith(expected) for text in refused(document)), refused(document)


def test_uplinks_in_a_circle_are_refused() -> None:
    document = example(B200)
    fabric(document, "oob").update(uplink_to="oob-net")
    fabric(document, "oob-net").update(uplink_to="oob")
    expected = (
        "other_fabrics[2].uplink_to: the uplinks of oob form a loop back to it. "
        "Give one of these fabrics spines, or remove its uplinks."
    )
    assert expected in refused(document)


def test_slots_of_a_fabric_that_is_not_there_are_refused() -> None:
    document = example(B200)
    document["racks"][-1]["switch_slots"][0]["fabric"] = "oobb"
    assert refused(document) == [
        (
            "racks[3].switch_slots[0].fabric: no other fabric is called oobb - "
            "Expected: one of in-band, storage, oob, oob-net. Correct the name."
        )
    ]


@pytest.mark.parametrize(
    ("unused", "expected"),
    [
        ("slot9", "nic_plans[0].unused[0].name: dgx_h100 has no port slot9 - Expected: one of "),
        (
            "rail1",
            (
                "nic_plans[0].unused[0].name: port rail1 of dgx_h100 belongs to the compute fabric, which cables "
                "every rail. "
                "Remove it."
            ),
        ),
        (
            "slot1p2",
            (
                "nic_plans[0].unused[0].name: port slot1p2 is listed as unused, but the plan also uses it. "
                "Remove one of the two entries."
            ),
        ),
        ("slot3p2", "nic_plans[0].unused[1].name: port slot3p2 is given twice. List it once."),
    ],
)
def test_unused_port_is_one_that_is_there_and_free(unused: str, expected: str) -> None:
    document = example(H100)
    change("nic_plans.0.unused.0.name", unused)(document)
    assert any(text.startswith(expected) for text in refused(document)), refused(document)


def test_switch_of_its_own_rack_serves_a_node_before_a_fabric_does() -> None:
    document = example(B200)
    own = {
        "name": "tor",
        "os": "cumulus_nvue",
        "model": "sn2201",
        "role": "oob",
        "rack": "a01",
        "unit": 48,
        "address": "10.20.0.250",
    }
    document["switches"] = [{**own, "password": {"env": "SWITCH_PASSWORD"}}]
    plan = planned(document)
    ends = {cable.b_device for cable in plan.cables.cables if cable.a_rack == "a01" and cable.run.kind == "oob"}
    assert ends == {"tor"}


@pytest.mark.parametrize(("name", "least"), [(B200, 5), (H100, 3)])
def test_least_downlinks_are_those_that_fit(name: str, least: int) -> None:
    def told(downlinks: int) -> list[str]:
        document = example(name)
        fabric(document, "in-band")["downlinks"] = downlinks
        return [str(problem) for problem in planned(document).problems if "downlinks" in str(problem)]

    assert told(least) == []
    for fewer in range(least):
        assert told(fewer)
        assert all(
            f"Expected: at least {least} on " in text and text.endswith(f"Raise downlinks of in-band to {least}.")
            for text in told(fewer)
        )
