"""Fans, temperatures, leaks, power limits, BIOS, firmware and health over Redfish.

Pass, fail, error and nothing to judge, with exact words.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable

import pytest

from rackready.drivers.redfish_read import ROOT
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
from rackready.model.server_parts import RedfishNames
from rackready_sim.faults import FAULTS
from tests.gates.redfish_world import CHASSIS, SYSTEM, World, broken, healthy, verdict, world
from tests.gates.support import Told, rack, tells

Change = Callable[[World], object]
ALL = (Fans, Temperatures, Leaks, PowerLimit, BiosSettings, FirmwareBaseline, Rollup)
AMBIENT = f"{CHASSIS}/Sensors/TEMP_AMBIENT"


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
    assert (found.outcome, tells(found)) == (Outcome.PASS, [])
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
    ("fault", "outcome", "finding"),
    [
        (
            "fan-failed",
            Outcome.FAIL,
            (
                "fan-not-working",
                "node01 fan SPD_FAN_SYS4_F",
                "State Enabled, Health OK",
                "State Enabled, Health Critical",
            ),
        ),
        (
            "fan-slow",
            Outcome.FAIL,
            ("fan-slow", "node01 fan SPD_FAN_SYS4_F", "at least 2436 RPM (the BMC's own threshold)", "1800 RPM"),
        ),
        (
            "inlet-hot",
            Outcome.FAIL,
            (
                "temperature-too-high",
                "node01 inlet TEMP_AMBIENT",
                "below 37 degC (caution threshold of the BMC)",
                "39 degC",
                "what=inlet temperature",
                "step=1",
            ),
        ),
        (
            "outlet-hot",
            Outcome.FAIL,
            (
                "temperature-too-high",
                "node01 outlet TEMP_MB_OUTLET",
                "below 72 degC (caution threshold of the BMC)",
                "76 degC",
                "what=outlet temperature",
                "step=1",
            ),
        ),
        (
            "sensor-missing",
            Outcome.ERROR,
            ("temperature-not-read", "node01 inlet TEMP_AMBIENT", "a reading", "none", "what=inlet temperature"),
        ),
        (
            "leak",
            Outcome.FAIL,
            ("leak-detected", "node01 leak detector Manifold_0", "DetectorState OK", "Critical (Moisture)"),
        ),
        (
            "bmc-power-cap-low",
            Outcome.FAIL,
            ("bmc-power-limit-below-default", "node01 DGX", "10200 W", "5000 W"),
        ),
        (
            "bios-changed",
            Outcome.FAIL,
            ("bios-setting", "node01 bios SriovSupport", "Enabled", "Disabled"),
        ),
        (
            "bmc-firmware-other",
            Outcome.FAIL,
            ("bmc-firmware-version", "node01 BMC firmware", "25.06.27", "24.09.17"),
        ),
        (
            "health-rollup-lies",
            Outcome.ERROR,
            (
                "health-sum-contradicts",
                "node01 chassis DGX",
                "a rollup as bad as its worst part",
                "OK, and PSU0 Warning",
            ),
        ),
    ],
)
def test_faults_are_named_down_to_the_part(fault: str, outcome: Outcome, finding: Told) -> None:
    found = verdict(gate(FAULTS[fault].caught_by), world(broken(fault)))
    assert tells(found)[0] == finding
    assert found.outcome is outcome


@pytest.mark.parametrize(
    ("kind", "change", "finding"),
    [
        (
            Fans,
            lambda there: (
                there[f"{CHASSIS}/ThermalSubsystem/Fans"].update(Members=[], **{"Members@odata.count": 0})
                or _drop(there, "SPD_FAN")
            ),
            ("fans-not-reported", "node01 BMC", "at least one fan", "none"),
        ),
        (
            Fans,
            lambda there: there[f"{CHASSIS}/Sensors/SPD_FAN_SYS1_F"].update(Reading=None),
            ("fan-speed-not-reported", "node01 fan SPD_FAN_SYS1_F", "a reading", "none"),
        ),
        (
            Fans,
            lambda there: there[f"{CHASSIS}/ThermalSubsystem/Fans/SPD_FAN_SYS4_F"]["SpeedPercent"].update(
                DataSourceUri="/redfish/v1/none"
            ),
            (
                "fan-sensor-not-read",
                "node01 fan SPD_FAN_SYS4_F",
                "/redfish/v1/none",
                "not among the sensors of the BMC",
            ),
        ),
        (
            Temperatures,
            lambda there: (
                _drop(there, "TEMP_AMBIENT") or there[f"{CHASSIS}/Sensors/TEMP_CPU0"].update(PhysicalContext="CPU")
            ),
            ("inlet-temperature-not-reported", "node01 BMC", "a sensor of the inlet air", "none"),
        ),
        (
            Temperatures,
            lambda there: there[AMBIENT].update(Thresholds={}),
            (
                "temperature-no-threshold",
                "node01 inlet TEMP_AMBIENT",
                "an upper threshold of the BMC",
                "none",
                "what=inlet temperature",
            ),
        ),
        (
            Temperatures,
            lambda there: there[AMBIENT].update(Status={"State": "Disabled"}),
            (
                "temperature-not-read",
                "node01 inlet TEMP_AMBIENT",
                "a reading",
                "a sensor that is switched off",
                "what=inlet temperature",
            ),
        ),
        (
            Temperatures,
            lambda there: there[f"{CHASSIS}/Sensors"].update({"Members@odata.count": 99}),
            (
                "bmc-link-unread",
                "node01 BMC",
                "a document, since the BMC links to it",
                "it counts 99 members and lists 28",
                "what=temperatures",
                f"address={CHASSIS}/Sensors",
            ),
        ),
        (
            PowerLimit,
            lambda there: there[f"{CHASSIS}/EnvironmentMetrics"]["PowerLimitWatts"].update(ControlMode="Eco"),
            ("bmc-power-limit-mode-unknown", "node01 DGX", "one of Automatic, Disabled, Manual, Override", "Eco"),
        ),
        (
            BiosSettings,
            lambda there: there[f"{SYSTEM}/Bios"].update(Attributes={}),
            ("bios-not-reported", "node01 BMC", "Attributes of the host's Bios resource", "none"),
        ),
        (
            BiosSettings,
            lambda there: there[f"{SYSTEM}/Bios"]["Attributes"].pop("VTdSupport"),
            ("bios-setting-not-reported", "node01 bios VTdSupport", "Enable", "no such attribute"),
        ),
        (
            FirmwareBaseline,
            lambda there: there[SYSTEM].pop("BiosVersion"),
            ("value-not-reported", "node01 BIOS version", "1.06.07", "nothing", "value=version"),
        ),
        (
            Rollup,
            lambda there: there[SYSTEM].update(Status={"State": "Enabled", "Health": "Fine"}),
            ("health-sum-unknown", "node01 system DGX", "one of OK, Warning, Critical", "Fine"),
        ),
    ],
)
def test_what_nobody_can_say_is_an_error(kind: type[Gate], change: Change, finding: Told) -> None:
    found = changed(kind, change)
    assert (found.outcome, tells(found)) == (Outcome.ERROR, [finding])


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
    assert (found.outcome, tells(found)) == (
        Outcome.FAIL,
        [("health-part-bad", f"node01 part {('Power Supply #2' if older else 'PSU2')}", "OK", "Critical")],
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
    assert tells(found) == [("bios-setting-pending", "node01 bios VTdSupport", "Enable", "Disable")]


def test_bios_names_with_a_build_suffix_and_other_vocabularies_are_the_same_setting() -> None:
    """As Supermicro writes them."""

    def renamed(there: World) -> None:
        attributes = there[f"{SYSTEM}/Bios"]["Attributes"]
        attributes["VTdSupport_1E3C"] = True
        del attributes["VTdSupport"]

    assert changed(BiosSettings, renamed).outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("kind", "finding"),
    [
        (
            BiosSettings,
            ("bios-not-declared", "node01", "settings wanted of gb200_nvl72", "none declared", "where=gb200_nvl72"),
        ),
        (
            FirmwareBaseline,
            (
                "bmc-firmware-not-declared",
                "node01",
                "versions wanted of gb200_nvl72",
                "none declared",
                "where=gb200_nvl72",
            ),
        ),
        (
            Leaks,
            ("leak-no-detector", "node01 BMC", "at least one, since the node is liquid-cooled", "none"),
        ),
    ],
)
def test_a_platform_of_which_nothing_is_declared_is_an_error_not_a_pass(kind: type[Gate], finding: Told) -> None:
    found = changed(kind, lambda there: there, facts("gb200_nvl72"))
    assert (found.outcome, tells(found)) == (Outcome.ERROR, [finding])


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
    assert tells(found) == [
        ("value-not-reported", "node01 firmware HGX_FW_BMC_0", "HGX-22.10-1", "nothing", "value=version")
    ]


def test_a_version_is_compared_by_its_numbers() -> None:
    found = changed(FirmwareBaseline, lambda there: there[SYSTEM].update(BiosVersion="01.06.07"))
    assert (found.outcome, tells(found)) == (Outcome.PASS, [])


@pytest.mark.parametrize("shown", [None, ""])
def test_the_bios_of_a_grace_host_is_the_uefi_of_its_inventory(shown: str | None) -> None:
    known = rack()
    names = RedfishNames(bios="UEFI", source="a test of ours")
    platform = known.nodes["node01"].platform.model_copy(update={"redfish": names})
    wanted = Baseline(bios="buildbrain-gcid-38635631", source="a test of ours")
    node = dataclasses.replace(known.nodes["node01"], baseline=wanted, platform=platform)
    there = world(healthy())
    there[SYSTEM]["BiosVersion"] = shown
    service = "/redfish/v1/UpdateService"
    place = f"{service}/FirmwareInventory"
    there[ROOT]["UpdateService"] = {"@odata.id": service}
    there[service] = {"@odata.id": service, "FirmwareInventory": {"@odata.id": place}}
    there[place] = {"@odata.id": place, "Members": [{"@odata.id": f"{place}/{name}"} for name in ("CX7_0", "UEFI")]}
    there[f"{place}/UEFI"] = {"@odata.id": f"{place}/UEFI", "Id": "UEFI", "Version": "buildbrain-gcid-38635631"}
    found = verdict(FirmwareBaseline(), there, dataclasses.replace(known, nodes={"node01": node}))
    assert (tells(found), found.measured) == ([], ["node01/BIOS-version"])


def test_firmware_of_an_idrac_is_found_by_its_device() -> None:
    known = rack()
    wanted = Baseline(firmware={"NIC.Slot.5-1": "24.40.10.00"}, source="a test of ours")
    node = dataclasses.replace(known.nodes["node01"], baseline=wanted)
    service = "/redfish/v1/UpdateService"
    listed = {
        "Installed-0-24.40.10.00__NIC.Slot.5-1": "24.40.10.00",
        "Installed-0-24.39__NIC.Slot.5-10": "24.39",
        "Previous-0-24.38__NIC.Slot.5-1": "24.38",
    }
    place = f"{service}/FirmwareInventory"
    there = world(healthy())
    there[ROOT]["UpdateService"] = {"@odata.id": service}
    there[service] = {"@odata.id": service, "FirmwareInventory": {"@odata.id": place}}
    there[place] = {"@odata.id": place, "Members": [{"@odata.id": f"{place}/{ident}"} for ident in listed]}
    for ident, version in listed.items():
        there[f"{place}/{ident}"] = {"@odata.id": f"{place}/{ident}", "Id": ident, "Version": version}
    found = verdict(FirmwareBaseline(), there, dataclasses.replace(known, nodes={"node01": node}))
    assert (tells(found), found.measured) == ([], ["node01/firmware-NIC.Slot.5-1"])


def test_a_bad_sum_is_a_fail_with_the_part_below_it() -> None:
    found = verdict(Rollup(), world(broken("psu-failed")))
    assert tells(found) == [("health-sum-bad", "node01 chassis DGX", "OK", "Critical: PSU2 Critical")]


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


def test_a_rollup_is_judged_where_the_storage_lists_no_members() -> None:
    """As a DGX H100's BMC answers."""

    def bare(there: World) -> None:
        for key in ("Members", "Members@odata.count"):
            del there[f"{SYSTEM}/Storage"][key]

    found = changed(Rollup, bare)
    assert (found.outcome, tells(found)) == (Outcome.PASS, [])
    assert found.note == f"drives that the BMC may have were not judged: {SYSTEM}/Storage lists no members"
