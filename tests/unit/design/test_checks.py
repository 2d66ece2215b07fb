"""Contradictions of the site model are refused by exact text: places, networks, NIC plans."""

from __future__ import annotations

import pytest

from tests.unit.design.written import Change, change, example, refusals

B200, H100, GB200, MIXED = "b200-4su-roce", "h100-1su-infiniband", "gb200-nvl72-8-racks", "mixed-metal-virtual"

PLACES: list[tuple[str, Change, str]] = [
    (
        B200,
        change(
            "halls.+",
            {"name": "hall-2", "rows": ["a"], "row_pitch_m": 3.0, "tray_height_m": 2.8, "ways_m": {"hall-7": 40}},
        ),
        "halls[1].ways_m.hall-7: no hall is called hall-7 - Expected: one of hall-1, hall-2. Correct the name.",
    ),
    (
        B200,
        change(
            "halls",
            [
                {
                    "name": "hall-1",
                    "rows": ["row1", "row2", "net"],
                    "row_pitch_m": 3.0,
                    "tray_height_m": 2.8,
                    "ways_m": {"hall-2": 40},
                },
                {"name": "hall-2", "rows": ["a"], "row_pitch_m": 3.0, "tray_height_m": 2.8, "ways_m": {"hall-1": 45.5}},
            ],
        ),
        (
            "halls[1].ways_m.hall-1: the cable path from hall-2 to hall-1 is 45.5 m, but 40 m from hall-1 to hall-2 - "
            "Expected: one length. "
            "Measure it from entry to entry, and list it once."
        ),
    ),
    (
        B200,
        change("halls.0.rows", ["row1", "row2", "row2", "net"]),
        "halls[0].rows[2]: row row2 of hall hall-1 is given twice. Give each row its own name.",
    ),
    (
        B200,
        change("templates.racks.gpu.hall", "hall-9"),
        "templates.racks.gpu.hall: no hall is called hall-9 - Expected: one of hall-1. Correct the name.",
    ),
    (
        B200,
        change("templates.racks.net.row", "attic"),
        (
            "templates.racks.net.row: hall hall-1 has no row attic - Expected: one of row1, row2, net. "
            "Correct the row, or add it to the hall."
        ),
    ),
    (
        B200,
        change("racks.2.position", 7),
        "racks[2].position: position 7 of row net in hall hall-1 is occupied by net33. Give net35 another position.",
    ),
    (
        H100,
        change("racks.2.feeds.0.from", "busway-9"),
        (
            "racks[2].feeds[0].from: no power node is called busway-9 - "
            "Expected: one of grid, ups-1, ups-2, ups-3, busway-1, busway-2, busway-3."
        ),
    ),
    (
        H100,
        change("facility.power.1.fed_by", ["sun"]),
        (
            "facility.power[1].fed_by[0]: no power node is called sun - "
            "Expected: one of grid, ups-1, ups-2, ups-3, busway-1, busway-2, busway-3. "
            "Correct the name."
        ),
    ),
    (
        H100,
        change("racks.2.devices.4.unit", 46),
        (
            "racks[2].devices[4].unit: units 46-49 of storage-1 extend beyond rack net09 - Expected: 1 to 48. "
            "Move it lower, or correct height_u of the rack."
        ),
    ),
    (
        H100,
        change("racks.2.devices.1.unit", 20),
        "racks[2].devices[1].unit: unit 20 is occupied by ufm-1. Move ufm-2 to 1 U of free space.",
    ),
    (
        H100,
        change("racks.2.switch_slots.1.units", "8-11"),
        (
            "racks[2].switch_slots[1].unit: unit 8 is occupied by the leaf slot at unit 8. "
            "Move the spine slot at unit 8 to 1 U of free space."
        ),
    ),
    (
        H100,
        change("racks.2.devices.0.pair", "ufm-3"),
        "racks[2].devices[0].pair: no device is called ufm-3 - Expected: one of ",
    ),
    (
        H100,
        change("racks.2.devices.0.pair", "head-1"),
        (
            "racks[2].devices[0].pair: ufm-1 names head-1 as its pair, but head-1 names none. "
            "Make each of the two name the other."
        ),
    ),
    (
        GB200,
        change("devices.0.rack", "r99"),
        "devices[0].rack: no rack is called r99 - Expected: one of r01, r02, r03, r04, r05, r06, r07, r08 and 1 more. ",
    ),
    (
        MIXED,
        change("racks.0.nodes.0.unit", None),
        "racks[0].nodes[0].unit: is required and missing. Add the rack unit where the node is mounted.",
    ),
    (
        MIXED,
        change("racks.0.nodes.0.host", "host-1"),
        "racks[0].nodes[0].host: metal node train-1 has a host. Remove host, or set kind: virtual.",
    ),
    (
        MIXED,
        change("racks.1.nodes.1.host", None),
        "racks[1].nodes[1].host: is required and missing. Add the metal node that the virtual node runs on.",
    ),
    (
        MIXED,
        change("racks.1.nodes.1.unit", 30),
        "racks[1].nodes[1].unit: virtual node vm-a03 has a unit. Remove unit: its host has one.",
    ),
    (
        MIXED,
        change("racks.1.nodes.1.host", "vm-b07"),
        (
            "racks[1].nodes[1].host: vm-b07, the host of vm-a03, is virtual itself - Expected: a metal node. "
            "Correct the name."
        ),
    ),
    (
        MIXED,
        change("racks.1.nodes.1.host", "host-9"),
        (
            "racks[1].nodes[1].host: host-9, the host of vm-a03, does not exist - Expected: a metal node. "
            "Correct the name."
        ),
    ),
    (
        MIXED,
        change("racks.1.nodes.0.nic_plan", "fast"),
        "racks[1].nodes[0].nic_plan: no NIC plan is called fast - Expected: one of none. Correct the name.",
    ),
]

