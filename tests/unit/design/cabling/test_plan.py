"""Parts of a run: modules by cage, optics by reach, copper, shared modules, stock, and refusals by exact text."""

from __future__ import annotations

import pytest

from rackready.design.cabling.catalogue import StockError
from rackready.design.cabling.types import Cable
from tests.unit.design.cabling.kit import Bench, catalogue, floor
from tests.unit.design.written import texts

HALL = floor(near=(0, 4), mid=(0, 70), far=(0, 140), yonder=(0, 500), away=(0, 3000))
"""From rack ``r`` at unit 1: about 8 m, 47 m, 90 m, 306 m and 1.8 km."""


def parts(cable: Cable) -> tuple[str, str, str]:
    return cable.cable_part, cable.a_part, cable.b_part


def one(rack: str, form: str = "osfp_flat", **link: int | str) -> Cable:
    bench = Bench()
    near = bench.nic("r/1/gpu01/rail1", form) if form != "osfp_finned" else bench.twin("r/1/leaf01/swp1")
    bench.join(near, bench.twin(f"{rack}/1/spine01/swp1"), **link)  # type: ignore[arg-type] - rate and lanes are numbers, layer is text
    (cable,) = bench.plan(HALL).cables
    return cable


@pytest.mark.parametrize(
    ("rack", "form", "expected"),
    [
        ("near", "osfp_flat", ("MFP7E10-N010", "MMA4Z00-NS400", "MMA4Z00-NS")),
        ("mid", "osfp_flat", ("MFP7E10-N050", "MMA4Z00-NS400", "MMA4Z00-NS")),
        ("far", "osfp_flat", ("MFP7E30-N100", "MMS4X00-NS400", "MMS4X00-NS")),
        ("near", "qsfp112", ("MFP7E10-N010", "MMA1Z00-NS400", "MMA4Z00-NS")),
        ("far", "qsfp112", ("MFP7E30-N100", "MMS1X00-NS400", "MMS4X00-NS")),
        ("near", "osfp_finned", ("MFP7E10-N010", "MMA4Z00-NS", "MMA4Z00-NS")),
        ("far", "osfp_finned", ("MFP7E30-N100", "MMS4X00-NS", "MMS4X00-NS")),
        ("yonder", "osfp_finned", ("OS2-MPO12-APC-B-500", "MMS4X00-NM", "MMS4X00-NM")),
        ("away", "osfp_finned", ("OS2-LC-UPC-2000", "MMS4X50-NM", "MMS4X50-NM")),
    ],
)
def test_optics_follow_from_length_and_cages(rack: str, form: str, expected: tuple[str, str, str]) -> None:
    cable = one(rack, form)
    assert parts(cable) == expected
    assert cable.stock_m >= cable.length_m
    assert cable.problem == ""


def test_xdr_takes_modules_with_200g_lanes() -> None:
    assert parts(one("far", rate=800, lanes=4, layer="infiniband")) == ("MFP7E30-N100", "MMS4A20", "MMS4A00")


def test_an_800_gigabit_link_over_eight_lanes_is_two_fibres_between_two_modules() -> None:
    bench = Bench()
    bench.join(bench.twin("r/1/leaf01/swp1"), bench.twin("near/1/spine01/swp9"), rate=800, lanes=8)
    first, second = bench.plan(HALL).cables
    assert (first.label, second.label) == ("leaf01:swp1s0/spine01:swp9s0#1", "leaf01:swp1s0/spine01:swp9s0#2")
    assert [(cable.a_sub, cable.b_sub) for cable in (first, second)] == [(0, 0), (1, 1)]
    assert parts(first) == parts(second) == ("MFP7E10-N010", "MMA4Z00-NS", "MMA4Z00-NS")


