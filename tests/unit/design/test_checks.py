"""Every contradiction in the complete site model is refused by its exact text."""

from __future__ import annotations

import pytest

from tests.unit.design.written import Change, change, example, refusals

B200, H100, GB200, MIXED = "b200-4su-roce", "h100-1su-infiniband", "gb200-nvl72-8-racks", "mixed-metal-virtual"
LATER = {"name": "later", "nodes": ["a01-n1"]}

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
            "halls[1].ways_m.hall-1: the way from hall-2 to hall-1 is 45.5 m, and 40 m from hall-1 to hall-2 - "
            "Expected: one length. "
            "Measure it from entry to entry, and say it once."
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
        "racks[2].position: position 7 of row net in hall hall-1 is taken by net33. Give net35 its own place.",
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
            "racks[2].devices[4].unit: units 46-49 of storage-1 stick out of rack net09 - Expected: 1 to 48. "
            "Place it lower, or correct height_u of the rack."
        ),
    ),
    (
        H100,
        change("racks.2.devices.1.unit", 20),
        "racks[2].devices[1].unit: unit 20 is taken by ufm-1. Place ufm-2 where 1 units are free.",
    ),
    (
        H100,
        change("racks.2.switch_slots.1.units", "8-11"),
        (
            "racks[2].switch_slots[1].unit: unit 8 is taken by the leaf slot at unit 8. "
            "Place the spine slot at unit 8 where 1 units are free."
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
            "racks[2].devices[0].pair: ufm-1 names head-1 as the other of its pair, which names none. "
            "Let each of the two name the other."
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
        "racks[0].nodes[0]: metal node train-1 has no unit. Say at which unit of the rack it stands.",
    ),
    (
        MIXED,
        change("racks.0.nodes.0.host", "host-1"),
        "racks[0].nodes[0].host: metal node train-1 has a host. Remove it, or make the node kind: virtual.",
    ),
    (
        MIXED,
        change("racks.1.nodes.1.host", None),
        "racks[1].nodes[1]: virtual node vm-a03 has no host. Say on which node it runs.",
    ),
    (
        MIXED,
        change("racks.1.nodes.1.unit", 30),
        "racks[1].nodes[1].unit: virtual node vm-a03 has a unit. Remove it: its host has one.",
    ),
    (
        MIXED,
        change("racks.1.nodes.1.host", "vm-b07"),
        (
            "racks[1].nodes[1].host: vm-b07, on which vm-a03 is to run, is virtual itself - Expected: a metal node. "
            "Correct the name."
        ),
    ),
    (
        MIXED,
        change("racks.1.nodes.1.host", "host-9"),
        (
            "racks[1].nodes[1].host: host-9, on which vm-a03 is to run, does not exist - Expected: a metal node. "
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
            "networks.oob.per_rack: a rack's block of /28 ends at host 14, 4 nodes with 2 DPUs each need hosts up "
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
            "networks.compute.vlan_first: 3 planes of 8 rails from VLAN 4079 end at 4102 - Expected: at most 4094. "
            "Begin with a lower VLAN."
        ),
    ),
    (
        B200,
        change("networks.compute.rails", 4),
        "networks.compute.rails: the plan has room for 4 rails, nodes have 8. Raise it to 8.",
    ),
    (
        B200,
        change("topology.planes", 4),
        "networks.compute.planes: the plan has room for 3 planes, the topology has 4. Raise it to 4.",
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
        "tenants[0].vlan: VLAN 1201 of tenant research is also that of networks.oob. Give each its own VLAN.",
    ),
    (
        B200,
        change("tenants.1.vlan", 901),
        "tenants[1].vlan: VLAN 901 of tenant product is also that of networks.compute. Give each its own VLAN.",
    ),
    (
        B200,
        change("topology.link", "infiniband"),
        "topology.link: link layer infiniband is not that of fabric.kind (roce). Make the two equal.",
    ),
    (
        B200,
        change("topology.leaf.model", "qm9700"),
        (
            "topology.leaf.model: qm9700 is an infiniband switch - Expected: ethernet, for link: roce. "
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
        "networks.underlay: Value error, links: numbered needs a pool. Correct it.",
    ),
    (
        B200,
        change("networks.oob.pool", "10.20.0.1/16"),
        "networks.oob.pool: Input is not a valid IPv4 network - Actual: '10.20.0.1/16'. Correct it.",
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
            "nic_plans[0].nics[0].role: port bf3-1p1 of dgx_b200 is not of the compute fabric - "
            "Expected: storage, in_band or oob. "
            "Correct it: which port is which rail is a fact of the platform's profile."
        ),
    ),
    (
        B200,
        change("nic_plans.0.nics.0", {"name": "rail3", "role": "compute", "rail": 4}),
        (
            "nic_plans[0].nics[0]: port rail3 of dgx_b200 is rail 3 of the compute fabric - "
            "Expected: role compute, and that rail or none. Correct it: "
        ),
    ),
    (
        B200,
        change("nic_plans.0.nics.0", {"name": "rail3", "role": "storage"}),
        (
            "nic_plans[0].nics[0]: port rail3 of dgx_b200 is rail 3 of the compute fabric - "
            "Expected: role compute, and that rail or none. Correct it: "
        ),
    ),
    (
        B200,
        change("nic_plans.0.nics.1.name", "bf3-1p1"),
        "nic_plans[0].nics[1].name: port bf3-1p1 is given twice. Say once what it is for.",
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
        "nic_plans[0].bonds[0].members: port bf3-1p2 is in a bond already. A port is in one bond, once.",
    ),
    (
        B200,
        change("nic_plans.0.bonds.0.members", ["bf3-1p2", "bf3-1p1"]),
        "nic_plans[0].bonds[0]: bond0 joins ports for in_band and storage. Bond ports of one role.",
    ),
    (
        B200,
        change("nic_plans.0.bonds.0.members", ["bf3-1p2", "bmc"]),
        "nic_plans[0].bonds[0]: bond0 joins ports of 1 and 400 Gb/s. Bond ports of one rate.",
    ),
    (
        B200,
        change("nic_plans.0.dpus.1.name", "dpu1"),
        "nic_plans[0].dpus[1].name: DPU dpu1 is given twice: both would be <node>-dpu1. Give each its own name.",
    ),
    (
        B200,
        change("nic_plans.0.dpus.1.ports", ["bf3-1p1"]),
        "nic_plans[0].dpus[1].ports[0]: port bf3-1p1 is that of a DPU already. A port belongs to one DPU, once.",
    ),
    (
        B200,
        change("nic_plans.0.dpus.0.ports", ["rail1"]),
        "nic_plans[0].dpus[0].ports[0]: port rail1 of dgx_b200 is no BlueField's. Correct the name.",
    ),
]

