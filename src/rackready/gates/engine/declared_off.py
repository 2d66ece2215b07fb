"""What a site declares to be off on its nodes, and the gates that cannot measure without it.

A gate of the site's set that needs such a thing is refused until the site skips it with a reason: no gate is left out
silently. A gate that is run by name does not run, and says why.
"""

from __future__ import annotations

from dataclasses import dataclass

from rackready.gates.base import Gate, Need
from rackready.model.site import Site


@dataclass(frozen=True, slots=True)
class Off:
    """One thing that is off: its name, and the key of the site file that says so."""

    name: str
    key: str


_KEYS: dict[Need, Off] = {
    "dcgm": Off("DCGM", "software.manage_dcgm"),
    "persistence": Off("persistence mode", "software.persistence"),
}


def declared_off(site: Site) -> dict[Need, Off]:
    """Return what the site declares to be off."""
    on: dict[Need, bool] = {"dcgm": site.software.manage_dcgm, "persistence": site.software.persistence}
    return {need: off for need, off in _KEYS.items() if not on[need]}


def lacking(site: Site, gate: Gate) -> list[Off]:
    """Return what a gate needs and the site declares to be off."""
    return [off for need, off in declared_off(site).items() if need in gate.needs]
