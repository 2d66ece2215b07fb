"""Contradictions of the site model are refused by exact text: groups of nodes, ports, addresses."""

from __future__ import annotations

import pytest

from tests.unit.design.written import Change, change, example, refusals

B200, H100, GB200 = "b200-4su-roce", "h100-1su-infiniband", "gb200-nvl72-8-racks"
LATER = {"name": "later", "nodes": ["a01-n1"]}

GROUPS: list[tuple[str, Change, str]] = [
    (
        B200,
        change("tenants.0.racks.0", "a[01-99]"),
        "tenants[0].racks[0]: no racks are called a33, a34, a35, a36, a37, a38, a39, a40 and 59 more.",
    ),
    (
        B200,
        change("tenants.+", LATER),
        "tenants[2]: a01-n1 of tenant later already belongs to tenant research. Assign each node to one tenant.",
    ),
    (
        B200,
        change("tenants.1.vrf", "research"),
        "tenants[1].vrf: VRF research is already used by tenant research. Give tenant product its own.",
    ),
    (
        B200,
        change("tenants.1.vni", 100201),
        "tenants[1].vni: VNI 100201 is already used by tenant research. Give tenant product its own.",
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
            "tenants[0].pkey: partition key 0x8011 includes the full-membership bit (0x8000). "
            "Write 0x0011 and set full_member instead."
        ),
    ),
    (
        H100,
        change("tenants.0.pkey", "0x7fff"),
        (
            "tenants[0].pkey: partition key 0x7fff belongs to the default partition - Expected: 0x0001 to 0x7ffe. "
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
        "tenants[1].pkey: partition key 0x0011 is already used by tenant research. Give tenant product its own.",
    ),
    (
        GB200,
        change("nvlink_domains.0.rack", "r99"),
        "nvlink_domains[0].rack: no rack is called r99 - Expected: one of ",
    ),
    (
        GB200,
        change("nvlink_domains.+", {"name": "more", "nodes": ["r01-c01"]}),
        "nvlink_domains[1]: r01-c01 is already in NVLink domain nvl-01. Put each node in one domain.",
    ),
    (
        GB200,
        change("nvlink_domains", [{"name": "wide", "nodes": ["r01-c01", "r02-c01"]}]),
        (
            "nvlink_domains[0]: nodes of NVLink domain wide are in racks r01, r02 - Expected: one rack. "
            "Correct the nodes, or set across_racks: true."
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
        "nvlink_domains[0]: NVLink domain none has no nodes. Add a rack or nodes.",
    ),
    (
        B200,
        change("nvlink_domains", [{"name": "one", "rack": "a01"}]),
        "nvlink_domains[0]: dgx_b200 has NVLink only within the server. Remove its nodes from the domain.",
    ),
    (
        B200,
        change("deliveries.0.racks", ["a[01-16]"]),
        "deliveries: net33, net34, net35, net36 come in no delivery. Add it to a delivery.",
    ),
    (
        B200,
        change("deliveries.1.racks.0", "a[16-32]"),
        "deliveries[1].racks: a16 is already in delivery first. List each rack once.",
    ),
    (
        B200,
        change("maintenance.0.timezone", "Berlin"),
        "maintenance[0].timezone: time zone Berlin does not exist. Use an IANA name such as Europe/Berlin, or UTC.",
    ),
    (
        B200,
        change("maintenance.0.hours", 25),
        "maintenance[0].hours: Expected: at most 24 Actual: 25. Correct it.",
    ),
    (B200, change("maintenance.0.start", "24:00"), "maintenance[0].start: Expected: text that matches"),
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
            "Remove one, or change its racks or days."
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
        "switches[0].ports[1].ports: swp40 of leaf01 is already in another group. Keep each port in one group.",
    ),
    (
        LAB,
        change("switches.+", {**OTHER, "ports": [{"ports": "swp33", "breakout": 4}]}),
        (
            "switches[1].ports[0].breakout: a port of sn2201 cannot be split into 4 - Expected: one of 1. "
            "Correct it, or describe the switch in a profile of your own."
        ),
    ),
    (
        LAB,
        change("switches.0.ports", [{"ports": "swp33", "cage": "qsfp56"}]),
        "switches[0].ports[0].cage: cage of sn5600 - Expected: ",
    ),
    (
        LAB,
        change("switches.0.ports", [{"ports": "swp33", "polarity": "A"}]),
        (
            "switches[0].ports[0].polarity: polarity A - Expected: B, because the fibres in profiles/parts are "
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
        "tenants[1].vlan: VLAN 1201 of tenant b is already used by tenant a. Give each its own VLAN.",
    ),
    (
        LAB,
        change("tenants", [TWO[0] | {"vlan": 901}]),
        "tenants[0].vlan: VLAN 901 of tenant a is already used by rail 1. Give each its own VLAN.",
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
            "topology.grow_to_su: grow_to_su is 3, but nodes are already in units up to 4 - Expected: at least 4. "
            "Raise it, or remove it."
        ),
    ),
    (
        B200,
        change("templates.racks.gpu.cooling", {"kind": "air", "liquid_share": 0.5, "max_liquid_kw": 40}),
        (
            "templates.racks.gpu.cooling: kind: air has no liquid_share and no max_liquid_kw - "
            "Expected: kind: hybrid, or none of them"
        ),
    ),
    (
        B200,
        change("templates.racks.gpu.cooling", {"kind": "liquid", "max_air_kw": 10}),
        ("templates.racks.gpu.cooling: kind: liquid has no max_air_kw - Expected: kind: hybrid, or none of them"),
    ),
]


@pytest.mark.parametrize(("name", "mistake", "text"), [*GROUPS, *PORTS, *ADDRESSES])
def test_refusal(name: str, mistake: Change, text: str) -> None:
    document = example(name)
    if name == B200:
        document["networks"]["compute"]["planes"] = 3
    mistake(document)
    found = refusals(document)
    assert any(item.startswith(text) for item in found), found
