"""Words for what is asked of a BMC, and for what it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from rackready.model.serials import Serials


class BootTarget(StrEnum):
    """Where a node boots from, once. Names are Redfish's own."""

    HDD = "Hdd"
    PXE = "Pxe"
    UEFI_HTTP = "UefiHttp"
    CD = "Cd"


class PowerAction(StrEnum):
    """A change of a node's power."""

    ON = "on"
    OFF = "off"
    RESET = "reset"


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity of a BMC's machine.

    ``power`` is Redfish's PowerState: On, Off, PoweringOn, PoweringOff, Paused or Unknown.
    """

    serial: str
    manufacturer: str
    model: str
    power: str
    serials: Serials = field(default_factory=Serials)
    """Numbers of the system and of its chassis."""
