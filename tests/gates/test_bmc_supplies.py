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
from tests.gates.redfish_world import CHASSIS, World, broken, gathered, healthy, verdict, world
from tests.gates.support import rack

PSU = f"{CHASSIS}/PowerSubsystem/PowerSupplies/PSU2"
FEED = "Check its power cord, the PDU outlet and the breaker of that feed; if they are good, replace the supply."
REPLACE = "Reseat the supply; if the fault stays, replace it."
RAW = "Run the gate again; if that does not help, read its raw output (`rackready report --raw HASH`)."
Change = Callable[[World], object]


def changed(change: Change, *, older: bool = False) -> Verdict:
    state = healthy()
    state["bmc"]["schema"] = "legacy" if older else "subsystem"
    there = world(state)
    change(there)
    return verdict(Supplies(), there)


def texts(found: Verdict) -> list[str]:
    return [str(finding) for finding in found.findings]


@pytest.mark.parametrize("older", [False, True])
def test_six_good_supplies_pass_in_both_schemas(*, older: bool) -> None:
    found = changed(lambda there: there, older=older)
    assert (found.outcome, texts(found), len(found.measured)) == (Outcome.PASS, [], 6)
    carried = (
        [] if older else [("power_supplies_capacity", 10200)]
    )  # the older schema of the simulated BMC reports no capacity
    assert [(item.metric, item.bound) for item in found.criteria] == [
        ("power_supplies", 6),
        ("power_supplies_good", 4),
        *carried,
    ]


@pytest.mark.parametrize(
    ("fault", "messages"),
    [
        (
            "psu-failed",
            [
                (
                    "node01 psu PSU2: power supply not working - Expected: State Enabled, Health OK "
                    f"Actual: State UnavailableOffline, Health Critical. {REPLACE}"
                )
            ],
        ),
        (
            "psu-input-lost",
            [
                f"node01 psu PSU2: power supply input lost - Expected: Normal input Actual: LossOfInput. {FEED}",
                (
                    "node01 psu PSU2: power supply not working - Expected: State Enabled, Health OK "
                    f"Actual: State UnavailableOffline, Health Critical. {FEED}"
                ),
            ],
        ),
        (
            "psu-missing",
            [
                (
                    "node01: power supplies - Expected: 6 Actual: 5. Reseat or replace the missing "
                    "supply; the evidence lists those that are there."
                )
            ],
        ),
        (
            "psu-redundancy-lost",
            [
                (
                    "node01 power redundancy group 0: redundancy not working - Expected: State Enabled, "
                    "Health OK Actual: State Enabled, Health Warning. Repair the supply or feed that "
                    "another finding names; if one more fails, the server may stop."
                )
            ],
        ),
    ],
)
def test_a_bad_supply_is_named(fault: str, messages: list[str]) -> None:
    found = verdict(Supplies(), world(broken(fault)))
    assert (found.outcome, texts(found)) == (Outcome.FAIL, messages)


def test_an_open_input_that_reads_a_few_volts_is_no_input() -> None:
    found = changed(lambda there: there[f"{CHASSIS}/Power"]["PowerSupplies"][2].update(LineInputVoltage=4), older=True)
    assert texts(found) == [
        f"node01 psu Power Supply #2: power supply input lost - Expected: Normal input Actual: 4 V. {FEED}"
    ]


def test_volts_that_are_none_count_more_than_a_word_that_says_normal() -> None:
    found = changed(lambda there: there[f"{PSU}/Metrics"].update(InputVoltage={"Reading": 0}))
    assert texts(found) == [f"node01 psu PSU2: power supply input lost - Expected: Normal input Actual: 0 V. {FEED}"]


def test_too_few_good_supplies_are_said_once_more() -> None:
    state = healthy()
    for psu in state["bmc"]["psus"][:3]:
        psu.update(health="Critical")
    found = verdict(Supplies(), world(state))
    assert texts(found)[-1] == (
        "node01: too few good power supplies - Expected: at least 4 for full performance Actual: 3. "
        "The server slows down or stops under load: repair its supplies before anything else."
    )


