"""Power limits over Redfish: of the whole server, of a part, of the older resource, and the cap that a site wants."""

from __future__ import annotations

from typing import Any

import pytest

from rackready.gates.bmc.limit import PowerLimit
from rackready.model.outcome import Outcome
from tests.gates.redfish_world import CHASSIS, SYSTEM, World, healthy, verdict, world
from tests.gates.support import tells
from tests.gates.test_bmc_gates import Change, changed


def _older_limit(**control: Any) -> Change:
    return lambda there: there[f"{CHASSIS}/Power"]["PowerControl"][0].update(control)


def test_a_limit_in_the_older_schema_is_held_against_the_platform() -> None:
    found = changed(PowerLimit, _older_limit(PowerLimit={"LimitInWatts": 5000}), older=True)
    assert found.outcome is Outcome.FAIL
    assert tells(found)[0] == (
        "bmc-power-limit-below-draw-old",
        "node01 power control 0",
        "none, or at least 10200 W (NVIDIA DGX H100 user guide: 10.2 kW maximum)",
        "5000 W",
    )


ENVIRONMENT = f"{CHASSIS}/EnvironmentMetrics"
BELOW = (
    "bmc-power-limit-below-draw",
    "node01 DGX",
    "none, or at least 10200 W (NVIDIA DGX H100 user guide: 10.2 kW maximum)",
    "3000 W",
)


def _board(there: World, **links: object) -> None:
    """Beside the server's chassis there is its GPU board's, with a limit of its own.

    ``links``: those of the server's chassis.
    """
    board = "/redfish/v1/Chassis/HGX_Chassis_0"
    system = {"ComputerSystems": [{"@odata.id": "/redfish/v1/Systems/HGX_Baseboard_0"}]}
    there[board] = {
        "@odata.id": board,
        "ChassisType": "Zone",
        "Links": system,
        "EnvironmentMetrics": {"@odata.id": f"{board}/EnvironmentMetrics"},
    }
    limit = {"SetPoint": 5600, "DefaultSetPoint": 5600, "AllowableMax": 5600, "ControlMode": "Automatic"}
    there[f"{board}/EnvironmentMetrics"] = {"@odata.id": f"{board}/EnvironmentMetrics", "PowerLimitWatts": limit}
    there["/redfish/v1/Chassis"]["Members"].append({"@odata.id": board})
    there["/redfish/v1/Chassis"]["Members@odata.count"] += 1
    there[CHASSIS]["Links"] = links or {"ComputerSystems": [{"@odata.id": SYSTEM}]}


@pytest.mark.parametrize(
    "limit",
    [
        pytest.param({"AllowableMax": 3000}, id="its maximum"),
        pytest.param({}, id="nothing else"),
        pytest.param({"DefaultSetPoint": 3000, "AllowableMax": 10200}, id="its default"),
    ],
)
@pytest.mark.parametrize("board", [False, True])
def test_a_limit_of_the_whole_server_is_held_against_the_platform_whatever_the_bmc_calls_its_default(
    limit: dict[str, int], *, board: bool
) -> None:
    def low(there: World) -> None:
        there[ENVIRONMENT]["PowerLimitWatts"] = {"SetPoint": 3000, "ControlMode": "Automatic", **limit}
        if board:
            _board(there)

    found = changed(PowerLimit, low)
    assert (found.outcome, tells(found)) == (Outcome.FAIL, [BELOW])


def test_the_limit_of_a_gpu_board_is_not_held_against_what_the_server_draws() -> None:
    found = changed(PowerLimit, _board)
    assert (found.outcome, tells(found)) == (Outcome.PASS, [])
    assert [(item.target, item.value) for item in found.metrics] == [
        ("node01/DGX", 10200),
        ("node01/HGX_Chassis_0", 5600),
    ]


