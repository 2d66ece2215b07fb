"""Outlets that go off one at a time: each only after a supply lost its input to the previous one.

Wrong outlets are on again at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from rackready.gates.bmc import cycle as module
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.site import Outlet
from tests.gates.fake_pdu import FakePdu, Room
from tests.gates.fake_supplies import Supplies
from tests.gates.mains import BOTH, OFF, ON, cycled, states, way
from tests.gates.support import tells
from tests.gates.test_bmc_cycles import Host, measured
from tests.stacks.fake_rack import FakeNode, FakeRack

NET = 89
SHOWN = "Undone: its outlets and the node are on again."
CORRECT = "and correct the outlets of node01 in the site file."


def where(room: Room) -> str:
    return f"node01 BMC {room.rack.nodes[0].bmc}:{room.rack.bmc_port}"


def moments(supplies: Supplies, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str]]]:
    """Record every outlet that is told to switch, and which supplies had input right before."""
    seen: list[tuple[str, list[str]]] = []
    original = FakePdu.switch

    def switch(pdu: FakePdu, outlet: str, state: str) -> None:
        seen.append(
            (f"{pdu.name} {outlet} {state}", [supply for supply in supplies.cords if supplies.has_input(supply)])
        )
        original(pdu, outlet, state)

    monkeypatch.setattr(FakePdu, "switch", switch)
    return seen


@pytest.mark.parametrize("told", ["word", "metrics", "quiet", "older"])
def test_each_outlet_goes_only_after_a_supply_lost_its_input_to_the_one_before(
    room: Room, ledger: Ledger, supplies: Supplies, monkeypatch: pytest.MonkeyPatch, told: str
) -> None:
    supplies.way = told
    seen = moments(supplies, monkeypatch)
    found, attempts = measured(Host(room.rack.nodes[0].boots), way(room, ledger), cycles=1)
    assert (found.outcome, tells(found)) == (Outcome.PASS, [])
    assert found.note == (
        "1 of 1 power cycles (ac by pdu), 12 parts compared after each; "
        "each outlet but the last was seen to feed a power supply of the node before the next went off"
    )
    names = ["PSU #0", "PSU #1"] if told == "older" else ["PSU0", "PSU1"]
    assert seen[:2] == [("pdu1 A1 Off", ["PSU0", "PSU1"]), ("pdu2 A1 Off", ["PSU1"])]
    assert json.loads(attempts[0].outputs["cycle-1"].stdout)["proof"] == {
        "by": "inputs",
        "took": {"pdu1 outlet A1": names[0]},
        "back": dict.fromkeys(names, True),
    }
    assert (room.asked, states(ledger)) == ([*OFF, *ON], ["done"])


def test_an_outlet_that_feeds_no_supply_is_on_again_at_once_and_no_other_goes(
    room: Room, ledger: Ledger, supplies: Supplies
) -> None:
    """Another machine is plugged into the first of two."""
    room.pdus["pdu1"].plugged = {"A2": room.rack.nodes[0]}
    supplies.cords = {"PSU0": ("pdu1", "A2"), "PSU1": ("pdu2", "A1")}
    assert cycled(room, ledger).failure == (
        f"{where(room)}: pdu1 outlet A1 - Expected: a power supply of node01 that loses its input within 0 s, since "
        "the site file says that this outlet feeds it "
        "Actual: PSU0 input, PSU1 input. Check what is plugged in there (it had no power from this outlet meanwhile), "
        f"{CORRECT} {SHOWN}"
    )
    assert room.asked == ["GracefulShutdown", "pdu1 A1 Off", "pdu1 A1 On", "On"]
    assert (states(ledger), room.rack.nodes[0].power) == (["failed"], "On")


def test_of_three_outlets_the_second_is_wrong_and_comes_on_first(
    room: Room, ledger: Ledger, supplies: Supplies
) -> None:
    three = [BOTH[0], Outlet(pdu="pdu1", outlet="A2"), BOTH[1]]
    room.pdus["pdu2"].plugged["A2"] = room.rack.nodes[0]
    supplies.cords = {"PSU0": ("pdu1", "A1"), "PSU1": ("pdu2", "A2"), "PSU2": ("pdu2", "A1")}
    assert cycled(room, ledger, outlets=three).failure == (
        f"{where(room)}: pdu1 outlet A2 - Expected: a power supply of node01 that loses its input within 0 s, since "
        "the site file says that this outlet feeds it "
        "Actual: PSU1 input, PSU2 input. Check what is plugged in there (it had no power from this outlet meanwhile), "
        f"{CORRECT} {SHOWN}"
    )
    assert room.asked == ["GracefulShutdown", "pdu1 A1 Off", "pdu1 A2 Off", "pdu1 A2 On", "pdu1 A1 On", "On"]
    assert states(ledger) == ["failed"]


def test_of_two_outlets_the_last_is_wrong_and_named_by_the_bmc_that_still_answers(
    room: Room, ledger: Ledger, supplies: Supplies
) -> None:
    room.pdus["pdu2"].plugged = {"A2": room.rack.nodes[0]}
    supplies.cords["PSU1"] = ("pdu2", "A2")
    assert cycled(room, ledger).failure == (
        f"{where(room)}: power cycle by pdu1 outlet A1, pdu2 outlet A1 - Expected: a BMC without power, "
        "since these are off Actual: after 0 s it still answers (power Off). The others were seen to "
        f"feed node01; pdu2 outlet A1 was not. Check what is plugged in there, {CORRECT} {SHOWN}"
    )
    assert room.asked == [*OFF, *ON]


def test_an_outlet_that_takes_two_supplies_leaves_one_that_feeds_none(
    room: Room, ledger: Ledger, supplies: Supplies
) -> None:
    three = [*BOTH, Outlet(pdu="pdu2", outlet="A2")]
    room.pdus["pdu2"].plugged = {"A2": room.rack.nodes[0]}
    supplies.cords = {"PSU0": ("pdu1", "A1"), "PSU1": ("pdu1", "A1"), "PSU2": ("pdu2", "A2")}
    assert cycled(room, ledger, outlets=three).failure == (
        f"{where(room)}: pdu1 outlet A1 - Expected: one power supply of node01 without input, since this outlet is "
        "off Actual: PSU0, PSU1. "
        f"So another of its outlets feeds none. Check what is plugged in where, {CORRECT} {SHOWN}"
    )
    assert room.asked == ["GracefulShutdown", "pdu1 A1 Off", "pdu1 A1 On", "On"]


def test_a_bmc_that_dies_with_the_first_of_its_outlets_ends_it(room: Room, ledger: Ledger, supplies: Supplies) -> None:
    room.pdus["pdu2"].plugged = {}
    supplies.cords["PSU1"] = ("pdu1", "A1")
    found = cycled(room, ledger).failure
    assert found.startswith(
        f"{where(room)}: pdu1 outlet A1 - Expected: a BMC that answers, since other outlets of node01 are on "
        f"Actual: {where(room)}: unreachable: "
    )
    assert "(expected: Redfish answers within 5 s)" in found
    assert found.endswith(
        f" Check which supplies of node01 are plugged into this outlet, "
        f"and correct its outlets in the site file. {SHOWN}"
    )
    assert room.asked == ["GracefulShutdown", "pdu1 A1 Off", "pdu1 A1 On", "On"]


def test_a_supply_that_merely_falls_quiet_was_not_seen_to_lose_anything(
    room: Room, ledger: Ledger, supplies: Supplies
) -> None:
    supplies.way = "quiet"
    supplies.told = {"PSU0": {"Status": {"State": "Enabled", "Health": "OK"}}}
    assert (
        "within 0 s, since the site file says that this outlet feeds it Actual: PSU0 not reported, PSU1 input. "
        in cycled(room, ledger).failure
    )
    assert room.asked == ["GracefulShutdown", "pdu1 A1 Off", "pdu1 A1 On", "On"]


def _dead(supplies: Supplies) -> None:
    supplies.dead = {"PSU1"}


def _mute(supplies: Supplies) -> None:
    supplies.told = {"PSU1": {"LineInputStatus": None}}


@pytest.mark.parametrize(("change", "actual"), [(_dead, "no input"), (_mute, "not reported")], ids=["dead", "mute"])
def test_a_supply_without_input_is_refused_before_anything(
    room: Room, ledger: Ledger, supplies: Supplies, change: Callable[[Supplies], None], actual: str
) -> None:
    change(supplies)
    assert cycled(room, ledger).failure == (
        f"{where(room)}: power supplies - Expected: input at each, before an outlet of node01 goes off "
        f"Actual: PSU0 input, PSU1 {actual}. "
        "pdu1 outlet A1, pdu2 outlet A1 show On: find the cord, breaker or supply that is dead, repair it, then run "
        "again."
    )
    assert (room.asked, ledger.entries("node01")) == ([], [])


@pytest.mark.parametrize(
    ("there", "shown"),
    [({"PSU0"}, "1 (PSU0)"), ({"PSU0", "PSU1", "PSU2"}, "3 (PSU0, PSU1, PSU2)")],
    ids=["fewer", "more"],
)
def test_another_number_of_supplies_than_outlets_is_refused_before_anything(
    room: Room, ledger: Ledger, supplies: Supplies, there: set[str], shown: str
) -> None:
    supplies.cords["PSU2"] = ("pdu2", "A2")
    supplies.told = {
        supply: {"Status": {"State": "Absent"}, "LineInputStatus": None} for supply in set(supplies.cords) - there
    }
    assert cycled(room, ledger).failure == (
        f"{where(room)}: power supplies - Expected: 2, one for each outlet of node01 (pdu1 outlet A1, pdu2 outlet "
        f"A1) Actual: {shown}. "
        f"Check what is plugged in where, {CORRECT[:-1]}; if a supply is missing, fit it first."
    )
    assert (room.asked, ledger.entries("node01")) == ([], [])


def test_supplies_that_cannot_be_read_are_refused_before_anything(
    room: Room, ledger: Ledger, supplies: Supplies
) -> None:
    original = supplies.documents
    room.rack.nodes[0].more = lambda: {
        address: document for address, document in original().items() if not address.endswith("/PSU1")
    }
    at = "/redfish/v1/Chassis/1/PowerSubsystem/PowerSupplies/PSU1"
    found = cycled(room, ledger).failure
    assert found.startswith(
        f"{where(room)}: power supplies - Expected: to read whether each has input, before an outlet of node01 goes "
        f"off Actual: {at} unread: {where(room)}: "
    )
    assert found.endswith("Update or restart the BMC, then run again.")
    assert (room.asked, ledger.entries("node01")) == ([], [])


def test_a_supply_that_dies_while_the_node_goes_down_ends_it_before_an_outlet_is_switched(
    room: Room, ledger: Ledger, supplies: Supplies, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = FakeRack.reset

    def reset(rack: FakeRack, node: FakeNode, kind: str) -> None:
        original(rack, node, kind)
        supplies.dead = {"PSU0"}

    monkeypatch.setattr(FakeRack, "reset", reset)
    assert cycled(room, ledger).failure == (
        f"{where(room)}: power supplies - Expected: input at each, before an outlet of node01 goes off "
        "Actual: PSU0 no input, PSU1 input. "
        "pdu1 outlet A1, pdu2 outlet A1 show On: find the cord, breaker or supply that is dead, repair it, then run "
        "again. "
        "Undone: no outlet was switched, the node is on again."
    )
    assert room.asked == ["GracefulShutdown", "On"]


def _only_while_on(room: Room, supplies: Supplies) -> None:
    original = supplies.documents

    def documents() -> dict[str, dict[str, Any]]:
        found = original()
        if room.rack.nodes[0].power != "On":
            for document in (document for document in found.values() if "LineInputStatus" in document):
                document["LineInputStatus"], document["Status"] = None, {"State": "UnavailableOffline"}
        return found

    room.rack.nodes[0].more = documents


def _never(_room: Room, supplies: Supplies) -> None:
    supplies.way = "none"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_never, "its BMC does not report whether its power supplies have input"),
        (_only_while_on, "its BMC reports only while the node is on whether its power supplies have input"),
    ],
    ids=["never", "only-while-on"],
)
def test_where_input_is_not_told_only_silence_shows_it_and_that_is_said(
    room: Room, ledger: Ledger, supplies: Supplies, change: Callable[[Room, Supplies], None], why: str
) -> None:
    change(room, supplies)
    found, attempts = measured(Host(room.rack.nodes[0].boots), way(room, ledger), cycles=1)
    assert (found.outcome, tells(found)) == (Outcome.PASS, [])
    assert found.note == (
        "1 of 1 power cycles (ac by pdu), 12 parts compared after each; "
        f"only the silence of its BMC showed that the outlets are the node's own: {why}"
    )
    assert json.loads(attempts[0].outputs["cycle-1"].stdout)["proof"] == {"by": "silence", "why": why}
    assert f"only the silence of its BMC will show that pdu1 outlet A1, pdu2 outlet A1 feed it: {why}" in [
        event.text for event in ledger.events("c1")
    ]
    assert room.asked == [*OFF, *ON]


def test_one_outlet_is_shown_by_silence_alone(room: Room, ledger: Ledger, supplies: Supplies) -> None:
    room.pdus["pdu2"].plugged = {}
    del supplies.cords["PSU1"]
    told = json.loads(cycled(room, ledger, outlets=BOTH[:1]).stdout)
    assert told["proof"] == {"by": "silence", "why": "it has one outlet"}
    assert room.asked == ["GracefulShutdown", "pdu1 A1 Off", "pdu1 A1 On", "On"]


def _slow(_room: Room, supplies: Supplies) -> None:
    """Asking takes longer than a supply may take to be seen: one more request starts after that time."""
    supplies.slow_s = 0.2
    supplies.lag_s = 0.35


def _lagging_outlet(room: Room, _supplies: Supplies) -> None:
    room.pdus["pdu1"].told["A1"] = {"PowerOffDelaySeconds": 0.6}
    room.pdus["pdu1"].lag_s = {"A1 Off": 0.5}


@pytest.mark.parametrize("change", [_slow, _lagging_outlet], ids=["slow-bmc", "lagging-outlet"])
def test_what_is_slow_is_waited_for(
    room: Room,
    ledger: Ledger,
    supplies: Supplies,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Room, Supplies], None],
) -> None:
    change(room, supplies)
    seen = moments(supplies, monkeypatch)
    told = json.loads(cycled(room, ledger).stdout)
    assert told["proof"]["took"] == {"pdu1 outlet A1": "PSU0"}
    assert seen[1] == ("pdu2 A1 Off", ["PSU1"])


def test_a_bmc_that_shows_it_too_late_is_taken_for_a_wrong_outlet(
    room: Room, ledger: Ledger, supplies: Supplies
) -> None:
    supplies.lag_s = 60.0
    assert "Actual: PSU0 input, PSU1 input. " in cycled(room, ledger).failure
    assert room.asked == ["GracefulShutdown", "pdu1 A1 Off", "pdu1 A1 On", "On"]


@pytest.mark.parametrize(
    ("told", "actual"),
    [({"LineInputStatus": "LossOfInput"}, "no input"), ({"LineInputStatus": None}, "not reported")],
    ids=["no-input", "not-told"],
)
def test_a_supply_that_stays_without_input_fails_the_node_and_ends_the_row(
    room: Room,
    ledger: Ledger,
    supplies: Supplies,
    monkeypatch: pytest.MonkeyPatch,
    told: dict[str, object],
    actual: str,
) -> None:
    original = FakeRack.mains

    def mains(rack: FakeRack, node: FakeNode, *, on: bool) -> None:
        original(rack, node, on=on)
        supplies.told = {"PSU0": told} if on else {}

    monkeypatch.setattr(FakeRack, "mains", mains)
    found, attempts = measured(Host(room.rack.nodes[0].boots), way(room, ledger), cycles=3)
    assert (found.outcome, tells(found)) == (
        Outcome.FAIL,
        [("cycle-no-input-again", "node01 psu PSU0", "Normal input", actual, "cycle=1 (ac by pdu)")],
    )
    assert (room.asked, "cycle-2" in attempts[0].outputs) == ([*OFF, *ON], False), "it is not cycled again"
    assert states(ledger) == ["done"]


def test_a_login_that_the_bmc_refuses_after_its_mains_came_back_is_not_tried_until_it_locks(
    room: Room, ledger: Ledger, supplies: Supplies, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = room.rack.nodes[0]
    real = module._power_on_again

    def on_again(bmc: Any) -> str:  # noqa: ANN401 - a Bmc
        found = real(bmc)
        node.sessions.clear()
        node.password = "other"
        node.logins = 0
        return found

    monkeypatch.setattr(module, "_power_on_again", on_again)
    assert json.loads(cycled(room, ledger).stdout)["proof"]["back"] == {"PSU0": None, "PSU1": None}
    assert node.logins <= 1
    assert supplies.has_input("PSU0")
