"""Plausible but impossible sites (wrong units, circuits, address space) are refused by exact text."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.design.written import Change, change, example, parse, refusals

TRUE: object = True
B200, H100, GB200, LAB = "b200-4su-roce", "h100-1su-infiniband", "gb200-nvl72-8-racks", "lab-4-nodes"
VOLTS = "Correct volts (line to line for three phases), or add a transformer between the circuit and the rack."
AIR = "Move it to an air-cooled rack. For a rear-door heat exchanger or a tank, set kind: hybrid with liquid_share: 1."
FEED = "templates.racks.gpu.feeds[0]"
SHELVES = [{"name": "shelf-[1-4]", "from": "busway-1", "kind": "shelf", "rating_kw": 33}]
NAMEPLATE = {"source": "the plate of the machine"}


def plate(**figures: object) -> Change:
    return change("facility.nameplates", [{**NAMEPLATE, **figures}])


def feed(**figures: object) -> Change:
    """Change the feeds of the GPU racks of H100: 415 V three-phase 60 A, two supplies each."""

    def apply(document: dict[str, Any]) -> None:
        document["templates"]["racks"]["gpu"]["feeds"][0] |= figures

    return apply


def busway(**figures: object) -> Change:
    def apply(document: dict[str, Any]) -> None:
        document["facility"]["power"][2] |= figures

    return apply


def several(*changes: Change) -> Change:
    def apply(document: dict[str, Any]) -> None:
        for one in changes:
            one(document)

    return apply


ELECTRIC: list[tuple[str, Change, str]] = [
    (
        H100,
        feed(volts=480),
        (
            f"{FEED}.volts: 480 V three-phase gives 277 V at the outlets, but dgx_h100 takes 200 to 240 V"
            f" - Expected: 200 to 240 V at the outlets Actual: 277 V. {VOLTS}"
        ),
    ),
    (
        H100,
        feed(volts=110),
        (
            f"{FEED}.volts: 110 V three-phase gives 110 V at the outlets, but dgx_h100 takes 200 to 240 V"
            f" - Expected: 200 to 240 V at the outlets Actual: 110 V. {VOLTS}"
        ),
    ),
    (
        H100,
        feed(volts=41500),
        (
            f"{FEED}.volts: 41500 V three-phase gives 23960 V at the outlets, but dgx_h100 takes 200 to 240 V"
            f" - Expected: 200 to 240 V at the outlets Actual: 23960 V. {VOLTS}"
        ),
    ),
    (
        H100,
        feed(volts=0.415),
        (
            f"{FEED}.volts: 0.415 V three-phase gives 0 V at the outlets, but dgx_h100 takes 200 to 240 V - "
            f"Expected: 200 to 240 V at the outlets Actual: 0 V. {VOLTS}"
        ),
    ),
    (
        H100,
        feed(volts=415, phases=1),
        (
            f"{FEED}.volts: 415 V single-phase gives 415 V at the outlets, but dgx_h100 takes 200 to 240 V"
            f" - Expected: 200 to 240 V at the outlets Actual: 415 V. {VOLTS}"
        ),
    ),
    (
        H100,
        change("racks.2.feeds.0.volts", 480),
        (
            f"racks[2].feeds[0].volts: 480 V three-phase gives 277 V at the outlets, but qm9700 takes 100 to 250 V"
            f" - Expected: 100 to 250 V at the outlets Actual: 277 V. {VOLTS}"
        ),
    ),
    (
        H100,
        several(change("templates.racks.gpu.feeds", SHELVES), change("templates.racks.gpu.devices", [])),
        (
            "templates.racks.gpu.feeds: dgx_h100 has AC supplies with cords - Expected: a feed of kind pdu "
            "Actual: shelf only (DC bus bar). "
            "Add a feed of kind pdu to the rack, or move it to another rack."
        ),
    ),
    (
        GB200,
        change(
            "templates.racks.nvl72.feeds", [{"name": "pdu-[1-2]", "from": "busway-{n}", "breaker_a": 400, "volts": 415}]
        ),
        (
            "templates.racks.nvl72.feeds: gb200_nvl72 takes its power from a DC bus bar - "
            "Expected: a feed of kind shelf Actual: pdu only. "
            "Add power shelves (feeds of kind shelf) to the rack, or move it to a rack that has them."
        ),
    ),
    (
        GB200,
        change("templates.racks.nvl72.feeds.0.outlet", "C19"),
        (
            "templates.racks.nvl72.feeds[0].outlet: feed shelf-1 is a power shelf but has outlet - "
            "Expected: a feed of kind pdu, or no outlet Actual: shelf. "
            "Remove outlet, or correct the kind."
        ),
    ),
    (
        GB200,
        change("templates.racks.nvl72.feeds.0.psus", 2),
        (
            "templates.racks.nvl72.feeds[0].psus: feed shelf-1 is a power shelf but has psus - "
            "Expected: a feed of kind pdu, or no psus Actual: shelf. "
            "Remove psus, or correct the kind."
        ),
    ),
    (
        H100,
        several(busway(volts=208), feed(volts=415)),
        (
            f"{FEED}.volts: feed pdu-1 comes from busway-1, a busway of 208 V - Expected: 208 V Actual: 415 V. "
            "Correct one of the two voltages, or declare the transformer between them."
        ),
    ),
    (
        H100,
        several(busway(volts=415), feed(volts=208, phases=1)),
        (
            f"{FEED}.volts: feed pdu-1 comes from busway-1, a busway of 415 V - Expected: 240 V or 415 V "
            "Actual: 208 V. "
            "Correct one of the two voltages, or declare the transformer between them."
        ),
    ),
    (
        H100,
        busway(phases=1),
        (
            f"{FEED}.phases: feed pdu-1 is three-phase, but busway-1 is single-phase - Expected: phases: 1 Actual: 3. "
            "Correct phases of one of the two."
        ),
    ),
    (
        B200,
        change("templates.racks.gpu.cooling", {"kind": "liquid", "max_kw": 60}),
        (
            "templates.racks.gpu.cooling.kind: dgx_b200 is air-cooled - Expected: cooling of kind air or hybrid "
            f"Actual: liquid. {AIR}"
        ),
    ),
    (
        GB200,
        change("templates.racks.nvl72.cooling", {"kind": "air", "max_kw": 132}),
        (
            "templates.racks.nvl72.cooling.kind: gb200_nvl72 is liquid-cooled - "
            "Expected: cooling of kind liquid or hybrid Actual: air. "
            "Move it to a rack with a liquid loop."
        ),
    ),
    (
        B200,
        change("templates.racks.gpu.cooling", {"kind": "air", "max_kw": 60, "max_air_kw": 80}),
        (
            "templates.racks.gpu.cooling.max_air_kw: air may remove more heat than the rack may give off in total "
            "(max_kw) - Expected: at most 60 kW Actual: 80 kW. "
            "Lower max_air_kw, or raise max_kw."
        ),
    ),
    (
        GB200,
        change("templates.racks.nvl72.cooling", {"kind": "hybrid", "max_kw": 132, "max_liquid_kw": 132.00001}),
        (
            "templates.racks.nvl72.cooling.max_liquid_kw: liquid may remove more heat than the rack may give off "
            "in total (max_kw) - Expected: at most 132 kW Actual: 132.00001 kW. "
            "Lower max_liquid_kw, or raise max_kw."
        ),
    ),
]

LOW = "implausible value"
UNITS: list[tuple[str, Change, str]] = [
    (
        H100,
        change("facility.power.1.rating_kw", 400_000),
        (
            f"facility.power[1].rating_kw: {LOW} (parallel static and rotary systems reach tens of MW) - "
            "Expected: 0.5 to 50,000 kW Actual: 400,000 kW. "
            "Give it in kW."
        ),
    ),
    (
        H100,
        change("facility.power.2.rating_kw", 600_000),
        (
            f"facility.power[2].rating_kw: {LOW} (6,300 A at 415 V are 4,500 kW) - Expected: 0.5 to 5,000 kW "
            "Actual: 600,000 kW. Give it in kW."
        ),
    ),
    (
        H100,
        change("facility.power.0.rating_kw", 0.0015),
        (
            f"facility.power[0].rating_kw: {LOW} (the largest planned sites have 5 GW) - "
            "Expected: 0.5 to 5,000,000 kW Actual: 0.0015 kW. Give it in kW."
        ),
    ),
    (
        H100,
        busway(volts=41500),
        (
            f"facility.power[2].volts: {LOW} (low voltage ends at 1,000 V (IEC 60038)) - Expected: 100 to 1,000 V "
            "Actual: 41,500 V. Give it in V."
        ),
    ),
    (
        H100,
        feed(breaker_a=60_000),
        (
            f"{FEED}.breaker_a: {LOW} (standard breakers go from 6 to 6,300 A (IEC 60898-1, IEC 60059)) - "
            "Expected: 5 to 6,300 A Actual: 60,000 A. Give it in A."
        ),
    ),
    (
        H100,
        feed(power_factor=0.095),
        (
            f"{FEED}.power_factor: {LOW} (power supplies of servers correct theirs to 0.9 or more) - "
            "Expected: 0.5 to 1 "
            "Actual: 0.095. Correct it."
        ),
    ),
    (
        GB200,
        change("templates.racks.nvl72.feeds.0.rating_kw", 33_000),
        (
            f"templates.racks.nvl72.feeds[0].rating_kw: {LOW} (racks of 1 MW are announced) - "
            "Expected: 0.5 to 2,000 kW "
            "Actual: 33,000 kW. Give it in kW."
        ),
    ),
    (
        B200,
        change("templates.racks.gpu.cooling.max_kw", 60_000),
        (
            f"templates.racks.gpu.cooling.max_kw: {LOW} (racks of 1 MW are announced) - Expected: 0.5 to 2,000 kW "
            "Actual: 60,000 kW. Give it in kW."
        ),
    ),
    (
        B200,
        change("templates.racks.gpu.max_weight_kg", 1.4),
        (
            f"templates.racks.gpu.max_weight_kg: {LOW} (an empty rack weighs 100 kg, a full NVL72 1.4 t) - "
            "Expected: 100 to 10,000 kg Actual: 1.4 kg. "
            "Give it in kg."
        ),
    ),
    (
        B200,
        change("halls.0.row_pitch_m", 3000),
        (
            f"halls[0].row_pitch_m: {LOW} (a row and an aisle are 2 to 5 m) - Expected: 0.8 to 30 m Actual: 3,000 m. "
            "Give it in m."
        ),
    ),
    (
        B200,
        change("halls.0.rack_pitch_m", 600),
        (
            f"halls[0].rack_pitch_m: {LOW} (racks are 0.6 to 0.8 m wide) - Expected: 0.3 to 3 m Actual: 600 m. "
            "Give it in m."
        ),
    ),
    (
        B200,
        change("halls.0.tray_height_m", 2800),
        (
            f"halls[0].tray_height_m: {LOW} (trays hang below the ceiling of a hall) - Expected: 0.3 to 30 m "
            "Actual: 2,800 m. Give it in m."
        ),
    ),
    (
        B200,
        change("facility.cooling_kw", 0.002),
        (
            f"facility.cooling_kw: {LOW} (the largest planned sites have 5 GW) - Expected: 1 to 5,000,000 kW "
            "Actual: 0.002 kW. Give it in kW."
        ),
    ),
    (
        B200,
        change("facility.power_on.max_step_kw", 0.6),
        (
            f"facility.power_on.max_step_kw: {LOW} (the largest planned sites have 5 GW) - "
            "Expected: 1 to 5,000,000 kW Actual: 0.6 kW. Give it in kW."
        ),
    ),
    (
        B200,
        change("racks.2.devices.0.max_power_w", 0.8),
        "racks[2].devices[0].max_power_w: draw of a head of 1 U - Expected: 5 to 20,000 W Actual: 0.8 W. Give it in W.",
    ),
    (
        B200,
        change("racks.2.devices.0.max_power_w", 800_000),
        (
            "racks[2].devices[0].max_power_w: draw of a head of 1 U - Expected: 5 to 20,000 W Actual: 800,000 W. "
            "Give it in W."
        ),
    ),
    (
        B200,
        plate(model="dgx_b200", max_power_w=14.3),
        (
            "facility.nameplates[0].max_power_w: dgx_b200: its profile has 14,300 W - Expected: 3,575 to 57,200 W "
            "Actual: 14.3 W. Give it in W, for one dgx_b200."
        ),
    ),
    (
        B200,
        plate(model="dgx_b200", max_power_w=1_830_400),
        (
            "facility.nameplates[0].max_power_w: dgx_b200: its profile has 14,300 W - Expected: 3,575 to 57,200 W "
            "Actual: 1,830,400 W. "
            "Give it in W, for one dgx_b200."
        ),
    ),
    (
        B200,
        plate(model="dgx_b200", weight_kg=142_400),
        (
            "facility.nameplates[0].weight_kg: dgx_b200: its profile has 142.4 kg - Expected: 35.6 to 569.6 kg "
            "Actual: 142,400 kg. "
            "Give it in kg, for one dgx_b200."
        ),
    ),
    (
        B200,
        plate(model="sn5600_2x400", max_power_w=2.2),
        (
            "facility.nameplates[0].max_power_w: sn5600_2x400: implausible for a server or switch - "
            "Expected: 20 to 50,000 W Actual: 2.2 W. "
            "Give it in W, for one sn5600_2x400."
        ),
    ),
    (
        B200,
        plate(model="sn5600_2x400", max_power_w=600),
        (
            "facility.nameplates[0].max_power_w: sn5600_2x400 typical draw exceeds the maximum - "
            "Expected: at most 600 W Actual: 940 W. "
            "Correct one of the two."
        ),
    ),
    (
        B200,
        plate(model="dgx_b200", transient_power_w=9000),
        (
            "facility.nameplates[0].transient_power_w: dgx_b200 transient draw is below the maximum - "
            "Expected: 14,300 W or more Actual: 9,000 W. "
            "Correct one of the two."
        ),
    ),
]

IGNORED: list[tuple[str, Change, str]] = [
    (
        B200,
        change(
            "topology", {"tiers": 2, "leaf": {"model": "sn5600_2x400"}, "su_nodes": 32, "spine_oversubscription": "2:1"}
        ),
        (
            "topology.spine_oversubscription: with two tiers, spines have no tier above - Expected: 1:1, or tiers: 3 "
            "Actual: 2:1 with tiers: 2. "
            "Remove it, or set tiers: 3."
        ),
    ),
    (
        B200,
        change("fabric.qos", {"dscp": 26, "cnp_dscp": 26}),
        (
            "fabric.qos.cnp_dscp: DSCP 26 has two priorities (3 for data, 6 for congestion notification) - "
            "Expected: a DSCP other than dscp Actual: 26. "
            "Give congestion notification its own DSCP."
        ),
    ),
    (
        B200,
        change("racks.2.devices.0.psus", TRUE),
        "racks[2].devices[0].psus: Expected: a number Actual: true. Write the number.",
    ),
    (
        LAB,
        change("racks.0.nodes.0.unit", {"first": TRUE}),
        "racks[0].nodes[0].unit.first: Expected: a number Actual: true. Write the number.",
    ),
    (
        B200,
        change("deliveries.0.day", 86400),
        "deliveries[0].day: write a day as 2027-03-01 - Actual: 86400. Correct it.",
    ),
]


@pytest.mark.parametrize(("name", "mistake", "text"), [*ELECTRIC, *UNITS, *IGNORED])
def test_bad_site_is_refused(name: str, mistake: Change, text: str) -> None:
    document = example(name)
    mistake(document)
    found = refusals(document)
    assert text in found, found


RIGHT: list[tuple[str, Change]] = [
    (H100, feed(volts=400)),
    (H100, feed(volts=416)),
    (H100, feed(volts=380)),
    (H100, feed(volts=208, breaker_a=100)),
    (H100, feed(volts=240, phases=1, breaker_a=100)),
    (H100, several(busway(volts=400), feed(volts=415))),
    (H100, several(busway(volts=415), feed(volts=240, phases=1, phase="L1", breaker_a=100))),
    (H100, change("racks.2.feeds.0.volts", 208)),
    (B200, change("templates.racks.gpu.cooling", {"kind": "hybrid", "liquid_share": 1, "max_kw": 60})),
    (B200, change("templates.racks.gpu.cooling", {"kind": "air", "max_kw": 60, "max_air_kw": 60})),
    (B200, plate(model="dgx_b200", max_power_w=12_000)),
    (B200, plate(model="dgx_b200", transient_power_w=20_000, typical_power_w=11_000)),
    (
        B200,
        change(
            "topology", {"tiers": 3, "leaf": {"model": "sn5600_2x400"}, "su_nodes": 32, "spine_oversubscription": "2:1"}
        ),
    ),
]


@pytest.mark.parametrize(("name", "other"), RIGHT)
def test_right_site_is_not_refused(name: str, other: Change) -> None:
    document = example(name)
    other(document)
    parse(document)
