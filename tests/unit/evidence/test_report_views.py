"""What a report shows at a glance: the map of racks, the gates of each node, pairs, and how values lie."""

from __future__ import annotations

from typing import Any

import pytest

from rackready.design.site import load_site
from rackready.evidence import overview_tables
from rackready.evidence.bounds import ShownBound, label
from rackready.evidence.distribution import Strip, describe, picture
from rackready.evidence.units import Units

PAIR = "pair/fabric/performance/ib-write-bw"


def node(name: str, outcome: str = "pass", gates: dict[str, str] | None = None) -> dict[str, Any]:
    return {
        "name": name,
        "state": "ready",
        "outcome": outcome,
        "gates": [{"gate": key, "outcome": value} for key, value in (gates or {}).items()],
    }


def metric(name: str, value: float, unit: str, target: str = "node01") -> dict[str, Any]:
    return {"name": name, "target": target, "value": value, "unit": unit}


def bound(
    name: str, value: float, op: str = "ge", said: str = "floor", unit: str = "GB/s", source: str = "a data sheet"
) -> dict[str, Any]:
    return {
        "metric": name,
        "op": op,
        "bound": value,
        "unit": unit,
        "label": said,
        "source": source,
        "derived": False,
        "inputs": {},
    }


def run(first: str, second: str, rail: int, outcome: str, value: float | None) -> dict[str, Any]:
    """A pair run as its gate records it: errors of the port, bytes sent and the bandwidth."""
    metrics = [metric("port_errors", 0, "1", f"{first}/mlx5_0"), metric("xmit_bytes", 5e12, "B", f"{first}/mlx5_0")]
    metrics += [] if value is None else [metric("bw_average", value, "Gb/s", f"rail{rail}")]
    criteria = [bound("port_errors", 0, "eq", "identity", "1"), bound("bw_average", 377.6, unit="Gb/s")]
    return {
        "gate": PAIR,
        "target": f"{first}+{second}/rail{rail}",
        "nodes": [first, second],
        "outcome": outcome,
        "metrics": metrics,
        "criteria": criteria,
    }


def test_the_map_shows_every_node_from_the_top_unit_down() -> None:
    site = load_site("sim")
    found = overview_tables.racks(
        site, [node("node01"), node("node02", "fail"), node("node03", "not_run"), node("node04", "skip")]
    )
    assert [rack["name"] for rack in found] == [rack.name for rack in site.racks]
    cells = [cell for rack in found for cell in rack["cells"]]
    assert {cell["name"]: cell["sign"] for cell in cells} == {
        "node01": "P",
        "node02": "F",
        "node03": "N",
        "node04": "S",
    }
    units = [cell["unit"] for cell in found[0]["cells"]]
    assert units == sorted(units, reverse=True)
    assert found[0]["outcomes"] == {"pass": 1, "fail": 1, "skip": 1, "not_run": 1}


GEMM, BURN, CPU = "node/gpu/performance/gemm", "node/gpu/stress/burn", "node/host/sanity/cpu"


def test_the_gate_matrix_is_grouped_by_layer_with_a_row_a_gate() -> None:
    nodes = [
        node("node01", gates={GEMM: "pass", CPU: "pass", BURN: "fail"}),
        node("node02", gates={GEMM: "pass", CPU: "pass"}),
    ]
    table = overview_tables.gate_table(nodes)
    assert table["nodes"] == ["node01", "node02"]
    assert [layer["name"] for layer in table["layers"]] == ["gpu", "host"]
    gpu, host = table["layers"]
    assert [(row["gate"], row["name"], [cell["sign"] for cell in row["cells"]]) for row in gpu["bad"]] == [
        (BURN, "burn", ["F", "N"])
    ]
    assert [(row["gate"], [cell["sign"] for cell in row["cells"]]) for row in gpu["good"]] == [(GEMM, ["P", "P"])]
    assert (host["bad"], [row["gate"] for row in host["good"]]) == ([], [CPU])


def test_a_pair_shows_its_worst_rail_and_its_lowest_bandwidth_in_its_unit() -> None:
    (matrix,) = overview_tables.pairs(
        [
            run("node02", "node01", 1, "pass", 392.0),
            run("node01", "node02", 2, "fail", 187.0),
            run("node03", "node04", 1, "error", None),
        ]
    )
    assert matrix["nodes"] == ["node01", "node02", "node03", "node04"]
    assert (matrix["metric"], matrix["worst"], matrix["unit"]) == ("bw_average", "lowest", "Gb/s")
    cell = matrix["rows"][0]["cells"][1]
    assert (cell["outcome"], cell["value"], cell["unit"], cell["runs"], cell["bad"]) == (
        "fail",
        187.0,
        "Gb/s",
        2,
        ["node01+node02/rail2"],
    )
    assert matrix["rows"][1]["cells"][0] == cell
    assert matrix["rows"][2]["cells"][3]["value"] is None, "errors and bytes of a port are no bandwidth"
    assert matrix["rows"][0]["cells"][2] is None


