"""Power that a killed run took is restored first, by its own outlets, and only by a run that may cycle power."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rackready.design.site import load_site
from rackready.drivers import redfish_errors
from rackready.drivers.remote import Answer
from rackready.gates.bmc import cycle as module
from rackready.gates.bmc import interrupted
from rackready.gates.bmc.cycle import Cycler
from rackready.gates.bmc.cycles import PowerCycles
from rackready.gates.engine import validate
from rackready.ledger.store import Ledger
from rackready.model.operations import DeclaredSkip
from rackready.model.phase import PhaseContext
from rackready.model.problems import RackreadyError
from rackready.model.profile import GateSetEntry
from rackready.paths import EnvPaths
from tests.gates.fake import answered
from tests.gates.fake_pdu import Room
from tests.gates.mains import OFF, ON, bmc_site, cycled, cycler, killed_without_mains, states

NET = 87


def test_after_a_kill_without_mains_the_next_cycle_switches_outlets_and_node_on_first(
    room: Room, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_without_mains(room, ledger, monkeypatch)
    # The site file may name other outlets by now: those that were switched off are switched on.
    told = json.loads(cycled(room, ledger, "warm", outlets=[]).stdout)
    assert (told["kind"], told["result"]) == ("warm", "done")
    assert room.asked == [*OFF, *ON, "ForceRestart"]
    assert states(ledger) == ["done", "done"]
    assert ledger.entries("node01")[0].result == {"interrupted": True, "power": "On"}


class Booting:
    """A host that answers from the third request on."""

    def __init__(self, after: int = 2) -> None:
        self.left = after
        self.asked: list[str] = []

    def run(self, node: str, argv: tuple[str, ...], *, timeout_s: float) -> Answer:
        del timeout_s
        self.asked.append(f"{node} {argv[0]}")
        self.left -= 1
        return answered(code=0 if self.left < 0 else 1)


def test_after_a_kill_a_run_gives_the_power_back_before_it_asks_the_node_for_anything(
    room: Room, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_without_mains(room, ledger, monkeypatch)
    host = Booting()
    interrupted.give_back(cycler(room, ledger), host, {"node01": bmc_site(room)}, ["node01", "node02"])
    assert room.asked == [*OFF, *ON]
    assert host.asked == ["node01 sh"] * 3
    assert states(ledger) == ["done"]
    assert [event.text for event in ledger.events("c1")][-1] == "a power cycle was interrupted: its power was restored"
    interrupted.give_back(cycler(room, ledger), host, {"node01": bmc_site(room)}, ["node01"])
    assert len(host.asked) == 3, "there is nothing more to give back"


def test_a_node_that_does_not_boot_again_is_said_and_not_waited_for_without_end(
    room: Room, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_without_mains(room, ledger, monkeypatch)
    interrupted.give_back(cycler(room, ledger), Booting(10**9), {"node01": bmc_site(room)}, ["node01"], boot_s=0.05)
    assert [event.text for event in ledger.events("c1")][-1] == "it has not booted 0 s after its power was restored"


def test_outlets_whose_pdu_the_site_names_no_more_stay_open_in_the_ledger_and_are_said(
    room: Room, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_without_mains(room, ledger, monkeypatch)
    message = (
        "node01: pdu1 outlet A1 - Expected: device pdu1 with a bmc in the site file Actual: none. Add "
        "it, or switch the outlet on by hand: a killed run may have left it off."
    )
    blind = Cycler(ledger, "c1", lambda _node: "", lambda _node: "FAKE-0001", rest_s=0.0)
    with pytest.raises(RackreadyError) as caught:
        blind.cycle("node01", bmc_site(room), "warm", "1", proceed=lambda: None)
    assert str(caught.value) == message
    interrupted.give_back(blind, Booting(), {"node01": bmc_site(room)}, ["node01"])
    assert [event.text for event in ledger.events("c1")][
        -1
    ] == f"a power cycle was interrupted, and its power could not be restored: {message}"
    assert states(ledger) == ["intent"]
    assert room.asked == OFF


def test_after_a_repair_nothing_is_switched_any_more(
    room: Room, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_without_mains(room, ledger, monkeypatch)
    ledger.raise_epoch("node01", "somebody works at it")
    interrupted.give_back(cycler(room, ledger), Booting(), {"node01": bmc_site(room)}, ["node01"])
    assert room.asked == OFF


@pytest.mark.parametrize(
    ("gates", "given"),
    [(["bmc/health/sanity/rollup"], []), ([PowerCycles.id, "bmc/health/sanity/rollup"], ["node01"])],
    ids=["no", "yes"],
)
def test_only_a_run_that_may_cycle_power_gives_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gates: list[str], given: list[str]
) -> None:
    there: list[str] = []

    @contextmanager
    def connect(*_: object) -> Iterator[tuple[object, None]]:
        yield SimpleNamespace(sweep=lambda _node: answered(), run=lambda *_, **_k: answered(reached=False)), None

    monkeypatch.setattr(validate, "connect", connect)
    monkeypatch.setattr(validate, "give_back", lambda _cycler, _hosts, _bmcs, nodes: there.extend(nodes))
    entries = [GateSetEntry(id=gate) for gate in gates]
    with validate.stages(
        PhaseContext("sim", tmp_path, "c1"), load_site("sim"), EnvPaths(tmp_path, "sim"), ["node01"], entries
    ):
        assert there == given
    there.clear()
    site = load_site("sim")
    leave = DeclaredSkip(gate=PowerCycles.id, nodes=["node01"], reason="somebody works at it until noon")
    skipping = site.model_copy(update={"gates": site.gates.model_copy(update={"skip": [leave]})})
    with validate.stages(PhaseContext("sim", tmp_path, "c1"), skipping, EnvPaths(tmp_path, "sim"), ["node01"], entries):
        assert there == []


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ([redfish_errors.BmcUnreachableError("away"), redfish_errors.BmcError("503"), "On"], 3),
        ([redfish_errors.BmcLoginError("refused"), redfish_errors.BmcUnreachableError("away"), "On"], 3),
        ([redfish_errors.BmcLoginError("refused"), redfish_errors.BmcLoginError("refused"), "On"], 2),
    ],
    ids=["a BMC that boots", "one login refused", "two logins refused"],
)
def test_a_bmc_that_boots_is_asked_again_but_a_refused_login_only_once_more(
    monkeypatch: pytest.MonkeyPatch, said: list[Any], asked: int
) -> None:
    rests: list[float] = []
    monkeypatch.setattr(module.time, "sleep", rests.append)
    answers = iter(said)
    count = []

    def ask() -> str:
        count.append(1)
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return str(answer)

    bmc: Any = SimpleNamespace(forget=lambda: None)
    if asked == len(said):
        assert module._ask_until_answered(bmc, ask) == "On"
    else:
        with pytest.raises(redfish_errors.BmcLoginError):
            module._ask_until_answered(bmc, ask)
    assert len(count) == asked
    assert (module._LOGIN_S in rests) is any(isinstance(item, redfish_errors.BmcLoginError) for item in said)
