"""Parts that are switched off: right for spares and empty outlets, an error or a fail for everything else."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from rackready.gates.bmc.fans import Fans
from rackready.gates.bmc.leaks import Leaks
from rackready.gates.bmc.rack import RackCooling, RackPower
from rackready.gates.bmc.supplies import Supplies
from rackready.gates.records.offline import facts
from rackready.model.outcome import Outcome, Verdict
from tests.gates.redfish_world import CHASSIS, World, healthy, verdict, world
from tests.gates.support import Told, rack, tells
from tests.gates.test_bmc_rack import CDU, PDU, SHELF, judged

SUPPLIES = f"{CHASSIS}/PowerSubsystem/PowerSupplies/PSU"
FANS = f"{CHASSIS}/ThermalSubsystem/Fans/"
DETECTION = f"{CHASSIS}/ThermalSubsystem/LeakDetection"
SHELF_PSUS = "/redfish/v1/PowerEquipment/PowerShelves/1/PowerSupplies/"
PUMPS = "/redfish/v1/ThermalEquipment/CDUs/1/Pumps/"
Change = Callable[[World], None]


def status(begins: str, numbers: range | None = None, **said: object) -> Change:
    """Give this Status to every resource under an address; ``numbers``: only to addresses that go on with these."""

    def change(there: World) -> None:
        wanted = [address for address in there if address.startswith(begins)]
        if numbers is not None:
            wanted = [f"{begins}{number}" for number in numbers]
        for address in wanted:
            if "/Metrics" not in address:
                there[address]["Status"] = said

    return change


def supplies(change: Change, platform: str | None = None, *, redundancy: Mapping[str, object] | None = None) -> Verdict:
    there = world(healthy())
    if redundancy is not None:
        there[f"{CHASSIS}/PowerSubsystem"]["PowerSupplyRedundancy"] = [dict(redundancy)]
    change(there)
    return verdict(Supplies(), there, facts(platform) if platform else rack())


@pytest.mark.parametrize("said", ["Disabled", "Quiesced", "Starting", "Updating", "Deferring"])
def test_supplies_that_are_switched_off_are_errors_and_count_for_nothing(said: str) -> None:
    found = supplies(status(SUPPLIES, range(3), State=said, Health="OK"))
    few = ("psu-too-few-good", "node01", "at least 4 for full performance", "3")
    off = [
        (
            "part-not-in-use",
            f"node01 psu PSU{n}",
            "State Enabled, Health OK",
            f"State {said}, Health OK",
            "what=power supply",
        )
        for n in range(3)
    ]
    assert (found.outcome, tells(found)) == (Outcome.FAIL, [few, *off])
    assert len(found.measured) == 3


def test_a_supply_that_is_switched_off_without_a_health_is_an_error() -> None:
    found = supplies(status(SUPPLIES, range(1), State="Disabled"))
    assert (found.outcome, tells(found)) == (
        Outcome.ERROR,
        [
            (
                "part-not-in-use",
                "node01 psu PSU0",
                "State Enabled, Health OK",
                "State Disabled, Health None",
                "what=power supply",
            )
        ],
    )


def test_spare_supplies_of_a_redundant_set_may_stand_by() -> None:
    found = supplies(status(SUPPLIES, range(2), State="StandbyOffline", Health="OK"))
    assert (found.outcome, tells(found), len(found.measured)) == (Outcome.PASS, [], 6)
    found = supplies(status(SUPPLIES, range(6), State="StandbySpare", Health="OK"))
    assert (found.outcome, tells(found)) == (Outcome.PASS, [])


def test_supplies_that_stand_by_offline_do_not_keep_the_server_up() -> None:
    found = supplies(status(SUPPLIES, range(3), State="StandbyOffline", Health="OK"))
    assert (found.outcome, tells(found)) == (
        Outcome.FAIL,
        [("psu-too-few-good", "node01", "at least 4 for full performance", "3")],
    )


def test_a_spare_that_does_not_tell_its_health_is_an_error() -> None:
    found = supplies(status(SUPPLIES, range(1), State="StandbyOffline"))
    assert (found.outcome, tells(found)) == (
        Outcome.ERROR,
        [
            (
                "part-health-not-reported",
                "node01 psu PSU0",
                "Health OK",
                "State StandbyOffline, no Health",
                "what=power supply",
            )
        ],
    )


NO_SET = {"RedundancyType": "NotRedundant", "Status": {"State": "Absent"}}
A_SET = {"RedundancyType": "Failover", "Status": {"State": "Enabled", "Health": "OK"}}


def test_where_nothing_is_published_spares_need_a_set_and_one_supply_must_be_at_work() -> None:
    unpublished = "sys_521ge_l40s"
    one = status(SUPPLIES, range(1), State="StandbyOffline", Health="OK")
    assert supplies(one, unpublished, redundancy=A_SET).outcome is Outcome.PASS
    assert tells(supplies(one, unpublished, redundancy=NO_SET)) == [
        (
            "part-not-in-use",
            "node01 psu PSU0",
            "State Enabled, Health OK",
            "State StandbyOffline, Health OK",
            "what=power supply",
        )
    ]
    found = supplies(status(SUPPLIES, range(6), State="StandbyOffline", Health="OK"), unpublished, redundancy=A_SET)
    assert (found.outcome, tells(found)) == (
        Outcome.ERROR,
        [("psu-none-at-work", "node01", "at least one that is switched on and good", "none of 6")],
    )


@pytest.mark.parametrize(
    "said", [{"State": "Disabled", "Health": "OK"}, {"State": "Disabled"}, {"State": "StandbyOffline", "Health": "OK"}]
)
def test_fans_that_are_switched_off_are_errors(said: dict[str, str]) -> None:
    there = world(healthy())
    status(FANS, **said)(there)
    found = verdict(Fans(), there)
    assert (found.outcome, len(found.findings), found.measured) == (Outcome.ERROR, 12, [])
    actual = f"State {said['State']}, Health {said.get('Health')}"
    assert tells(found)[0] == (
        "part-not-in-use",
        "node01 fan SPD_FAN_SYS1_F",
        "State Enabled, Health OK",
        actual,
        "what=fan",
    )


def wet(change: Change, *, detectors: bool = True, platform: str = "gb200_nvl72") -> Verdict:
    state = healthy()
    state["bmc"]["leaks"] = [{"id": "ColdPlate_0", "state": "OK", "type": "Moisture"}]
    there = world(state)
    if not detectors:
        there[f"{DETECTION}/LeakDetectors"].update(Members=[], **{"Members@odata.count": 0})
    change(there)
    return verdict(Leaks(), there, facts(platform))


@pytest.mark.parametrize(
    ("change", "outcome", "finding"),
    [
        (
            status(f"{DETECTION}/LeakDetectors/", State="Disabled"),
            Outcome.FAIL,
            (
                "leak-detector-off",
                "node01 leak detector ColdPlate_0",
                "State Enabled",
                "State Disabled",
                "what=leak detector",
            ),
        ),
        (
            lambda there: there[f"{DETECTION}/LeakDetectors/ColdPlate_0"].update(
                Status={"State": "Disabled"}, DetectorState=None
            ),
            Outcome.FAIL,
            (
                "leak-detector-off",
                "node01 leak detector ColdPlate_0",
                "State Enabled",
                "State Disabled",
                "what=leak detector",
            ),
        ),
        (
            lambda there: there[DETECTION].update(Status={"State": "Disabled"}),
            Outcome.FAIL,
            ("leak-detector-off", "node01 leak detection", "State Enabled", "State Disabled", "what=leak detection"),
        ),
        (
            status(f"{DETECTION}/LeakDetectors/", State="Quiesced", Health="OK"),
            Outcome.ERROR,
            (
                "part-not-in-use",
                "node01 leak detector ColdPlate_0",
                "State Enabled, Health OK",
                "State Quiesced, Health OK",
                "what=leak detector",
            ),
        ),
    ],
)
def test_a_leak_detector_that_is_switched_off_sees_nothing(change: Change, outcome: Outcome, finding: Told) -> None:
    found = wet(change)
    assert (found.outcome, tells(found)) == (outcome, [finding])


def test_leak_detection_may_be_switched_off_where_air_cools_and_no_detector_is_there() -> None:
    def off(there: World) -> None:
        there[DETECTION].update(Status={"State": "Disabled"})

    assert wet(off, detectors=False, platform="dgx_h100").outcome is Outcome.PASS
    assert wet(off, detectors=False).outcome is Outcome.FAIL
    assert wet(off, platform="dgx_h100").outcome is Outcome.FAIL


def test_parts_of_a_cdu_that_are_switched_off_are_errors() -> None:
    found = judged(
        RackCooling.id,
        CDU,
        "cdu_healthy",
        status("/redfish/v1/ThermalEquipment/CDUs/1/SecondaryCoolantConnectors/", State="Disabled"),
    )
    assert (found.outcome, tells(found)) == (
        Outcome.ERROR,
        [("part-not-in-use", "cdu1 loop 1", "State Enabled, Health OK", "State Disabled, Health None", "what=loop")],
    )


def test_a_spare_pump_may_stand_by_and_one_must_run() -> None:
    assert (
        judged(
            RackCooling.id, CDU, "cdu_healthy", status(PUMPS, range(2, 3), State="StandbyOffline", Health="OK")
        ).outcome
        is Outcome.PASS
    )
    found = judged(RackCooling.id, CDU, "cdu_healthy", status(PUMPS, State="StandbyOffline", Health="OK"))
    assert (found.outcome, tells(found)) == (
        Outcome.FAIL,
        [("rack-cooling-too-few-at-work", "cdu1", "at least 1 (MinNeededInGroup of the device, else one)", "0")],
    )


def test_supplies_of_a_shelf_are_held_against_what_it_needs() -> None:
    assert (
        judged(
            RackPower.id,
            SHELF,
            "power_shelf_healthy",
            status(SHELF_PSUS, range(6, 7), State="StandbyOffline", Health="OK"),
        ).outcome
        is Outcome.PASS
    )
    few = ("rack-power-too-few-at-work", "shelf1", "at least 5 (MinNeededInGroup of the device, else one)", "4")
    found = judged(
        RackPower.id, SHELF, "power_shelf_healthy", status(SHELF_PSUS, range(5, 7), State="StandbyOffline", Health="OK")
    )
    assert (found.outcome, tells(found)) == (Outcome.FAIL, [few])
    found = judged(RackPower.id, SHELF, "power_shelf_healthy", status(SHELF_PSUS, range(5, 7), State="Absent"))
    assert (found.outcome, tells(found)) == (Outcome.FAIL, [few])
    found = judged(RackPower.id, SHELF, "power_shelf_healthy", status(SHELF_PSUS, range(1, 7), State="Disabled"))
    assert (
        "part-not-in-use",
        "shelf1 psu 1",
        "State Enabled, Health OK",
        "State Disabled, Health None",
        "what=psu",
    ) in tells(found)


def test_an_outlet_may_be_switched_off_and_a_circuit_not() -> None:
    base = "/redfish/v1/PowerEquipment/RackPDUs/1/"
    assert (
        judged(
            RackPower.id, PDU, "rack_pdu_healthy", status(f"{base}Outlets/", State="StandbyOffline", Health="OK")
        ).outcome
        is Outcome.PASS
    )
    found = judged(RackPower.id, PDU, "rack_pdu_healthy", status(f"{base}Branches/", State="Disabled", Health="OK"))
    assert tells(found) == [
        ("part-not-in-use", "pdu-a circuit A", "State Enabled, Health OK", "State Disabled, Health OK", "what=circuit")
    ]
