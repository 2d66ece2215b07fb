"""Typing errors in site files (endless ranges, invalid series, scalars for lists) are refused by exact text."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackready.design.overlays import read_overlay
from rackready.model.base import expand_range
from rackready.model.problems import SiteInvalidError
from tests.unit.design.written import change, example, refusals

SERIES_HINT = "Set first (a whole number, an IPv4 address or a subnet) or offset, and whole numbers for the rest."


@pytest.mark.parametrize("text", ["swp1-swp999999999999", "1-200001"])
def test_endless_range_is_refused_before_it_is_built(text: str) -> None:
    with pytest.raises(ValueError, match=f"^'{text}' is more than 200000 names$"):
        expand_range(text)


def test_longest_range() -> None:
    assert len(expand_range("1-200000")) == 200_000


SLIPS = [
    (
        "lab-4-nodes",
        "links.0.ports",
        "swp1-swp999999999999",
        ["links[0]: 'swp1-swp999999999999' is more than 200000 names. Correct the range."],
    ),
    (
        "lab-4-nodes",
        "racks.0.nodes.0.unit",
        {"first": 1, "cycle": 0},
        [f"racks[0].nodes[0].unit: invalid series: cycle is 0 - Expected: 1 or more. {SERIES_HINT}"],
    ),
    (
        "lab-4-nodes",
        "racks.0.nodes.0.unit",
        {"first": 1, "every": 0},
        [f"racks[0].nodes[0].unit: invalid series: every is 0 - Expected: 1 or more. {SERIES_HINT}"],
    ),
    (
        "lab-4-nodes",
        "racks.0.nodes.0.unit",
        {"offset": float("inf")},
        [f"racks[0].nodes[0].unit: invalid series: cannot convert float infinity to integer. {SERIES_HINT}"],
    ),
    (
        "lab-4-nodes",
        "racks.0.nodes.0.unit",
        {"first": 1, "offset": 2},
        [f"racks[0].nodes[0].unit: invalid series: first and offset are given - Expected: one of them. {SERIES_HINT}"],
    ),
    (
        "lab-4-nodes",
        "topology",
        {"leaf": {"model": "sn5600_2x400"}},
        [
            (
                "links: the topology already makes the links of the compute fabric - "
                "Expected: topology or links Actual: both. "
                "Remove one of the two."
            )
        ],
    ),
    (
        "lab-4-nodes",
        "switch_slots",
        [{"rack": "rack01", "tier": "leaf", "units": "40-41"}],
        [
            (
                "switch_slots: there is no topology whose switches could be placed there. "
                "Add a topology, name a fabric of other_fabrics, or place switches by rack and unit."
            )
        ],
    ),
    (
        "b200-4su-roce",
        "devices",
        1_000_000_000_000,
        ["devices: Expected: a list Actual: 1000000000000. Correct it."],
    ),
    (
        "b200-4su-roce",
        "halls.0.row_pitch_m",
        float("inf"),
        ["halls[0].row_pitch_m: Expected: a finite number Actual: inf. Correct it."],
    ),
    (
        "b200-4su-roce",
        "facility.power.0.volts",
        float("inf"),
        ["facility.power[0].volts: Expected: a finite number Actual: inf. Correct it."],
    ),
]


@pytest.mark.parametrize(("site", "path", "value", "texts"), SLIPS)
def test_slip_is_refused(site: str, path: str, value: object, texts: list[str]) -> None:
    document = example(site)
    change(path, value)(document)
    found = refusals(document)
    assert [text for text in found if text in texts] == texts, found


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("- racks\n", "Expected: a mapping Actual: a list. Write the differences from the site file, key by key."),
        (
            "racks: [{name: rack01, nodes: [{name: node01, serial: A}, {name: node01, serial: B}]}]\n",
            "racks[0].nodes: node01 is given twice. List it once.",
        ),
    ],
    ids=["no-mapping", "twice"],
)
def test_an_overlay_of_which_a_part_would_be_lost_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "overlay.yml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(SiteInvalidError) as caught:
        read_overlay(file, tmp_path)
    assert [str(found) for found in caught.value.problems] == [problem]
    file.write_text("# nothing yet\n", encoding="utf-8")
    assert read_overlay(file, tmp_path).document is None


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (
            "topology.spine_oversubscription",
            2,
            (
                "topology.spine_oversubscription: Expected: text Actual: 2. "
                "Put it in quotes, so that YAML reads it as text."
            ),
        ),
        (
            "other_fabrics.1.leafs",
            1,
            "other_fabrics[1]: peer_links - Expected: leafs: 2 Actual: leafs: 1. Correct it.",
        ),
        (
            "other_fabrics.0.rate",
            "fast",
            "other_fabrics[0].rate: Expected: 1, 10, 25, 100, 200, 400 or 800 Actual: 'fast'. Correct it.",
        ),
        ("topology", [1], "topology: Expected: a mapping Actual: a list. Correct it."),
        (
            "fabric.kind",
            {"a": 1},
            "fabric.kind: Expected: 'roce' or 'infiniband' Actual: a mapping. Correct it.",
        ),
        (
            "fabric.kind",
            "infinibend",
            "fabric.kind: Expected: 'roce' or 'infiniband' Actual: 'infinibend'. Correct it.",
        ),
        ("fabric", [1], "fabric: Expected: a mapping Actual: a list. Correct it."),
        ("facility", [1], "facility: Expected: a mapping Actual: a list. Correct it."),
        (
            "facility.pue",
            "low",
            "facility.pue: Expected: a number Actual: 'low'. Correct it.",
        ),
        (
            "facility.nameplates.0.max_power_w",
            [1],
            "facility.nameplates[0].max_power_w: Expected: a number Actual: a list. Correct it.",
        ),
        ("networks", [1], "networks: Expected: a mapping Actual: a list. Correct it."),
        ("racks.2.height_u", None, "racks[2].height_u: Expected: a whole number Actual: nothing. Correct it."),
    ],
)
def test_one_slip_makes_up_no_other(path: str, value: object, problem: str) -> None:
    document = example("h100-1su-infiniband")
    change(path, value)(document)
    assert refusals(document) == [problem]


@pytest.mark.parametrize("where", ["access", "racks.0"])
def test_a_number_as_a_key_is_reported(where: str) -> None:
    document = example("lab-4-nodes")
    part = document["access"] if where == "access" else document["racks"][0]
    part[5] = "x"
    place = "access" if where == "access" else "racks[0]"
    assert refusals(document) == [f"{place}[5]: Expected: text as a key Actual: 5. Correct it."]
