"""A word that Redfish does not define is not an answer: it neither exempts a part from judgement nor excuses one."""

from __future__ import annotations

from typing import Any

import pytest

from rackready.format_error import FormatError
from rackready.gates.bmc.events import Events
from rackready.gates.bmc.fans import Fans
from rackready.gates.bmc.limit import PowerLimit
from rackready.gates.bmc.rollup import Rollup
from rackready.gates.bmc.supplies import Supplies
from rackready.gates.bmc.temperatures import Temperatures
from rackready.gates.engine.registry import gate
from rackready.gates.records.offline import facts
from rackready.model.outcome import Outcome
from tests.gates import test_bmc_parts_seen
from tests.gates.redfish_world import CHASSIS, MANAGER, SYSTEM, World, broken, healthy, verdict, world
from tests.gates.support import Told, tells

SUPPLY = f"{CHASSIS}/PowerSubsystem/PowerSupplies/PSU2"
SENSOR, FAN = f"{CHASSIS}/Sensors/TEMP_AMBIENT", f"{CHASSIS}/ThermalSubsystem/Fans/SPD_FAN_SYS4_F"
CONTROL = f"{CHASSIS}/Controls/PowerLimit"
STRANGE = ["", "N/A", "unknown"]


def texts(gate_id: str, there: World, platform: str = "dgx_h100") -> tuple[Outcome, list[Told]]:
    found = verdict(gate(gate_id), there, facts(platform))
    return found.outcome, tells(found)


def older() -> World:
    state = healthy()
    state["bmc"]["schema"] = "legacy"
    return world(state)


@pytest.mark.parametrize("word", STRANGE)
@pytest.mark.parametrize("schema", ["newer", "older"])
def test_how_supplies_are_redundant(schema: str, word: str) -> None:
    there = world(healthy()) if schema == "newer" else older()
    group = (
        there[f"{CHASSIS}/PowerSubsystem"]["PowerSupplyRedundancy"][0]
        if schema == "newer"
        else there[f"{CHASSIS}/Power"]["Redundancy"][0]
    )
    group["RedundancyType" if schema == "newer" else "Mode"] = word
    expected = "one of Failover, N+m, NPlusM, NotRedundant, Sharing, Sparing"
    said = ("psu-redundancy-unknown", "node01 power redundancy group 0", expected, f"{word or 'nothing'}")
    assert texts(Supplies.id, there) == (Outcome.ERROR, [said])


@pytest.mark.parametrize("word", STRANGE)
def test_a_spare_that_rests_needs_a_group_that_is_known_to_have_spares(word: str) -> None:
    there = world(healthy())
    there[SUPPLY]["Status"]["State"] = "StandbyOffline"
    there[f"{CHASSIS}/PowerSubsystem"]["PowerSupplyRedundancy"][0]["RedundancyType"] = word
    outcome, said = texts(Supplies.id, there, "sys_521ge_l40s")
    assert (
        outcome,
        ("part-not-in-use", "node01 psu PSU2", "what=power supply") in [(one[0], one[1], one[-1]) for one in said],
    ) == (Outcome.ERROR, True)


@pytest.mark.parametrize("word", STRANGE)
def test_the_state_of_a_sensor(word: str) -> None:
    there = world(healthy())
    there[SENSOR]["Status"]["State"] = word
    said = ("sensor-state-unknown", "node01 inlet TEMP_AMBIENT", "a State of Redfish", word)
    assert texts(Temperatures.id, there) == (Outcome.ERROR, [said])


@pytest.mark.parametrize("word", STRANGE)
@pytest.mark.parametrize("unit", ["Cel", None, "", "unknown"])
def test_the_kind_of_a_sensor_that_is_too_hot(unit: str | None, word: str) -> None:
    there = world(broken("outlet-hot"))
    there[f"{CHASSIS}/Sensors/TEMP_MB_OUTLET"] |= {"ReadingType": word, "ReadingUnits": unit}
    assert texts(Temperatures.id, there)[0] is Outcome.FAIL


@pytest.mark.parametrize("word", STRANGE)
def test_the_kind_of_a_sensor_of_a_fan_that_stands_still(word: str) -> None:
    """A GB200's BMC shows fans in no other way than by their sensors."""
    there = world(broken("fan-failed"))
    del there[CHASSIS]["ThermalSubsystem"]
    there[f"{CHASSIS}/Sensors/SPD_FAN_SYS4_F"]["ReadingType"] = word
    assert texts(Fans.id, there)[0] is Outcome.FAIL


@pytest.mark.parametrize("word", [*STRANGE, {}, []])
def test_a_fan_whose_sensor_has_no_address_is_not_judged_without_its_threshold(word: object) -> None:
    there = world(broken("fan-slow"))
    there[FAN]["SpeedPercent"]["DataSourceUri"] = word
    said = (
        "bmc-link-unread",
        "node01 BMC",
        "a document, since the BMC links to it",
        f"DataSourceUri is {str(word)!r}, not an address",
        "what=fans",
        f"address={FAN}",
    )
    assert texts(Fans.id, there) == (Outcome.ERROR, [said])


