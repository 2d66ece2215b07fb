"""Devices of a rack: a PDU, a power shelf and a CDU, from fixtures in the shape of DMTF's schemas."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from rackready.gates.base import GateFacts
from rackready.gates.bmc.rack import RackCooling, RackPower
from rackready.gates.engine.registry import gate
from rackready.model.outcome import Outcome, Verdict
from rackready.model.site import Device
from tests.gates.redfish_world import World, gathered
from tests.gates.support import Said, document, outputs, rack

BMC = {"address": "192.0.2.201", "password": {"env": "NONE"}}
PDU = Device.model_validate({"name": "pdu-a", "kind": "pdu", "rack": "rack", "bmc": BMC})
SHELF = Device.model_validate({"name": "shelf1", "kind": "power_shelf", "rack": "rack", "bmc": BMC})
CDU = Device.model_validate({"name": "cdu1", "kind": "cdu", "rack": "rack", "bmc": BMC})
MUTE = Device.model_validate({"name": "pdu-b", "kind": "pdu", "rack": "rack"})
POWER = "Check the supply, breaker or outlet that it names; move load or repair before further nodes are powered up."
FACILITY = "Inform the facility's operator; do not power up further nodes of this rack before."
LEAK = (
    "Cut the power of this node and close its coolant supply; find the leak before anything is switched "
    "on again; inform the facility's operator."
)
Change = Callable[[World], Any]


def known(*devices: Device) -> GateFacts:
    return dataclasses.replace(rack(2), devices=devices)


def judged(gate_id: str, device: Device, fixture: str, change: Change = lambda there: there) -> Verdict:
    there = copy.deepcopy(document(f"redfish/{fixture}.json"))
    change(there)
    facts, found = known(device), gate(gate_id)
    run = found.plan(facts, list(facts.nodes))[0]
    assert [(command.node, command.via) for command in run.commands] == [(device.name, "bmc")]
    return found.evaluate(
        facts, run, outputs(run, {command.key: Said(gathered(there, command.argv[1:])) for command in run.commands})
    )


def _only_links(there: World) -> None:
    del there["/redfish/v1/"]["ThermalEquipment"]
    del there["/redfish/v1/"]["Chassis"]


def texts(found: Verdict) -> list[str]:
    return [str(finding) for finding in found.findings]


@pytest.mark.parametrize(
    ("gate_id", "device", "fixture", "measured"),
    [
        (RackPower.id, PDU, "rack_pdu_healthy", 4),
        (RackPower.id, SHELF, "power_shelf_healthy", 7),
        (RackCooling.id, CDU, "cdu_healthy", 5),
    ],
)
def test_healthy_devices_pass(gate_id: str, device: Device, fixture: str, measured: int) -> None:
    found = judged(gate_id, device, fixture)
    assert (found.outcome, texts(found), len(found.measured)) == (Outcome.PASS, [], measured)


@pytest.mark.parametrize(
    ("gate_id", "device", "fixture", "change", "message"),
    [
        (
            RackPower.id,
            PDU,
            "rack_pdu_healthy",
            lambda there: there["/redfish/v1/PowerEquipment/RackPDUs/1/Branches/A"].update(BreakerState="Tripped"),
            f"pdu-a circuit A: breaker - Expected: Normal Actual: Tripped. {POWER}",
        ),
        (
            RackPower.id,
            PDU,
            "rack_pdu_healthy",
            lambda there: there["/redfish/v1/Chassis/1/Sensors/CurrentMains1"].update(Reading=46.2),
            (
                "pdu-a sensor CurrentMains1: outside its thresholds - Expected: below 45 A (caution "
                f"threshold of the device) Actual: 46.2 A. {POWER}"
            ),
        ),
        (
            RackPower.id,
            SHELF,
            "power_shelf_healthy",
            lambda there: there["/redfish/v1/PowerEquipment/PowerShelves/1/PowerSupplies/2"].update(
                Status={"State": "Enabled", "Health": "Critical"}
            ),
            (
                "shelf1 psu 2: psu not working - Expected: State Enabled, Health OK "
                f"Actual: State Enabled, Health Critical. {POWER}"
            ),
        ),
        (
            RackCooling.id,
            CDU,
            "cdu_healthy",
            lambda there: there["/redfish/v1/ThermalEquipment/CDUs/1/Pumps/2"].update(
                Status={"State": "Enabled", "Health": "Critical"}
            ),
            (
                "cdu1 pump 2: pump not working - Expected: State Enabled, Health OK "
                f"Actual: State Enabled, Health Critical. {FACILITY}"
            ),
        ),
        (
            RackCooling.id,
            CDU,
            "cdu_healthy",
            lambda there: there["/redfish/v1/ThermalEquipment/CDUs/1/LeakDetection/LeakDetectors/Moisture"].update(
                DetectorState="Critical"
            ),
            (
                "cdu1 leak detector Moisture: leak detected - Expected: DetectorState OK Actual: Critical (Moisture). "
                f"{LEAK}"
            ),
        ),
        (
            RackCooling.id,
            CDU,
            "cdu_healthy",
            lambda there: there["/redfish/v1/Chassis/1/Sensors/SecondaryFlow"].update(Reading=61),
            (
                "cdu1 sensor SecondaryFlow: outside its thresholds - Expected: above 80 L/min (caution "
                f"threshold of the device) Actual: 61 L/min. {FACILITY}"
            ),
        ),
    ],
)
def test_a_bad_device_is_named(gate_id: str, device: Device, fixture: str, change: Change, message: str) -> None:
    found = judged(gate_id, device, fixture, change)
    assert (found.outcome, texts(found)) == (Outcome.FAIL, [message])


@pytest.mark.parametrize(
    ("gate_id", "device", "fixture", "change", "message"),
    [
        (
            RackPower.id,
            PDU,
            "cdu_healthy",
            _only_links,
            (
                "pdu-a: no power equipment - Expected: a PDU or power shelf in its Redfish service "
                "Actual: none. Correct the device's kind or bmc in the site file."
            ),
        ),
        (
            RackCooling.id,
            CDU,
            "cdu_healthy",
            lambda there: there["/redfish/v1/Chassis/1/Sensors/SecondaryFlow"].update(Reading=None),
            (
                "cdu1 sensor SecondaryFlow: not read - Expected: a reading Actual: none. "
                "Restart the device's controller; check the sensor's cable."
            ),
        ),
    ],
)
def test_what_nobody_can_say_is_an_error(
    gate_id: str, device: Device, fixture: str, change: Change, message: str
) -> None:
    found = judged(gate_id, device, fixture, change)
    assert (found.outcome, texts(found)) == (Outcome.ERROR, [message])


CANNOT = (
    "Set it up in the device or update its firmware; if that is not possible, watch it by other means "
    "and declare the gate's skip with that reason."
)
NO_FLOW = (
    "cdu1: coolant flow not monitored - Expected: a sensor of liquid flow with a lower threshold "
    f"Actual: none. {CANNOT}"
)
NO_HEAT = (
    "cdu1: coolant temperature not monitored - Expected: a sensor of temperature with an upper threshold "
    f"Actual: none. {CANNOT}"
)
CHASSIS, UNIT = "/redfish/v1/Chassis/1", "/redfish/v1/ThermalEquipment/CDUs/1"


def _without(*links: tuple[str, str]) -> Change:
    return lambda there: [there[address].pop(link) for address, link in links]


def _no_thresholds(there: World) -> None:
    for address in [address for address in there if address.startswith(f"{CHASSIS}/Sensors/")]:
        there[address].update(Reading=0, Thresholds={})


@pytest.mark.parametrize(
    ("change", "messages"),
    [
        pytest.param(_without((CHASSIS, "Sensors")), [NO_FLOW, NO_HEAT], id="no sensors"),
        pytest.param(_no_thresholds, [NO_FLOW, NO_HEAT], id="no thresholds"),
        pytest.param(
            lambda there: there[f"{CHASSIS}/Sensors/SecondaryFlow"].update(
                Thresholds={"UpperCritical": {"Reading": 300}}
            ),
            [NO_FLOW],
            id="no least flow",
        ),
        pytest.param(
            _without((UNIT, "LeakDetection")),
            [f"cdu1: no leak detector - Expected: at least one Actual: none. {CANNOT}"],
            id="no leak detection",
        ),
        pytest.param(
            _without((UNIT, "Pumps")), [f"cdu1: no pump - Expected: at least one Actual: none. {CANNOT}"], id="no pump"
        ),
        pytest.param(
            lambda there: there[f"{CHASSIS}/Sensors/SecondarySupplyTemp"].update(Status={"State": "Disabled"}),
            [
                (
                    "cdu1 sensor SecondarySupplyTemp: not read - Expected: a reading Actual: none. "
                    "Restart the device's controller; check the sensor's cable."
                )
            ],
            id="sensor off",
        ),
    ],
)
def test_a_cdu_that_nobody_watches_is_an_error(change: Change, messages: list[str]) -> None:
    found = judged(RackCooling.id, CDU, "cdu_healthy", change)
    assert (found.outcome, texts(found)) == (Outcome.ERROR, messages)


@pytest.mark.parametrize("bounded", [True, False])
def test_a_sensor_that_says_of_itself_that_it_is_bad_is_a_fail(*, bounded: bool) -> None:
    def ill(there: World) -> None:
        sensor = {
            **there[f"{CHASSIS}/Sensors/SecondaryFlow"],
            "@odata.id": f"{CHASSIS}/Sensors/Pressure",
            "Id": "Pressure",
            "ReadingType": "PressurekPa",
        }
        there[f"{CHASSIS}/Sensors/Pressure"] = {**sensor, "Status": {"State": "Enabled", "Health": "Critical"}}
        if not bounded:
            there[f"{CHASSIS}/Sensors/Pressure"]["Thresholds"] = {}
        there[f"{CHASSIS}/Sensors"]["Members"].append({"@odata.id": f"{CHASSIS}/Sensors/Pressure"})
        there[f"{CHASSIS}/Sensors"]["Members@odata.count"] += 1

    found = judged(RackCooling.id, CDU, "cdu_healthy", ill)
    assert (found.outcome, texts(found)) == (
        Outcome.FAIL,
        [
            (
                "cdu1 sensor Pressure: sensor health - Expected: Health OK Actual: State Enabled, Health Critical. "
                f"{FACILITY}"
            )
        ],
    )


def test_a_rack_without_such_devices_has_nothing_to_judge_and_says_so() -> None:
    facts, found = known(MUTE), RackPower()
    run = found.plan(facts, list(facts.nodes))[0]
    said = found.evaluate(facts, run, {})
    assert (run.target, run.nodes, run.commands) == ("rack", ("node01", "node02"), ())
    assert (said.outcome, said.note) == (
        Outcome.PASS,
        "the site lists no pdu or power shelf with a Redfish service for rack: nothing to judge (not asked: pdu-b)",
    )


def test_a_device_that_does_not_answer_is_an_error_for_its_rack() -> None:
    facts, found = known(PDU, MUTE), RackPower()
    run = found.plan(facts, list(facts.nodes))[0]
    said = found.evaluate(
        facts,
        run,
        outputs(run, {"redfish-pdu-a": Said(exit_code=None, failure="pdu-a BMC 192.0.2.201:443: unreachable")}),
    )
    assert said.outcome is Outcome.ERROR
    assert said.note == "not asked, since the site gives them no bmc: pdu-b"
