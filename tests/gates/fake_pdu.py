"""Rack PDUs for tests: outlets over Redfish, and machines that lose their mains with them.

DSP0268, PowerDistribution and Outlet.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rackready.model.site import Bmc as BmcSite
from tests.stacks.fake_rack import FakeNode, FakeRack, Redfish

_ROOT = "/redfish/v1/PowerEquipment"


@dataclass
class FakePdu:
    """One PDU.

    ``plugged``: which machine hangs on an outlet; ``stuck`` outlets stay as they are, others turn ``lag_s`` after they
    were asked to ("A1 Off"); ``told`` says more of an outlet, over the rest; ``refuses``: the HTTP status of every
    action.
    """

    name: str
    account: FakeNode
    room: Room
    units: Mapping[str, tuple[str, ...]]
    plugged: dict[str, FakeNode] = field(default_factory=dict)
    off: set[str] = field(default_factory=set)
    stuck: set[str] = field(default_factory=set)
    told: dict[str, dict[str, Any]] = field(default_factory=dict)
    lag_s: dict[str, float] = field(default_factory=dict)
    refuses: int = 0
    turned: dict[str, float] = field(default_factory=dict)
    """When an outlet last switched, by ``time.monotonic``."""

    def documents(self) -> dict[str, dict[str, Any]]:
        found = {_ROOT: {"@odata.id": _ROOT, "Name": "Power Equipment", "RackPDUs": {"@odata.id": f"{_ROOT}/RackPDUs"}}}
        found[f"{_ROOT}/RackPDUs"] = _collection(f"{_ROOT}/RackPDUs", self.units)
        for unit, outlets in self.units.items():
            here = f"{_ROOT}/RackPDUs/{unit}"
            found[here] = {"@odata.id": here, "Id": unit, "Outlets": {"@odata.id": f"{here}/Outlets"}}
            found[f"{here}/Outlets"] = _collection(f"{here}/Outlets", outlets)
            found |= {
                f"{here}/Outlets/{outlet}": self._outlet(f"{here}/Outlets/{outlet}", outlet) for outlet in outlets
            }
        return found

    def _outlet(self, address: str, outlet: str) -> dict[str, Any]:
        action = {
            "target": f"{address}/Actions/Outlet.PowerControl",
            "PowerState@Redfish.AllowableValues": ["On", "Off"],
        }
        return {
            "@odata.id": address,
            "Id": outlet,
            "Name": outlet,
            "PowerState": "Off" if outlet in self.off else "On",
            "Actions": {"#Outlet.PowerControl": action},
            **self.told.get(outlet, {}),
        }

    def switch(self, outlet: str, state: str) -> None:
        self.room.asked.append(f"{self.name} {outlet} {state}")
        lag_s = self.lag_s.get(f"{outlet} {state}")
        if lag_s is None:
            self._turn(outlet, state)
        else:
            threading.Timer(lag_s, self._turn, (outlet, state)).start()

    def _turn(self, outlet: str, state: str) -> None:
        if outlet not in self.stuck:
            (self.off.add if state == "Off" else self.off.discard)(outlet)
            self.turned[outlet] = time.monotonic()
        self.room.spread()


@dataclass
class Room:
    """A rack with its PDUs. ``asked``: requests to its first machine and to all PDUs, in one order."""

    rack: FakeRack
    pdus: dict[str, FakePdu] = field(default_factory=dict)

    @property
    def asked(self) -> list[str]:
        return self.rack.nodes[0].asked

    def pdu(
        self, name: str, *, outlets: tuple[str, ...] = ("A1", "A2"), units: Mapping[str, tuple[str, ...]] | None = None
    ) -> FakePdu:
        """Put a PDU into the rack, and its password where the site names it."""
        address = self.rack.nodes[0].bmc.rsplit(".", 2)[0] + f".9.{len(self.pdus) + 1}"
        account = FakeNode(name, address, address, name, f"secret-of-{name}")
        (self.rack.folder / name).write_text(account.password)
        made = self.pdus[name] = FakePdu(name, account, self, units or {"1": outlets})
        self.rack.serve(account, type("Handler", (_Pdu,), {"pdu": made}))
        return made

    def sites(self) -> dict[str, BmcSite]:
        about = {"port": self.rack.bmc_port, "username": "admin", "ca": str(self.rack.folder / "ca.pem")}
        return {
            name: BmcSite.model_validate(
                {"address": pdu.account.bmc, "password": {"file": str(self.rack.folder / name)}, **about}
            )
            for name, pdu in self.pdus.items()
        }

    def spread(self) -> None:
        """Let every machine have mains, or none, by its outlets: one supply keeps it and its BMC alive."""
        for node in self.rack.nodes:
            feeding = [
                outlet not in pdu.off
                for pdu in self.pdus.values()
                for outlet, plugged in pdu.plugged.items()
                if plugged is node
            ]
            if feeding and any(feeding) == node.dark:
                self.rack.mains(node, on=any(feeding))


class _Pdu(Redfish):
    pdu: FakePdu

    def _service_root(self) -> dict[str, Any]:
        return {**super()._service_root(), "PowerEquipment": {"@odata.id": _ROOT}}

    def _documents(self) -> dict[str, dict[str, Any]]:
        return self.pdu.documents()

    def _act(self, body: dict[str, Any]) -> None:
        words = self.path.split("/")
        if self.pdu.refuses:
            self._answer(self.pdu.refuses, {"error": {"code": "Base.1.0.ActionNotSupported", "message": "not now"}})
            return
        self.pdu.switch(words[words.index("Outlets") + 1], body["PowerState"])
        self._answer(204, None)


def _collection(address: str, names: Mapping[str, Any] | tuple[str, ...]) -> dict[str, Any]:
    return {
        "@odata.id": address,
        "Members": [{"@odata.id": f"{address}/{name}"} for name in names],
        "Members@odata.count": len(names),
    }
