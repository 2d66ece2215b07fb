"""Temperatures over Redfish: impossible readings, missing ones, and sensors that report themselves bad; exact words."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

from rackready.gates.bmc.temperatures import Temperatures
from rackready.model.outcome import Outcome, Verdict
from tests.gates.redfish_world import CHASSIS, World, healthy, verdict, world
from tests.gates.support import tells

Change = Callable[[World], object]


def changed(change: Change) -> Verdict:
    there = copy.deepcopy(world(healthy()))
    change(there)
    return verdict(Temperatures(), there)


def _every(**said: object) -> Change:
    """Every temperature sensor reports this."""
    return lambda there: [item.update(said) for item in there.values() if item.get("ReadingType") == "Temperature"]


NO_READING = "above 0 degC (judgement: ASHRAE classes A1 to A4 begin at 5 degC)"


@pytest.mark.parametrize("reading", [-128, 0])
def test_a_temperature_that_no_running_server_has_is_an_error(reading: int) -> None:
    found = changed(_every(Reading=reading))
    said = [
        ("inlet TEMP_AMBIENT", "inlet temperature"),
        ("outlet TEMP_MB_OUTLET", "outlet temperature"),
        ("sensor TEMP_CPU0", "temperature"),
        ("sensor TEMP_CPU1", "temperature"),
    ]
    assert (found.outcome, tells(found), found.measured) == (
        Outcome.ERROR,
        [
            ("temperature-not-plausible", f"node01 {where}", NO_READING, f"{reading} degC", f"what={what}")
            for where, what in said
        ],
        [],
    )


def test_a_distance_to_a_limit_is_below_zero_while_all_is_well() -> None:
    margin = {
        "Name": "CPU1 Thermal Margin",
        "Id": "MB_SOC_THERMAL_MARGIN_C",
        "Reading": -30,
        "Thresholds": {"UpperFatal": {"Reading": 125}},
    }
    found = changed(lambda there: there[f"{CHASSIS}/Sensors/TEMP_CPU1"].update(margin))
    assert (found.outcome, tells(found)) == (Outcome.PASS, [])


@pytest.mark.parametrize("thresholds", [{"UpperCritical": {"Reading": 99}}, {}], ids=["bounded", "unbounded"])
def test_a_temperature_sensor_that_calls_itself_bad_is_a_fail(thresholds: dict[str, object]) -> None:
    bad = {"Status": {"State": "Enabled", "Health": "Critical"}, "Thresholds": thresholds}
    found = changed(lambda there: there[f"{CHASSIS}/Sensors/TEMP_CPU1"].update(bad))
    assert (found.outcome, tells(found)) == (
        Outcome.FAIL,
        [("temperature-part-sensor-health", "node01 sensor TEMP_CPU1", "Health OK", "State Enabled, Health Critical")],
    )


def test_a_sensor_that_tells_no_health_or_is_switched_off_or_absent_is_no_fault() -> None:
    for said in ({"State": "Enabled"}, {"State": "Disabled"}, {"State": "Absent", "Health": "Critical"}):
        found = changed(lambda there, said=said: there[f"{CHASSIS}/Sensors/TEMP_CPU1"].update(Status=said))
        assert (found.outcome, tells(found)) == (Outcome.PASS, [])


@pytest.mark.parametrize("kind", [None, "", "unknown"])
def test_a_sensor_whose_unit_is_degrees_is_one_of_temperature_whatever_its_type(kind: str | None) -> None:
    bad = {"Status": {"State": "Enabled", "Health": "Critical"}, "ReadingType": kind}
    found = changed(lambda there: there[f"{CHASSIS}/Sensors/TEMP_CPU1"].update(bad))
    assert (found.outcome, [finding.where for finding in found.findings]) == (Outcome.FAIL, ["node01 sensor TEMP_CPU1"])


def test_air_below_its_lower_threshold_is_a_fail() -> None:
    found = changed(_every(Reading=4, Thresholds={"UpperCritical": {"Reading": 45}, "LowerCritical": {"Reading": 5}}))
    cold = [item for item in found.findings if item.code == "temperature-too-low"]
    assert [(item.where, item.expected, item.actual) for item in cold] == [
        (f"node01 {where}", "above 5 degC (critical threshold of the BMC)", "4 degC")
        for where in ("inlet TEMP_AMBIENT", "outlet TEMP_MB_OUTLET")
    ]
    assert found.outcome is Outcome.FAIL
