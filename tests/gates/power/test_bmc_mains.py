"""Power cycles by the outlets of PDUs: in a safe order, only by a node's own outlets, and none is ever left off."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from rackready.drivers import redfish_http
from rackready.gates.bmc import guard
from rackready.gates.bmc.cycles import PowerCycles
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.site import Outlet
from tests.gates.fake_pdu import FakePdu, Room
from tests.gates.mains import OFF, ON, cycled, states, way
from tests.gates.support import rack as facts
from tests.gates.support import tells
from tests.gates.test_bmc_cycles import Host, measured
from tests.stacks.fake_rack import FakeNode, FakeRack
from tests.unit.design.test_outlets import site as fed
from tests.unit.design.written import parse

NET = 86


def test_a_node_whose_outlets_are_named_is_cycled_by_them_and_passes(room: Room, ledger: Ledger) -> None:
    node = room.rack.nodes[0]
    found, attempts = measured(Host(node.boots), way(room, ledger))
    assert (found.outcome, tells(found)) == (Outcome.PASS, [])
    assert found.note == (
        "2 of 2 power cycles (ac by pdu), 12 parts compared after each; only the silence of its BMC "
        "showed that the outlets are the node's own: its BMC does not report whether its power supplies "
        "have input"
    )
    assert room.asked == [*OFF, *ON] * 2
    told = json.loads(attempts[0].outputs["cycle-1"].stdout)
    assert {key: told[key] for key in ("kind", "by", "outlets", "states")} == {
        "kind": "ac",
        "by": "pdu",
        "outlets": ["pdu1 outlet A1", "pdu2 outlet A1"],
        "states": ["Off", "outlets off", "BMC silent", "outlets on", "On"],
    }
    entries = ledger.entries("node01")
    assert states(ledger) == ["done", "done"]
    assert entries[0].observed["outlets"] == [{"pdu": f"pdu{n}", "outlet": "A1", "rack_pdu": None} for n in (1, 2)]


def test_the_bmc_itself_takes_the_mains_away_where_no_outlets_are_named(room: Room, ledger: Ledger) -> None:
    room.rack.nodes[0].resets += ("FullPowerCycle",)
    told = json.loads(cycled(room, ledger, "auto", outlets=[]).stdout)
    assert (told["kind"], told["by"], told["states"]) == ("ac", "bmc", ["AC off and on", "On"])
    assert room.asked == ["FullPowerCycle", "On"]


def test_outlets_come_before_the_bmcs_own_way(room: Room, ledger: Ledger) -> None:
    room.rack.nodes[0].resets += ("FullPowerCycle",)
    assert json.loads(cycled(room, ledger, "auto").stdout)["by"] == "pdu"


def test_cold_and_warm_cycles_touch_no_outlet(room: Room, ledger: Ledger) -> None:
    assert json.loads(cycled(room, ledger, "cold").stdout)["kind"] == "cold"
    assert room.asked == ["GracefulShutdown", "On"]


def test_outlets_of_another_machine_are_switched_on_again_and_named(room: Room, ledger: Ledger) -> None:
    room.pdus["pdu2"].plugged = {"A2": room.rack.nodes[0]}
    answer = cycled(room, ledger)
    where = f"node01 BMC {room.rack.nodes[0].bmc}:{room.rack.bmc_port}"
    assert answer.failure == (
        f"{where}: power cycle by pdu1 outlet A1, pdu2 outlet A1 - Expected: a BMC without power, since "
        "these are off Actual: after 0 s it still answers (power Off). They do not all feed node01, or "
        "another outlet feeds it, too. Check what is plugged in there, and correct the outlets of node01 "
        "in the site file. Undone: its outlets and the node are on again."
    )
    assert room.asked == [*OFF, *ON]
    assert not room.pdus["pdu1"].off | room.pdus["pdu2"].off
    assert states(ledger) == ["failed"], "nothing is left for a later run to switch"


def test_an_outlet_that_does_not_switch_is_named_and_the_others_are_on_again(room: Room, ledger: Ledger) -> None:
    room.pdus["pdu2"].stuck = {"A1"}
    assert cycled(room, ledger).failure == (
        "pdu2 outlet A1: power - Expected: Off within 0 s Actual: On. Look at the log of the PDU. "
        "Undone: its outlets and the node are on again."
    )
    assert room.asked == [*OFF, *ON]
    assert room.pdus["pdu1"].off == set()
    assert states(ledger) == ["failed"]


def test_an_outlet_that_switches_after_a_delay_of_its_own_is_waited_for(room: Room, ledger: Ledger) -> None:
    room.pdus["pdu1"].told["A1"] = {"PowerOffDelaySeconds": 0.6}
    room.pdus["pdu1"].lag_s = {"A1 Off": 0.5}
    assert json.loads(cycled(room, ledger).stdout)["by"] == "pdu"


def _refusing(room: Room, _patch: pytest.MonkeyPatch) -> None:
    room.pdus["pdu2"].refuses = 403


def _late(requested: str) -> Callable[[Room, pytest.MonkeyPatch], None]:
    """The answer to Off is lost, and pdu2 switches only when another On is requested: of pdu1, or of the node."""

    def trouble(_room: Room, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(redfish_http, "READ_S", 2.0)
        switch, reset = FakePdu.switch, FakeRack.reset
        due, done = threading.Event(), threading.Event()

        def now(what: str) -> None:
            if what == requested:
                due.set()
                assert done.wait(120)

        def switched(pdu: FakePdu, outlet: str, state: str) -> None:
            late = (pdu.name, state) == ("pdu2", "Off")
            if late:
                assert due.wait(120)
            switch(pdu, outlet, state)
            done.set() if late else now(f"{pdu.name} {state}")

        def powered(rack: FakeRack, node: FakeNode, kind: str) -> None:
            reset(rack, node, kind)
            now(f"node {kind}")

        patch.setattr(FakePdu, "switch", switched)
        patch.setattr(FakeRack, "reset", powered)

    return trouble


_SLOW = "slow - Expected: Redfish answers the request in time Actual: "


@pytest.mark.parametrize(
    ("trouble", "message", "asked"),
    [
        (
            _refusing,
            "Redfish refused a request of user admin - Expected: success Actual: HTTP 403: ",
            ["pdu1 A1 On", "On"],
        ),
        (_late("pdu1 On"), _SLOW, ["pdu2 A1 On", "pdu1 A1 On", "pdu2 A1 Off", "pdu2 A1 On", "On"]),
        (_late("node On"), _SLOW, ["pdu2 A1 On", "pdu1 A1 On", "On", "pdu2 A1 Off", "pdu2 A1 On", "pdu1 A1 On"]),
    ],
    ids=["refuses", "off-before-it-is-seen-on", "off-after-the-node-is-on"],
)
def test_after_a_pdu_that_does_not_do_it_everything_is_on_again(
    room: Room,
    ledger: Ledger,
    monkeypatch: pytest.MonkeyPatch,
    trouble: Callable[[Room, pytest.MonkeyPatch], None],
    message: str,
    asked: list[str],
) -> None:
    trouble(room, monkeypatch)
    answer = cycled(room, ledger)
    assert answer.failure.startswith(f"pdu2 BMC {room.pdus['pdu2'].account.bmc}:{room.rack.bmc_port}: {message}")
    assert answer.failure.endswith("Undone: its outlets and the node are on again.")
    assert room.asked == [*OFF[:2], *asked]
    assert room.pdus["pdu1"].off | room.pdus["pdu2"].off == set()
    assert states(ledger) == ["failed"]


def test_what_cannot_be_switched_on_again_is_named_and_stays_open_in_the_ledger(
    room: Room, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakePdu, "switch", _then_dark(FakePdu.switch))
    answer = cycled(room, ledger)
    where = (
        f"pdu2 BMC {room.pdus['pdu2'].account.bmc}:{room.rack.bmc_port}: unreachable - "
        "Expected: Redfish answers within 5 s Actual: "
    )
    assert answer.failure.startswith(where)
    assert "It could not be undone: pdu2 outlet A1: not seen on again - Expected: On Actual: " + where in answer.failure
    assert answer.failure.endswith("Bring outlets and node to On by hand, or run the gate again: it tries to undo it.")
    assert (room.pdus["pdu1"].off, room.pdus["pdu2"].off) == (set(), {"A1"})
    assert states(ledger) == ["intent"]
    monkeypatch.undo()
    room.pdus["pdu2"].account.dark = False
    assert json.loads(cycled(room, ledger, "warm").stdout)["result"] == "done"
    assert room.pdus["pdu2"].off == set()
    assert states(ledger) == ["done", "done"]


def _then_dark(original: Callable[[FakePdu, str, str], None]) -> Callable[[FakePdu, str, str], None]:
    def switch(pdu: FakePdu, outlet: str, state: str) -> None:
        original(pdu, outlet, state)
        if (pdu.name, state) == ("pdu2", "Off"):
            pdu.account.dark = True

    return switch


@pytest.mark.parametrize(
    ("about", "message"),
    [
        (
            {"PowerState": "Off"},
            (
                "pdu2 outlet A1: power - Expected: On, as the outlet of a running node Actual: Off. "
                "Find out who switched it off and why, switch it on, then run again."
            ),
        ),
        (
            {"PowerState": None},
            (
                "pdu2 outlet A1: power - Expected: On, as the outlet of a running node Actual: not told. "
                "Find out who switched it off and why, switch it on, then run again."
            ),
        ),
        (
            {"PowerStateInTransition": True},
            (
                "pdu2 outlet A1: power - Expected: On, as the outlet of a running node Actual: On, about to change. "
                "Find out who switched it off and why, switch it on, then run again."
            ),
        ),
        (
            {"PowerControlLocked": True},
            (
                "pdu2 outlet A1: switching - Expected: action Outlet.PowerControl with On and Off "
                "Actual: locked (PowerControlLocked). Allow it in the PDU."
            ),
        ),
        (
            {"PowerEnabled": False},
            (
                "pdu2 outlet A1: switching - Expected: action Outlet.PowerControl with On and Off "
                "Actual: not to be switched on again (PowerEnabled false). Allow it in the PDU."
            ),
        ),
        (
            {"Actions": {}},
            (
                "pdu2 outlet A1: switching - Expected: action Outlet.PowerControl with On and Off Actual: not offered. "
                "Allow it in the PDU."
            ),
        ),
        (
            {
                "Actions": {
                    "#Outlet.PowerControl": {"target": "/redfish/v1/x", "PowerState@Redfish.AllowableValues": ["On"]}
                }
            },
            (
                "pdu2 outlet A1: switching - Expected: action Outlet.PowerControl with On and Off Actual: it allows "
                "On. Allow it in the PDU."
            ),
        ),
    ],
    ids=["off", "not-told", "changing", "locked", "disabled", "metered-only", "on-only"],
)
def test_an_outlet_that_is_not_on_or_may_not_be_switched_is_refused_before_anything(
    room: Room, ledger: Ledger, about: dict[str, object], message: str
) -> None:
    room.pdus["pdu2"].told["A1"] = about
    assert cycled(room, ledger, "auto").failure == message
    assert room.asked == []
    assert ledger.entries("node01") == []


@pytest.mark.parametrize(
    ("stated", "actual"),
    [
        ({"outlet": "A9"}, "none"),
        ({"outlet": "a1"}, "none"),
        (
            {"outlet": "A1"},
            "/redfish/v1/PowerEquipment/RackPDUs/1/Outlets/A1, /redfish/v1/PowerEquipment/RackPDUs/2/Outlets/A1",
        ),
        ({"outlet": "A1", "rack_pdu": "3"}, "none"),
    ],
    ids=["unknown", "other-case", "of-two-chained", "unknown-chained"],
)
def test_an_outlet_that_is_not_there_once_is_refused_before_anything(
    room: Room, ledger: Ledger, stated: dict[str, str], actual: str
) -> None:
    room.pdu("pdu3", units={"1": ("A1", "A2"), "2": ("A1",)})
    outlet = Outlet(pdu="pdu3", **stated)
    assert cycled(room, ledger, outlets=[outlet]).failure == (
        f"{outlet.called}: outlet - Expected: one of that Id below PowerEquipment/RackPDUs Actual: {actual}. "
        "Correct outlet (and rack_pdu, where PDUs are chained) in the site file."
    )
    assert room.asked == []


def test_the_outlet_of_a_chained_pdu_is_found_by_that_pdu(room: Room, ledger: Ledger) -> None:
    chained = room.pdu("pdu3", units={"1": ("B1",), "2": ("A1",)})
    room.pdus["pdu1"].plugged = room.pdus["pdu2"].plugged = {}
    chained.plugged["A1"] = room.rack.nodes[0]
    told = json.loads(cycled(room, ledger, outlets=[Outlet(pdu="pdu3", outlet="A1", rack_pdu="2")]).stdout)
    assert told["outlets"] == ["pdu3 PDU 2 outlet A1"]
    assert room.asked == ["GracefulShutdown", "pdu3 A1 Off", "pdu3 A1 On", "On"]


def test_an_outlet_that_goes_off_while_the_node_goes_down_is_not_switched(
    room: Room, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = FakeRack.reset

    def reset(rack: FakeRack, node: FakeNode, kind: str) -> None:
        original(rack, node, kind)
        room.pdus["pdu2"].off.add("A1")

    monkeypatch.setattr(FakeRack, "reset", reset)
    assert cycled(room, ledger).failure == (
        "pdu2 outlet A1: power - Expected: On, as the outlet of a running node Actual: Off. "
        "Find out who switched it off and why, switch it on, then run again. "
        "Undone: no outlet was switched, the node is on again."
    )
    assert room.asked == ["GracefulShutdown", "On"]


def test_a_cycler_of_a_site_knows_the_outlets_that_it_states(ledger: Ledger) -> None:
    found = guard.cycler(parse(fed()), ledger, "c1", lambda _node: "").feeds
    assert found.mains("node01").names == [f"pdu{k} outlet A{n}" for k in (1, 2) for n in (1, 2, 3)]
    assert found.mains("node02").names == []
    assert sorted(found.services) == ["pdu1", "pdu2"]


@pytest.mark.parametrize(
    ("change", "actual"),
    [
        ({"by": "hand"}, "by: not 'pdu' or 'bmc'"),
        ({"by": None}, "kind ac by nothing"),
        ({"kind": "cold"}, "kind cold by pdu"),
        ({"kind": "auto"}, "kind: not 'ac', 'cold' or 'warm'"),
        ({"result": "unknown"}, "result: not 'done'"),
        ({"error": "x", "complete": False}, "complete: not true"),
    ],
    ids=["by", "by-nothing", "not-ac", "kind", "result", "error"],
)
def test_a_document_of_a_cycle_that_is_not_as_it_must_be_is_unreadable(
    room: Room, ledger: Ledger, change: dict[str, object], actual: str
) -> None:
    _, attempts = measured(Host(room.rack.nodes[0].boots), way(room, ledger), cycles=1)
    outputs = dict(attempts[0].outputs)
    outputs["cycle-1"] = replace(outputs["cycle-1"], stdout=json.dumps(json.loads(outputs["cycle-1"].stdout) | change))
    found = PowerCycles({"cycles": 1, "boot_s": 30}).evaluate(facts(), attempts[0].run, outputs)
    assert (found.outcome, tells(found)) == (
        Outcome.ERROR,
        [
            (
                "cycle-unreadable",
                "node01 BMC",
                "a document of format rackready/power-cycle/v1",
                actual,
                "what=power cycle 1",
            )
        ],
    )
