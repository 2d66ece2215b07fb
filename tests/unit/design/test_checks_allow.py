"""Sites that the checks accept, and problems that one refusal hides: links, windows, sections, virtual nodes."""

from __future__ import annotations

from typing import Any

import pytest

from rackready.design.written_ports import link_ports
from tests.unit.design.written import change, example, parse, refusals

B200, H100, LAB = "b200-4su-roce", "h100-1su-infiniband", "lab-4-nodes"


def split_ports() -> dict[str, Any]:
    """Return the lab with two leaves, eight ports of the first of them split in two."""
    document = example(LAB)
    document["switches"] = [
        {**document["switches"][0], "name": name, "address": f"192.0.2.2{number}"}
        for number, name in enumerate(("leaf01", "leaf02"))
    ]
    document["switches"][0]["ports"] = [{"ports": "swp1-swp8", "breakout": 2, "polarity": "B"}]
    return document


def test_links_may_end_on_sub_ports() -> None:
    document = split_ports()
    document["links"][0] = {"node": "node01", "rails": "1-2", "switch": "leaf01", "ports": "swp1s0-swp1s1"}
    document["links"] += [
        {"node": "node01", "rails": "3-4", "switch": "leaf01", "ports": "swp2s0-swp2s1"},
        {"node": "node[02-04]", "rails": "1-4", "switch": "leaf01", "ports": "swp9-swp20"},
    ]
    assert {link.ports for link in parse(document).links if link.node == "node01"} == {
        "swp1s0-swp1s1",
        "swp2s0-swp2s1",
        "swp1-swp4",
    }


def test_one_link_spans_sub_ports_of_several_cages() -> None:
    """As docs/howto/leaf-spine.md writes it."""
    document = split_ports()
    document["links"][0] = {"node": "node[01-04]", "rails": "1-4", "switch": "leaf01", "ports": "swp1s0-swp8s1"}
    site = parse(document)
    assert [link.ports for link in site.links if link.switch == "leaf01"] == [
        "swp1s0-swp2s1",
        "swp3s0-swp4s1",
        "swp5s0-swp6s1",
        "swp7s0-swp8s1",
    ]
    assert link_ports(site, site.links[1]) == ["swp3s0", "swp3s1", "swp4s0", "swp4s1"]


def test_a_window_that_ends_before_it_begins() -> None:
    document = example(B200)
    document["maintenance"][0] |= {"begins": "2027-02-01", "ends": "2027-01-01"}
    assert refusals(document) == [
        (
            "maintenance[0].ends: the window ends on 2027-01-01, before it begins on 2027-02-01. "
            "Correct one of the two dates."
        )
    ]


def test_windows_apart_in_time_or_racks_are_fine() -> None:
    document: dict[str, Any] = example(B200)
    document["maintenance"][0]["racks"] = ["a[01-16]"]
    document["maintenance"].append({**document["maintenance"][0], "name": "other", "racks": ["a[17-32]"]})
    assert len(parse(document).maintenance) == 2


def test_section_that_cannot_be_read_hides_nothing_else() -> None:
    document = example(B200)
    document["networks"]["oob"]["pool"] = "nowhere"
    document["tenants"][1]["vrf"] = "research"
    found = refusals(document)
    assert [item.split(":")[0] for item in found] == ["networks.oob.pool", "tenants[1].vrf"]


@pytest.mark.parametrize(
    ("path", "value", "first"),
    [
        ("facility.pue", 0.5, "facility.pue: Expected: at least 1"),
        ("facility.power.0.kind", "gird", "facility.power[0].kind: Expected: 'utility'"),
        ("halls.0.row_pitch_m", "wide", "halls[0].row_pitch_m: Expected: a number"),
    ],
    ids=["pue", "kind-of-power", "hall"],
)
def test_what_was_taken_out_is_not_called_missing(path: str, value: object, first: str) -> None:
    document = example(H100)
    change(path, value)(document)
    (found,) = refusals(document)
    assert found.startswith(first)


def test_virtual_nodes_need_no_cables() -> None:
    document = example(LAB)
    guest = {
        "name": "vm-[11-12]",
        "kind": "virtual",
        "platform": "dgx_h100",
        "host": "node01",
        "address": {"first": "192.0.2.51"},
    }
    document["racks"][0]["nodes"].append(guest)
    assert [node.name for node in parse(document).nodes() if node.kind == "virtual"] == ["vm-11", "vm-12"]
    document["links"].append({"node": "vm-11", "rails": "1", "switch": "leaf01", "ports": "swp17"})
    assert refusals(document) == ["links[2].rails: vm-11 has no rail 1 - Expected: none. Correct the rail."]
