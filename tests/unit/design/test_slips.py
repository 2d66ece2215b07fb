"""Slips of the keyboard in site files: endless ranges, series of nothing, numbers without end, scalars for lists. Each is refused with its text."""

from __future__ import annotations

import pytest

from rackready.model.base import expand_range
from tests.unit.design.written import change, example, refusals

SERIES_HINT = "Give first (a whole number, an IPv4 address or a subnet) or offset, and whole numbers for the rest."


@pytest.mark.parametrize("text", ["swp1-swp999999999999", "1-200001"])
def test_endless_range_is_refused_before_it_is_built(text: str) -> None:
    with pytest.raises(ValueError, match=f"^'{text}' is more than 200000 names$"):
        expand_range(text)


def test_longest_range() -> None:
    assert len(expand_range("1-200000")) == 200_000


SLIPS = [
    ("lab-4-nodes", "links.0.ports", "swp1-swp999999999999", ["links[0]: 'swp1-swp999999999999' is more than 200000 names. Correct the range."]),
    (
        "lab-4-nodes",
        "racks.0.nodes.0.unit",
        {"first": 1, "cycle": 0},
        [f"racks[0].nodes[0].unit: no series: cycle is 0 - Expected: 1 or more. {SERIES_HINT}"],
    ),
    (
        "lab-4-nodes",
        "racks.0.nodes.0.unit",
        {"first": 1, "every": 0},
        [f"racks[0].nodes[0].unit: no series: every is 0 - Expected: 1 or more. {SERIES_HINT}"],
    ),
    (
        "lab-4-nodes",
        "racks.0.nodes.0.unit",
        {"offset": float("inf")},
        [f"racks[0].nodes[0].unit: no series: cannot convert float infinity to integer. {SERIES_HINT}"],
    ),
    ("b200-4su-roce", "devices", 1_000_000_000_000, ["devices: Input should be a valid list - Actual: 1000000000000. Correct it."]),
    ("b200-4su-roce", "halls.0.row_pitch_m", float("inf"), ["halls[0].row_pitch_m: Input should be a finite number - Actual: inf. Correct it."]),
    ("b200-4su-roce", "facility.power.0.volts", float("inf"), ["facility.power[0].volts: Input should be a finite number - Actual: inf. Correct it."]),
]


@pytest.mark.parametrize(("site", "path", "value", "texts"), SLIPS)
def test_slip_is_refused(site: str, path: str, value: object, texts: list[str]) -> None:
    document = example(site)
    change(path, value)(document)
    found = refusals(document)
    assert [text for text in found if text in texts] == texts, found