def test_of_latencies_a_pair_shows_the_highest_that_is_judged() -> None:
    latencies = [
        metric("latency_typical", 2.0, "us"),
        metric("latency_average", 2.5, "us"),
        metric("latency_average", 9.5, "us", "rail2"),
    ]
    judged = {
        **run("node01", "node02", 1, "pass", None),
        "metrics": latencies,
        "criteria": [bound("latency_average", 10.0, "le", "ceiling", "us")],
    }
    (matrix,) = overview_tables.pairs([judged])
    assert (matrix["metric"], matrix["worst"], matrix["rows"][0]["cells"][1]["value"]) == (
        "latency_average",
        "highest",
        9.5,
    )


def test_a_second_attempt_takes_the_place_of_the_first() -> None:
    (matrix,) = overview_tables.pairs(
        [run("node01", "node02", 1, "error", None), run("node01", "node02", 1, "pass", 391.0)]
    )
    assert matrix["rows"][0]["cells"][1]["outcome"] == "pass"


def test_nothing_takes_the_place_of_a_fail_of_a_pair() -> None:
    (matrix,) = overview_tables.pairs(
        [run("node01", "node02", 1, "fail", 12.0), run("node01", "node02", 1, "pass", 391.0)]
    )
    cell = matrix["rows"][0]["cells"][1]
    assert (cell["outcome"], cell["value"], cell["runs"], matrix["bad"]) == ("fail", 12.0, 1, 1)


def test_a_large_matrix_keeps_the_nodes_with_a_bad_pair() -> None:
    runs = [
        run(f"node{2 * at + 1:03}", f"node{2 * at + 2:03}", 1, "fail" if at == 7 else "pass", 390.0) for at in range(40)
    ]
    (matrix,) = overview_tables.pairs(runs)
    assert matrix["nodes"] == ["node015", "node016"]
    assert (matrix["pairs"], matrix["left_out"]) == (40, 78)


def record(target: str, value: float, *, name: str = "busbw", unit: str = "GB/s") -> dict[str, Any]:
    return {"gate": "g", "metrics": [metric(name, value, unit, target)], "criteria": [bound(name, 456.0, unit=unit)]}


def strips(records: list[dict[str, Any]]) -> list[Strip]:
    found = Units()
    for item in records:
        found.run(item)
    return list(found.strips([]))


def test_a_strip_names_the_units_that_stand_apart_and_its_bound_with_its_source() -> None:
    (strip,) = strips([*(record(f"node{at:02}", 476.0 + at % 5) for at in range(20)), record("node99", 440.0)])
    said = describe(strip)
    assert (said["count"], said["least"], said["most"]) == (21, 440.0, 480.0)
    assert said["bounds"] == [{"text": "floor: at least 456 GB/s", "sources": ["a data sheet"]}]
    assert said["apart"] == [{"unit": "node99", "value": 440.0}]
    drawn = picture(strip)
    assert 'v18" class="bad"/>' in drawn, "it breaks its floor"
    assert 'class="apart"' not in drawn
    assert "floor 456" in drawn
    (strip,) = strips([*(record(f"node{at:02}", 476.0 + at % 5) for at in range(20)), record("node99", 460.0)])
    assert (picture(strip).count('class="apart"'), 'class="bad"' in picture(strip)) == (1, False)


def test_a_bound_judges_the_units_of_its_own_record_alone() -> None:
    """A site with two models: what is good for the slow one is below the floor of the fast one."""
    fast = {
        "gate": "g",
        "metrics": [metric("busbw", 470.0, "GB/s", "node01/gpu0")],
        "criteria": [bound("busbw", 456.0)],
    }
    slow = {"gate": "g", "metrics": [metric("busbw", 180.0, "GB/s", "node02/gpu0")], "criteria": []}
    bad = {"gate": "g", "metrics": [metric("busbw", 180.0, "GB/s", "node03/gpu0")], "criteria": fast["criteria"]}
    for found, beyond in (([fast, slow], []), ([fast, slow, bad], [180.0])):
        nodes, runs, parts = Units(), Units(), Units()
        for place, item in enumerate(found):
            one = Units()
            one.add(place, f"node0{place + 1}", [item])
            nodes.add(place, f"node0{place + 1}", [item])
            runs.run(item)
            parts.take(one)
        for units in (nodes, runs, parts):
            (strip,) = units.strips(["node01", "node02", "node03"])
            assert (strip.split()[1], len(strip.split()[0])) == (beyond, 2)
            assert ('class="bad"' in picture(strip)) is bool(beyond)


