"""No node is left dark or loses its power at the wrong moment.

Answers that are not documents, an outlet that switches late, a job that starts meanwhile.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rackready.drivers.process import Interrupted
from rackready.drivers.remote import Answer
from rackready.gates.bmc import cycle as module
from rackready.gates.bmc.interrupted import give_back
from rackready.gates.bmc.mains import Mains
from rackready.ledger.store import Ledger
from rackready.model.problems import RackreadyError
from rackready.model.site import Outlet
from tests.gates.fake_pdu import FakePdu, Room, _Pdu
from tests.gates.mains import bmc_site, cycled, cycler, killed_without_mains, states
from tests.stacks import fake_rack

NET = 88


class Hosts:
    """Nodes that have booted."""

    def run(self, *_: object, **__: object) -> Answer:
        return Answer(0, "", "", 0.0)


def off(room: Room) -> dict[str, list[str]]:
    return {name: sorted(pdu.off) for name, pdu in room.pdus.items()}


def said(ledger: Ledger) -> str:
    return "\n".join(event.text for event in ledger.events("c1"))


def busy(monkeypatch: pytest.MonkeyPatch, room: Room, times: int) -> None:
    """Make pdu2 answer with a page instead of a document, so many times, from when the node is without mains.

    pdu2 is the first to switch on again.
    """
    original, sent = _Pdu.do_GET, [0]

    def answer(self: Any) -> None:  # noqa: ANN401 - a request of the fake PDU
        if self.pdu.name == "pdu2" and (sent[0] or room.rack.nodes[0].dark) and sent[0] < times:
            sent[0] += 1
            page = b"<html>busy</html>"
            self.send_response(200)
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)
            return
        original(self)

    monkeypatch.setattr(_Pdu, "do_GET", answer)


def test_a_pdu_that_answers_with_a_page_for_a_moment_is_asked_again(
    room: Room, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy(monkeypatch, room, 2)
    cycled(room, ledger)
    assert off(room) == {"pdu1": [], "pdu2": []}
    assert states(ledger)[-1] != "intent"


def test_a_pdu_that_answers_with_pages_only_keeps_no_other_outlet_off(
    room: Room, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy(monkeypatch, room, 10**9)
    answer = cycled(room, ledger)
    assert off(room)["pdu1"] == []
    assert "Redfish - Expected: a JSON document Actual: " in answer.failure
    assert "Bring outlets and node to On by hand, or run the gate again: it tries to undo it." in answer.failure
    assert states(ledger)[-1] == "intent"


def test_an_outlet_that_goes_off_after_everything_was_switched_on_again_is_switched_on_once_more(
    room: Room, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The PDU accepts the order and obeys it late: after the node was powered on again."""
    room.pdus["pdu2"].plugged = {}
    original, real, late = FakePdu.switch, module._power_on_again, [True]

    def takes(pdu: FakePdu, outlet: str, state: str) -> None:
        if state == "Off":
            room.asked.append(f"{pdu.name} {outlet} {state}")
        else:
            original(pdu, outlet, state)

    def on_again(bmc: Any) -> str:  # noqa: ANN401 - a Bmc
        found = real(bmc)
        if late:
            late.clear()
            room.pdus["pdu1"]._turn("A1", "Off")
        return found

    monkeypatch.setattr(FakePdu, "switch", takes)
    monkeypatch.setattr(module, "_power_on_again", on_again)
    answer = cycled(room, ledger, outlets=[Outlet(pdu="pdu1", outlet="A1")])
    assert "Undone: its outlets and the node are on again." in answer.failure
    assert (off(room)["pdu1"], room.rack.nodes[0].power) == ([], "On")


def test_a_login_that_the_bmc_refuses_after_its_mains_went_is_not_tried_again(
    room: Room, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, logins, login = room.rack.nodes[0], [], fake_rack.Redfish._login
    room.pdus["pdu1"].plugged = room.pdus["pdu2"].plugged = {}
    original = FakePdu.switch

    def switch(pdu: FakePdu, outlet: str, state: str) -> None:
        original(pdu, outlet, state)
        if state == "Off":
            node.sessions.clear()
            node.password = "other"

    def count(self: Any, body: Any) -> None:  # noqa: ANN401 - a request of the fake BMC
        logins.append(self.machine is node)
        login(self, body)

    monkeypatch.setattr(FakePdu, "switch", switch)
    monkeypatch.setattr(fake_rack.Redfish, "_login", count)
    assert "Redfish refused the login" in cycled(room, ledger).failure
    assert off(room) == {"pdu1": [], "pdu2": []}
    assert sum(logins) <= 4  # before; once while it should be silent; twice while it is waited for


def test_the_scheduler_is_asked_again_right_before_the_power_goes(
    room: Room, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    job: list[str] = []
    real = Mains.require_on

    def waits(mains: Mains) -> None:
        job.append("job 7 runs on it")
        real(mains)

    monkeypatch.setattr(Mains, "require_on", waits)
    made = replace(cycler(room, ledger), refuse=lambda _node: "".join(job[:1]))
    with pytest.raises(
        RackreadyError,
        match=r"no jobs run or may start Actual: job 7 runs on it\. Nothing was done to it: drain it first\.",
    ):
        made.cycle("node01", bmc_site(room), "ac", "1", proceed=lambda: None)
    assert (room.asked, states(ledger)) == ([], [])


def test_a_stop_before_the_power_goes_leaves_nothing_open(room: Room, ledger: Ledger) -> None:
    def stop() -> None:
        raise Interrupted

    with pytest.raises(Interrupted):
        cycler(room, ledger).cycle("node01", bmc_site(room), "ac", "1", proceed=stop)
    assert (room.asked, states(ledger)) == ([], [])


def test_what_was_left_off_before_a_repair_is_told_and_not_switched(
    room: Room, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_without_mains(room, ledger, monkeypatch)
    ledger.raise_epoch("node01", "repaired: another power supply")
    asked = list(room.asked)
    give_back(cycler(room, ledger), Hosts(), {"node01": bmc_site(room)}, ["node01"])
    assert room.asked == asked
    assert said(ledger).endswith(
        "a power cycle was interrupted before node01 was repaired: rackready no longer switches its "
        f"power, and {', '.join(outlet.called for outlet in cycler(room, ledger).feeds.outlets['node01'])} may still "
        "be off: switch it on by hand."
    )


def test_an_outlet_that_the_site_gives_to_another_node_by_now_is_not_switched(
    room: Room, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_without_mains(room, ledger, monkeypatch)
    made = cycler(room, ledger)
    outlets = made.feeds.outlets["node01"]
    asked = list(room.asked)
    other = replace(made, feeds=replace(made.feeds, outlets={"node02": outlets}))
    give_back(other, Hosts(), {"node01": bmc_site(room)}, ["node01"])
    assert room.asked == asked
    told = (
        "the site file now gives it to node02. Nothing was switched: "
        "check what is plugged in there, and switch it on by hand."
    )
    assert f"{outlets[0].called} - Expected: its own, as when its power was taken away Actual: {told}" in said(ledger)