NETWORKS: list[tuple[str, Change, str]] = [
    (
        B200,
        change("networks.storage.pool", "10.21.128.0/17"),
        (
            "networks.storage.pool: 10.21.128.0/17 of networks.storage overlaps 10.21.0.0/16 of networks.in_band. "
            "Give each network its own addresses."
        ),
    ),
    (
        B200,
        change("networks.oob.per_rack", 28),
        (
            "networks.oob.per_rack: a rack's block of /28 ends at host 14, but 4 nodes with 2 DPUs each need hosts up "
            "to 22. "
            "Make blocks larger (a shorter prefix), or lower networks.rack_slots."
        ),
    ),
    (
        B200,
        change("networks.storage", {"pool": "10.22.0.0/27", "per_rack": 26}),
        (
            "networks.storage.per_rack: a rack's block (/26) is larger than the pool 10.22.0.0/27. "
            "Make blocks smaller (a longer prefix) or the pool larger."
        ),
    ),
    (
        B200,
        change("networks.compute.vlan_first", 4079),
        (
            "networks.compute.vlan_first: 3 planes of 8 rails from VLAN 4079 end at VLAN 4102 - "
            "Expected: at most 4094. "
            "Start with a lower VLAN."
        ),
    ),
    (
        B200,
        change("networks.compute.rails", 4),
        "networks.compute.rails: the network has room for 4 rails, but nodes have 8. Raise it to 8.",
    ),
    (
        B200,
        change("topology.planes", 4),
        "networks.compute.planes: the network has room for 3 planes, but the topology has 4. Raise it to 4.",
    ),
    (
        B200,
        change("networks.compute.per_unit", 29),
        (
            "networks.compute.per_unit: a subnet of /29 has no room for one rack of 4 nodes (networks.rack_slots). "
            "Make subnets larger (a shorter prefix), or lower networks.rack_slots."
        ),
    ),
    (
        B200,
        change("networks.oob.vlan", 1201),
        "tenants[0].vlan: VLAN 1201 of tenant research is already used by networks.oob. Give each its own VLAN.",
    ),
    (
        B200,
        change("tenants.1.vlan", 901),
        "tenants[1].vlan: VLAN 901 of tenant product is already used by networks.compute. Give each its own VLAN.",
    ),
    (
        B200,
        change("topology.link", "infiniband"),
        "topology.link: link layer infiniband does not match fabric.kind (roce). Make them equal.",
    ),
    (
        B200,
        change("topology.leaf.model", "qm9700"),
        (
            "topology.leaf.model: qm9700 is an infiniband switch - Expected: ethernet for link: roce. "
            "Choose another model."
        ),
    ),
    (
        B200,
        change("topology.leaf.model", "sn1"),
        "topology.leaf.model: switch profile 'sn1' does not exist - Expected: one of ",
    ),
    (
        B200,
        change("networks.underlay.links", "numbered"),
        "networks.underlay: links: numbered needs a pool. Correct it.",
    ),
    (
        B200,
        change("networks.oob.pool", "10.20.0.1/16"),
        (
            "networks.oob.pool: Expected: an IPv4 network such as 192.0.2.0/24, with no bit of a host "
            "Actual: '10.20.0.1/16'. Correct it."
        ),
    ),
]