def test_two_nics_that_share_a_cage_share_a_flat_twin_port_module() -> None:
    bench = Bench()
    shared = bench.twin("r/1/dgx01/OSFP1", "osfp_flat")
    for sub in (0, 1):
        bench.join(shared, bench.twin(f"near/{sub + 1}/leaf0{sub}/swp1"), (sub, 0))
    assert {parts(cable) for cable in bench.plan(HALL).cables} == {("MFP7E10-N010", "MMA4Z00-NS-FLT", "MMA4Z00-NS")}


def test_a_longer_cable_decides_for_the_one_beside_it_and_for_its_far_end() -> None:
    bench = Bench()
    switch = bench.twin("r/20/leaf01/swp1")
    bench.join(bench.nic("near/1/gpu01/rail1"), switch, (0, 0))
    bench.join(bench.nic("far/1/gpu02/rail1"), switch, (0, 1))
    short, long = bench.plan(HALL).cables
    assert parts(short) == ("MFP7E30-N010", "MMS4X00-NS400", "MMS4X00-NS")
    assert parts(long) == ("MFP7E30-N100", "MMS4X00-NS400", "MMS4X00-NS")


def test_a_run_that_nothing_serves_does_not_decide_for_the_one_beside_it() -> None:
    bench = Bench()
    switch = bench.twin("r/20/leaf01/swp1")
    bench.join(bench.nic("near/1/gpu01/rail1"), switch, (0, 0))
    bench.join(bench.nic("yonder/1/gpu02/rail1"), switch, (0, 1))
    plan = bench.plan(HALL)
    assert parts(plan.cables[0]) == ("MFP7E10-N010", "MMA4Z00-NS400", "MMA4Z00-NS")
    assert len(plan.problems) == 1


def test_copper_serves_two_cages_joined_twice_within_its_reach() -> None:
    bench = Bench()
    leaf, spine = bench.twin("r/1/leaf01/swp1"), bench.twin("r/5/spine01/swp1")
    for sub in (0, 1):
        bench.join(leaf, spine, (sub, sub))
    first, second = bench.plan(HALL).cables
    assert parts(first) == parts(second) == ("MCP4Y10-N002", "MCP4Y10-N002", "MCP4Y10-N002")
    assert first.medium == "dac"
    assert first.group == second.group == first.label != second.label


def test_active_copper_reaches_further_on_infiniband_only() -> None:
    def medium(layer: str) -> str:
        bench = Bench()
        bench.join(bench.twin("r/1/leaf01/swp1"), bench.twin("r/40/spine01/swp1"), layer=layer)
        return bench.plan(HALL).cables[0].medium

    assert medium("infiniband") == "acc"
    assert medium("ethernet") == "mmf"


@pytest.mark.parametrize(("form", "expected"), [("osfp_flat", "MCP7Y00-N02A"), ("qsfp112", "MCP7Y10-N02A")])
def test_a_splitter_serves_two_nics_on_one_cage(form: str, expected: str) -> None:
    bench = Bench()
    switch = bench.twin("r/20/leaf01/swp1")
    for sub in (0, 1):
        bench.join(bench.nic(f"r/{sub + 1}/gpu0{sub}/rail1", form), switch, (0, sub))
    assert {cable.cable_part for cable in bench.plan(HALL).cables} == {expected}


def test_no_splitter_when_one_of_its_ends_is_too_far() -> None:
    bench = Bench()
    switch = bench.twin("r/20/leaf01/swp1")
    bench.join(bench.nic("r/1/gpu01/rail1"), switch, (0, 0))
    bench.join(bench.nic("near/1/gpu02/rail1"), switch, (0, 1))
    assert {cable.medium for cable in bench.plan(HALL).cables} == {"mmf"}


def test_no_splitter_with_an_end_that_hangs_loose() -> None:
    bench = Bench()
    bench.join(bench.nic("r/1/gpu01/rail1"), bench.twin("r/20/leaf01/swp1"))
    assert bench.plan(HALL).cables[0].medium == "mmf"


