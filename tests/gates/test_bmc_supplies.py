"""Power supplies over Redfish: passes, fails with exact words, and errors where a value is unknown."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable

import pytest

from rackready.drivers.redfish_read import sealed
from rackready.gates.base import GateFacts, Output
from rackready.gates.bmc.supplies import Supplies
from rackready.gates.records.offline import facts
from rackready.model.outcome import Outcome, Verdict
from rackready_sim.bmc_state import build_bmc
from tests.gates.redfish_world import CHASSIS, World, broken, gathered, healthy, verdict, world
from tests.gates.support import Told, rack, tells

PSU = f"{CHASSIS}/PowerSubsystem/PowerSupplies/PSU2"
GOOD = "State Enabled, Health OK"
Change = Callable[[World], object]


def changed(change: Change, *, older: bool = False) -> Verdict:
    state = healthy()
    state["bmc"]["schema"] = "legacy" if older else "subsystem"
    there = world(state)
    change(there)
    return verdict(Supplies(), there)


@pytest.mark.parametrize("older", [False, True])
def test_six_good_supplies_pass_in_both_schemas(*, older: bool) -> None:
    found = changed(lambda there: there, older=older)
    assert (found.outcome, tells(found), len(found.measured)) == (Outcome.PASS, [], 6)
    assert [(item.metric, item.bound) for item in found.criteria] == [
        ("power_supplies", 6),
        ("power_supplies_good", 4),
        ("power_supplies_capacity", 10200),
    ]


@pytest.mark.parametrize(
    ("fault", "findings"),
    [
        (
            "psu-failed",
            [
                ("psu-not-working", "node01 psu PSU2", GOOD, "State UnavailableOffline, Health Critical"),
            ],
        ),
        (
            "psu-input-lost",
            [
                ("psu-input-lost", "node01 psu PSU2", "Normal input", "LossOfInput"),
                ("psu-not-fed", "node01 psu PSU2", GOOD, "State UnavailableOffline, Health Critical"),
            ],
        ),
        (
            "psu-missing",
            [("psu-count", "node01", "6", "5")],
        ),
        (
            "psu-redundancy-lost",
            [
                (
                    "psu-redundancy-lost",
                    "node01 power redundancy group 0",
                    "State Enabled, Health OK",
                    "State Enabled, Health Warning",
                )
            ],
        ),
    ],
)
def test_a_bad_supply_is_named(fault: str, findings: list[Told]) -> None:
    found = verdict(Supplies(), world(broken(fault)))
    assert (found.outcome, tells(found)) == (Outcome.FAIL, findings)


def test_an_open_input_that_reads_a_few_volts_is_no_input() -> None:
    found = changed(lambda there: there[f"{CHASSIS}/Power"]["PowerSupplies"][2].update(LineInputVoltage=4), older=True)
    assert tells(found) == [("psu-input-lost", "node01 psu Power Supply #2", "Normal input", "4 V")]


def test_volts_that_are_none_count_more_than_a_word_that_says_normal() -> None:
    found = changed(lambda there: there[f"{PSU}/Metrics"].update(InputVoltage={"Reading": 0}))
    assert tells(found) == [("psu-input-lost", "node01 psu PSU2", "Normal input", "0 V")]


def test_too_few_good_supplies_are_said_once_more() -> None:
    state = healthy()
    for psu in state["bmc"]["psus"][:3]:
        psu.update(health="Critical")
    found = verdict(Supplies(), world(state))
    assert tells(found)[-1] == ("psu-too-few-good", "node01", "at least 4 for full performance", "3")


def _group(**group: object) -> Change:
    return lambda there: there[f"{CHASSIS}/PowerSubsystem"].update(
        PowerSupplyRedundancy=[{"Status": {"State": "Enabled", "Health": "OK"}, **group}]
    )


DGX = (
    "NVIDIA DGX H100/H200 user guide: 6 supplies, 4+2 redundancy; three without power: reduced performance; "
    "starts with three"
)
BARE = (
    "psu-not-redundant",
    "node01 power redundancy group 0",
    f"spares, since 4 of 6 are enough ({DGX})",
    "NotRedundant",
)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(_group(RedundancyType="NotRedundant"), id="newer"),
        pytest.param(
            _group(RedundancyType="NotRedundant", Status={"State": "Disabled", "Health": "OK"}), id="switched off"
        ),
        pytest.param(_group(RedundancyType="NotRedundant", Status=None), id="without a status"),
    ],
)
def test_a_set_that_is_not_redundant_is_a_fail_where_spares_are_planned(change: Change) -> None:
    found = changed(change)
    assert (found.outcome, tells(found)) == (Outcome.FAIL, [BARE])


def test_a_set_that_is_not_redundant_is_a_fail_in_the_older_schema() -> None:
    found = changed(lambda there: there[f"{CHASSIS}/Power"]["Redundancy"][0].update(Mode="NotRedundant"), older=True)
    assert (found.outcome, tells(found)) == (Outcome.FAIL, [BARE])


def test_a_set_that_is_not_redundant_where_nothing_is_published_is_an_error() -> None:
    there = world(healthy())
    _group(RedundancyType="NotRedundant")(there)
    found = verdict(Supplies(), there, facts("sys_521ge_l40s"))
    assert (found.outcome, tells(found)) == (
        Outcome.ERROR,
        [
            (
                "psu-not-redundant-undeclared",
                "node01 power redundancy group 0",
                "spares, or a profile that plans none",
                "NotRedundant",
                "platform=sys_521ge_l40s",
            )
        ],
    )


def _planned(platform: str, **psus: object) -> GateFacts:
    """Facts of a platform with other supplies than the profile has."""
    known = facts(platform)
    node = known.nodes["node01"]
    assert node.platform.psus is not None
    changed_psus = node.platform.psus.model_copy(update=psus)
    return dataclasses.replace(
        known,
        nodes={"node01": dataclasses.replace(node, platform=node.platform.model_copy(update={"psus": changed_psus}))},
    )


def test_a_server_that_needs_all_of_its_supplies_has_no_spares_and_is_right() -> None:
    there = world(healthy())
    _group(RedundancyType="NotRedundant", Status={"State": "Disabled", "Health": "OK"})(there)
    found = verdict(Supplies(), there, _planned("dgx_h100", min_count=6))
    assert (found.outcome, tells(found)) == (Outcome.PASS, [])


def _capacity(watts: object) -> Change:
    return lambda there: [
        there[f"{CHASSIS}/PowerSubsystem/PowerSupplies/PSU{index}"].update(PowerCapacityWatts=watts)
        for index in range(6)
    ]


def test_supplies_that_are_too_small_are_a_fail() -> None:
    found = changed(_capacity(1000))
    assert (found.outcome, tells(found)) == (
        Outcome.FAIL,
        [
            (
                "psu-too-small",
                "node01",
                "at least 10200 W from 4 of them (NVIDIA DGX H100 user guide: 10.2 kW maximum)",
                "4000 W",
            )
        ],
    )
    assert (
        found.criteria[-1].source
        == f"derived: highest draw (NVIDIA DGX H100 user guide: 10.2 kW maximum), carried by 4 supplies ({DGX})"
    )


@pytest.mark.parametrize("watts", [None, 0, 2600])
def test_supplies_that_are_large_enough_or_do_not_tell_pass(watts: object) -> None:
    assert changed(_capacity(watts)).outcome is Outcome.PASS


def test_an_estimated_draw_bounds_no_supply() -> None:
    there = world(healthy())
    _capacity(1400)(there)
    found = verdict(Supplies(), there, _planned("r760xa_l4", count=6))
    assert (found.outcome, tells(found)) == (Outcome.PASS, [])
    assert found.note is not None
    assert found.note.startswith("1 of its supplies can carry 1400 W, less than 1502 W (derived: ")


def test_whether_a_draw_is_an_estimate_does_not_depend_on_the_words_of_its_source() -> None:
    there = world(healthy())
    _capacity(1400)(there)
    known = _planned("r760xa_l4", count=6)
    platform = known.nodes["node01"].platform
    for derived, outcome in ((True, Outcome.PASS), (False, Outcome.FAIL)):
        most = platform.max_power.model_copy(update={"source": "as somebody worked it out", "derived": derived})
        node = dataclasses.replace(known.nodes["node01"], platform=platform.model_copy(update={"max_power": most}))
        assert verdict(Supplies(), there, dataclasses.replace(known, nodes={"node01": node})).outcome is outcome


def _bare(there: World, watts: float | None, *, power: bool = True) -> None:
    """Leave out the supplies' Status, as a DGX H100's BMC does; ``watts``: of PSU2. STATUS_PSU2 stays, and reads 0."""
    listed = there[f"{CHASSIS}/Sensors"]["Members"]
    for index in range(6):
        del there[f"{CHASSIS}/PowerSubsystem/PowerSupplies/PSU{index}"]["Status"]
        at = f"{CHASSIS}/Sensors/PWR_PSU{index}"
        if power:
            there[at]["Reading"] = watts if index == 2 else 410
        else:
            del there[at]
            listed.remove({"@odata.id": at})


SUPERMICRO = "sys_821ge_h100"


def _bays(change: Callable[[list[dict[str, object]]], object], platform: str = SUPERMICRO) -> Verdict:
    """Judge a Supermicro SYS-821GE: six supplies, and two modules with fans in the bays of supplies."""
    known = facts(platform)
    state = {**healthy(), "bmc": build_bmc(facts(SUPERMICRO).nodes["node01"])}
    state["bmc"]["schema"] = "legacy"
    there = world(state)
    change(there[f"{CHASSIS}/Power"]["PowerSupplies"])
    return verdict(Supplies(), there, known)


def _nothing_told(supply: dict[str, object], **status: str) -> None:
    supply.update(LineInputVoltage=None, PowerCapacityWatts=None)
    supply["Status"] = {"State": "Enabled", "Health": "OK", **status}


def test_modules_with_fans_among_the_supplies_are_not_counted() -> None:
    found = _bays(lambda bays: bays)
    assert (found.outcome, tells(found)) == (Outcome.PASS, [])
    assert "not counted: Power Supply #6 (PWS-DF009-2F), Power Supply #7 (PWS-DF009-2F)" in str(found.note)


def test_modules_with_fans_stand_in_for_no_supply() -> None:
    found = _bays(lambda bays: bays.__delitem__(slice(2)))
    assert tells(found) == [("psu-count", "node01", "6", "4")]


@pytest.mark.parametrize("platform", [SUPERMICRO, "sys_521ge_l40s"])
def test_a_dead_supply_is_no_module_with_fans(platform: str) -> None:
    """It has the model of the others, or reports itself bad."""
    said = ("psu-carries-nothing", "node01 psu Power Supply #1", "capacity, input or output, as of the others")
    assert (*said, "none of them") in tells(_bays(lambda bays: _nothing_told(bays[1]), platform))
    bad = _bays(lambda bays: (_nothing_told(bays[6], Health="Critical"), bays.pop(1)), platform)
    assert ("psu-not-working", "node01 psu Power Supply #6", GOOD, "State Enabled, Health Critical") in tells(bad)


def test_more_supplies_than_planned_are_told_by_a_step_of_their_own() -> None:
    found = _bays(lambda bays: [bay.update(PowerCapacityWatts=3000, LineInputVoltage=240) for bay in bays])
    assert tells(found) == [("psu-too-many", "node01", "6", "8", f"platform={SUPERMICRO}")]


def _renamed(there: World, sensor: str) -> None:
    there[f"{CHASSIS}/Sensors/{sensor}"].update(Id="SENSOR", Name="SENSOR")


def test_a_supply_without_a_status_is_judged_by_its_power_sensor() -> None:
    assert changed(lambda there: _bare(there, 398)).outcome is Outcome.PASS
    found = changed(lambda there: _bare(there, 0))
    assert tells(found) == [("psu-carries-nothing", "node01 psu PSU2", "power on PWR_PSU2", "0 W")]


def test_a_sensor_without_type_and_unit_counts_where_no_other_reads_the_supplys_power() -> None:
    found = changed(lambda there: _bare(there, None, power=False))
    assert ("psu-carries-nothing", "node01 psu PSU2", "power on STATUS_PSU2", "0 W") in tells(found)


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (
            lambda there: there[PSU].update(Status={"State": "Enabled", "Health": "Excellent"}),
            (
                "part-state-unknown",
                "node01 psu PSU2",
                "a State and a Health of Redfish",
                "State Enabled, Health Excellent",
                "what=power supply",
            ),
        ),
        (
            lambda there: there[PSU].update(Status={"State": "Enabled"}),
            (
                "part-health-not-reported",
                "node01 psu PSU2",
                "Health OK",
                "State Enabled, no Health",
                "what=power supply",
            ),
        ),
        (
            lambda there: (there[PSU].pop("Status"), _renamed(there, "PWR_PSU2"), _renamed(there, "STATUS_PSU2")),
            ("psu-state-not-reported", "node01 psu PSU2", "a Status, or a power sensor with its name", "neither"),
        ),
        (
            lambda there: there[PSU].update(LineInputStatus="Fine"),
            ("psu-input-unknown", "node01 psu PSU2", "one of LossOfInput, Normal, OutOfRange", "Fine"),
        ),
        (
            lambda there: there.pop(PSU),
            (
                "bmc-link-unread",
                "node01 BMC",
                "a document, since the BMC links to it",
                f"node01 BMC: Redfish: HTTP 404: {PSU} (expected: success)",
                "what=power supplies",
                f"address={PSU}",
            ),
        ),
    ],
)
def test_what_nobody_can_say_is_an_error(change: Change, finding: Told) -> None:
    found = changed(change)
    assert finding in tells(found)
    assert found.outcome is not Outcome.PASS


def _said(stdout: str, *, code: int | None = 0, failure: str = "", timed_out: bool = False) -> Verdict:
    known = rack()
    gate = Supplies()
    run = gate.plan(known, ["node01"])[0]
    return gate.evaluate(
        known,
        run,
        {
            "redfish": Output(
                "redfish", "node01", "GET", code, stdout, seconds=120, failure=failure, timed_out=timed_out
            )
        },
    )


@pytest.mark.parametrize(
    ("found", "finding"),
    [
        (
            _said(""),
            (
                "bmc-unreadable",
                "node01 BMC",
                "a complete document of the BMC's answer",
                "empty output",
                "what=power supplies",
            ),
        ),
        (
            _said('{"format": "rackready/redfish/v1", "doc'),
            (
                "bmc-unreadable",
                "node01 BMC",
                "a complete document of the BMC's answer",
                "JSON cut off or damaged at line 1 column 36",
                "what=power supplies",
            ),
        ),
        (
            _said("{}"),
            (
                "bmc-unreadable",
                "node01 BMC",
                "a complete document of the BMC's answer",
                "no document of format rackready/redfish/v1",
                "what=power supplies",
            ),
        ),
        (
            _said(gathered(world(healthy()), ["Chassis/*/PowerSubsystem"]), code=1),
            (
                "bmc-unreadable",
                "node01 BMC",
                "a complete document of the BMC's answer",
                "a complete document, but exit code 1",
                "what=power supplies",
            ),
        ),
        (
            _said("", code=None, failure="node01 BMC 192.0.2.111:443: unreachable"),
            (
                "bmc-not-reached",
                "node01 BMC",
                "an answer over Redfish",
                "node01 BMC 192.0.2.111:443: unreachable",
                "what=power supplies",
                "node=node01",
            ),
        ),
        (
            _said("", code=None, timed_out=True),
            ("bmc-late", "node01 BMC", "an answer in time", "none after 120 s", "what=power supplies"),
        ),
    ],
)
def test_no_whole_answer_is_an_error(found: Verdict, finding: Told) -> None:
    assert (found.outcome, tells(found)) == (Outcome.ERROR, [finding])


def test_a_document_that_lost_a_resource_on_the_way_is_an_error() -> None:
    cut = json.loads(gathered(world(healthy()), ["Chassis/*/PowerSubsystem/PowerSupplies/*"]))
    del cut["documents"][PSU]
    found = _said(json.dumps(sealed(cut)))
    assert tells(found) == [
        (
            "bmc-unreadable",
            "node01 BMC",
            "a complete document of the BMC's answer",
            f"{PSU} was found and is missing from the document",
            "what=power supplies",
        )
    ]


def test_a_tray_that_the_rack_feeds_has_nothing_to_judge() -> None:
    state = healthy()
    state["bmc"]["psus"] = []
    found = verdict(Supplies(), world(state), facts("gb200_nvl72"))
    assert (found.outcome, tells(found)) == (Outcome.PASS, [])
    assert (
        found.note
        == "gb200_nvl72: neither the profile nor the BMC has power supplies, the rack feeds it: nothing to judge "
        "on the node"
    )


@pytest.mark.parametrize("platform", ["dgx_h100", "sys_521ge_l40s"])
def test_a_server_of_its_own_that_shows_no_supplies_is_an_error(platform: str) -> None:
    state = healthy()
    state["bmc"]["psus"] = []
    found = verdict(Supplies(), world(state), facts(platform))
    assert found.outcome is not Outcome.PASS
    assert ("psus-not-reported", "node01 BMC", "at least one", "none") in tells(found)
