"""The driver of each switch operating system. The systems are listed in ``design.switch_systems``."""

from __future__ import annotations

import pkgutil
from typing import Any

from rackready.design.switch_systems import SYSTEMS, known_systems, system_of
from rackready.drivers.switch.base import SwitchDriver, SwitchError
from rackready.entry_points import SWITCHES, named


def driver_for(switch: str, os: str) -> type[SwitchDriver]:
    """Return the driver of an operating system. Raises SwitchError that lists the known ones, and PlugInError."""
    system = system_of(os)
    if system is None:
        raise SwitchError(
            switch,
            f"switch operating system {os!r} is not known",
            expected=f"one of {', '.join(known_systems())}",
            next_step="Correct switches[].os in the site file.",
        )
    plug_in = named(SWITCHES, os, os in SYSTEMS)
    if plug_in is None:
        ours: type[SwitchDriver] = _resolved(system.driver)
        return ours
    try:
        driver: object = _resolved(system.driver)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - code of others: whatever it raises must not look like ours
        plug_in.refuse(f"its driver {system.driver} can be imported", f"{type(error).__name__}: {error}", error)
    if not (isinstance(driver, type) and issubclass(driver, SwitchDriver)):
        plug_in.refuse("its driver is a class of SwitchDriver", str(driver))
    if missing := sorted(driver.__abstractmethods__):
        plug_in.refuse("its driver has every method of SwitchDriver", f"not {', '.join(missing)}")
    return driver


def _resolved(name: str) -> Any:  # noqa: ANN401 - what a plug-in names can be anything
    return pkgutil.resolve_name(name)
