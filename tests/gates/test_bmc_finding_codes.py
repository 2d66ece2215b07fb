"""Findings of gates on BMCs and rack devices that are rare on good hardware, each by its code, place and values."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from rackready.gates.base import Gate
from rackready.gates.bmc.fans import Fans
from rackready.gates.bmc.leaks import Leaks
from rackready.gates.bmc.rack import RackCooling, RackPower
from rackready.gates.bmc.rollup import Rollup
from rackready.gates.bmc.temperatures import Temperatures
from rackready.gates.records.offline import facts
from rackready.model.outcome import Outcome
from rackready.model.site import Device
from tests.gates.redfish_world import CHASSIS, MANAGER, SYSTEM, World, healthy, verdict, world
from tests.gates.support import Told, rack, tells
from tests.gates.test_bmc_rack import CDU, PDU, SHELF, UNIT, judged

Change = Callable[[World], Any]
GOOD, CRITICAL = "State Enabled, Health OK", "State Enabled, Health Critical"
BAD = {"State": "Enabled", "Health": "Critical"}
SENSORS = f"{CHASSIS}/Sensors"
BOARD = "/redfish/v1/Systems/HGX_Baseboard_0"
SHELF_UNIT = "/redfish/v1/PowerEquipment/PowerShelves/1"


def unsummed(there: World) -> None:
    for top in (SYSTEM, BOARD, CHASSIS, MANAGER):
        del there[top]["Status"]


@pytest.mark.parametrize(
    ("kind", "change", "outcome", "finding"),
    [
        (
            Fans,
            lambda there: there[f"{SENSORS}/SPD_FAN_SYS4_F"].update(Reading=0),
            Outcome.FAIL,
            ("fan-stands-still", "node01 fan SPD_FAN_SYS4_F", "at least 2436 RPM", "0 RPM"),
        ),
        (
            Fans,
            lambda there: there[f"{CHASSIS}/ThermalSubsystem"].update(
                FanRedundancy=[{"RedundancyType": "NPlusM", "Status": BAD}]
            ),
            Outcome.FAIL,
            ("fans-redundancy-lost", "node01 fan redundancy group 0", GOOD, CRITICAL),
        ),
        (
            Rollup,
            unsummed,
            Outcome.ERROR,
            ("health-not-summed-up", "node01 BMC", "a Health or HealthRollup of a system or chassis", "none"),
        ),
        (
            Temperatures,
            lambda there: there[f"{SENSORS}/TEMP_AMBIENT"].update(Status={"State": "Enabled", "Health": "unknown"}),
            Outcome.ERROR,
            (
                "sensor-health-unknown",
                "node01 inlet TEMP_AMBIENT",
                "one of OK, Warning, Critical",
                "State Enabled, Health unknown",
            ),
        ),
        (
            Temperatures,
            lambda there: there[f"{SENSORS}/TEMP_AMBIENT"].update(Status=BAD),
            Outcome.FAIL,
            ("temperature-air-sensor-health", "node01 inlet TEMP_AMBIENT", "Health OK", CRITICAL),
        ),
    ],
    ids=["fan", "fan redundancy", "rollup", "sensor", "air"],
)
def test_a_server(kind: type[Gate], change: Change, outcome: Outcome, finding: Told) -> None:
    there = copy.deepcopy(world(healthy()))
    change(there)
    found = verdict(kind(), there)
    assert (tells(found), found.outcome) == ([finding], outcome)


def test_leaks_of_a_platform_that_does_not_say_how_it_is_cooled() -> None:
    known = rack()
    node = known.nodes["node01"]
    silent = dataclasses.replace(node, platform=node.platform.model_copy(update={"cooling": None}))
    found = verdict(Leaks(), world(healthy()), dataclasses.replace(known, nodes={"node01": silent}))
    wanted = (
        "leak-cooling-not-declared",
        "node01 BMC",
        "to know whether the node is liquid-cooled",
        "the profile does not say how it is cooled",
        "platform=dgx_h100",
    )
    assert (tells(found), found.outcome) == ([wanted], Outcome.ERROR)


@pytest.mark.parametrize(
    ("change", "outcome", "finding"),
    [
        (
            {"Status": BAD},
            Outcome.FAIL,
            ("leak-detector-not-working", "node01 leak detector ColdPlate_0", GOOD, CRITICAL),
        ),
        (
            {"DetectorState": "Unavailable"},
            Outcome.ERROR,
            (
                "leak-detector-state-unknown",
                "node01 leak detector ColdPlate_0",
                "one of OK, Warning, Critical",
                "Unavailable",
            ),
        ),
        (
            {"Status": {"State": "Absent"}},
            Outcome.ERROR,
            (
                "leak-detector-state-unknown",
                "node01 leak detector ColdPlate_0",
                "one of OK, Warning, Critical",
                "Absent",
            ),
        ),
    ],
    ids=["broken", "state", "absent"],
)
def test_a_leak_detector(change: dict[str, Any], outcome: Outcome, finding: Told) -> None:
    state = healthy()
    state["bmc"]["leaks"] = [{"id": f"ColdPlate_{index}", "state": "OK", "type": "Moisture"} for index in range(2)]
    there = world(state)
    there[f"{CHASSIS}/ThermalSubsystem/LeakDetection/LeakDetectors/ColdPlate_0"].update(change)
    found = verdict(Leaks(), there, facts("gb200_nvl72"))
    assert (tells(found), found.outcome) == ([finding], outcome)
    assert found.measured == ["node01/leak/ColdPlate_1"]


@pytest.mark.parametrize(
    ("gate_id", "device", "fixture", "change", "finding"),
    [
        (
            RackPower.id,
            SHELF,
            "power_shelf_healthy",
            lambda there: there[SHELF_UNIT]["PowerSupplyRedundancy"][0].update(Status=BAD),
            ("rack-power-redundancy-lost", "shelf1 psu redundancy", GOOD, CRITICAL),
        ),
        (
            RackPower.id,
            PDU,
            "rack_pdu_healthy",
            lambda there: there["/redfish/v1/Chassis/1/Sensors/CurrentMains1"].update(Status=BAD),
            ("rack-power-sensor-health", "pdu-a sensor CurrentMains1", "Health OK", CRITICAL),
        ),
        (
            RackCooling.id,
            CDU,
            "cdu_healthy",
            lambda there: there[UNIT]["PumpRedundancy"][0].update(Status=BAD),
            ("rack-cooling-redundancy-lost", "cdu1 pump redundancy", GOOD, CRITICAL),
        ),
    ],
    ids=["shelf", "PDU", "CDU"],
)
def test_a_device_of_the_rack(gate_id: str, device: Device, fixture: str, change: Change, finding: Told) -> None:
    found = judged(gate_id, device, fixture, change)
    assert (tells(found), found.outcome) == ([finding], Outcome.FAIL)


def test_a_cdu_whose_address_is_that_of_a_pdu() -> None:
    found = judged(RackCooling.id, CDU, "rack_pdu_healthy")
    assert tells(found)[0] == ("rack-no-cdu", "cdu1", "one in its Redfish service", "none")
    others = ["rack-no-pump", "rack-no-leak-detector", "rack-not-watched", "rack-not-watched"]
    assert ([finding.code for finding in found.findings[1:]], found.outcome) == (others, Outcome.ERROR)
