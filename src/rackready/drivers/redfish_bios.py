"""BIOS attributes of one machine: compared with a baseline, staged in the BMC's settings object, read back.

A staged value is applied by the next restart (DSP0266, Settings resource). Names and values match as in the gate
``bmc/firmware/sanity/bios-settings``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rackready.drivers.redfish_errors import BmcError
from rackready.model.baseline import Setting, in_words_of, matching, same

if TYPE_CHECKING:
    from rackready.drivers.redfish import Bmc


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute that is not as wanted. ``staged``: it is as wanted from the next restart on."""

    name: str
    wanted: Setting
    now: object
    staged: bool = False

    def __str__(self) -> str:
        """Return it for messages."""
        return f"BIOS {self.name} {self.now} -> {self.wanted}" + (" (staged)" if self.staged else "")


def differences(bmc: Bmc, wanted: Mapping[str, Setting]) -> list[Attribute]:
    """Return the attributes that differ now. Raises BmcError for an attribute that this BIOS does not have."""
    if not wanted:
        return []
    document, _, pending = _read(bmc)
    now = _attributes(document)
    found = []
    for name, value in wanted.items():
        names = matching(name, now)
        if not names:
            raise BmcError(
                bmc.where,
                f"BIOS {name}",
                expected=value,
                actual="no such attribute" if now else "the BMC reports no BIOS settings",
                next_step="Correct the name in the baseline for this BIOS version, or power the node on once.",
            )
        found += [
            Attribute(item, in_words_of(value, now[item]), now[item], staged=same(value, pending.get(item, "")))
            for item in names
            if not same(value, now[item])
        ]
    return found


def stage(bmc: Bmc, changes: list[Attribute]) -> None:
    """Stage attributes for the next restart, all in one request. Raises BmcError; also where it is ignored.

    One request: a Dell makes a job of each, and takes no second one while a job waits.
    """
    document, place, _ = _read(bmc)
    body: dict[str, Any] = {"Attributes": {item.name: item.wanted for item in changes}}
    settings = document.get("@Redfish.Settings")
    times = settings.get("SupportedApplyTimes") if isinstance(settings, Mapping) else None
    if isinstance(times, list) and "OnReset" in times:
        body["@Redfish.SettingsApplyTime"] = {
            "@odata.type": "#Settings.v1_3_5.PreferredApplyTime",
            "ApplyTime": "OnReset",
        }
    bmc.patch(place, body)
    pending = _attributes(bmc.get(place))
    lost = [item for item in changes if not same(item.wanted, pending.get(item.name, ""))]
    if lost:
        raise BmcError(
            bmc.where,
            place,
            expected=", ".join(f"{item.name} {item.wanted}" for item in lost),
            actual="accepted and ignored: "
            + ", ".join(f"{item.name} {pending.get(item.name, 'not shown')}" for item in lost),
            next_step="Lift a BIOS lockdown or clear pending jobs at the BMC, then run again; nothing was restarted.",
        )


def _read(bmc: Bmc) -> tuple[dict[str, Any], str, dict[str, Any]]:
    """Return the Bios resource, the path of its settings object, and what is pending there."""
    link = (bmc.ask(bmc.system).json or {}).get("Bios")
    address = link.get("@odata.id") if isinstance(link, Mapping) else None
    if not address:
        raise BmcError(
            bmc.where,
            "BIOS",
            expected="a Bios resource of the system",
            actual="none",
            next_step="Update the BMC's firmware, or remove bios_settings from the baseline.",
        )
    document = bmc.get(str(address))
    settings = document.get("@Redfish.Settings")
    target = settings.get("SettingsObject") if isinstance(settings, Mapping) else None
    place = str(target.get("@odata.id", "")) if isinstance(target, Mapping) else ""
    # without a settings object the resource itself takes the change
    return document, place or str(address), _attributes(bmc.get(place)) if place else {}


def _attributes(document: Mapping[str, Any]) -> dict[str, Any]:
    found = document.get("Attributes")
    return {key: value for key, value in found.items() if value is not None} if isinstance(found, Mapping) else {}
