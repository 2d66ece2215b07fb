"""Outlets of rack PDUs over Redfish: read and switch them.

From DMTF's schemas (DSP0268; Outlet 1.0 to 1.4, PowerDistribution): an outlet is at
``/redfish/v1/PowerEquipment/RackPDUs/{PowerDistributionId}/Outlets/{OutletId}`` and has PowerState (On, Off) and the
action ``#Outlet.PowerControl``, whose parameter is PowerState; since 1.4 PowerControlLocked, and PowerStateInTransition
while a delay runs (PowerOnDelaySeconds, PowerOffDelaySeconds, which PDUs have to switch one outlet after the other).
PowerCycle is not used: nobody could observe the state in between.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Literal

from rackready.drivers.redfish import Bmc
from rackready.drivers.redfish_errors import BmcError
from rackready.drivers.redfish_read import read
from rackready.model.site import Bmc as BmcSite
from rackready.model.site import Outlet

State = Literal["On", "Off"]
_ACTION = "#Outlet.PowerControl"
_SWITCH_S = 30.0
"""Seconds for an outlet to show the requested state, besides the delay that it reports.

Our choice: relays switch at once, PDUs refresh in seconds.
"""
_DELAY_S = 600.0
"""The longest delay of an outlet that is waited for. Our choice: a sequence over 48 outlets of 10 s is 8 minutes."""
_POLL_S = 1.0


class OutletStateError(BmcError):
    """An outlet that answers, in another state than the one that was requested."""

    code = BmcError.code


class PduOutlet:
    """One outlet. Its PDU gets one request at a time and is released in between: other nodes use it too."""

    def __init__(self, stated: Outlet, site: BmcSite) -> None:
        self.stated = stated
        self._site = site
        self._address: str | None = None

    def require_on(self) -> None:
        """Raise BmcError unless the outlet is on and may be switched."""
        with self._pdu() as pdu:
            found = self._read(pdu)
        if not _is(found, "On"):
            raise BmcError(
                self.stated.called,
                "power",
                expected="On, as the outlet of a running node",
                actual=_shown(found),
                next_step="Find out who switched it off and why, switch it on, then run again.",
            )
        if why := _fixed(found):
            raise BmcError(
                self.stated.called,
                "switching",
                expected="action Outlet.PowerControl with On and Off",
                actual=why,
                next_step="Allow it in the PDU.",
            )

    def is_on(self) -> bool:
        """Whether the outlet is on and no change is pending. Raises BmcError."""
        with self._pdu() as pdu:
            return _is(self._read(pdu), "On")

    def switch(self, state: State) -> None:
        """Request a state, once. Raises BmcError; what the outlet did is unknown then."""
        with self._pdu() as pdu:
            action = _action(self._read(pdu))
            pdu.send(str(action.get("target") or ""), {"PowerState": state})

    def wait(self, state: State) -> None:
        """Wait until the outlet shows a state, its own delay included. Raises BmcError, or OutletStateError."""
        with self._pdu() as pdu:
            found = self._read(pdu)
            limit = _SWITCH_S + _delay(found, state)
            deadline = time.monotonic() + limit
            while not _is(found, state):
                if time.monotonic() > deadline:
                    raise OutletStateError(
                        self.stated.called,
                        "power",
                        expected=f"{state} within {limit:.0f} s",
                        actual=_shown(found),
                        next_step="Look at the log of the PDU.",
                    )
                time.sleep(_POLL_S)
                found = self._read(pdu)

    def _pdu(self) -> Bmc:
        return Bmc(self.stated.pdu, self._site)

    def _read(self, pdu: Bmc) -> dict[str, Any]:
        if self._address is None:
            self._address = self._find(pdu)
        return pdu.get(self._address)

    def _find(self, pdu: Bmc) -> str:
        unit = "*" if self.stated.rack_pdu is None else f"*={self.stated.rack_pdu}"
        trail = f"PowerEquipment/RackPDUs/{unit}/Outlets/*={self.stated.outlet}"
        found = read(pdu, [trail], lambda: None)
        ends = found.trails[trail]
        if len(ends) != 1 or found.unread:
            unread = [f"{address}: {why}" for address, why in found.unread.items()]
            raise BmcError(
                self.stated.called,
                "outlet",
                expected="one of that Id below PowerEquipment/RackPDUs",
                actual=", ".join([*ends, *unread]) or "none",
                next_step="Correct outlet (and rack_pdu, where PDUs are chained) in the site file.",
            )
        return ends[0]


def _action(found: Mapping[str, Any]) -> Mapping[str, Any]:
    actions = found.get("Actions")
    action = actions.get(_ACTION) if isinstance(actions, dict) else None
    return action if isinstance(action, dict) else {}


def _fixed(found: Mapping[str, Any]) -> str:
    """Return why an outlet cannot be switched off and on again, empty when it can.

    A PDU that lists no values allows those of the schema.
    """
    if found.get("PowerControlLocked") is True:
        return "locked (PowerControlLocked)"
    if found.get("PowerEnabled") is False:
        return "not to be switched on again (PowerEnabled false)"
    action = _action(found)
    if not action.get("target"):
        return "not offered"
    allowed = action.get("PowerState@Redfish.AllowableValues")
    return (
        ""
        if not isinstance(allowed, list) or {"On", "Off"} <= set(map(str, allowed))
        else f"it allows {', '.join(map(str, allowed)) or 'nothing'}"
    )


def _is(found: Mapping[str, Any], state: State) -> bool:
    return found.get("PowerState") == state and found.get("PowerStateInTransition") is not True


def _shown(found: Mapping[str, Any]) -> str:
    state = found.get("PowerState")
    return f"{state or 'not told'}{', about to change' if found.get('PowerStateInTransition') is True else ''}"


def _delay(found: Mapping[str, Any], state: State) -> float:
    delay = found.get(f"Power{state}DelaySeconds")
    return float(min(_DELAY_S, max(0.0, delay))) if isinstance(delay, int | float) else 0.0