def test_a_chassis_within_another_is_a_part_of_the_server() -> None:
    def low(there: World) -> None:
        _board(there, ContainedBy={"@odata.id": "/redfish/v1/Chassis/Sled"}, ComputerSystems=[{"@odata.id": SYSTEM}])
        there[ENVIRONMENT]["PowerLimitWatts"] = {"SetPoint": 3000, "AllowableMax": 3000}

    assert changed(PowerLimit, low).outcome is Outcome.PASS


def test_a_limit_of_no_watts_and_one_that_is_switched_off_limit_nothing() -> None:
    for limit in ({"SetPoint": 0}, {"SetPoint": 3000, "ControlMode": "Disabled"}):
        found = changed(PowerLimit, lambda there, limit=limit: there[ENVIRONMENT].update(PowerLimitWatts=limit))
        assert (found.outcome, tells(found)) == (Outcome.PASS, [])


def test_a_limit_below_the_wanted_cap_is_a_fail_even_where_the_older_resource_shows_the_cap() -> None:
    there = world(healthy())
    there[ENVIRONMENT]["PowerLimitWatts"] = {"SetPoint": 3000, "AllowableMax": 3000}
    there[CHASSIS]["Power"] = {"@odata.id": f"{CHASSIS}/Power"}
    there[f"{CHASSIS}/Power"] = {
        "@odata.id": f"{CHASSIS}/Power",
        "PowerControl": [{"PowerConsumedWatts": 900, "PowerLimit": {"LimitInWatts": 9000}}],
    }
    found = verdict(PowerLimit({"cap_w": 9000}), there)
    assert tells(found) == [("bmc-power-limit", "node01 DGX", "9000 W, as the site wants", "3000 W")]


def test_a_control_that_meters_nothing_limits_nothing() -> None:
    """As a DGX H100's shows 500 W beside 0 W consumed."""
    found = changed(PowerLimit, _older_limit(PowerLimit={"LimitInWatts": 500}, PowerConsumedWatts=0), older=True)
    assert found.outcome is Outcome.PASS
    assert (
        found.note == "node01 power control 0 shows a limit of 500 W and measures no power: it cannot limit, and is "
        "recorded only"
    )


def test_a_bmc_that_shows_no_power_control_limits_nothing_but_one_that_shows_no_chassis_is_an_error() -> None:
    found = changed(PowerLimit, lambda there: there[CHASSIS].pop("EnvironmentMetrics"))
    assert (found.outcome, found.note) == (Outcome.PASS, "the BMC shows no power control: it limits nothing")
    found = changed(
        PowerLimit, lambda there: there["/redfish/v1/Chassis"].update({"Members": [], "Members@odata.count": 0})
    )
    assert tells(found) == [("bmc-no-chassis", "node01 BMC", "at least one", "none")]


@pytest.mark.parametrize(("shown", "outcome"), [(9000, Outcome.PASS), (None, Outcome.FAIL), (8000, Outcome.FAIL)])
def test_a_cap_that_the_site_wants_must_be_that_one(shown: int | None, outcome: Outcome) -> None:
    state = healthy()
    state["bmc"].update(schema="legacy", power_limit_w=shown)
    assert verdict(PowerLimit({"cap_w": 9000}), world(state)).outcome is outcome


@pytest.mark.parametrize(("shown", "outcome"), [(9000, Outcome.PASS), (8000, Outcome.FAIL)])
def test_a_cap_that_the_site_wants_may_stand_in_the_newer_schema(shown: int, outcome: Outcome) -> None:
    there = world(healthy())
    there[f"{CHASSIS}/EnvironmentMetrics"]["PowerLimitWatts"] = {
        "SetPoint": shown,
        "DefaultSetPoint": 10200,
        "ControlMode": "Automatic",
    }
    assert verdict(PowerLimit({"cap_w": 9000}), there).outcome is outcome


def test_a_cap_that_nobody_can_see_is_an_error() -> None:
    found = verdict(PowerLimit({"cap_w": 9000}), world(healthy()))
    assert tells(found) == [("bmc-power-limit-not-reported", "node01 BMC", "9000 W, as the site wants", "10200 W")]
    assert found.outcome is Outcome.ERROR