def test_active_optical_cables_serve_cages_without_modules() -> None:
    bench = Bench()
    bench.join(bench.nic("r/1/gpu01/bond0", "qsfp56"), bench.nic("near/1/st01/swp1", "qsfp56"), rate=200)
    bench.join(bench.nic("r/1/gpu01/mgmt0", "qsfp28"), bench.nic("mid/1/ib01/swp1", "qsfp28"), rate=100)
    assert next(cable.cable_part for cable in bench.plan(HALL).cables) == "MFS1S00-H010V"
    assert texts(bench.plan(HALL).problems) == [
        (
            "r U1 gpu01 mgmt0 to mid U1 ib01 swp1: Expected: a part of at least 48.96 m for 100 Gb/s ethernet over "
            "4 lanes between qsfp28 and qsfp28 "
            "Actual: 30 m (MFA1A00). Move the racks closer, stock a longer length, or add a part to profiles/parts."
        ),
    ]


def test_lengths_are_rounded_up_to_what_is_on_the_shelf() -> None:
    bench = Bench()
    bench.join(bench.nic("r/1/gpu01/rail1"), bench.twin("near/1/leaf01/swp1"))
    (cable,) = bench.plan(HALL, catalogue(MFP7E10=[30, 5])).cables
    assert (cable.cable_part, cable.stock_m) == ("MFP7E10-N030", 30)


def test_unknown_stock_is_refused() -> None:
    with pytest.raises(StockError) as caught:
        catalogue(MFP7E99=[5], MFP7E10=[5, 12])
    assert texts(caught.value.problems) == [
        (
            "cable_stock.MFP7E99: Expected: one of CAT6, MCA4J80, MCP4Y10, MCP7Y00, MCP7Y10, MFA1A00, MFA7U10, "
            "MFP7E10, MFP7E30, MFS1S00, OS2-LC-UPC, "
            "OS2-MPO12-APC Actual: MFP7E99. Correct the series, or add it to profiles/parts."
        ),
        (
            "cable_stock.MFP7E10: Expected: lengths of 3, 5, 7, 10, 15, 20, 30, 50 m Actual: 12 m. "
            "Correct it, or add its part number to profiles/parts."
        ),
    ]


def refusal(bench: Bench) -> list[str]:
    plan = bench.plan(HALL)
    assert all((cable.cable_part, cable.a_part, cable.b_part) == ("", "", "") for cable in plan.cables if cable.problem)
    return texts(plan.problems)


def test_a_nic_beyond_its_modules_reach_is_refused() -> None:
    bench = Bench()
    bench.join(bench.nic("yonder/1/gpu01/rail1"), bench.twin("r/1/leaf01/swp1"))
    assert refusal(bench) == [
        (
            "yonder U1 gpu01 rail1 to r U1 leaf01 swp1s0: Expected: a part of at least 306.96 m for 400 Gb/s "
            "ethernet over 4 lanes between osfp_flat and "
            "osfp_finned Actual: 100 m (MMS4X00-NS400 to MMS4X00-NS). "
            "Move the racks closer, stock a longer length, or add a part to profiles/parts."
        ),
    ]


def test_cages_that_no_part_joins_are_refused() -> None:
    bench = Bench()
    bench.join(bench.nic("r/1/gpu01/bmc", "rj45"), bench.twin("near/1/leaf01/swp1"), rate=1, lanes=1)
    assert refusal(bench) == [
        (
            "r U1 gpu01 bmc to near U1 leaf01 swp1s0: Expected: a part for 1 Gb/s ethernet over 1 lanes between "
            "rj45 and osfp_finned "
            "Actual: none in profiles/parts. Change the cage or rate of one end, or add the part."
        ),
    ]


def test_a_port_with_two_cables_is_refused() -> None:
    bench = Bench()
    switch = bench.twin("r/20/leaf01/swp1")
    bench.join(bench.nic("near/1/gpu01/rail1"), switch, (0, 0))
    bench.join(bench.nic("near/1/gpu02/rail1"), switch, (0, 0))
    assert refusal(bench) == [
        (
            "near U1 gpu02 rail1 to r U20 leaf01 swp1s0: Expected: a free port "
            "Actual: leaf01 swp1s0 already has a cable. Give each port one link."
        ),
    ]