GROUPS: list[tuple[str, Change, str]] = [
    (
        B200,
        change("tenants.0.racks.0", "a[01-99]"),
        "tenants[0].racks[0]: no racks are called a33, a34, a35, a36, a37, a38, a39, a40 and 59 more.",
    ),
    (
        B200,
        change("tenants.+", LATER),
        "tenants[2]: a01-n1 of tenant later is also of tenant research. A node has one tenant.",
    ),
    (
        B200,
        change("tenants.1.vrf", "research"),
        "tenants[1].vrf: VRF research is also that of tenant research. Give tenant product its own.",
    ),
    (
        B200,
        change("tenants.1.vni", 100201),
        "tenants[1].vni: VNI 100201 is also that of tenant research. Give tenant product its own.",
    ),
    (
        B200,
        change("tenants.1.name", "research"),
        "tenants[1].name: tenant research is given twice. Give each its own name.",
    ),
    (
        B200,
        change("tenants.0.pkey", "0x0001"),
        "tenants[0].pkey: pkey of tenant research is not for a fabric of kind roce. Use vlan, vrf or vni.",
    ),
    (
        H100,
        change("tenants.0.vlan", 12),
        "tenants[0].vlan: vlan of tenant research is not for a fabric of kind infiniband. Use pkey.",
    ),
    (
        H100,
        change("tenants.0.pkey", "0x8011"),
        (
            "tenants[0].pkey: partition key 0x8011 has the bit of full membership (0x8000). Write 0x0011; "
            "full_member says the rest."
        ),
    ),
    (
        H100,
        change("tenants.0.pkey", "0x7fff"),
        (
            "tenants[0].pkey: partition key 0x7fff is that of the default partition - Expected: 0x0001 to 0x7ffe. "
            "Choose another."
        ),
    ),
    (
        H100,
        change("tenants.0.pkey", "0x0"),
        "tenants[0].pkey: partition key 0x0 is invalid - Expected: 0x0001 to 0x7ffe. Choose another.",
    ),
    (
        H100,
        change("tenants.1.pkey", "0x0011"),
        "tenants[1].pkey: partition key 0x0011 is also that of tenant research. Give tenant product its own.",
    ),
    (
        GB200,
        change("nvlink_domains.0.rack", "r99"),
        "nvlink_domains[0].rack: no rack is called r99 - Expected: one of ",
    ),
    (
        GB200,
        change("nvlink_domains.+", {"name": "more", "nodes": ["r01-c01"]}),
        "nvlink_domains[1]: r01-c01 is in NVLink domain nvl-01 already. A node is in one domain.",
    ),
    (
        GB200,
        change("nvlink_domains", [{"name": "wide", "nodes": ["r01-c01", "r02-c01"]}]),
        (
            "nvlink_domains[0]: nodes of NVLink domain wide stand in r01, r02 - Expected: one rack. "
            "Correct the nodes, or say across_racks: true."
        ),
    ),
    (
        GB200,
        change("nvlink_domains", [{"name": "wide", "nodes": ["r[01-02]-c[01-18]"], "across_racks": True}]),
        "nvlink_domains[0]: NVLink domain wide has 144 GPUs - Expected: at most 72. Correct its nodes.",
    ),
    (
        GB200,
        change("nvlink_domains", [{"name": "none", "rack": "net09"}]),
        "nvlink_domains[0]: NVLink domain none has no nodes. Give it a rack or nodes.",
    ),
    (
        B200,
        change("nvlink_domains", [{"name": "one", "rack": "a01"}]),
        "nvlink_domains[0]: dgx_b200 has NVLink within the server only. Take its nodes out of the domain.",
    ),
    (
        B200,
        change("deliveries.0.racks", ["a[01-16]"]),
        "deliveries: net33, net34, net35, net36 come with no delivery. Add it to one, or a delivery of its own.",
    ),
    (
        B200,
        change("deliveries.1.racks.0", "a[16-32]"),
        "deliveries[1].racks: a16 comes with delivery first already. A rack comes once.",
    ),
    (
        B200,
        change("maintenance.0.timezone", "Berlin"),
        "maintenance[0].timezone: no time zone is called Berlin. Use an IANA name such as Europe/Berlin, or UTC.",
    ),
    (
        B200,
        change("maintenance.0.hours", 25),
        "maintenance[0].hours: Input should be less than or equal to 24 - Actual: 25. Correct it.",
    ),
    (B200, change("maintenance.0.start", "24:00"), "maintenance[0].start: String should match pattern"),
    (B200, change("maintenance.0.days", ["sun", "sun"]), "maintenance[0].days: a day is given twice. Remove one."),
    (
        B200,
        change(
            "maintenance.+",
            {
                "name": "again",
                "days": ["sun"],
                "start": "22:00",
                "hours": 1,
                "timezone": "Europe/Berlin",
                "racks": ["a01"],
            },
        ),
        (
            "maintenance[1]: windows sunday-night and again begin at the same time for the same racks. "
            "Remove one, or name other racks or days."
        ),
    ),
]


