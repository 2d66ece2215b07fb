"""Fans, temperatures, leaks, power limits, BIOS, firmware and health over Redfish.

Pass, fail, error and nothing to judge, with exact words.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable

import pytest

from rackready.gates.base import Gate, GateFacts
from rackready.gates.bmc.bios import BiosSettings
from rackready.gates.bmc.fans import Fans
from rackready.gates.bmc.leaks import Leaks
from rackready.gates.bmc.limit import PowerLimit
from rackready.gates.bmc.rollup import Rollup
from rackready.gates.bmc.temperatures import Temperatures
from rackready.gates.bmc.versions import FirmwareBaseline
from rackready.gates.engine.registry import all_gates, gate
from rackready.gates.records.offline import facts
from rackready.model.baseline import Baseline
from rackready.model.outcome import Outcome, Verdict
from rackready_sim.faults import FAULTS
from tests.gates.redfish_world import CHASSIS, SYSTEM, World, broken, healthy, verdict, world
from tests.gates.support import rack

Change = Callable[[World], object]
ALL = (Fans, Temperatures, Leaks, PowerLimit, BiosSettings, FirmwareBaseline, Rollup)
FAN = "Find what blocks it, reseat the fan tray, or else replace it; do not load the node before."
AIR = (
    "Check the supply air of the row, the blanking panels and whatever blocks the node's front; then its "
    "fans (bmc/cooling/sanity/fans)."
)
SENSOR = "Update or restart the BMC; if the reading stays away, replace the board that carries the sensor."
LEAK = (
    "Cut the power of this node and close its coolant supply; find the leak before anything is switched "
    "on again; inform the facility's operator."
)
AMBIENT = f"{CHASSIS}/Sensors/TEMP_AMBIENT"


def texts(found: Verdict) -> list[str]:
    return [str(finding) for finding in found.findings]


def changed(kind: type[Gate], change: Change, known: GateFacts | None = None, *, older: bool = False) -> Verdict:
    state = healthy()
    state["bmc"]["schema"] = "legacy" if older else "subsystem"
    there = copy.deepcopy(world(state))
    change(there)
    return verdict(kind(), there, known)


@pytest.mark.parametrize("node", ["node01", "node02", "node03", "node04"])
@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.id)
def test_healthy_nodes_with_their_spread_pass_in_both_schemas(kind: type[Gate], node: str, *, older: bool) -> None:
    state = healthy(node)
    state["bmc"]["schema"] = "legacy" if older else "subsystem"
    found = verdict(kind(), world(state))
    assert (found.outcome, texts(found)) == (Outcome.PASS, [])
    assert found.measured


@pytest.mark.parametrize(
    "name",
    sorted(
        name
        for name, fault in FAULTS.items()
        if fault.caught_by.startswith("bmc/") and fault.layer != "pcie" and name not in {"sel-cleared", "sel-wrapped"}
    ),
)
def test_every_fault_of_the_bmc_is_caught_by_its_gate_and_by_no_other(name: str) -> None:
    there = world(broken(name))
    outcomes = {
        gate_id: verdict(gate(gate_id), there).outcome
        for gate_id in all_gates()
        if gate_id.startswith("bmc/") and "stress" not in gate_id
    }
    assert outcomes.pop(FAULTS[name].caught_by) in {Outcome.FAIL, Outcome.ERROR}
    outcomes.pop("bmc/health/sanity/rollup", None)  # its rollup: it may be bad with any part
    if name == "health-rollup-lies":  # above a supply that is bad
        outcomes.pop("bmc/power/sanity/supplies")
    assert set(outcomes.values()) <= {Outcome.PASS}, outcomes


@pytest.mark.parametrize(
    ("fault", "outcome", "message"),
    [
        (
            "fan-failed",
            Outcome.FAIL,
            (
                "node01 fan SPD_FAN_SYS4_F: fan not working - Expected: State Enabled, Health OK "
                f"Actual: State Enabled, Health Critical. {FAN}"
            ),
        ),
        (
            "fan-slow",
            Outcome.FAIL,
            (
                "node01 fan SPD_FAN_SYS4_F: fan too slow - Expected: at least 2436 RPM (the BMC's own threshold) "
                f"Actual: 1800 RPM. {FAN}"
            ),
        ),
        (
            "inlet-hot",
            Outcome.FAIL,
            (
                "node01 inlet TEMP_AMBIENT: inlet temperature too high - Expected: below 37 degC (caution threshold of "
                f"the BMC) Actual: 39 degC. {AIR}"
            ),
        ),
        (
            "outlet-hot",
            Outcome.FAIL,
            (
                "node01 outlet TEMP_MB_OUTLET: outlet temperature too high - "
                f"Expected: below 72 degC (caution threshold of the BMC) Actual: 76 degC. {AIR}"
            ),
        ),
        (
            "sensor-missing",
            Outcome.ERROR,
            f"node01 inlet TEMP_AMBIENT: inlet temperature not read - Expected: a reading Actual: none. {SENSOR}",
        ),
        (
            "leak",
            Outcome.FAIL,
            (
                "node01 leak detector Manifold_0: leak detected - Expected: DetectorState OK "
                f"Actual: Critical (Moisture). {LEAK}"
            ),
        ),
        (
            "bmc-power-cap-low",
            Outcome.FAIL,
            (
                "node01 DGX: power limit below the BMC's own default - Expected: 10200 W Actual: 5000 W. "
                "Remove or raise the limit in the BMC (PowerLimitWatts or its power capping page), or "
                "set the gate's input cap_w if the site wants it."
            ),
        ),
        (
            "bios-changed",
            Outcome.FAIL,
            (
                "node01 bios SriovSupport: BIOS setting - Expected: Enabled Actual: Disabled. "
                "Set it (the SettingsObject of the Bios resource, or the setup) and restart the node."
            ),
        ),
        (
            "bmc-firmware-other",
            Outcome.FAIL,
            (
                "node01 BMC firmware: version - Expected: 25.06.27 Actual: 24.09.17. "
                "Update it with the vendor's package of that version, or correct the baseline in the site file; "
                "mixed firmware hides faults."
            ),
        ),
        (
            "health-rollup-lies",
            Outcome.ERROR,
            (
                "node01 chassis DGX: health rollup contradicts its parts - Expected: a rollup as bad as "
                "its worst part Actual: OK, and PSU0 Warning. Update the BMC; repair that part."
            ),
        ),
    ],
)
def test_faults_are_named_down_to_the_part(fault: str, outcome: Outcome, message: str) -> None:
    found = verdict(gate(FAULTS[fault].caught_by), world(broken(fault)))
    assert texts(found)[0] == message
    assert found.outcome is outcome


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        (
            Fans,
            lambda there: (
                there[f"{CHASSIS}/ThermalSubsystem/Fans"].update(Members=[], **{"Members@odata.count": 0})
                or _drop(there, "SPD_FAN")
            ),
            (
                "node01 BMC: fans not reported - Expected: at least one fan Actual: none. Update the "
                "BMC's firmware; rackready knows no server without fans."
            ),
        ),
        (
            Fans,
            lambda there: there[f"{CHASSIS}/Sensors/SPD_FAN_SYS1_F"].update(Reading=None),
            (
                "node01 fan SPD_FAN_SYS1_F: fan speed not reported - Expected: a reading Actual: none. "
                "Reseat the fan; if the speed is still missing, replace it, or update the BMC's firmware."
            ),
        ),
        (
            Fans,
            lambda there: there[f"{CHASSIS}/ThermalSubsystem/Fans/SPD_FAN_SYS4_F"]["SpeedPercent"].update(
                DataSourceUri="/redfish/v1/none"
            ),
            (
                "node01 fan SPD_FAN_SYS4_F: sensor of the fan not read - Expected: /redfish/v1/none "
                "Actual: not among the sensors of the BMC. "
                "Update or restart the BMC, then run the gate again."
            ),
        ),
        (
            Temperatures,
            lambda there: (
                _drop(there, "TEMP_AMBIENT") or there[f"{CHASSIS}/Sensors/TEMP_CPU0"].update(PhysicalContext="CPU")
            ),
            (
                "node01 BMC: inlet temperature not reported - Expected: a sensor of the inlet air "
                f"Actual: none. {SENSOR}"
            ),
        ),
        (
            Temperatures,
            lambda there: there[AMBIENT].update(Thresholds={}),
            (
                "node01 inlet TEMP_AMBIENT: inlet temperature has no threshold - "
                "Expected: an upper threshold of the BMC Actual: none. "
                "Set it in the BMC, or update its firmware."
            ),
        ),
        (
            Temperatures,
            lambda there: there[AMBIENT].update(Status={"State": "Disabled"}),
            (
                "node01 inlet TEMP_AMBIENT: inlet temperature not read - Expected: a reading "
                f"Actual: a sensor that is switched off. {SENSOR}"
            ),
        ),
        (
            Temperatures,
            lambda there: there[f"{CHASSIS}/Sensors"].update({"Members@odata.count": 99}),
            (
                f"node01 BMC: temperatures: {CHASSIS}/Sensors unread - Expected: a document, since the BMC links to it "
                "Actual: it counts 99 members and lists 16. Update or restart the BMC, then run the gate again."
            ),
        ),
        (
            PowerLimit,
            lambda there: there[f"{CHASSIS}/EnvironmentMetrics"]["PowerLimitWatts"].update(ControlMode="Eco"),
            (
                "node01 DGX: power limit mode unknown - Expected: one of Automatic, Disabled, Manual, Override "
                "Actual: Eco. Update the BMC's firmware."
            ),
        ),
        (
            BiosSettings,
            lambda there: there[f"{SYSTEM}/Bios"].update(Attributes={}),
            (
                "node01 BMC: BIOS settings not reported - Expected: Attributes of the host's Bios resource "
                "Actual: none. "
                "Power the node on once, or update the BMC."
            ),
        ),
        (
            BiosSettings,
            lambda there: there[f"{SYSTEM}/Bios"]["Attributes"].pop("VTdSupport"),
            (
                "node01 bios VTdSupport: BIOS setting not reported - Expected: Enable Actual: no such "
                "attribute. Correct the name in the baseline for this BIOS version."
            ),
        ),
        (
            FirmwareBaseline,
            lambda there: there[SYSTEM].pop("BiosVersion"),
            (
                "node01 BIOS version: version not reported - Expected: 1.06.07 Actual: nothing. "
                "Update the driver or the tool that reports it."
            ),
        ),
        (
            Rollup,
            lambda there: there[SYSTEM].update(Status={"State": "Enabled", "Health": "Fine"}),
            (
                "node01 system DGX: health unknown - Expected: one of OK, Warning, Critical Actual: Fine. "
                "Update the BMC's firmware."
            ),
        ),
    ],
)
def test_what_nobody_can_say_is_an_error(kind: type[Gate], change: Change, message: str) -> None:
    found = changed(kind, change)
    assert (found.outcome, texts(found)) == (Outcome.ERROR, [message])


@pytest.mark.parametrize("older", [False, True])
def test_a_bad_part_of_a_chassis_without_a_sum_is_named(*, older: bool) -> None:
    def unsummed(there: World) -> None:
        there[CHASSIS].pop("Status")
        listed = (
            there[f"{CHASSIS}/Power"]["PowerSupplies"][2]
            if older
            else there[f"{CHASSIS}/PowerSubsystem/PowerSupplies/PSU2"]
        )
        listed["Status"] = {"State": "Enabled", "Health": "Critical"}

    found = changed(Rollup, unsummed, older=older)
    assert (found.outcome, texts(found)) == (
        Outcome.FAIL,
        [
            (
                f"node01 part {'Power Supply #2' if older else 'PSU2'}: health - Expected: OK Actual: "
                "Critical. Repair or replace it; see the gates on power, cooling and parts. Update the "
                "BMC: no rollup includes this part."
            )
        ],
    )


def test_parts_of_a_chassis_that_is_not_there_say_nothing() -> None:
    def gone(there: World) -> None:
        there[CHASSIS]["Status"] = {"State": "Absent"}
        there[f"{CHASSIS}/PowerSubsystem/PowerSupplies/PSU2"]["Status"] = {"State": "Enabled", "Health": "Critical"}

    assert changed(Rollup, gone).outcome is Outcome.PASS


def _drop(there: World, begins: str) -> None:
    listed = there[f"{CHASSIS}/Sensors"]
    listed["Members"] = [
        item for item in listed["Members"] if not item["@odata.id"].rsplit("/", 1)[-1].startswith(begins)
    ]
    listed["Members@odata.count"] = len(listed["Members"])


def test_a_bios_change_that_waits_for_the_next_boot_is_a_fail() -> None:
    found = changed(BiosSettings, lambda there: there[f"{SYSTEM}/Bios/SD"].update(Attributes={"VTdSupport": "Disable"}))
    assert texts(found) == [
        (
            "node01 bios VTdSupport: BIOS setting changes at the next boot - Expected: Enable Actual: "
            "Disable. Cancel the pending change, or correct the baseline."
        )
    ]


def test_bios_names_with_a_build_suffix_and_other_vocabularies_are_the_same_setting() -> None:
    """As Supermicro writes them."""

    def renamed(there: World) -> None:
        attributes = there[f"{SYSTEM}/Bios"]["Attributes"]
        attributes["VTdSupport_1E3C"] = True
        del attributes["VTdSupport"]

    assert changed(BiosSettings, renamed).outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (
            BiosSettings,
            (
                "node01: BIOS settings not judged - Expected: settings wanted of gb200_nvl72 Actual: "
                "none declared. Declare baselines.gb200_nvl72.bios_settings in the site file, or the "
                "gate's skip with its reason."
            ),
        ),
        (
            FirmwareBaseline,
            (
                "node01: firmware not judged - Expected: versions wanted of gb200_nvl72 Actual: none "
                "declared. Declare baselines.gb200_nvl72 (bmc, bios) in the site file, or the gate's "
                "skip with its reason."
            ),
        ),
        (
            Leaks,
            (
                "node01 BMC: no leak detector - Expected: at least one, since the node is liquid-cooled "
                "Actual: none. Update the BMC's firmware, or watch for leaks by other means and declare "
                "the gate's skip with that reason."
            ),
        ),
    ],
)
def test_a_platform_of_which_nothing_is_declared_is_an_error_not_a_pass(kind: type[Gate], message: str) -> None:
    found = changed(kind, lambda there: there, facts("gb200_nvl72"))
    assert (found.outcome, texts(found)) == (Outcome.ERROR, [message])


def test_a_rack_that_liquid_cools_wants_leak_detectors_of_any_server() -> None:
    found = changed(Leaks, lambda there: there, dataclasses.replace(rack(), liquid=frozenset({"node01"})))
    assert found.outcome is Outcome.ERROR


def test_dry_detectors_pass() -> None:
    state = healthy()
    state["bmc"]["leaks"] = [{"id": f"ColdPlate_{index}", "state": "OK", "type": "Moisture"} for index in range(2)]
    found = verdict(Leaks(), world(state), facts("gb200_nvl72"))
    assert (found.outcome, found.measured) == (Outcome.PASS, ["node01/leak/ColdPlate_0", "node01/leak/ColdPlate_1"])


def test_air_has_nothing_to_leak() -> None:
    assert (
        changed(Leaks, lambda there: there).note
        == "dgx_h100 is air-cooled (its profile), and its BMC has no leak detector: nothing to judge"
    )


def test_further_firmware_is_asked_for_only_where_it_is_wanted() -> None:
    known = rack()
    wanted = Baseline(bmc="25.06.27", firmware={"HGX_FW_BMC_0": "HGX-22.10-1"}, source="a test of ours")
    node = dataclasses.replace(known.nodes["node01"], baseline=wanted)
    with_firmware = dataclasses.replace(known, nodes={"node01": node})
    assert "UpdateService/FirmwareInventory/*" not in FirmwareBaseline().plan(known, ["node01"])[0].commands[0].argv
    found = verdict(FirmwareBaseline(), world(healthy()), with_firmware)
    assert texts(found) == [
        (
            "node01 firmware HGX_FW_BMC_0: version not reported - Expected: HGX-22.10-1 Actual: nothing. "
            "Update the driver or the tool that reports it."
        )
    ]


def test_a_bad_sum_is_a_fail_with_the_part_below_it() -> None:
    found = verdict(Rollup(), world(broken("psu-failed")))
    assert texts(found) == [
        (
            "node01 chassis DGX: health - Expected: OK Actual: Critical: PSU2 Critical. "
            "Read the BMC's event log and the gates on its power, cooling and parts; repair that part."
        )
    ]


@pytest.mark.parametrize(
    "link",
    [None, f"{CHASSIS}/Sensors/SPD_FAN_SYS4_F/", f"{CHASSIS}/Sensors/SPD_FAN_SYS4_F#/Reading"],
    ids=["none", "slash", "pointer"],
)
def test_a_fan_may_name_its_sensor_in_other_ways_or_none(link: str | None) -> None:
    assert (
        changed(
            Fans,
            lambda there: there[f"{CHASSIS}/ThermalSubsystem/Fans/SPD_FAN_SYS4_F"]["SpeedPercent"].update(
                DataSourceUri=link
            ),
        ).findings
        == []
    )
