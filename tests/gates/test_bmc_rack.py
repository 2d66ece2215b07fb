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
from tests.gates.support import Said, Told, document, outputs, rack, tells

BMC = {"address": "192.0.2.201", "password": {"env": "NONE"}}
PDU = Device.model_validate({"name": "pdu-a", "kind": "pdu", "rack": "rack", "bmc": BMC})
SHELF = Device.model_validate({"name": "shelf1", "kind": "power_shelf", "rack": "rack", "bmc": BMC})
CDU = Device.model_validate({"name": "cdu1", "kind": "cdu", "rack": "rack", "bmc": BMC})
MUTE = Device.model_validate({"name": "pdu-b", "kind": "pdu", "rack": "rack"})
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
    assert (found.outcome, tells(found), len(found.measured)) == (Outcome.PASS, [], measured)


@pytest.mark.parametrize(
    ("gate_id", "device", "fixture", "change", "finding"),
    [
        (
            RackPower.id,
            PDU,
            "rack_pdu_healthy",
            lambda there: there["/redfish/v1/PowerEquipment/RackPDUs/1/Branches/A"].update(BreakerState="Tripped"),
            ("rack-breaker", "pdu-a circuit A", "Normal", "Tripped"),
        ),
        (
            RackPower.id,
            PDU,
            "rack_pdu_healthy",
            lambda there: there["/redfish/v1/Chassis/1/Sensors/CurrentMains1"].update(Reading=46.2),
            (
                "rack-power-out-of-thresholds",
                "pdu-a sensor CurrentMains1",
                "below 45 A (caution threshold of the device)",
                "46.2 A",
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
                "rack-power-part-not-working",
                "shelf1 psu 2",
                "State Enabled, Health OK",
                "State Enabled, Health Critical",
                "part=psu",
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
                "rack-cooling-part-not-working",
                "cdu1 pump 2",
                "State Enabled, Health OK",
                "State Enabled, Health Critical",
                "part=pump",
            ),
        ),
        (
            RackCooling.id,
            CDU,
            "cdu_healthy",
            lambda there: there["/redfish/v1/ThermalEquipment/CDUs/1/LeakDetection/LeakDetectors/Moisture"].update(
                DetectorState="Critical"
            ),
            ("leak-detected", "cdu1 leak detector Moisture", "DetectorState OK", "Critical (Moisture)"),
        ),
        (
            RackCooling.id,
            CDU,
            "cdu_healthy",
            lambda there: there["/redfish/v1/Chassis/1/Sensors/SecondaryFlow"].update(Reading=61),
            (
                "rack-cooling-out-of-thresholds",
                "cdu1 sensor SecondaryFlow",
                "above 80 L/min (caution threshold of the device)",
                "61 L/min",
            ),
        ),
    ],
)
def test_a_bad_device_is_named(gate_id: str, device: Device, fixture: str, change: Change, finding: Told) -> None:
    found = judged(gate_id, device, fixture, change)
    assert (found.outcome, tells(found)) == (Outcome.FAIL, [finding])


@pytest.mark.parametrize(
    ("gate_id", "device", "fixture", "change", "finding"),
    [
        (
            RackPower.id,
            PDU,
            "cdu_healthy",
            _only_links,
            ("rack-no-power-equipment", "pdu-a", "a PDU or power shelf in its Redfish service", "none"),
        ),
        (
            RackCooling.id,
            CDU,
            "cdu_healthy",
            lambda there: there["/redfish/v1/Chassis/1/Sensors/SecondaryFlow"].update(Reading=None),
            ("rack-sensor-not-read", "cdu1 sensor SecondaryFlow", "a reading", "none"),
        ),
    ],
)
def test_what_nobody_can_say_is_an_error(
    gate_id: str, device: Device, fixture: str, change: Change, finding: Told
) -> None:
    found = judged(gate_id, device, fixture, change)
    assert (found.outcome, tells(found)) == (Outcome.ERROR, [finding])


NO_FLOW = ("rack-not-watched", "cdu1", "a sensor of liquid flow with a lower threshold", "none", "what=coolant flow")
NO_HEAT = (
    "rack-not-watched",
    "cdu1",
    "a sensor of temperature with an upper threshold",
    "none",
    "what=coolant temperature",
)
CHASSIS, UNIT = "/redfish/v1/Chassis/1", "/redfish/v1/ThermalEquipment/CDUs/1"


def _without(*links: tuple[str, str]) -> Change:
    return lambda there: [there[address].pop(link) for address, link in links]


def _no_thresholds(there: World) -> None:
    for address in [address for address in there if address.startswith(f"{CHASSIS}/Sensors/")]:
        there[address].update(Reading=0, Thresholds={})


@pytest.mark.parametrize(
    ("change", "findings"),
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
            [("rack-no-leak-detector", "cdu1", "at least one", "none")],
            id="no leak detection",
        ),
        pytest.param(_without((UNIT, "Pumps")), [("rack-no-pump", "cdu1", "at least one", "none")], id="no pump"),
        pytest.param(
            lambda there: there[f"{CHASSIS}/Sensors/SecondarySupplyTemp"].update(Status={"State": "Disabled"}),
            [("rack-sensor-not-read", "cdu1 sensor SecondarySupplyTemp", "a reading", "none")],
            id="sensor off",
        ),
    ],
)
def test_a_cdu_that_nobody_watches_is_an_error(change: Change, findings: list[Told]) -> None:
    found = judged(RackCooling.id, CDU, "cdu_healthy", change)
    assert (found.outcome, tells(found)) == (Outcome.ERROR, findings)


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
    assert (found.outcome, tells(found)) == (
        Outcome.FAIL,
        [("rack-cooling-sensor-health", "cdu1 sensor Pressure", "Health OK", "State Enabled, Health Critical")],
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