LAB = "lab-4-nodes"
OTHER = {
    "name": "oob01",
    "os": "cumulus_nvue",
    "model": "sn2201",
    "address": "192.0.2.40",
    "password": {"env": "X"},
    "role": "oob",
}
PORTS: list[tuple[str, Change, str]] = [
    (
        LAB,
        change("switches.0.ports", [{"ports": "swp60-swp66"}]),
        "switches[0].ports[0].ports: leaf01 has no port swp65, swp66 - Expected: swp1 to swp64. Correct the range.",
    ),
    (
        LAB,
        change("switches.0.ports", [{"ports": "swp33-swp40"}, {"ports": "swp40"}]),
        "switches[0].ports[1].ports: swp40 of leaf01 is set up already. A port is in one group.",
    ),
    (
        LAB,
        change("switches.+", {**OTHER, "ports": [{"ports": "swp33", "breakout": 4}]}),
        "switches[1].ports[0].breakout: a port of sn2201 cannot be split in 4 - Expected: one of 1. Correct it.",
    ),
    (
        LAB,
        change("switches.0.ports", [{"ports": "swp33", "cage": "qsfp56"}]),
        "switches[0].ports[0].cage: ports of sn5600 have cages of kind ",
    ),
    (
        LAB,
        change("switches.0.ports", [{"ports": "swp33", "polarity": "A"}]),
        (
            "switches[0].ports[0].polarity: polarity A - Expected: B, since the fibres of profiles/parts are "
            "crossed over (TIA-568 type B). "
            "Correct it, or leave it out."
        ),
    ),
    (
        LAB,
        change("switches.0.ports", [{"ports": "swp1", "breakout": 2}]),
        "links[0].ports: leaf01 has no port swp1 - Expected: swp1s0 to swp64.",
    ),
]


