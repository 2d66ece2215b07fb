"""sushy-tools' drivers for the simulated rack: the system, manager and chassis of the BMC that is asked."""

from __future__ import annotations

import uuid
from functools import lru_cache
from typing import Any

from sushy_tools import error
from sushy_tools.emulator.resources.systems.base import AbstractSystemsDriver

from rackready_sim.boot import BootSettings
from rackready_sim.metal.flash import Flash
from rackready_sim.redfish.context import NODE
from rackready_sim.redfish.power import Power
from rackready_sim.store import Store

_NAMESPACE = uuid.UUID("0c7e5a52-6b7e-4c53-9c8c-4f3c2a0d9b11")
RESET_TYPES = ("On", "ForceOn", "ForceOff", "GracefulShutdown", "GracefulRestart", "ForceRestart", "PowerCycle")
BOOT_TARGETS = ("None", "Pxe", "Hdd", "Cd", "UefiHttp", "BiosSetup")
_MEMORY_GIB, _CPUS = 2048, 2


@lru_cache(maxsize=4096)
def identity_of(serial: str, part: str) -> str:
    """Return the UUID of a part of the machine with this serial number: the same after every rebuild of the rack."""
    return str(uuid.uuid5(_NAMESPACE, f"{serial}/{part}"))


class Hardware:
    """Facts of the asked BMC's machine, from the hardware state."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def chassis(self) -> dict[str, str]:
        """Serial number, maker, product and firmware of the node that is asked."""
        found: dict[str, str] = self.store.seen(NODE.get())["chassis"]
        return found

    def state(self) -> dict[str, Any]:
        """Return the whole hardware state of the node that is asked: to read, not to change."""
        return self.store.seen(NODE.get())

    def nics(self) -> list[dict[str, str]]:
        """Return id and MAC address of every NIC."""
        state = self.store.seen(NODE.get())
        if "metal" in state:  # the one card that the machine has
            return [{"id": state["metal"]["nic"]["id"], "mac": state["metal"]["nic"]["mac"]}]
        return [{"id": nic["netdev"], "mac": nic["mac"]} for nic in state["nics"]]

    def flash(self) -> Flash:
        """Return the firmware's variables of the node that is asked. Raise NotFound if it has no firmware."""
        if "metal" not in self.store.seen(NODE.get()):
            message = "SecureBoot was not found"
            raise error.NotFound(message)
        return Flash(self.store, NODE.get())

    def uuid(self, part: str) -> str:
        """Return the UUID of the system or the chassis."""
        return self.chassis().get(f"{part}_uuid") or identity_of(self.chassis()["serial"], part)

    def boot(self) -> BootSettings:
        """Return the boot override of the node that is asked."""
        return BootSettings(self.store, NODE.get())


