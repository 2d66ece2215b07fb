"""One node's BMC over Redfish (DMTF DSP0266), through sushy: identify, boot once, power, observe.

It spares slow controllers: one session and one request at a time per BMC, and short time-outs. Only reads are repeated,
and only when the fault passes by itself (no answer, 5xx). A refused login is never tried again: BMCs lock accounts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import TracebackType
from typing import Any, Self, TypeVar

import sushy
from sushy import exceptions as faults
from sushy.resources.system.system import System

from rackready.design.secrets import reveal
from rackready.drivers.redfish_errors import (
    BmcError,
    BmcIdentityError,
    BmcTlsError,
    BmcUnreachableError,
    explain,
    no_json,
)
from rackready.drivers.redfish_http import Auth, Connector, passes
from rackready.drivers.redfish_identity import of_chassis, of_system
from rackready.model.serials import SerialKind, Serials, wanted_text
from rackready.model.site import Bmc as BmcSite

T = TypeVar("T")

_TRIES = 3
_PAUSE_S = 2.0
_GRACEFUL_OFF_S = 60.0
_locks: dict[tuple[str, int], threading.Lock] = {}
_locks_guard = threading.Lock()


class BootTarget(StrEnum):
    """Where a node boots from, once. Names are Redfish's own."""

    HDD = "Hdd"
    PXE = "Pxe"
    UEFI_HTTP = "UefiHttp"


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