TWO = [{"name": "a", "nodes": ["node01"], "vlan": 1201}, {"name": "b", "nodes": ["node02"], "vlan": 1201}]
ADDRESSES: list[tuple[str, Change, str]] = [
    (
        LAB,
        change("tenants", TWO),
        "tenants[1].vlan: VLAN 1201 of tenant b is also that of tenant a. Give each its own VLAN.",
    ),
    (
        LAB,
        change("tenants", [TWO[0] | {"vlan": 901}]),
        "tenants[0].vlan: VLAN 901 of tenant a is also that of rail 1. Give each its own VLAN.",
    ),
    (
        LAB,
        change("racks.0.nodes.0.address", {"first": "239.0.0.1"}),
        (
            "racks[0].nodes[0].address: address 239.0.0.1 of node node01 is multicast (RFC 5771) - "
            "Expected: an address of a host Actual: 239.0.0.1. Correct it."
        ),
    ),
    (
        LAB,
        change("switches.0.address", {"first": "255.255.255.250"}),
        (
            "switches[0].address: address 255.255.255.250 of switch leaf01 is reserved (RFC 1112, 4)"
            " - Expected: an address of a host Actual: 255.255.255.250. Correct it."
        ),
    ),
    (
        LAB,
        change("fabric.rails.0.subnet", {"first": "224.0.0.0/24"}),
        (
            "fabric.rails[0].subnet: 224.0.0.0/24 of rail 1 is multicast (RFC 5771) - Expected: addresses of hosts "
            "Actual: 224.0.0.0/24. Correct it."
        ),
    ),
    (
        B200,
        change("networks.storage.pool", "0.0.0.0/16"),
        (
            "networks.storage.pool: 0.0.0.0/16 of networks.storage is this network (RFC 1122, 3.2.1.3)"
            " - Expected: addresses of hosts Actual: 0.0.0.0/16. Correct it."
        ),
    ),
    (
        B200,
        change("topology.grow_to_su", 3),
        (
            "topology.grow_to_su: grow_to_su: 3, and nodes are in units up to 4 already - Expected: at least 4. "
            "Raise it, or leave it out."
        ),
    ),
    (
        B200,
        change("templates.racks.gpu.cooling", {"kind": "air", "liquid_share": 0.5, "max_liquid_kw": 40}),
        (
            "templates.racks.gpu.cooling: Value error, kind: air has no liquid_share and no max_liquid_kw - "
            "Expected: kind: hybrid, or none of them"
        ),
    ),
    (
        B200,
        change("templates.racks.gpu.cooling", {"kind": "liquid", "max_air_kw": 10}),
        (
            "templates.racks.gpu.cooling: Value error, kind: liquid has no max_air_kw - "
            "Expected: kind: hybrid, or none of them"
        ),
    ),
]


@pytest.mark.parametrize(("name", "mistake", "text"), [*PLACES, *NETWORKS, *NICS, *GROUPS, *PORTS, *ADDRESSES])
def test_refusal(name: str, mistake: Change, text: str) -> None:
    document = example(name)
    if name == B200:
        document["networks"]["compute"]["planes"] = 3
    mistake(document)
    found = refusals(document)
    assert any(item.startswith(text) for item in found), found
