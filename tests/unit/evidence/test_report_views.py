"""What a report shows at a glance: the map of racks, the gates of each node, pairs, and how values lie."""

from __future__ import annotations

from typing import Any

import pytest

from rackready.design.site import load_site
from rackready.evidence import heat
from rackready.evidence.distribution import Strip, describe, picture
from rackready.evidence.units import Units

PAIR = "pair/fabric/performance/ib-write-bw"


def node(name: str, outcome: str = "pass", gates: dict[str, str] | None = None) -> dict[str, Any]:
    return {"name": name, "state": "ready", "outcome": outcome, "gates": [{"gate": key, "outcome": value} for key, value in (gates or {}).items()]}


def run(first: str, second: str, rail: int, outcome: str, value: float | None) -> dict[str, Any]:
    metrics = [] if value is None else [{"name": "bw_average", "target": f"rail{rail}", "value": value, "unit": "Gb/s"}]
    return {"gate": PAIR, "target": f"{first}+{second}/rail{rail}", "nodes": [first, second], "outcome": outcome, "metrics": metrics, "criteria": []}


def test_the_map_shows_every_node_from_the_top_unit_down() -> None:
    site = load_site("sim")
    found = heat.racks(site, [node("node01"), node("node02", "fail"), node("node03", "not_run"), node("node04", "skip")])
    assert [rack["name"] for rack in found] == [rack.name for rack in site.racks]
    cells = [cell for rack in found for cell in rack["cells"]]
    assert {cell["name"]: cell["sign"] for cell in cells} == {"node01": "P", "node02": "F", "node03": "N", "node04": "S"}
    units = [cell["unit"] for cell in found[0]["cells"]]
    assert units == sorted(units, reverse=True)
    assert found[0]["outcomes"] == {"pass": 1, "fail": 1, "skip": 1, "not_run": 1}


def test_a_gate_without_a_record_is_not_run() -> None:
    table = heat.gate_table([node("node01", gates={"a": "pass", "b": "fail"}), node("node02", gates={"a": "pass"})])
    assert table["gates"] == ["a", "b"]
    assert [[cell["sign"] for cell in row["cells"]] for row in table["rows"]] == [["P", "F"], ["P", "N"]]


def test_a_pair_shows_its_worst_rail_and_its_lowest_value() -> None:
    (matrix,) = heat.pairs([run("node02", "node01", 1, "pass", 392.0), run("node01", "node02", 2, "fail", 187.0), run("node03", "node04", 1, "error", None)])
    assert matrix["nodes"] == ["node01", "node02", "node03", "node04"]
    cell = matrix["rows"][0]["cells"][1]
    assert (cell["outcome"], cell["value"], cell["unit"], cell["runs"], cell["bad"]) == ("fail", 187.0, "Gb/s", 2, ["node01+node02/rail2"])
    assert matrix["rows"][1]["cells"][0] == cell
    assert matrix["rows"][2]["cells"][3]["value"] is None
    assert matrix["rows"][0]["cells"][2] is None


def test_a_second_attempt_takes_the_place_of_the_first() -> None:
    (matrix,) = heat.pairs([run("node01", "node02", 1, "error", None), run("node01", "node02", 1, "pass", 391.0)])
    assert matrix["rows"][0]["cells"][1]["outcome"] == "pass"


def test_a_large_matrix_keeps_the_nodes_with_a_bad_pair() -> None:
    runs = [run(f"node{2 * at + 1:03}", f"node{2 * at + 2:03}", 1, "fail" if at == 7 else "pass", 390.0) for at in range(40)]
    (matrix,) = heat.pairs(runs)
    assert matrix["nodes"] == ["node015", "node016"]
    assert (matrix["pairs"], matrix["left_out"]) == (40, 78)


def record(target: str, value: float, *, name: str = "busbw", unit: str = "GB/s") -> dict[str, Any]:
    bound = {"metric": name, "label": "floor", "bound": 456.0}
    return {"gate": "g", "metrics": [{"name": name, "target": target, "value": value, "unit": unit}], "criteria": [bound]}


def strips(records: list[dict[str, Any]]) -> list[Strip]:
    found = Units()
    for item in records:
        found.run(item)
    return list(found.strips([]))


def test_a_strip_names_the_units_that_stand_apart() -> None:
    (strip,) = strips([*(record(f"node{at:02}", 476.0 + at % 5) for at in range(20)), record("node99", 440.0)])
    said = describe(strip)
    assert (said["count"], said["least"], said["most"], said["bounds"]) == (21, 440.0, 480.0, {"floor": 456.0})
    assert said["apart"] == [{"unit": "node99", "value": 440.0}]
    drawn = picture(strip)
    assert drawn.count('class="apart"') == 1
    assert "floor 456" in drawn


def test_counts_are_no_distribution_and_the_newest_value_counts() -> None:
    found = strips([record("node01", 8, unit="1"), record("node01", 400.0), record("node01", 480.0)])
    assert [(strip.metric, dict(strip.values)) for strip in found] == [("busbw", {"node01": 480.0})]


@pytest.mark.parametrize("values", [[480.0], [480.0, 480.0], [0.0, 0.0, 0.0, 0.0, 0.0]])
def test_few_or_equal_values_are_drawn_and_none_stands_apart(values: list[float]) -> None:
    strip = Strip("g", "m", "GB/s", {f"n{at}": value for at, value in enumerate(values)}, {})
    assert strip.apart == []
    assert "nan" not in picture(strip)


def test_more_parts_than_two_bytes_count_are_packed_and_named() -> None:
    """Every drive has a serial number of its own."""
    found, drives = Units(), [f"S{number}" for number in range(70_000)]
    item = record("node01 S0", 5.0)
    found.add(0, "node01", [{**item, "metrics": [{**item["metrics"][0], "target": f"node01 {drive}"} for drive in drives]}])
    whole = Units()
    whole.take(found)
    (strip,) = whole.strips(["node01"])
    assert (len(strip.values), list(strip.values)[-1]) == (70_000, "node01 S69999")
    assert not whole.piles["g", "busbw", "GB/s"].others
