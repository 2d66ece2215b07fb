"""The compact form: host lists, templates and series are expanded; problems name the line in the file."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from rackready.design.expand import Expanded, expand
from rackready.model.base import expand_names, expand_range
from rackready.model.site_file import json_schema
from tests.unit.design.written import ROOT, example, parse, refusals


def test_explicit_file_passes_unchanged() -> None:
    raw = yaml.safe_load((ROOT / "inventories/sim/site.yml").read_text(encoding="utf-8"))
    assert expand(raw).document == raw


def test_lab_written_short_is_the_simulated_rack() -> None:
    lab = parse(example("lab-4-nodes"))
    sim = parse(yaml.safe_load((ROOT / "inventories/sim/site.yml").read_text(encoding="utf-8")))
    assert [(node.name, node.unit, node.address, node.bmc.address) for node in lab.nodes()] == [
        (node.name, node.unit, node.address, node.bmc.address) for node in sim.nodes()
    ]
    assert lab.links != sim.links, "the order differs: rails 1-4 of all nodes first"
    assert sorted(lab.links, key=lambda link: (link.node, link.rails)) == sorted(
        sim.links, key=lambda link: (link.node, link.rails)
    )
    assert lab.fabric == sim.fabric


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("node", ["node"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("n[1-2,5]-x", ["n1-x", "n2-x", "n5-x"]),
        ("p[1-2]-l[1-2]", ["p1-l1", "p1-l2", "p2-l1", "p2-l2"]),
    ],
)
def test_host_lists(text: str, names: list[str]) -> None:
    assert expand_names(text) == names


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("n[]", "not a number"),
        ("n[3-1]", "is a descending range"),
        ("n[a-b]", "not a number"),
        ("n[1-2", "has an unmatched bracket"),
        ("n[0-999999]", "more than 200000"),
    ],
)
def test_host_lists_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        expand_names(text)


def test_sub_ports_are_a_range() -> None:
    assert expand_range("swp3s0-swp3s3") == ["swp3s0", "swp3s1", "swp3s2", "swp3s3"]
    assert expand_range("swp3s0-swp4s1") == ["swp3s0", "swp3s1", "swp4s0", "swp4s1"]
    assert expand_range("swp3s1-swp4s0") == ["swp3s1", "swp4s0"]
    for text, why in (
        ("swp4s0-swp3s1", "'swp4s0-swp3s1' is a descending range"),
        ("swp1s0-swp999999s1", "'swp1s0-swp999999s1' is more than 200000 names"),
        ("swp1s0-sfp2s1", "'swp1s0-sfp2s1' is not a range such as swp1-swp4 or 1-4"),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(why)}$"):
            expand_range(text)


def test_ports_of_several_cages_are_a_range() -> None:
    assert expand_range("IB1/1/2-IB1/3/1") == ["IB1/1/2", "IB1/2/1", "IB1/2/2", "IB1/3/1"]
    assert expand_range("IB1/1/2/1-IB1/2/1/2") == ["IB1/1/2/1", "IB1/1/2/2", "IB1/2/1/1", "IB1/2/1/2"]
    assert expand_range("Ethernet0/0-Ethernet1/1") == ["Ethernet0/0", "Ethernet0/1", "Ethernet1/0", "Ethernet1/1"]
    for text, why in (
        ("IB1/2/1-IB1/1/2", "'IB1/2/1-IB1/1/2' is a descending range"),
        ("IB1/1/1-IB1/999999/2", "'IB1/1/1-IB1/999999/2' is more than 200000 names"),
        ("IB1/1/1-IB1/2", "'IB1/1/1-IB1/2' is not a range such as swp1-swp4 or 1-4"),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(why)}$"):
            expand_range(text)


def _with_switch(links: list[dict[str, Any]], **switch: Any) -> Expanded:
    return expand({"switches": [{"name": "leaf01", "model": "sn5600", **switch}], "links": links})


@pytest.mark.parametrize(
    ("switch", "ports", "each"),
    [
        ({"os": "sonic"}, "Ethernet0-Ethernet56", ["Ethernet0-Ethernet24", "Ethernet32-Ethernet56"]),
        ({"os": "cumulus_nvue"}, "swp1-swp8", ["swp1-swp4", "swp5-swp8"]),
        (
            {"os": "cumulus_nvue", "ports": [{"ports": "swp1-swp64", "breakout": 2}]},
            "swp1s0-swp4s1",
            ["swp1s0-swp2s1", "swp3s0-swp4s1"],
        ),
    ],
    ids=["sonic", "cumulus", "breakout"],
)
def test_ports_of_several_nodes_are_those_of_the_switch(switch: dict[str, Any], ports: str, each: list[str]) -> None:
    made = _with_switch([{"node": "n[1-2]", "rails": "1-4", "switch": "leaf01", "ports": ports}], **switch)
    assert made.problems == []
    assert [link["ports"] for link in made.document["links"]] == each


@pytest.mark.parametrize("switch", [{"os": "sonik"}, {"model": "none"}, {"model": ["x"]}, {"ports": 5}], ids=str)
def test_ports_of_a_switch_that_cannot_be_read_are_counted_by_number(switch: dict[str, Any]) -> None:
    made = _with_switch([{"node": "n[1-2]", "rails": "1", "switch": "leaf01", "ports": "swp3-swp4"}], **switch)
    assert [link["ports"] for link in made.document["links"]] == ["swp3", "swp4"]


def test_a_switch_without_a_name_or_a_mapping_is_passed_over() -> None:
    document = {"switches": ["x", {"model": "sn5600"}], "links": [{"node": "n[1-2]", "rails": "1", "ports": "1-2"}]}
    assert [link["ports"] for link in expand(document).document["links"]] == ["1", "2"]


def rows(*racks: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    document: list[dict[str, Any]] = expand({"racks": list(racks), **more}).document["racks"]
    return document


def test_series_count_numbers_and_not_items() -> None:
    racks = rows({"name": "a[01-04,07]", "position": {"first": 10, "step": 2}})
    assert [rack["position"] for rack in racks] == [10, 12, 14, 16, 22]


@pytest.mark.parametrize(
    ("series", "values"),
    [
        ({"first": 1}, [1, 2, 3, 4]),
        ({"offset": 100}, [105, 106, 107, 108]),
        ({"first": 1, "every": 2}, [1, 1, 2, 2]),
        ({"first": 1, "cycle": 3}, [1, 2, 3, 1]),
        ({"first": 1, "start": 3}, [3, 4, 5, 6]),
        ({"first": 1, "every": 2, "text": "row{n:02}"}, ["row01", "row01", "row02", "row02"]),
        ({"first": "10.0.0.254"}, ["10.0.0.254", "10.0.0.255", "10.0.1.0", "10.0.1.1"]),
        ({"first": "10.0.1.0/24", "step": 2}, ["10.0.1.0/24", "10.0.3.0/24", "10.0.5.0/24", "10.0.7.0/24"]),
    ],
)
def test_series(series: dict[str, Any], values: list[Any]) -> None:
    assert [rack["x"] for rack in rows({"name": "a[5-8]", "x": series})] == values


def test_template_lies_under_the_item_and_places_are_filled() -> None:
    templates = {
        "nodes": {
            "base": {"platform": "p", "bmc": {"username": "root", "port": 444}},
            "big": {"template": "base", "platform": "q"},
        },
        "racks": {
            "r": {
                "hall": "h1",
                "nodes": [{"name": "{rack}-n[1-2]", "template": "big", "bmc": {"username": "{rack}-{n}"}}],
            }
        },
    }
    racks = rows({"name": "a[1-2]", "template": "r", "hall": "h2"}, templates=templates)
    assert [rack["hall"] for rack in racks] == ["h2", "h2"]
    assert racks[1]["nodes"] == [
        {"name": "a2-n1", "platform": "q", "bmc": {"username": "a2-1", "port": 444}},
        {"name": "a2-n2", "platform": "q", "bmc": {"username": "a2-2", "port": 444}},
    ]


def test_series_of_the_rack_inside_of_its_items() -> None:
    feeds = [{"name": "f[1-2]", "from": {"first": 1, "every": 2, "of": "rack", "text": "b{n}"}}]
    devices = [{"name": "{rack}-d", "kind": "pdu", "index": {"first": 5, "of": "rack"}}]
    document = expand({"racks": [{"name": "a[1-3]", "feeds": feeds, "devices": devices}]}).document
    assert [[feed["from"] for feed in rack["feeds"]] for rack in document["racks"]] == [
        ["b1", "b1"],
        ["b1", "b1"],
        ["b2", "b2"],
    ]
    assert [device["index"] for device in document["devices"]] == [5, 6, 7]


def test_devices_of_a_rack_stand_at_the_top_with_their_rack() -> None:
    document = expand(
        {
            "racks": [{"name": "a[1-2]", "devices": [{"name": "{rack}-pdu[1-2]", "kind": "pdu"}]}],
            "devices": [{"name": "cdu", "kind": "cdu"}],
        }
    ).document
    assert [(device["name"], device.get("rack")) for device in document["devices"]] == [
        ("cdu", None),
        ("a1-pdu1", "a1"),
        ("a1-pdu2", "a1"),
        ("a2-pdu1", "a2"),
        ("a2-pdu2", "a2"),
    ]


def test_overlay_is_merged_by_name_after_writing_out() -> None:
    site = parse(
        example("lab-4-nodes"),
        {"racks": [{"name": "rack01", "nodes": [{"name": "node03", "serial": "S3", "address": "198.51.100.3"}]}]},
    )
    assert (site.node("node03").serial, str(site.node("node03").address), site.node("node03").unit) == (
        "S3",
        "198.51.100.3",
        17,
    )
    assert site.node("node02").serial is None


def test_place_of_a_secret_is_replaced_whole() -> None:
    bmc = {"password": {"file": "secrets/node03"}}
    lab = example("lab-4-nodes")
    lab["racks"][0]["nodes"][0]["bmc"] |= {"password": {"file": "secrets/{name}"}}
    site = parse(
        lab, {"racks": [{"name": "rack01", "nodes": [{"name": "node03", "bmc": {"password": {"env": "OTHER"}}}]}]}
    )
    assert [str(node.bmc.password) for node in site.nodes()][1:3] == [
        "file /base/secrets/node02",
        "environment variable OTHER",
    ]
    assert str(
        parse(example("lab-4-nodes"), {"racks": [{"name": "rack01", "nodes": [{"name": "node03", "bmc": bmc}]}]})
        .node("node03")
        .bmc.password
    ) == ("file /base/secrets/node03")


def test_problems_name_their_place_in_the_file() -> None:
    lab = example("lab-4-nodes")
    lab["templates"]["nodes"]["h100"]["colour"] = "red"
    lab["racks"][0]["nodes"][0]["unit"] = {"first": 1, "step": 4}
    assert refusals(lab) == [
        "racks[0].nodes[0].unit: units 13-20 are partly occupied by node03. Move node04 to 8 U of free space.",
        "racks[0].nodes[0].unit: units 5-12 are partly occupied by node01. Move node02 to 8 U of free space.",
        "racks[0].nodes[0].unit: units 9-16 are partly occupied by node02. Move node03 to 8 U of free space.",
        (
            "templates.nodes.h100.colour: unknown key. Correct its spelling or remove it; "
            "`rackready schema` lists the keys."
        ),
    ]


def test_a_problem_of_a_template_is_reported_once() -> None:
    large = example("gpus-100k-three-tier")
    large["templates"]["nodes"]["b200"]["platform"] = "dgx_b2000"
    found = refusals(large)
    assert len(found) == 1
    assert found[0].startswith("templates.nodes.b200.platform: platform profile 'dgx_b2000' does not exist")


REFUSED = [
    (
        "racks.0.template",
        "gpuu",
        "racks[0].template: templates.racks has no template 'gpuu' - Expected: one of none. Correct the name.",
    ),
    (
        "racks.0.nodes.0.name",
        "node[04-01]",
        "racks[0].nodes[0].name: 'node[04-01]' is a descending range. Correct the range.",
    ),
    (
        "racks.0.nodes.0.unit",
        {"first": "x"},
        (
            "racks[0].nodes[0].unit: invalid series: Expected 4 octets in 'x'. "
            "Set first (a whole number, an IPv4 address or a subnet) or offset, and whole numbers for the rest."
        ),
    ),
    (
        "links.0.ports",
        "swp1-swp15",
        "links[0].ports: 4 nodes of 4 rails need 16 ports - Actual: 15. List as many ports, in the order of nodes.",
    ),
    (
        "templates",
        [],
        "templates: Expected: lists by name, with templates by name in each. Write templates: {racks: {NAME: {...}}}.",
    ),
]


@pytest.mark.parametrize(("path", "value", "text"), REFUSED)
def test_refused(path: str, value: object, text: str) -> None:
    lab: Any = example("lab-4-nodes")
    here: Any = lab
    *steps, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    for step in steps:
        here = here[step]
    here[last] = value
    assert text in refusals(lab)


def test_templates_that_go_in_circles_are_refused() -> None:
    lab = example("lab-4-nodes")
    lab["templates"]["nodes"]["h100"]["template"] = "h100"
    assert "templates.nodes.h100.template: more than 5 templates build on each other. Reduce the nesting." in refusals(
        lab
    )


def test_schema_knows_the_written_form() -> None:
    schema = json_schema()
    assert {"template", "devices", "switches"} <= schema["$defs"]["Rack"]["properties"].keys()
    assert "required" not in schema["$defs"]["Node"]
    assert {"$ref": "#/$defs/Series"} in schema["$defs"]["Node"]["properties"]["unit"]["anyOf"]
    assert "templates" in schema["properties"]
