"""A node on the outlets of two PDUs, and its cycler, for tests of power from the mains."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from rackready.drivers import redfish, redfish_outlets
from rackready.drivers.remote import Answer
from rackready.gates.bmc import cycle as module
from rackready.gates.bmc import interrupted, watch
from rackready.gates.bmc.connection import Bmcs
from rackready.gates.bmc.cycle import Cycler
from rackready.gates.bmc.mains import Feeds
from rackready.ledger.store import Ledger
from rackready.model.site import Bmc as BmcSite
from rackready.model.site import Outlet
from tests.gates.fake_pdu import Room
from tests.gates.test_bmc_cycles import Killed
from tests.stacks.fake_rack import FakeRack

BOTH = [Outlet(pdu="pdu1", outlet="A1"), Outlet(pdu="pdu2", outlet="A1")]
OFF = ["GracefulShutdown", "pdu1 A1 Off", "pdu2 A1 Off"]
ON = ["pdu2 A1 On", "pdu1 A1 On", "On"]


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes seconds on a machine takes milliseconds here."""
    for driver in (redfish, redfish_outlets):
        monkeypatch.setattr(
            driver,
            "time",
            SimpleNamespace(monotonic=time.monotonic, sleep=lambda seconds: time.sleep(min(seconds, 0.01))),
        )
    monkeypatch.setattr(redfish_outlets, "_SWITCH_S", 0.3)
    monkeypatch.setattr(module, "_SILENT_S", 0.3)
    monkeypatch.setattr(module, "_AGAIN_S", 0.01)
    monkeypatch.setattr(module, "_LOGIN_S", 0.25)
    monkeypatch.setattr(module, "_AC_S", 2.0)
    monkeypatch.setattr(interrupted, "_AGAIN_S", 0.01)
    monkeypatch.setattr(watch, "_INPUT_S", 0.3)
    monkeypatch.setattr(watch, "_BACK_S", 0.5)
    monkeypatch.setattr(watch, "_POLL_S", 0.01)


def two_pdus(folder: Path, *, net: int) -> Room:
    """Two PDUs with outlets A1 and A2; node01 is on and plugged into both A1."""
    rack = FakeRack(folder, 1, net=net)
    rack.set_power(rack.nodes[0], "On")
    made = Room(rack)
    for name in ("pdu1", "pdu2"):
        made.pdu(name).plugged["A1"] = rack.nodes[0]
    return made


def bmc_site(room: Room) -> BmcSite:
    return BmcSite.model_validate(room.rack.site()["racks"][0]["nodes"][0]["bmc"])


def cycler(room: Room, ledger: Ledger, outlets: list[Outlet] | None = None) -> Cycler:
    feeds = Feeds({"node01": BOTH if outlets is None else outlets}, room.sites())
    return Cycler(ledger, "c1", lambda _node: "", lambda _node: "FAKE-0001", rest_s=0.0, feeds=feeds)


def way(room: Room, ledger: Ledger, outlets: list[Outlet] | None = None) -> Bmcs:
    return Bmcs({"node01": bmc_site(room)}, cycler(room, ledger, outlets))


def cycled(room: Room, ledger: Ledger, kind: str = "ac", outlets: list[Outlet] | None = None) -> Answer:
    return way(room, ledger, outlets).run("node01", ("CYCLE", kind, "1"), timeout_s=60)


def states(ledger: Ledger) -> list[str]:
    return [entry.status for entry in ledger.entries("node01")]


def killed_without_mains(room: Room, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave a cycle as a SIGKILL does while the outlets are off."""

    def sleep(_seconds: float) -> None:
        if room.rack.nodes[0].dark:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(module, "time", SimpleNamespace(monotonic=time.monotonic, time_ns=time.time_ns, sleep=sleep))
        with pytest.raises(Killed):
            cycler(room, ledger).cycle("node01", bmc_site(room), "ac", "1", proceed=lambda: None)
    assert room.asked == OFF
    assert states(ledger) == ["intent"]