NICS: list[tuple[str, Change, str]] = [
    (
        B200,
        change("nic_plans.0.platform", "dgx_x"),
        "nic_plans[0].platform: platform profile 'dgx_x' does not exist - Expected: one of ",
    ),
    (
        B200,
        change("nic_plans.0.nics.0.name", "eth9"),
        "nic_plans[0].nics[0].name: dgx_b200 has no port eth9 - Expected: one of bf3-1p1, bf3-1p2, ",
    ),
    (
        B200,
        change("nic_plans.0.nics.0.role", "compute"),
        (
            "nic_plans[0].nics[0].role: port bf3-1p1 of dgx_b200 is not part of the compute fabric - "
            "Expected: storage, in_band or oob. "
            "Correct it: the platform's profile fixes which port is which rail."
        ),
    ),
    (
        B200,
        change("nic_plans.0.nics.0", {"name": "rail3", "role": "compute", "rail": 4}),
        (
            "nic_plans[0].nics[0]: port rail3 of dgx_b200 is rail 3 of the compute fabric - "
            "Expected: role compute, and this rail or none. Correct it: "
        ),
    ),
    (
        B200,
        change("nic_plans.0.nics.0", {"name": "rail3", "role": "storage"}),
        (
            "nic_plans[0].nics[0]: port rail3 of dgx_b200 is rail 3 of the compute fabric - "
            "Expected: role compute, and this rail or none. Correct it: "
        ),
    ),
    (
        B200,
        change("nic_plans.0.nics.1.name", "bf3-1p1"),
        "nic_plans[0].nics[1].name: port bf3-1p1 is given twice. List it once.",
    ),
    (
        B200,
        change("nic_plans.0.nics.0.rail", 1),
        "nic_plans[0].nics[0].rail: storage port bf3-1p1 has a rail. Remove it: only compute ports have rails.",
    ),
    (
        B200,
        change("nic_plans.0.nics.0.gpu", 8),
        "nic_plans[0].nics[0].gpu: dgx_b200 has no GPU 8 - Expected: 0 to 7. Correct it.",
    ),
    (
        B200,
        change("nic_plans.0.bonds.0.members", ["bf3-1p2", "bf3-1p2"]),
        "nic_plans[0].bonds[0].members: port bf3-1p2 is already in a bond. Put each port in one bond.",
    ),
    (
        B200,
        change("nic_plans.0.bonds.0.members", ["bf3-1p2", "bf3-1p1"]),
        "nic_plans[0].bonds[0]: bond0 joins ports with roles in_band and storage. Bond ports of the same role.",
    ),
    (
        B200,
        change("nic_plans.0.bonds.0.members", ["bf3-1p2", "bmc"]),
        "nic_plans[0].bonds[0]: bond0 joins ports with rates 1 and 400 Gb/s. Bond ports of the same rate.",
    ),
    (
        B200,
        change("nic_plans.0.dpus.1.name", "dpu1"),
        "nic_plans[0].dpus[1].name: DPU dpu1 is given twice: both would be named <node>-dpu1. Give each its own name.",
    ),
    (
        B200,
        change("nic_plans.0.dpus.1.ports", ["bf3-1p1"]),
        "nic_plans[0].dpus[1].ports[0]: port bf3-1p1 already belongs to a DPU. Assign each port to one DPU.",
    ),
    (
        B200,
        change("nic_plans.0.dpus.0.ports", ["rail1"]),
        "nic_plans[0].dpus[0].ports[0]: port rail1 of dgx_b200 is not on a BlueField. Correct the name.",
    ),
]


@pytest.mark.parametrize(("name", "mistake", "text"), [*PLACES, *NETWORKS, *NICS])
def test_refusal(name: str, mistake: Change, text: str) -> None:
    document = example(name)
    if name == B200:
        document["networks"]["compute"]["planes"] = 3
    mistake(document)
    found = refusals(document)
    assert any(item.startswith(text) for item in found), found