def test_an_upper_bound_is_a_ceiling_and_each_bound_keeps_its_own_label() -> None:
    bounds = [
        bound("busbw", 714.0, "le", "ceiling"),
        bound("busbw", 476.0, said="reference"),
        bound("busbw", 452.2),
        bound("busbw", 476.0, "eq", "identity"),
    ]
    assert [label(item) for item in bounds] == ["ceiling", "reference", "floor", "identity"]
    assert label(bound("temperature", 75.0, "le", "floor")) == "ceiling", "older records call every bound a floor"
    assert label(bound("latency_average", 0.5, "ge", "ceiling")) == "floor"
    hot = {
        "gate": "g",
        "metrics": [metric("temperature", 40.0, "C")],
        "criteria": [bound("temperature", 75.0, "le", "floor", "C")],
    }
    (strip,) = strips([hot])
    assert describe(strip)["bounds"] == [{"text": "ceiling: at most 75 C", "sources": ["a data sheet"]}]
    assert "ceiling 75" in picture(strip)
    assert "floor" not in picture(strip)


def test_a_bound_that_differs_between_units_says_its_range_and_its_sources() -> None:
    given = [
        bound("drive_read", value, said="fleet", source=f"source {value:g}") for value in (3.0, 5.0, 4.0, 6.0, 4.0)
    ]
    records = [{"gate": "g", "metrics": [metric("drive_read", 7.0, "GB/s")], "criteria": [item]} for item in given]
    (strip,) = strips(records)
    assert describe(strip)["bounds"] == [
        {"text": "fleet: at least 3 to 6 GB/s", "sources": ["source 3", "source 5", "source 4", "and others"]}
    ]


@pytest.mark.parametrize("unit", ["1", "B", "MiB", "GiB", "GB", "s since 1970"])
def test_counts_sizes_and_dates_are_no_distribution(unit: str) -> None:
    records = [record(f"node01 nvme{at}", 3840.0 if at else 480.0, name="drive_capacity", unit=unit) for at in range(8)]
    assert strips(records) == []


def test_a_value_that_must_equal_its_bound_is_no_distribution() -> None:
    records = [record(f"node{at:02}", 700.0 if at else 650.0, name="power_limit", unit="W") for at in range(8)]
    assert (
        strips([{**item, "criteria": [bound("power_limit", 700.0, "eq", "identity", "W")]} for item in records]) == []
    )


def test_only_identical_units_are_compared() -> None:
    """Drives for data read faster than the two that the node boots from; one inlet is colder than eight GPUs."""
    fast = [record(f"node01 nvme{at}", 7.0 + at / 100, name="drive_read") for at in range(8)]
    boot = [record(f"node01 sd{at}", 0.5, name="drive_read") for at in "ab"]
    (strip,) = strips([*fast, *boot])
    assert (describe(strip)["count"], strip.apart) == (10, [])
    (strip,) = strips([*fast, *boot, record("node01 nvme9", 2.0, name="drive_read")])
    assert strip.apart == [("node01 nvme9", 2.0)]


def test_the_newest_value_counts() -> None:
    found = strips([record("node01", 8, unit="1"), record("node01", 400.0), record("node01", 480.0)])
    assert [(strip.metric, dict(strip.values)) for strip in found] == [("busbw", {"node01": 480.0})]


def test_a_difference_of_less_than_a_hundredth_stands_not_apart() -> None:
    (strip,) = strips([record(f"node{at:02}", 480.0 if at else 479.0) for at in range(12)])
    assert strip.apart == []


def test_bounds_of_parts_of_a_report_are_put_together() -> None:
    one, other = (
        ShownBound("floor", "ge", 456.0, 456.0, "GB/s", ["a"]),
        ShownBound("floor", "ge", 440.0, 440.0, "GB/s", ["b"]),
    )
    one.take(other)
    assert (one.low, one.high, one.sources) == (440.0, 456.0, ["a", "b"])


@pytest.mark.parametrize("values", [[480.0], [480.0, 480.0], [0.0, 0.0, 0.0, 0.0, 0.0]])
def test_few_or_equal_values_are_drawn_and_none_stands_apart(values: list[float]) -> None:
    strip = Strip("g", "m", "GB/s", {f"n{at}": value for at, value in enumerate(values)}, {})
    assert strip.apart == []
    assert "nan" not in picture(strip)


def test_more_parts_than_two_bytes_count_are_packed_and_named() -> None:
    """Every drive has a serial number of its own."""
    found, drives = Units(), [f"S{number}" for number in range(70_000)]
    item = record("node01 S0", 5.0)
    found.add(
        0, "node01", [{**item, "metrics": [{**item["metrics"][0], "target": f"node01 {drive}"} for drive in drives]}]
    )
    whole = Units()
    whole.take(found)
    (strip,) = whole.strips(["node01"])
    assert (len(strip.values), list(strip.values)[-1]) == (70_000, "node01 S69999")
    assert not whole.piles["g", "busbw", "GB/s"].others
