"""The parts profile: every part has a source, appears once, and can come out of a plan."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from rackready.model.parts import PartsProfile
from rackready.profiles import loader
from tests.unit.design.cabling.kit import Bench, catalogue, floor

NVIDIA = loader.parts("nvidia")


def test_every_part_has_a_source_and_every_figure_its_own() -> None:
    for item in (*NVIDIA.transceivers, *NVIDIA.fibres, *NVIDIA.assemblies):
        assert len(item.source) > 20
    for module in NVIDIA.transceivers:
        assert module.reach.unit == "m"
        assert len(module.reach.source) > 20


def test_a_specification_is_never_dressed_up_as_a_makers_number() -> None:
    for item in (*NVIDIA.fibres, *NVIDIA.assemblies):
        maker = item.series.startswith(("MFP", "MCP", "MCA", "MFS", "MFA"))
        assert item.by_specification is not maker
        assert item.by_specification is item.source.startswith("a specification, not one maker's number")


def test_numbers_say_the_length() -> None:
    """NVIDIA writes metres with three digits, and half metres as A: N003 is 3 m, N01A 1.5 m."""
    for item in (*NVIDIA.fibres, *NVIDIA.assemblies):
        for length, part in item.lengths.items():
            if item.by_specification:
                assert part.endswith(f"-{length:g}")
            else:
                whole = f"{int(length):02d}A" if length % 1 else f"{int(length):03d}"
                assert whole in part.removeprefix(item.series)


def test_reaches_are_the_published_ones() -> None:
    reach = {module.part: module.reach.value for module in NVIDIA.transceivers}
    assert {reach["MMA4Z00-NS"], reach["MMA4Z00-NS400"], reach["MMA1Z00-NS400"]} == {50}
    assert {reach["MMS4X00-NS"], reach["MMS4X00-NS400"]} == {100}
    assert (reach["MMS4X00-NM"], reach["MMS4X50-NM"]) == (500, 2000)


def test_a_switch_cage_never_takes_a_flat_top_and_a_nic_never_a_finned_one() -> None:
    finned = {module.part for module in NVIDIA.transceivers if module.form == "osfp_finned"}
    assert finned == {"MMA4Z00-NS", "MMS4X00-NS", "MMS4X00-NM", "MMS4X50-NM", "MMS4A00"}
    assert all(module.ports == 2 for module in NVIDIA.transceivers if module.form == "osfp_finned")


SPANS = floor(**{f"p{place}": (0, place) for place in (*range(1, 41), 70, 140, 220, 300, 460, 700, 1500, 3000)})
"""Racks at growing distances from ``r``."""
NEAR = [f"p{place}" for place in range(1, 41)]
FAR = ["p70", "p140", "p220", "p300", "p460", "p700", "p1500", "p3000"]


def reachable() -> set[str]:
    """Parts of plans over all kinds of links and many distances."""
    seen: set[str] = set()
    for rack in ["r", *NEAR, *FAR]:
        for unit in (2, 12, 20, 25, 30, 35, 48):
            seen |= _kinds(rack, unit)
    return seen


def _kinds(rack: str, unit: int) -> set[str]:
    bench = Bench()
    for number, (form, layer, rate) in enumerate(
        [
            ("osfp_flat", "ethernet", 400),
            ("qsfp112", "ethernet", 400),
            ("osfp_flat", "infiniband", 800),
            ("qsfp56", "infiniband", 200),
        ]
    ):
        switch = bench.twin(f"r/1/leaf{number}/swp1")
        for sub in (0, 1):
            bench.join(
                bench.nic(f"{rack}/{unit}/gpu{number}{sub}/rail1", form), switch, (0, sub), rate=rate, layer=layer
            )
    shared = bench.twin(f"{rack}/{unit}/dgx/OSFP1", "osfp_flat")
    for sub in (0, 1):
        bench.join(shared, bench.twin(f"r/1/leafd{sub}/swp1"), (sub, 0))
    for layer in ("ethernet", "infiniband"):
        bench.join(bench.twin(f"r/1/leaf-{layer}/swp2"), bench.twin(f"{rack}/{unit}/spine-{layer}/swp2"), layer=layer)
    bench.join(bench.twin("r/30/leaf-high/swp2"), bench.twin(f"{rack}/{unit}/spine-high/swp2"), layer="infiniband")
    bench.join(bench.twin("r/1/flat-a/1", "osfp_flat"), bench.twin(f"{rack}/{unit}/flat-b/1", "osfp_flat"))
    for form, rate, lanes in (("qsfp56", 200, 4), ("qsfp28", 100, 4), ("rj45", 1, 1)):
        bench.join(
            bench.nic(f"r/1/x{form}/1", form), bench.nic(f"{rack}/{unit}/y{form}/1", form), rate=rate, lanes=lanes
        )
    cables = bench.plan(SPANS, catalogue()).cables
    return {part for cable in cables for part in (cable.cable_part, cable.a_part, cable.b_part) if part}


def test_every_shipped_part_can_come_out_of_a_plan() -> None:
    shipped = {module.part for module in NVIDIA.transceivers} | {
        part for item in (*NVIDIA.fibres, *NVIDIA.assemblies) for part in item.lengths.values()
    }
    # Cables are two metres or more as soon as they leave a device sideways and with slack: what is shorter serves sites
    # with less slack.
    too_short = {
        "MCP4Y10-N00A",
        "MCP4Y10-N001",
        "MCP4Y10-N01A",
        "MCP7Y00-N001",
        "MCP7Y00-N01A",
        "MCP7Y10-N001",
        "MCP7Y10-N01A",
    }
    too_short |= {"CAT6-RJ45-0.5", "CAT6-RJ45-1"}
    # Within a reach of 50 m multimode serves before single mode does; these lengths come out beside a longer cable in a
    # shared module.
    beside = {f"MFP7E30-N{length:03d}" for length in (3, 5, 7, 10, 15, 20, 30, 50)}
    beside |= {f"OS2-LC-UPC-{length}" for length in (5, 10, 20, 30, 50, 100, 200, 300, 500)}
    assert shipped - reachable() - too_short - beside == set()


def raw() -> dict[str, Any]:
    return NVIDIA.model_dump(mode="json")


def test_duplicate_part_number_is_refused() -> None:
    document = raw()
    document["transceivers"].append(document["transceivers"][0])
    with pytest.raises(ValidationError, match="duplicate part numbers: MMA4Z00-NS"):
        PartsProfile.model_validate(document)


def test_lengths_out_of_order_are_refused() -> None:
    document = raw()
    document["fibres"][0]["lengths"] = {5: "MFP7E10-N005", 3: "MFP7E10-N003"}
    with pytest.raises(ValidationError, match="lengths must be positive and in ascending order"):
        PartsProfile.model_validate(document)
