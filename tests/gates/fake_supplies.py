"""Power supplies of a node for tests: each has input while the outlet of its cord is on."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from tests.gates.fake_pdu import Room

_CHASSIS = "/redfish/v1/Chassis"
_AT = f"{_CHASSIS}/1/PowerSubsystem/PowerSupplies"
Documents = dict[str, dict[str, Any]]


@dataclass
class Supplies:
    """The supplies of a room's first node.

    ``cords``: supply -> PDU and outlet in which its cord is; ``dead``: those without input whatever their outlet;
    ``lag_s``: how long the BMC tells what was before; ``way``: by which property it tells input; ``told`` says more of
    a supply, over the rest; ``slow_s``: how long every answer takes while an outlet is off.
    """

    room: Room
    cords: dict[str, tuple[str, str]]
    way: str = "word"
    dead: set[str] = field(default_factory=set)
    told: dict[str, dict[str, Any]] = field(default_factory=dict)
    lag_s: float = 0.0
    slow_s: float = 0.0

    def has_input(self, supply: str) -> bool:
        name, outlet = self.cords[supply]
        pdu = self.room.pdus[name]
        late = time.monotonic() - pdu.turned.get(outlet, -1e9) < self.lag_s
        return supply not in self.dead and ((outlet in pdu.off) if late else (outlet not in pdu.off))

    def documents(self) -> Documents:
        if any(pdu.off for pdu in self.room.pdus.values()):
            time.sleep(self.slow_s)
        power = "Power" if self.way == "older" else "PowerSubsystem"
        chassis = {
            "@odata.id": f"{_CHASSIS}/1",
            "Id": "1",
            "SerialNumber": self.room.rack.nodes[0].serial,
            power: {"@odata.id": f"{_CHASSIS}/1/{power}"},
        }
        found = {
            "/redfish/v1/": {"Chassis": {"@odata.id": _CHASSIS}},
            _CHASSIS: _collection(_CHASSIS, ["1"]),
            f"{_CHASSIS}/1": chassis,
        }
        if self.way == "older":
            items = [{"MemberId": str(k), "Name": "PSU", **self._older(supply)} for k, supply in enumerate(self.cords)]
            return found | {f"{_CHASSIS}/1/Power": {"@odata.id": f"{_CHASSIS}/1/Power", "PowerSupplies": items}}
        found[f"{_CHASSIS}/1/PowerSubsystem"] = {
            "@odata.id": f"{_CHASSIS}/1/PowerSubsystem",
            "PowerSupplies": {"@odata.id": _AT},
        }
        found[_AT] = _collection(_AT, list(self.cords))
        for supply in self.cords:
            found |= self._newer(f"{_AT}/{supply}", supply)
        return found

    def _newer(self, here: str, supply: str) -> Documents:
        on = self.has_input(supply)
        about: dict[str, Any] = {
            "@odata.id": here,
            "Id": supply,
            "Status": {"State": "Enabled", "Health": "OK" if on else "Critical"},
        }
        if self.way == "word":
            about["LineInputStatus"] = "Normal" if on else "LossOfInput"
        found: Documents = {here: {**about, **self.told.get(supply, {})}}
        if self.way in {"metrics", "quiet"}:
            found[here]["Metrics"] = {"@odata.id": f"{here}/Metrics"}
            volts = 231.5 if on else 0.4 if self.way == "metrics" else None
            found[f"{here}/Metrics"] = {"@odata.id": f"{here}/Metrics", "InputVoltage": {"Reading": volts}}
        return found

    def _older(self, supply: str) -> dict[str, Any]:
        on = self.has_input(supply)
        return {
            "LineInputVoltage": 231 if on else 0,
            "Status": {"State": "Enabled", "Health": "OK"},
            **self.told.get(supply, {}),
        }


def of_room(room: Room, *, way: str = "word") -> Supplies:
    """Give the room's node the two supplies of the outlets in its site, and let its BMC report them."""
    made = Supplies(room, {"PSU0": ("pdu1", "A1"), "PSU1": ("pdu2", "A1")}, way)
    room.rack.nodes[0].more = made.documents
    return made


def _collection(address: str, names: list[str]) -> dict[str, Any]:
    return {
        "@odata.id": address,
        "Members": [{"@odata.id": f"{address}/{name}"} for name in names],
        "Members@odata.count": len(names),
    }