def _group(**group: object) -> Change:
    return lambda there: there[f"{CHASSIS}/PowerSubsystem"].update(
        PowerSupplyRedundancy=[{"Status": {"State": "Enabled", "Health": "OK"}, **group}]
    )


DGX = (
    "NVIDIA DGX H100/H200 user guide: 6 supplies, 4+2 redundancy; three without power: reduced performance; "
    "starts with three"
)
BARE = (
    "node01 power redundancy group 0: power supplies not redundant - Expected: spares, since 4 of 6 are "
    f"enough ({DGX}) Actual: NotRedundant. Set the redundancy in the BMC, and repair the supply or feed "
    "that another finding names."
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
    assert (found.outcome, texts(found)) == (Outcome.FAIL, [BARE])


def test_a_set_that_is_not_redundant_is_a_fail_in_the_older_schema() -> None:
    found = changed(lambda there: there[f"{CHASSIS}/Power"]["Redundancy"][0].update(Mode="NotRedundant"), older=True)
    assert (found.outcome, texts(found)) == (Outcome.FAIL, [BARE])


def test_a_set_that_is_not_redundant_where_nothing_is_published_is_an_error() -> None:
    there = world(healthy())
    _group(RedundancyType="NotRedundant")(there)
    found = verdict(Supplies(), there, facts("sys_521ge_l40s"))
    assert (found.outcome, texts(found)) == (
        Outcome.ERROR,
        [
            (
                "node01 power redundancy group 0: power supplies not redundant - Expected: spares, or a "
                "profile that plans none Actual: NotRedundant. Set the redundancy in the BMC, or add "
                "psus with min_count and its source to the platform profile sys_521ge_l40s."
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
    assert (found.outcome, texts(found)) == (Outcome.PASS, [])


def _capacity(watts: object) -> Change:
    return lambda there: [
        there[f"{CHASSIS}/PowerSubsystem/PowerSupplies/PSU{index}"].update(PowerCapacityWatts=watts)
        for index in range(6)
    ]


def test_supplies_that_are_too_small_are_a_fail() -> None:
    found = changed(_capacity(1000))
    assert (found.outcome, texts(found)) == (
        Outcome.FAIL,
        [
            (
                "node01: power supplies too small - Expected: at least 10200 W from 4 of them (NVIDIA DGX H100 user "
                "guide: 10.2 kW maximum) Actual: 4000 W. "
                "Fit the supplies that the vendor lists for this server."
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
    assert (found.outcome, texts(found)) == (Outcome.PASS, [])
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


def test_a_supply_without_a_status_is_judged_by_its_power_sensor() -> None:
    """As a DGX H100's BMC shows its supplies."""

    def bare(there: World, watts: float | None) -> None:
        for index in range(6):
            del there[f"{CHASSIS}/PowerSubsystem/PowerSupplies/PSU{index}"]["Status"]
            at = f"{CHASSIS}/Sensors/PWR_PSU{index}"
            reading = watts if index == 2 else 410
            there[at] = {
                "@odata.id": at,
                "Id": f"PWR_PSU{index}",
                "ReadingType": "Power",
                "Reading": reading,
                "Status": {"State": "Enabled", "Health": "OK"},
            }
            there[f"{CHASSIS}/Sensors"]["Members"].append({"@odata.id": at})

    assert changed(lambda there: bare(there, 398)).outcome is Outcome.PASS
    found = changed(lambda there: bare(there, 0))
    assert texts(found) == [
        f"node01 psu PSU2: power supply delivers no power - Expected: power on PWR_PSU2 Actual: 0 W. {FEED}"
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda there: there[PSU].update(Status={"State": "Enabled", "Health": "Excellent"}),
            (
                "node01 psu PSU2: power supply state unknown - Expected: a State and a Health of Redfish "
                "Actual: State Enabled, Health Excellent. "
                "Update the BMC's firmware."
            ),
        ),
        (
            lambda there: there[PSU].update(Status={"State": "Enabled"}),
            (
                "node01 psu PSU2: power supply health not reported - Expected: Health OK "
                "Actual: State Enabled, no Health. Update the BMC's firmware."
            ),
        ),
        (
            lambda there: there[PSU].pop("Status"),
            (
                "node01 psu PSU2: power supply state not reported - Expected: a Status, or a power "
                "sensor with its name Actual: neither. Update the BMC's firmware."
            ),
        ),
        (
            lambda there: there[PSU].update(LineInputStatus="Fine"),
            (
                "node01 psu PSU2: input state unknown - Expected: one of LossOfInput, Normal, OutOfRange Actual: Fine. "
                "Update the BMC's firmware."
            ),
        ),
        (
            lambda there: there.pop(PSU),
            (
                f"node01 BMC: power supplies: {PSU} unread - Expected: a document, since the BMC links to it "
                f"Actual: node01 BMC: Redfish: HTTP 404: {PSU} (expected: success). "
                "Update or restart the BMC, then run the gate again."
            ),
        ),
    ],
)
def test_what_nobody_can_say_is_an_error(change: Change, message: str) -> None:
    found = changed(change)
    assert message in texts(found)
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
    ("found", "message"),
    [
        (
            _said(""),
            (
                "node01 BMC: power supplies unreadable - Expected: a complete document of the BMC's "
                f"answer Actual: empty output. {RAW}"
            ),
        ),
        (
            _said('{"format": "rackready/redfish/v1", "doc'),
            (
                "node01 BMC: power supplies unreadable - Expected: a complete document of the BMC's "
                f"answer Actual: JSON cut off or damaged at line 1 column 36. {RAW}"
            ),
        ),
        (
            _said("{}"),
            (
                "node01 BMC: power supplies unreadable - Expected: a complete document of the BMC's "
                f"answer Actual: no document of format rackready/redfish/v1. {RAW}"
            ),
        ),
        (
            _said(gathered(world(healthy()), ["Chassis/*/PowerSubsystem"]), code=1),
            (
                "node01 BMC: power supplies unreadable - Expected: a complete document of the BMC's "
                f"answer Actual: a complete document, but exit code 1. {RAW}"
            ),
        ),
        (
            _said("", code=None, failure="node01 BMC 192.0.2.111:443: unreachable"),
            (
                "node01 BMC: power supplies not reported - Expected: an answer over Redfish "
                "Actual: node01 BMC 192.0.2.111:443: unreachable. "
                "Check that the BMC of node01 answers (bmc.address, its cable, user and password in the site file), "
                "then run the gate again."
            ),
        ),
        (
            _said("", code=None, timed_out=True),
            (
                "node01 BMC: power supplies not reported - Expected: an answer in time Actual: none after 120 s. "
                "Restart the BMC, then run the gate again."
            ),
        ),
    ],
)
def test_no_whole_answer_is_an_error(found: Verdict, message: str) -> None:
    assert (found.outcome, texts(found)) == (Outcome.ERROR, [message])


def test_a_document_that_lost_a_resource_on_the_way_is_an_error() -> None:
    cut = json.loads(gathered(world(healthy()), ["Chassis/*/PowerSubsystem/PowerSupplies/*"]))
    del cut["documents"][PSU]
    found = _said(json.dumps(sealed(cut)))
    assert texts(found) == [
        (
            "node01 BMC: power supplies unreadable - Expected: a complete document of the BMC's answer "
            f"Actual: {PSU} was found and is missing from the document. {RAW}"
        )
    ]


def test_a_tray_that_the_rack_feeds_has_nothing_to_judge() -> None:
    state = healthy()
    state["bmc"]["psus"] = []
    found = verdict(Supplies(), world(state), facts("gb200_nvl72"))
    assert (found.outcome, texts(found)) == (Outcome.PASS, [])
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
    assert (
        "node01 BMC: power supplies not reported - Expected: at least one Actual: none. "
        "Update or restart the BMC, then run the gate again." in texts(found)
    )
