"""A kill at any moment while outlets go off one at a time: the next run switches on whatever was off, and the node."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from rackready.drivers.redfish_outlets import PduOutlet
from rackready.gates.bmc import watch
from rackready.gates.bmc.interrupted import give_back
from rackready.ledger.store import Ledger
from rackready.model.site import Outlet
from tests.gates.fake_pdu import Room
from tests.gates.fake_supplies import Supplies
from tests.gates.mains import BOTH, bmc_site, cycled, cycler, states
from tests.gates.power.test_bmc_dark import Hosts
from tests.gates.test_bmc_cycles import Killed

NET = 92


def _killed(room: Room, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, outlets: list[Outlet] | None = None) -> None:
    """Leave a cycle as a SIGKILL does while a supply is waited for."""

    def sleep(_seconds: float) -> None:
        if any(pdu.off for pdu in room.pdus.values()):
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(watch, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))
        with pytest.raises(Killed):
            cycler(room, ledger, outlets).cycle("node01", bmc_site(room), "ac", "1", proceed=lambda: None)
    assert states(ledger) == ["intent"]


@pytest.mark.parametrize("position", ["first", "second"])
def test_after_a_kill_while_a_supply_is_waited_for_every_outlet_is_on_again(
    room: Room, ledger: Ledger, supplies: Supplies, monkeypatch: pytest.MonkeyPatch, position: str
) -> None:
    """At the first the node is still alive; at the second, another outlet is off that is not its own."""
    three = [BOTH[0], Outlet(pdu="pdu1", outlet="A2"), BOTH[1]] if position == "second" else BOTH
    if position == "second":
        room.pdus["pdu2"].plugged["A2"] = room.rack.nodes[0]
        supplies.cords = {"PSU0": ("pdu1", "A1"), "PSU1": ("pdu2", "A2"), "PSU2": ("pdu2", "A1")}
    else:
        supplies.lag_s = 60.0
    _killed(room, ledger, monkeypatch, three)
    assert room.pdus["pdu1"].off == ({"A1", "A2"} if position == "second" else {"A1"})
    give_back(cycler(room, ledger, three), Hosts(), {"node01": bmc_site(room)}, ["node01"])
    assert [pdu.off for pdu in room.pdus.values()] == [set(), set()]
    assert (room.rack.nodes[0].power, states(ledger)) == ("On", ["done"])


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", [1, 2, 3, 4], ids=["off-1", "off-2", "on-2", "on-1"])
def test_after_a_kill_right_before_or_after_a_switch_every_outlet_is_on_again(
    room: Room, ledger: Ledger, supplies: Supplies, monkeypatch: pytest.MonkeyPatch, number: int, *, after: bool
) -> None:
    original, count = PduOutlet.switch, [0]

    def switch(outlet: PduOutlet, state: Literal["On", "Off"]) -> None:
        count[0] += 1
        if count[0] == number and not after:
            raise Killed
        original(outlet, state)
        if count[0] == number:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(PduOutlet, "switch", switch)
        with pytest.raises(Killed):
            cycler(room, ledger).cycle("node01", bmc_site(room), "ac", "1", proceed=lambda: None)
    assert states(ledger) == ["intent"]
    give_back(cycler(room, ledger), Hosts(), {"node01": bmc_site(room)}, ["node01"])
    assert [pdu.off for pdu in room.pdus.values()] == [set(), set()]
    assert all(map(supplies.has_input, supplies.cords))
    assert (room.rack.nodes[0].power, states(ledger)) == ("On", ["done"])


def test_a_bmc_that_just_got_its_power_back_may_tell_of_its_supplies_a_little_later(
    room: Room, ledger: Ledger, supplies: Supplies, monkeypatch: pytest.MonkeyPatch
) -> None:
    supplies.lag_s = 60.0
    _killed(room, ledger, monkeypatch)
    supplies.lag_s = 0.0
    begun: list[float] = []

    def documents() -> dict[str, dict[str, Any]]:
        if room.pdus["pdu1"].off or room.rack.nodes[0].power != "On":
            return supplies.documents()
        begun.append(time.monotonic())
        passed, found = time.monotonic() - begun[0], supplies.documents()
        some = {address: document for address, document in found.items() if not address.endswith("/PSU1")}
        at = "/redfish/v1/Chassis/1/PowerSubsystem/PowerSupplies"
        some[at] = {"@odata.id": at, "Members": found[at]["Members"][:1], "Members@odata.count": 1}
        return {} if passed < 0.1 else some if passed < 0.2 else found

    room.rack.nodes[0].more = documents
    assert json.loads(cycled(room, ledger).stdout)["proof"]["by"] == "inputs"
