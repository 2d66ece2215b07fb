"""Switch operating systems with a driver: one line each, and plug-ins (entry points ``rackready.switches``)."""

from __future__ import annotations

from dataclasses import dataclass

from rackready.drivers.switch.base import SwitchDriver, SwitchError
from rackready.drivers.switch.cumulus_nvue import CumulusNvue
from rackready.entry_points import SWITCHES, PlugIn, named, names


@dataclass(frozen=True, slots=True)
class Entry:
    """A driver, and netmiko's name of the platform's command line."""

    driver: type[SwitchDriver]
    netmiko: str


DRIVERS: dict[str, Entry] = {
    "cumulus_nvue": Entry(CumulusNvue, "cumulus_linux"),
}


def driver_for(switch: str, os: str) -> Entry:
    """Return the driver of an operating system. Raises SwitchError that lists the known ones, and PlugInError."""
    found = named(SWITCHES, os, os in DRIVERS)
    if found is not None:
        return _of(found)
    if os not in DRIVERS:
        systems = sorted({*DRIVERS, *names(SWITCHES)})
        raise SwitchError(
            switch,
            f"switch operating system {os!r} is not known",
            expected=f"one of {', '.join(systems)}",
            next_step="Correct switches[].os in the site file.",
        )
    return DRIVERS[os]


def _of(plug_in: PlugIn) -> Entry:
    from netmiko import platforms  # noqa: PLC0415 - takes a third of a second, and most sites have no plug-in

    entry = plug_in.load(Entry)
    driver: object = entry.driver
    if not (isinstance(driver, type) and issubclass(driver, SwitchDriver)):
        plug_in.refuse("its driver is a class of SwitchDriver", str(driver))
    if missing := sorted(driver.__abstractmethods__):
        plug_in.refuse("its driver has every method of SwitchDriver", f"not {', '.join(missing)}")
    if entry.netmiko not in platforms:
        plug_in.refuse("its platform is one that netmiko knows", entry.netmiko)
    return entry