@pytest.mark.parametrize("word", STRANGE)
def test_the_health_of_a_part_that_nobody_sums_up(word: str) -> None:
    there = world(healthy())
    del there[CHASSIS]["Status"]
    there[SUPPLY]["Status"]["Health"] = word
    said = ("health-part-unknown", "node01 part PSU2", "one of OK, Warning, Critical", word)
    assert texts(Rollup.id, there) == (Outcome.ERROR, [said])


def test_a_sum_without_a_word_is_not_the_health_beside_it() -> None:
    there = world(healthy())
    there[SYSTEM]["Status"] = {"State": "Enabled", "Health": "OK", "HealthRollup": ""}
    said = ("health-sum-unknown", "node01 system DGX", "one of OK, Warning, Critical", "")
    assert texts(Rollup.id, there) == (Outcome.ERROR, [said])


def controlled(**fields: Any) -> World:
    """A BMC with a control that keeps the whole server at 5 kW."""
    there = world(healthy())
    there[CHASSIS] |= {"Controls": {"@odata.id": f"{CHASSIS}/Controls"}}
    there[f"{CHASSIS}/Controls"] = {"@odata.id": f"{CHASSIS}/Controls", "Members": [{"@odata.id": CONTROL}]}
    limit = {
        "ControlType": "Power",
        "PhysicalContext": "Chassis",
        "SetPoint": 5000,
        "SetPointUnits": "W",
        "AllowableMax": 5000,
    }
    there[CONTROL] = {
        "@odata.id": CONTROL,
        "@odata.type": "#Control.v1_5_1.Control",
        "Id": "PowerLimit",
        "Name": "PowerLimit",
        **limit,
        **fields,
    }
    return there


@pytest.mark.parametrize("word", STRANGE)
@pytest.mark.parametrize("key", ["ControlType", "SetPointUnits", "PhysicalContext"])
def test_what_a_control_limits(key: str, word: str) -> None:
    assert texts(PowerLimit.id, controlled())[0] is Outcome.FAIL
    said = ("bmc-power-control-unknown", "node01 DGX PowerLimit", f"a {key} of Redfish", word)
    assert texts(PowerLimit.id, controlled(**{key: word})) == (Outcome.ERROR, [said])


def test_a_control_in_percent_and_one_of_something_else_limit_no_watts() -> None:
    """A BlueField's control is in percent."""
    found = verdict(PowerLimit(), controlled(SetPointUnits="%", SetPoint=90, AllowableMax=100))
    assert (found.outcome, found.note) == (Outcome.PASS, "DGX PowerLimit limits power in percent: recorded only")
    assert verdict(PowerLimit(), controlled(ControlType="Frequency", SetPointUnits="MHz")).outcome is Outcome.PASS


def test_a_control_in_watts_as_a_lenovo_writes_it() -> None:
    """Its XCC writes Watt, and shows a limit that is switched off without a set point."""
    off = verdict(PowerLimit(), controlled(ControlMode="Disabled", SetPoint=None, SetPointUnits="Watt"))
    assert (off.outcome, tells(off)) == (Outcome.PASS, [])
    low = verdict(PowerLimit(), controlled(SetPointUnits="Watt"))
    assert [finding.code for finding in low.findings] == ["bmc-power-limit-below-draw"]
    strange = verdict(PowerLimit(), controlled(ControlMode="Disabled", SetPointUnits="Wombat"))
    assert (strange.outcome, tells(strange)) == (Outcome.PASS, [])


@pytest.mark.parametrize("word", [*STRANGE, {}, []])
def test_whether_a_log_is_switched_off(word: object) -> None:
    there = world(healthy())
    there[f"{MANAGER}/LogServices/SEL"]["ServiceEnabled"] = word
    outcome, said = texts(Events.id, there)
    assert (outcome, f"ServiceEnabled is {str(word)!r}, not true or false" in said[0]) == (Outcome.ERROR, True)


@pytest.mark.parametrize("word", STRANGE)
def test_a_version_that_is_no_word_hides_behind_no_other(word: str) -> None:
    """The host's BMC reports none, and another manager the wanted version."""
    there = world(healthy())
    other = f"{MANAGER}2"
    there["/redfish/v1/Managers"]["Members"].append({"@odata.id": other})
    there[other] = {**there[MANAGER], "@odata.id": other}
    there[MANAGER]["FirmwareVersion"] = word
    outcome, said = texts("bmc/firmware/sanity/versions", there)
    code, where, *values = said[0]
    assert (outcome, code, where) in {
        (Outcome.FAIL, "bmc-firmware-version", "node01 BMC firmware"),
        (Outcome.ERROR, "value-not-reported", "node01 BMC firmware"),
    }, values


@pytest.mark.parametrize("word", STRANGE)
def test_a_module_is_not_taken_for_present_where_nobody_knows(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    there = world(healthy())
    there[f"{SYSTEM}/Memory/DIMM3"]["Status"] = {"State": word}
    monkeypatch.setattr(test_bmc_parts_seen, "world", lambda _: there)
    with pytest.raises(
        FormatError, match=f"the BMC reports a state of dimm DIMM3 that Redfish does not define: {word}"
    ):
        test_bmc_parts_seen.looked()
