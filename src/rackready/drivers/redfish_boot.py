"""The boot override of one machine, set and read back; and its Secure Boot state."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import sushy
from sushy.resources.system.system import System

from rackready.drivers.redfish_errors import BmcError
from rackready.drivers.redfish_quirks import Quirks
from rackready.drivers.redfish_words import BootTarget

if TYPE_CHECKING:
    from rackready.drivers.redfish import Bmc

_READS = 3
_PAUSE_S = 2.0
"""Slow controllers show a change some seconds late; our choice."""


def set_once(bmc: Bmc, target: BootTarget) -> None:
    """Let the next boot come from ``target``. Raises BmcError where it is not offered, or is accepted and ignored."""
    system = bmc.ask(bmc.system)
    quirks = bmc.quirks(system)
    offered = {item.value for item in bmc.ask(system.get_allowed_system_boot_source_values)}
    if target.value not in offered:
        raise BmcError(
            bmc.where,
            "boot override",
            expected=target.value,
            actual=f"it offers {', '.join(sorted(offered))}",
            next_step="Turn that kind of boot on in the BIOS settings, restart the node once, or choose another "
            "provisioning.boot.",
        )
    # Some BMCs refuse or misread a part of Boot. Others have no mode to set.
    mode = sushy.BootSourceOverrideMode.UEFI if quirks.has("boot-all-fields") else None
    bmc.insist(
        lambda: system.set_system_boot_options(
            target=sushy.BootSource(target.value), enabled=sushy.BootSourceOverrideEnabled.ONCE, mode=mode
        )
    )
    _read_back(bmc, target, quirks)


def _read_back(bmc: Bmc, target: BootTarget, quirks: Quirks) -> None:
    """Raise BmcError unless the BMC shows the override. One that shows none at all cannot be judged."""
    good = {target.value, *(quirk.answer for quirk in quirks.all("boot-shown-as") if quirk.value == target.value)}
    shown: list[tuple[str, str]] = []
    for attempt in range(_READS):
        if attempt:
            time.sleep(_PAUSE_S)
        shown = [_override(boot) for boot in _boots(bmc)]
        if not shown or any(source in good and enabled == "Once" for source, enabled in shown):
            return
    source, enabled = shown[-1]
    raise BmcError(
        bmc.where,
        "boot override",
        expected=f"{target.value}, Once",
        actual=f"accepted and ignored: it shows {source}, {enabled}",
        next_step="The node was not powered on. Update the BMC's firmware, or set the boot source at its console.",
    )


def _boots(bmc: Bmc) -> list[Mapping[str, Any]]:
    """Return the Boot objects that show an override: of the system, and of its Settings object where it has one."""
    system = bmc.ask(bmc.system).json or {}
    found = [system.get("Boot")]
    settings = system.get("@Redfish.Settings")
    link = settings.get("SettingsObject") if isinstance(settings, Mapping) else None
    if isinstance(link, Mapping) and link.get("@odata.id"):
        found.append(bmc.get(str(link["@odata.id"])).get("Boot"))
    return [boot for boot in found if isinstance(boot, Mapping) and boot.get("BootSourceOverrideTarget") is not None]


def _override(boot: Mapping[str, Any]) -> tuple[str, str]:
    return str(boot["BootSourceOverrideTarget"]), str(boot.get("BootSourceOverrideEnabled"))


def secure_boot(bmc: Bmc) -> bool | None:
    """Return whether Secure Boot was on at the last boot, None where the BMC does not tell. Raises BmcError."""
    found = secure_boot_of(bmc.ask(bmc.system))
    if found is None:
        return None
    current = bmc.get(found).get("SecureBootCurrentBoot")
    return {"Enabled": True, "Disabled": False}.get(str(current))


def set_secure_boot(bmc: Bmc, *, on: bool) -> bool:
    """Turn Secure Boot on or off from the next boot on, read that back, and return whether it was otherwise before.

    Raises BmcError.
    """
    found = secure_boot_address(bmc)
    if bmc.get(found).get("SecureBootEnable") is on:
        return False
    bmc.patch(found, {"SecureBootEnable": on})
    shown = bmc.get(found).get("SecureBootEnable")
    if shown is not on:
        raise BmcError(
            bmc.where,
            "Secure Boot",
            expected=f"SecureBootEnable {on}",
            actual=f"accepted and ignored: it shows {shown}",
            next_step="Set it in the firmware setup, or update the BMC.",
        )
    return True


def secure_boot_address(bmc: Bmc) -> str:
    """Return the address of the system's SecureBoot resource. Raises BmcError, without one too."""
    found = secure_boot_of(bmc.ask(bmc.system))
    if found is None:
        raise BmcError(
            bmc.where,
            "Secure Boot",
            expected="a SecureBoot resource",
            actual="none",
            next_step="Set it in the firmware setup, or update the BMC.",
        )
    return found


def secure_boot_of(system: System) -> str | None:
    """Return the address of a system's SecureBoot resource, None without one."""
    link = (system.json or {}).get("SecureBoot")
    return str(link["@odata.id"]) if isinstance(link, Mapping) and link.get("@odata.id") else None
