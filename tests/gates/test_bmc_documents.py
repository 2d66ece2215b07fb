"""A BMC's answer is taken as a whole or not at all.

It needs a digest, every resource at its own address, and no value of a type that Redfish does not have.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from rackready.drivers.redfish_read import sealed
from rackready.gates.bmc.fans import Fans
from rackready.gates.bmc.limit import PowerLimit
from rackready.model.outcome import Outcome, Verdict
from tests.gates.redfish_world import CHASSIS, gathered, healthy, verdict, world
from tests.gates.support import Said, outputs, rack, tells

FAN = f"{CHASSIS}/ThermalSubsystem/Fans/SPD_FAN_SYS4_F"


def told(change: Callable[[dict[str, Any]], object], *, seal: bool = True) -> Verdict:
    gate, known = Fans(), rack()
    run = gate.plan(known, ["node01"])[0]
    found = json.loads(gathered(world(healthy()), run.commands[0].argv[1:]))
    change(found)
    return gate.evaluate(known, run, outputs(run, {"redfish": Said(json.dumps(sealed(found) if seal else found))}))


def lose_digest(found: dict[str, Any]) -> None:
    del found["digest"]


def lose_fan(found: dict[str, Any]) -> None:
    for ends in found["trails"].values():
        ends[:] = [end for end in ends if end != FAN]


def lose_no_members(found: dict[str, Any]) -> None:
    del found["no_members"]


def add_no_members(found: dict[str, Any]) -> None:
    found["unread"][FAN] = "HTTP 500"
    found["digest"] = sealed(found)["digest"]
    found["no_members"] = [FAN]


@pytest.mark.parametrize("change", [lose_digest, lose_fan, lose_no_members, add_no_members])
def test_what_was_lost_on_the_way_is_not_taken_for_what_is_not_there(
    change: Callable[[dict[str, Any]], object],
) -> None:
    found = told(change, seal=False)
    said = (
        "bmc-unreadable",
        "node01 BMC",
        "a complete document of the BMC's answer",
        "its digest is not that of its contents",
        "what=fans",
    )
    assert (found.outcome, tells(found)) == (Outcome.ERROR, [said])


@pytest.mark.parametrize(
    ("change", "actual"),
    [
        (
            lambda found: found["documents"][FAN].update({"@odata.id": "/redfish/v1/other"}),
            "a resource that is not a JSON object, or does not have its own address",
        ),
        (
            lambda found: found["documents"].update({FAN: []}),
            "a resource that is not a JSON object, or does not have its own address",
        ),
        (lambda found: next(iter(found["trails"].values())).append({}), "a trail that is not a list of addresses"),
        (lambda found: found.update(unread=None), "documents, trails or unread missing"),
        (lambda found: found.update(no_members=None), "no_members that is not a list of unread addresses"),
        (lambda found: found.update(no_members=[FAN]), "no_members that is not a list of unread addresses"),
    ],
    ids=["another address", "no object", "no address in a trail", "no list of what is unread", "null", "read"],
)
def test_a_document_of_another_shape_is_an_error(change: Callable[[dict[str, Any]], object], actual: str) -> None:
    found = told(change)
    said = ("bmc-unreadable", "node01 BMC", "a complete document of the BMC's answer", actual, "what=fans")
    assert (found.outcome, tells(found)) == (Outcome.ERROR, [said])


@pytest.mark.parametrize(
    ("change", "actual"),
    [
        ({"Status": "OK"}, "Status is 'OK', not an object"),
        ({"Status": {"State": ["Enabled"], "Health": "OK"}}, "State is \"['Enabled']\", not a word"),
        ({"Status": {"State": "Enabled", "Health": {}}}, "Health is '{}', not a word"),
        (
            {"Status": {"State": "Enabled", "Health": "OK", "Conditions": "none"}},
            "Conditions is 'none', not a list of objects",
        ),
        ({"LineInputVoltage": True}, "LineInputVoltage is 'True', not a number"),
        ({"ChassisType": []}, "ChassisType is '[]', not a word"),
        (
            {"Links": {"ComputerSystems": ["/redfish/v1/Systems/DGX"]}},
            "ComputerSystems is \"['/redfish/v1/Systems/DGX']\", not a list of links",
        ),
        ({"PowerControl": ["N/A"]}, "PowerControl is \"['N/A']\", not a list of objects"),
        ({"Redundancy": {}}, "Redundancy is '{}', not a list of objects"),
        ({"Metrics": {"@odata.id": ""}}, "Metrics is \"{'@odata.id': ''}\", not a link"),
    ],
    ids=[
        "status",
        "state",
        "health",
        "conditions",
        "true as a number",
        "chassis type",
        "links",
        "parts",
        "no parts",
        "no address",
    ],
)
def test_a_value_of_a_type_that_redfish_does_not_have_is_no_answer(change: dict[str, Any], actual: str) -> None:
    found = told(lambda document: document["documents"][FAN].update(change))
    assert found.outcome is Outcome.ERROR
    assert (
        "bmc-link-unread",
        "node01 BMC",
        "a document, since the BMC links to it",
        actual,
        "what=fans",
        f"address={FAN}",
    ) in tells(found)
    assert "node01/fan/SPD_FAN_SYS4_F" not in found.measured


def test_what_vendors_add_of_their_own_may_be_of_any_type() -> None:
    found = told(lambda document: document["documents"][FAN].update({"Oem": {"Vendor": {"Reading": "N/A"}}}))
    assert (found.outcome, tells(found)) == (Outcome.PASS, [])


def test_a_set_point_that_is_no_number_is_not_taken_for_none() -> None:
    there = world(healthy())
    there[f"{CHASSIS}/EnvironmentMetrics"]["PowerLimitWatts"] = {"SetPoint": "", "DefaultSetPoint": 10200}
    found = verdict(PowerLimit(), there)
    address = f"{CHASSIS}/EnvironmentMetrics"
    said = (
        "bmc-link-unread",
        "node01 BMC",
        "a document, since the BMC links to it",
        "SetPoint is '', not a number",
        "what=power limits",
        f"address={address}",
    )
    assert (found.outcome, tells(found)) == (Outcome.ERROR, [said])


def test_an_answer_in_which_something_was_not_asked_does_not_say_that_there_is_none() -> None:
    asked = Fans().plan(rack(), ["node01"])[0].commands[0].argv[1:]
    found = told(lambda found: found["trails"].pop(asked[1]))
    said = (
        "bmc-not-all-asked",
        "node01 BMC",
        f"answers to all {len(asked)} questions of today's gate",
        f"1 not asked, {asked[1]} first",
        "what=fans",
    )
    assert (found.outcome, tells(found)) == (Outcome.ERROR, [said])
