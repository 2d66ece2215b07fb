"""The switch operating systems that rackready drives: one line each."""

from __future__ import annotations

from dataclasses import dataclass

from rackready.drivers.switch.base import SwitchDriver, SwitchError
from rackready.drivers.switch.cumulus_nvue import CumulusNvue


@dataclass(frozen=True, slots=True)
class Entry:
    """A driver, and netmiko's name of the platform's command line."""

    driver: type[SwitchDriver]
    netmiko: str


DRIVERS: dict[str, Entry] = {
    "cumulus_nvue": Entry(CumulusNvue, "cumulus_linux"),
}


def driver_for(switch: str, os: str) -> Entry:
    """Return the driver of an operating system. Raises SwitchError that lists those known."""
    if os not in DRIVERS:
        message = (
            f"{switch}: switch operating system {os!r} is not known - Expected: one of {', '.join(sorted(DRIVERS))}. Correct switches[].os in the site file."
        )
        raise SwitchError(message)
    return DRIVERS[os]