class RackSystems(AbstractSystemsDriver):  # type: ignore[misc]
    """The one system behind the BMC that is asked."""

    def __init__(self, hardware: Hardware, power: Power) -> None:
        super().__init__()
        self._hardware = hardware
        self._power = power

    @property
    def driver(self) -> str:
        """Name shown by the emulator."""
        return "<rackready>"

    @property
    def systems(self) -> list[str]:
        """UUIDs of the systems: one."""
        return [self._hardware.uuid("system")]

    def uuid(self, identity: str) -> str:
        """Return the UUID itself. Raise NotFound unless it is this BMC's system."""
        if identity not in self.systems:
            message = f"System {identity} was not found"
            raise error.NotFound(message)
        return identity

    def name(self, identity: str) -> str:
        """Return a name as servers report it; a BMC does not know the host's name."""
        self.uuid(identity)
        return "System"

    def get_power_state(self, identity: str) -> str:
        """Return the power state."""
        self.uuid(identity)
        return self._power.state(NODE.get())

    def set_power_state(self, identity: str, state: str) -> None:
        """Start a reset type in the background. Raise BadRequest for an unknown one."""
        self.uuid(identity)
        if state not in RESET_TYPES:
            message = f"ResetType {state} is not one of {', '.join(RESET_TYPES)}"
            raise error.BadRequest(message)
        self._power.request(NODE.get(), state)

    def get_boot_device(self, identity: str) -> str:
        """Return the boot override's target; the word None without override."""
        self.uuid(identity)
        return self._hardware.boot().read()["target"]

    def set_boot_device(self, identity: str, boot_source: str) -> None:
        """Set the source of the next boot."""
        self.set_boot(identity, {"BootSourceOverrideTarget": boot_source, "BootSourceOverrideEnabled": "Once"})

    def get_boot_mode(self, identity: str) -> str:
        """Return UEFI or Legacy."""
        self.uuid(identity)
        return self._hardware.boot().read()["mode"]

    def set_boot(self, identity: str, boot: dict[str, Any]) -> None:
        """Apply the Boot object of a PATCH. Raise BadRequest for values that Redfish does not allow."""
        self.uuid(identity)
        keys = {
            "BootSourceOverrideTarget": ("target", BOOT_TARGETS),
            "BootSourceOverrideEnabled": ("enabled", ("Once", "Continuous", "Disabled")),
            "BootSourceOverrideMode": ("mode", ("UEFI", "Legacy")),
            "HttpBootUri": ("uri", None),
        }
        changes: dict[str, str] = {}
        for key, value in boot.items():
            if key not in keys:
                message = f"Boot.{key} cannot be changed"
                raise error.BadRequest(message)
            name, allowed = keys[key]
            if allowed is not None and value not in allowed:
                message = f"Boot.{key} {value} is not one of {', '.join(allowed)}"
                raise error.BadRequest(message)
            changes[name] = str(value)
        if "target" in changes:
            changes.setdefault("enabled", "Disabled" if changes["target"] == "None" else "Once")
        if changes.get("enabled") == "Disabled":
            changes["target"] = "None"
        self._hardware.boot().change(**changes)

    def get_http_boot_uri(self, identity: str) -> str:
        """Return the URI to boot from over HTTP, empty without one."""
        self.uuid(identity)
        return self._hardware.boot().read()["uri"]

    def get_versions(self, identity: str) -> dict[str, str]:
        """Return the BIOS version."""
        self.uuid(identity)
        return {"BiosVersion": self._hardware.chassis().get("bios", "")}

    def get_total_memory(self, identity: str) -> int:
        """Return the memory in GiB."""
        self.uuid(identity)
        return _MEMORY_GIB

    def get_total_cpus(self, identity: str) -> int:
        """Return the number of CPU packages."""
        self.uuid(identity)
        return _CPUS

    def get_secure_boot(self, identity: str) -> bool:
        """Return whether Secure Boot is on at the next start. Raise NotFound without a firmware that knows it."""
        self.uuid(identity)
        return self._hardware.flash().secure_boot_next

    def set_secure_boot(self, identity: str, secure: bool) -> None:  # noqa: FBT001 - as sushy-tools calls it
        """Switch Secure Boot from the next start on."""
        self.uuid(identity)
        self._hardware.flash().set_next(enabled=secure)

    def get_nics(self, identity: str) -> list[dict[str, str]]:
        """Return id and MAC address of every NIC."""
        self.uuid(identity)
        return self._hardware.nics()


class RackChassis:
    """The one chassis behind the BMC that is asked."""

    def __init__(self, hardware: Hardware) -> None:
        self._hardware = hardware

    @property
    def chassis(self) -> list[str]:
        """UUIDs of the chassis: one."""
        return [self._hardware.uuid("chassis")]

    def uuid(self, identity: str) -> str:
        """Return the UUID itself. Raise NotFound unless it is this BMC's chassis."""
        if identity not in self.chassis:
            message = f"Chassis {identity} was not found"
            raise error.NotFound(message)
        return identity

    def name(self, identity: str) -> str:
        """Return its name."""
        self.uuid(identity)
        return "Chassis"


class NoStorage:
    """These machines show no drives to their BMC."""

    def get_all_storage(self) -> list[tuple[str, str]]:
        """Return no storage."""
        return []

    def get_all_drives(self) -> list[tuple[str, str, str]]:
        """Return no drives."""
        return []
