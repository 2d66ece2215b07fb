"""Power cords: one per supply, on the feeds used for losses; type and length only if known; NVLink notes."""

from __future__ import annotations

from io import StringIO

from rackready.design.cabling.cords import NO_PART, cord_lines, cord_notes, cords
from rackready.design.cabling.nvlink import nvlink_notes
from rackready.design.capacity.parts import DeviceModel, RackInput
from rackready.design.plan import plan_site
from rackready.model.facility import Feed
from rackready.render.plan_tables import plan_tables
from rackready.render.tables import write_csv
from tests.unit.design.capacity.racks import DGX, DUAL, TRAY, pdus, rack, stack
from tests.unit.design.written import example, parse

KNOWN = DeviceModel("known", 1, 500.0, psus=2, psu_min=1, inlet="C14")
FEEDS = tuple(Feed(name=name, source=f"rpp-{name}", breaker_a=30, volts=415, outlet="C13", cord_m=1.5) for name in "ab")


def test_each_supply_has_a_cord_on_its_own_feed() -> None:
    found = [
        (cord.device, cord.supply, cord.feed, cord.source, cord.phase)
        for cord in cords([rack("r1", *stack(DUAL, 2), feeds=pdus("rpp-a", "rpp-b"))])
    ]
    assert found == [
        ("n1", 1, "a", "rpp-a", "L1"),
        ("n1", 2, "b", "rpp-b", "L1"),
        ("n2", 1, "a", "rpp-a", "L2"),
        ("n2", 2, "b", "rpp-b", "L2"),
    ]


def test_type_and_length_are_as_given() -> None:
    (first, *_) = cords([rack("r1", *stack(KNOWN, 1), feeds=FEEDS)])
    assert first.kind == "power cord, outlet C13 to inlet C14, 1.5 m"
    (unsaid, *_) = cords([rack("r1", *stack(DUAL, 1), feeds=pdus("rpp-a", "rpp-b"))])
    assert unsaid.kind == "power cord, outlet not given to inlet not published, length not given"


def test_ordered_cords_report_that_they_have_no_part_number() -> None:
    racks = [rack(f"r{number}", *stack(KNOWN, 3), feeds=FEEDS) for number in range(4)] + [
        rack("r9", *stack(DGX, 1), feeds=pdus("rpp-a", "rpp-b", "rpp-c"))
    ]
    assert [(line.group, line.part, line.description, line.needed, line.spare) for line in cord_lines(racks, 5)] == [
        ("cord", NO_PART, "power cord, outlet C13 to inlet C14, 1.5 m", 24, 2),
        ("cord", NO_PART, "power cord, outlet not given to inlet not published, length not given", 6, 1),
    ]
    assert sum(line.needed for line in cord_lines(racks, 5)) == len([*cords(racks)])


def test_racks_that_differ_in_outlets_only_are_counted_apart() -> None:
    other = tuple(feed.model_copy(update={"outlet": "C39"}) for feed in FEEDS)
    lines = cord_lines([rack("r1", *stack(KNOWN, 1), feeds=FEEDS), rack("r2", *stack(KNOWN, 1), feeds=other)], 0)
    assert [line.description for line in lines] == [
        "power cord, outlet C13 to inlet C14, 1.5 m",
        "power cord, outlet C39 to inlet C14, 1.5 m",
    ]


def test_equipment_without_cord_is_reported_with_its_reason() -> None:
    shelf = (Feed(name="shelf-1", source="rpp-a", kind="shelf", rating_kw=33),)
    racks = [
        rack("r1", *stack(DeviceModel("mystery", 1, 300.0), 2), feeds=pdus("rpp-a")),
        RackInput("r2", stack(TRAY, 2), shelf),
        rack("r3", *stack(DUAL, 1)),
        rack("r4"),
    ]
    assert [*cords(racks)] == []
    assert cord_notes(racks) == [
        (
            "power cords of 2 x mystery are not listed: their number of power supplies is not published (set psus "
            "of a device)."
        ),
        "power cords: devices on the bus bar of 1 rack need none.",
        "power cords of 1 rack are not listed: the site lists no feeds for it.",
    ]


def test_the_file_has_a_row_a_cord() -> None:
    plan = plan_site(parse(example("h100-1su-infiniband")))
    file = StringIO()
    write_csv(next(table for table in plan_tables(plan) if table.name == "cords"), file)
    head, first, *rest = file.getvalue().splitlines()
    assert head == "rack,unit,device,supply,feed,source,phase,outlet,inlet,length_m,part"
    assert first == "a01,3,a01-n1,1,pdu-1,busway-1,L1,C19,,2.0,no part number published"
    # 31 nodes of 6 supplies, 14 QM9700, 3 SN2201 and 7 devices of 2; how many an SN4600C has is not published in its
    # profile.
    assert len(rest) + 1 == 31 * 6 + 17 * 2 + 7 * 2 == sum(line.needed for line in plan.bom if line.group == "cord")


def test_nvlink_of_a_rack_is_noted_once() -> None:
    (note,) = nvlink_notes(parse(example("gb200-nvl72-8-racks")))
    assert note == (
        "NVLink: 144 gb200_nvl72 trays are connected inside their 8 racks by cable cartridges, which come with the "
        "rack: no cable is pulled or ordered for them, and no part number is published (NVIDIA NVOS user manual for "
        "NVLink switches, chassis information and "
        "inventory: "
        "the cable cartridge is a part of the rack)."
    )
    assert nvlink_notes(parse(example("h100-1su-infiniband"))) == []


def test_missing_nvlink_between_racks_is_noted() -> None:
    document = example("gb200-nvl72-8-racks")
    document["nvlink_domains"] = [{"name": "wide", "nodes": ["r01-c[01-09]", "r02-c[01-09]"], "across_racks": True}]
    assert (
        nvlink_notes(parse(document))[-1]
        == "NVLink: cables between the racks of domain wide are not listed: the site file does not define them."
    )