def test_a_cable_from_a_cage_to_itself_is_refused() -> None:
    bench = Bench()
    switch = bench.twin("r/20/leaf01/swp1")
    bench.join(switch, switch, (0, 1))
    assert refusal(bench) == [
        "r U20 leaf01 swp1s0 to r U20 leaf01 swp1s1: Expected: two cages Actual: both ends in one. Correct the link.",
    ]


def test_cables_of_one_module_that_need_different_optics_are_refused() -> None:
    bench = Bench()
    switch = bench.twin("r/20/leaf01/swp1")
    bench.join(bench.nic("near/1/gpu01/rail1"), switch, (0, 0))
    bench.join(switch, bench.twin("yonder/1/spine01/swp1"), (1, 0))
    assert refusal(bench) == [
        (
            "near U1 gpu01 rail1 to r U20 leaf01 swp1s0: 8.52 m - Expected: one kind of optics for all cables of a "
            "shared module Actual: this one can have "
            "sr4, dr4, a cable that shares its module cannot. "
            "Use different cages, or move the racks of the longer one closer."
        ),
        (
            "r U20 leaf01 swp1s1 to yonder U1 spine01 swp1s0: 306.12 m - "
            "Expected: one kind of optics for all cables of a shared module Actual: this one can "
            "have dr4-500m, fr4, a cable that shares its module cannot. "
            "Use different cages, or move the racks of the longer one closer."
        ),
    ]


def test_a_length_that_cannot_be_given_is_a_problem_of_its_cable() -> None:
    bench = Bench()
    bench.join(bench.nic("r/1/gpu01/rail1"), bench.twin("nowhere/1/leaf01/swp1"))
    assert refusal(bench) == [
        (
            "r U1 gpu01 rail1 to nowhere U1 leaf01 swp1s0: rack nowhere - Expected: hall, row and position "
            "Actual: not given. "
            "Add them, so that lengths can be computed."
        ),
    ]


def test_labels_are_unique_and_the_same_every_time() -> None:
    def labels() -> list[str]:
        bench = Bench()
        for node in range(8):
            for rail in range(4):
                bench.join(
                    bench.nic(f"near/{node + 1}/gpu{node}/rail{rail}"),
                    bench.twin(f"r/{rail + 1}/leaf{rail}/swp{node // 2}"),
                    (0, node % 2),
                )
        return [cable.label for cable in bench.plan(HALL).cables]

    assert len(set(labels())) == 32
    assert labels() == labels()


def test_a_cause_is_reported_once_with_its_number_of_cables() -> None:
    bench = Bench()
    for number in (1, 2, 3):
        bench.join(bench.nic(f"r/{number}/gpu0{number}/rail1"), bench.twin(f"nowhere/1/leaf01/swp{number}"))
    plan = bench.plan(HALL)
    assert len([cable for cable in plan.cables if cable.problem]) == 3
    assert texts(plan.problems) == [
        (
            "r U1 gpu01 rail1 to nowhere U1 leaf01 swp1s0: rack nowhere - Expected: hall, row and position "
            "Actual: not given. "
            "Add them, so that lengths can be computed. 2 more cables have the same problem."
        ),
    ]


def test_half_a_connector_is_refused() -> None:
    """Two links of two lanes on one connector need a splitter fibre, of which there is no part yet."""
    bench = Bench()
    bench.join(bench.nic("r/1/gpu01/rail1"), bench.twin("near/1/leaf01/swp1"), rate=200, lanes=2, layer="infiniband")
    assert refusal(bench) == [
        (
            "r U1 gpu01 rail1 to near U1 leaf01 swp1s0: Expected: a part for 200 Gb/s infiniband over 2 lanes "
            "between osfp_flat and osfp_finned "
            "Actual: none in profiles/parts. Change the cage or rate of one end, or add the part."
        ),
    ]
