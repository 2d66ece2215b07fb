"""A machine's own mains, cut and restored by its BMC.

Either by reset type FullPowerCycle (DMTF ComputerSystem schema), or by an action of its vendor (quirk ``ac-cycle``: its
address and reset type). The BMC must list both; the reset types are in the action, or in its ActionInfo (DSP0266).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rackready.drivers.redfish_errors import BmcError, BmcTlsError, BmcUnreachableError
from rackready.model.bmc_quirk import BmcQuirk

if TYPE_CHECKING:
    from rackready.drivers.redfish import Bmc

_TYPES, _FINAL = "ResetType@Redfish.AllowableValues", "FinalPowerState@Redfish.AllowableValues"


@dataclass(frozen=True, slots=True)
class AcCycle:
    """One way to cut the mains. ``host_off``: only while the host is off."""

    target: str
    body: Mapping[str, str]
    host_off: bool

    def ask(self, bmc: Bmc) -> None:
        """Cut and restore the mains of the machine and its BMC, maybe with the answer. Raises BmcError."""
        with suppress(BmcUnreachableError, BmcTlsError):
            bmc.send(self.target, dict(self.body))


def ac_cycle(bmc: Bmc) -> AcCycle | None:
    """Return how the BMC can cut the machine's mains, None where it cannot. Raises BmcError."""
    system = bmc.ask(bmc.system)
    action = ((system.json or {}).get("Actions") or {}).get("#ComputerSystem.Reset")
    if isinstance(action, Mapping) and "FullPowerCycle" in (action.get(_TYPES) or []):  # unknown to sushy
        return AcCycle(str(action.get("target", "")), {"ResetType": "FullPowerCycle"}, host_off=False)
    known = bmc.quirks(system).all("ac-cycle")
    return next((found for quirk in known if (found := _of_vendor(bmc, quirk)) is not None), None)


def _of_vendor(bmc: Bmc, quirk: BmcQuirk) -> AcCycle | None:
    with suppress(BmcError):  # not every model of the vendor has that resource
        holder = bmc.get(quirk.answer.partition("/Actions/")[0])
        for action in _actions(holder):
            if action.get("target") == quirk.answer and quirk.value in _types(bmc, action):
                final = {"FinalPowerState": "On"} if "On" in (action.get(_FINAL) or []) else {}
                return AcCycle(quirk.answer, {"ResetType": quirk.value, **final}, host_off=True)
    return None


def _actions(holder: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the vendor's actions of a resource."""
    actions = (holder.get("Actions") or {}).get("Oem") or {}
    yield from (action for action in actions.values() if isinstance(action, Mapping))


def _types(bmc: Bmc, action: Mapping[str, Any]) -> list[str]:
    """Return the reset types of an action."""
    if _TYPES in action or "@Redfish.ActionInfo" not in action:
        return list(action.get(_TYPES) or [])
    parameters = bmc.get(str(action["@Redfish.ActionInfo"])).get("Parameters") or []
    listed = (item.get("AllowableValues") or [] for item in parameters if item.get("Name") == "ResetType")
    return [str(value) for values in listed for value in values]
