"""Racks, PDUs and devices in the bill of materials: each once, by model, and one PDU for each unnamed feed."""

from __future__ import annotations

from typing import Any

from rackready.design.bom_devices import NO_MODEL, device_lines
from rackready.design.plan import plan_site
from tests.unit.design.written import example, parse


def lines(document: dict[str, Any]) -> list[tuple[str, str, str, int]]:
    return [(line.group, line.part, line.description, line.needed) for line in device_lines(parse(document))]


def test_h100_pod_has_racks_pdus_ufm_and_storage_in_its_bill() -> None:
    bom = plan_site(parse(example("h100-1su-infiniband"))).bom
    found = {
        (line.group, line.part, line.needed, line.spare)
        for line in bom
        if line.group in {"rack", "pdu", "ufm", "storage", "head", "login"}
    }
    # 24 PDUs that the GPU racks name, and one for each of the two feeds of the network rack, which names none.
    assert found == {
        ("rack", NO_MODEL, 9, 0),
        ("pdu", NO_MODEL, 24, 0),
        ("pdu", NO_MODEL, 2, 0),
        ("ufm", NO_MODEL, 2, 0),
        ("storage", NO_MODEL, 1, 0),
        ("head", NO_MODEL, 2, 0),
        ("login", NO_MODEL, 2, 0),
    }


def test_model_and_circuit_are_what_is_ordered() -> None:
    document = example("b200-4su-roce")
    document["templates"]["racks"]["gpu"]["model"] = "RK-52U"
    document["racks"][2]["devices"][0]["model"] = "HD-1"
    found = lines(document)
    assert ("rack", "RK-52U", "rack, 48U", 32) in found
    assert ("rack", NO_MODEL, "rack, 48U", 4) in found
    assert ("head", "HD-1", "head, 1U, 800 W at most", 2) in found
    assert ("pdu", NO_MODEL, "rack PDU, 30 A, 415 V, three-phase", 32 * 6) in found
    assert ("pdu", NO_MODEL, "rack PDU, 100 A, 415 V, three-phase", 4 * 2) in found


def test_shelf_at_the_end_of_a_feed_is_a_power_shelf() -> None:
    found = lines(example("gb200-nvl72-8-racks"))
    assert [count for group, _, _, count in found if group == "power_shelf"] == [64]