class Bmc:
    """One BMC. A context manager: the Redfish session is opened at first use and closed at the end."""

    def __init__(self, node: str, site: BmcSite) -> None:
        self._node = node
        self._site = site
        self._root: sushy.Sushy | None = None
        self._auth: Auth | None = None
        with _locks_guard:
            self._lock = _locks.setdefault((str(site.address), site.port), threading.Lock())

    @property
    def where(self) -> str:
        """Node and address, for messages."""
        return f"{self._node} BMC {self._site.address}:{self._site.port}"

    def __enter__(self) -> Self:
        """Take the BMC for this caller alone (within this process)."""
        self._lock.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the Redfish session: BMCs allow few."""
        try:
            if self._auth is not None:
                with suppress(faults.SushyError):  # the BMC ends an idle session by itself
                    self._auth.close()
        finally:
            self._root = self._auth = None
            self._lock.release()

    def identify(self) -> Identity:
        """Return serial number, maker, model and power state. Raises BmcError."""
        system = self._read(self._system)
        serials = of_system(system.json or {}).also(self._chassis_serials(system))
        serial = system.serial_number or next((value for kind, value in serials.found if kind == "chassis"), "")
        return Identity(str(serial), str(system.manufacturer or ""), str(system.model or ""), _power(system), serials)

    def require(self, serial: str, kind: SerialKind = "any") -> Identity:
        """Return the machine's identity. Raises BmcIdentityError when none of its numbers of that kind is the serial.

        Any chassis counts: of a multi-part server, each part has its own.
        """
        found = self.identify()
        if not found.serials.matches(serial, kind):
            found = replace(found, serials=found.serials.also(self._other_serials()))
        if not found.serials.matches(serial, kind):
            raise BmcIdentityError(
                self.where,
                "answers for another machine, nothing was done to it",
                serials=found.serials,
                expected=wanted_text(serial, kind),
                actual=found.serials,
                next_step=f"Correct serial or bmc.address of {self._node} in the site file, or the cabling of its BMC.",
            )
        return found

    def observe(self) -> str:
        """Return the power state now. Raises BmcError."""
        return _power(self._read(self._system))

    def set_boot_once(self, target: BootTarget) -> None:
        """Let the next boot, and only that one, come from ``target``. Raises BmcError."""
        self._read(
            lambda: self._system().set_system_boot_options(
                target=sushy.BootSource(target.value), enabled=sushy.BootSourceOverrideEnabled.ONCE
            )
        )

    def power(self, action: PowerAction, *, wait_s: float = 120.0) -> str:
        """Power on or off, or reset, wait at most ``wait_s`` seconds for it and return the power state.

        Off asks the operating system first and cuts power when it has not shut down after a minute. A state that is
        reached already needs no request. Raises BmcError; a request whose answer was lost is not repeated.
        """
        if action is PowerAction.RESET:
            self._reset(sushy.ResetType.FORCE_RESTART)
            return self._wait_power("On", wait_s)
        wanted = "On" if action is PowerAction.ON else "Off"
        if self.observe() == wanted:
            return wanted
        if action is PowerAction.ON:
            self._reset(sushy.ResetType.ON, sushy.ResetType.FORCE_ON)
            return self._wait_power(wanted, wait_s)
        if self._allowed(sushy.ResetType.GRACEFUL_SHUTDOWN):
            self._reset(sushy.ResetType.GRACEFUL_SHUTDOWN)
            with suppress(_PowerWaitError):
                return self._wait_power(wanted, min(_GRACEFUL_OFF_S, wait_s))
        self._reset(sushy.ResetType.FORCE_OFF)
        return self._wait_power(wanted, wait_s)

    def get(self, address: str) -> dict[str, Any]:
        """Return the document at an address of this service. Raises BmcError, also when it is no JSON object."""
        found = self._read(lambda: self._document(address))
        if not isinstance(found, dict):
            raise BmcError(
                self.where,
                address,
                expected="a JSON object",
                actual=type(found).__name__,
                next_step="Update the BMC's firmware.",
            )
        return found

    def _document(self, address: str) -> Any:  # noqa: ANN401 - JSON
        # sushy has no plain GET; its connector carries session, TLS and time limits
        response = self._connect()._conn.get(address)  # noqa: SLF001
        try:
            return response.json()
        except ValueError as error:
            raise BmcError(
                self.where,
                address,
                expected="a JSON document",
                actual=error,
                next_step="Update the BMC's firmware, or run again.",
            ) from error

    def offers_full_power_cycle(self) -> bool:
        """Whether the BMC can cut the machine's mains (reset type FullPowerCycle, unknown to sushy).

        Raises BmcError.
        """
        return "FullPowerCycle" in self._reset_action().get("ResetType@Redfish.AllowableValues", [])

    def full_power_cycle(self) -> None:
        """Cut the mains of the machine and its BMC, and restore them. Raises BmcError.

        The answer may be lost with the BMC.
        """
        target = str(self._reset_action().get("target", ""))
        with suppress(BmcUnreachableError, BmcTlsError):
            self.post(target, {"ResetType": "FullPowerCycle"})

    def post(self, address: str, body: dict[str, Any]) -> None:
        """Request an action of this service, once, also when the answer is lost. Raises BmcError."""
        if not address.startswith("/redfish/"):
            raise BmcError(
                self.where,
                "action",
                expected="a target below /redfish/",
                actual=address or "none",
                next_step="Update the BMC's firmware.",
            )
        try:
            self._connect()._conn.post(address, data=body)  # noqa: SLF001 - see _document
        except faults.SushyError as error:
            raise explain(self.where, self._site, error) from error
        except ValueError as error:
            raise no_json(self.where, error) from error

    def forget(self) -> None:
        """Drop the session: its BMC was restarted."""
        self._root = self._auth = None

    def _reset_action(self) -> dict[str, Any]:
        system = self._read(self._system)
        action = ((system.json or {}).get("Actions") or {}).get("#ComputerSystem.Reset")
        return action if isinstance(action, dict) else {}

    def _allowed(self, kind: sushy.ResetType) -> bool:
        return kind in self._read(lambda: self._system().get_allowed_reset_system_values())

    def _reset(self, *kinds: sushy.ResetType) -> None:
        system = self._read(self._system)
        allowed = system.get_allowed_reset_system_values()
        kind = next((kind for kind in kinds if kind in allowed), None)
        if kind is None:
            names = ", ".join(sorted(item.value for item in allowed))
            raise BmcError(
                self.where,
                "cannot be powered as asked",
                expected=f"reset type {kinds[0].value}",
                actual=f"it offers {names}",
                next_step="Update the BMC's firmware.",
            )
        try:
            system.reset_system(kind)
        except faults.SushyError as error:
            raise explain(self.where, self._site, error) from error

    def _wait_power(self, wanted: str, wait_s: float) -> str:
        deadline = time.monotonic() + wait_s
        while (state := self.observe()) != wanted:
            if time.monotonic() > deadline:
                raise _PowerWaitError(
                    self.where,
                    "power",
                    expected=f"{wanted} within {wait_s:.0f} s",
                    actual=state,
                    next_step="Look at the BMC's event log and console, then run again.",
                )
            time.sleep(1.0)
        return wanted

    def _connect(self) -> sushy.Sushy:
        if self._root is None:
            ca = self._site.ca
            if ca is not None and not ca.is_file():
                raise BmcTlsError(
                    self.where,
                    "CA certificate",
                    expected=f"a PEM file at {ca}",
                    actual="none",
                    next_step="Put it there, or correct bmc.ca in the site file.",
                )
            url = f"https://{self._site.address}:{self._site.port}"
            self._auth = Auth(self._site.username, reveal(self._site.password))
            self._root = sushy.Sushy(
                url, auth=self._auth, connector=Connector(url, verify=str(ca) if ca is not None else True)
            )
        return self._root

    def _system(self) -> System:
        """Return the host's system: the BMC of an HGX board lists the board (HGX_Baseboard_0) beside the host."""
        root = self._connect()
        paths = [str(path) for path in root.get_system_collection().members_identities]
        hosts = [path for path in paths if not path.rstrip("/").rsplit("/", 1)[-1].startswith("HGX_")]
        if len(hosts) != 1:
            raise BmcError(
                self.where,
                "systems",
                expected="one host",
                actual=", ".join(paths) or "none",
                next_step="A multi-node chassis is not supported: give each node its own BMC.",
            )
        return root.get_system(hosts[0])

    def _chassis_serials(self, system: System) -> Serials:
        """Return the numbers of the system's chassis. sushy's own reader refuses a chassis without ChassisType."""
        links = (system.json or {}).get("Links")
        listed = links.get("Chassis") if isinstance(links, dict) else None
        found = Serials()
        for link in listed if isinstance(listed, list) else ():
            address = link.get("@odata.id") if isinstance(link, dict) else None
            if isinstance(address, str) and address:
                found = found.also(of_chassis(self.get(address)))
        return found

    def _other_serials(self) -> Serials:
        """Return the numbers of every chassis of the service, also of those that the system does not name."""
        found = Serials()
        with suppress(BmcError):  # a service without that collection: what the system names has been read
            paths = self._read(lambda: self._connect().get_chassis_collection().members_identities)
            for path in paths:
                found = found.also(of_chassis(self.get(str(path))))
        return found

    def _read(self, ask: Callable[[], T]) -> T:
        """Return a request's answer; repeat it at most three times while the fault passes by itself."""
        for attempt in range(1, _TRIES + 1):
            try:
                return ask()
            except faults.SushyError as error:
                explained = explain(self.where, self._site, error)
                if attempt == _TRIES or not passes(error):
                    raise explained from error
            except ValueError as error:
                if attempt == _TRIES:
                    raise no_json(self.where, error) from error
            time.sleep(_PAUSE_S * attempt)
        raise AssertionError


class _PowerWaitError(BmcError):
    """The power state did not change in time."""


def _power(system: System) -> str:
    return str(system.power_state.value) if system.power_state is not None else "Unknown"
