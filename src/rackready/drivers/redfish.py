"""One node's BMC over Redfish (DMTF DSP0266), through sushy: identify, boot once, power, observe.

It spares slow controllers: one session and one request at a time per BMC, and short time-outs. Only reads are repeated,
and only when the fault passes by itself (no answer, 5xx). A refused login is never tried again: BMCs lock accounts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, TypeVar

import requests
import sushy
from sushy import exceptions as faults
from sushy.resources.system.system import System

from rackready.design.secrets import reveal
from rackready.drivers.redfish_boot import set_once
from rackready.drivers.redfish_errors import (
    BmcError,
    BmcIdentityError,
    BmcTlsError,
    explain,
    mentions,
    no_json,
)
from rackready.drivers.redfish_http import Auth, Connector, is_slow, passes, takes_long
from rackready.drivers.redfish_identity import of_chassis, of_system
from rackready.drivers.redfish_quirks import Quirks, make_of
from rackready.drivers.redfish_tls import with_shown
from rackready.drivers.redfish_words import BootTarget, Identity, PowerAction
from rackready.model.serials import SerialKind, Serials, wanted_text
from rackready.model.site import Bmc as BmcSite

__all__ = ["Bmc", "BootTarget", "Identity", "PowerAction"]
T = TypeVar("T")

_TRIES = 3
_PAUSE_S = 2.0
_GRACEFUL_OFF_S = 60.0
_WANTS_ETAG = (412, 428)
"""Precondition failed, precondition required (RFC 9110, RFC 6585)."""
_locks: dict[tuple[str, int], threading.Lock] = {}
_locks_guard = threading.Lock()


class Bmc:
    """One BMC. A context manager: the Redfish session is opened at first use and closed at the end."""

    def __init__(self, node: str, site: BmcSite) -> None:
        self._node = node
        self._site = site
        self._root: sushy.Sushy | None = None
        self._auth: Auth | None = None
        self._connector: Connector | None = None
        self._host = ""
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
            self.forget()
        finally:
            self._lock.release()

    def login(self) -> None:
        """Log in and read nothing. Raises BmcLoginError after one attempt, other kinds of BmcError."""
        self.ask(self._connect)

    def quirks(self, system: System | None = None) -> Quirks:
        """Return the quirks that apply by the service root, and by a system that was read."""
        root = self.ask(self._connect)
        return Quirks.of(make_of(root.json or {}, system.json if system is not None else None), self._site.username)

    @property
    def account_to_change(self) -> str:
        """The path of the account whose password the BMC wants changed, by its own message; "" without one."""
        return self._connector.account if self._connector is not None else ""

    def patch(self, address: str, body: dict[str, Any], *, match: str = "") -> None:
        """Change a resource. ``match``: value of If-Match. Raises BmcError.

        A refusal for want of an ETag (412, 428) changed nothing, so the request is repeated once with any ETag.
        """

        def change() -> None:
            conn, headers = self._connect()._conn, {"If-Match": match} if match else {}  # noqa: SLF001 - see answer
            try:
                conn.patch(address, data=body, headers=headers)
            except faults.HTTPError as error:
                if error.status_code not in _WANTS_ETAG or match:
                    raise
                conn.patch(address, data=body, headers={"If-Match": "*"})

        self.insist(change)

    def identify(self) -> Identity:
        """Return serial number, maker, model and power state. Raises BmcError."""
        system = self.ask(self.system)
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
        return _power(self.ask(self.system))

    def set_boot_once(self, target: BootTarget) -> None:
        """Let the next boot, and only that one, come from ``target``, and read that back. Raises BmcError."""
        set_once(self, target)

    def power(self, action: PowerAction, *, wait_s: float = 120.0) -> str:
        """Power on or off, or reset, wait at most ``wait_s`` seconds for it and return the power state.

        Off asks the operating system first and cuts power when it has not shut down after a minute. A state that is
        reached already needs no request. Raises BmcError; a request whose answer was lost is not repeated.
        """
        if action is PowerAction.RESET:
            return self._restart(wait_s)
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

    def _restart(self, wait_s: float) -> str:
        """Reset, or where that hangs the machine (quirk), power off, pause, and power on."""
        instead = self.quirks(self.ask(self.system)).of_value("reset-type-instead", sushy.ResetType.FORCE_RESTART.value)
        if instead is None:
            self._reset(sushy.ResetType.FORCE_RESTART)
            return self._wait_power("On", wait_s)
        self._reset(sushy.ResetType(instead.answer))
        self._wait_power("Off", wait_s)
        time.sleep(instead.pause_s)
        self._reset(sushy.ResetType.ON, sushy.ResetType.FORCE_ON)
        return self._wait_power("On", wait_s)

    def get(self, address: str) -> dict[str, Any]:
        """Return the document at an address of this service. Raises BmcError, also when it is no JSON object."""
        found = self.ask(lambda: self._document(address), long=takes_long(address))
        if not isinstance(found, dict):
            raise BmcError(
                self.where,
                address,
                expected="a JSON object",
                actual=type(found).__name__,
                next_step="Update the BMC's firmware.",
            )
        return found

    def answer(self, address: str) -> requests.Response:
        """Return the answer to a GET, whatever its body. Raises BmcError."""
        # sushy has no plain GET; its connector carries session, TLS and time limits
        found: requests.Response = self.ask(lambda: self._connect()._conn.get(address), long=takes_long(address))  # noqa: SLF001
        return found

    def _document(self, address: str) -> Any:  # noqa: ANN401 - JSON
        response = self._connect()._conn.get(address)  # noqa: SLF001 - see answer
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

    def send(
        self, address: str, body: dict[str, Any] | None, *, below: str = "/redfish/", **parts: Any
    ) -> requests.Response:
        """Request an action of this service, once, also when the answer is lost. Raises BmcError.

        ``parts``: a multipart form instead of a body (``files``), and ``timeout`` in s. Returns the response.
        """
        if not address.startswith(below):
            raise BmcError(
                self.where,
                "action",
                expected="a target below /redfish/",
                actual=address or "none",
                next_step="Update the BMC's firmware.",
            )
        try:
            found: requests.Response = self._connect()._conn.post(address, data=body, **parts)  # noqa: SLF001 - see answer
        except faults.SushyError as error:
            raise self.explained(error) from error
        except ValueError as error:
            raise no_json(self.where, error) from error
        return found

    def forget(self) -> None:
        """Drop the session: its BMC was restarted. It is closed there, too: one that was only slow still counts it."""
        if self._auth is not None:
            self._auth.drop()
        self._root, self._auth, self._host = None, None, ""

    def _allowed(self, kind: sushy.ResetType) -> bool:
        return kind in self.ask(lambda: self.system().get_allowed_reset_system_values())

    def _reset(self, *kinds: sushy.ResetType) -> None:
        system = self.ask(self.system)
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
        self.insist(lambda: system.reset_system(kind))

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
            pinned = self._site.fingerprint
            verify = str(ca) if ca is not None else pinned is None
            self._connector = Connector(url, verify=verify, fingerprint=pinned)
            self._root = sushy.Sushy(url, auth=self._auth, connector=self._connector)
        return self._root

    def system(self) -> System:
        """Return the host's system as it is now. Its address is read once a session: every poll reads the system."""
        root = self._connect()
        self._host = self._host or self._host_of(root)
        return root.get_system(self._host)

    def _host_of(self, root: sushy.Sushy) -> str:
        """Return the host's address: the BMC of an HGX board lists the board (HGX_Baseboard_0) beside the host."""
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
        return hosts[0]

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
            paths = self.ask(lambda: self._connect().get_chassis_collection().members_identities)
            for path in paths:
                found = found.also(of_chassis(self.get(str(path))))
        return found

    def explained(self, error: faults.SushyError) -> BmcError:
        """Return the error for the operator, with the shown certificate where it is not the pinned one."""
        return with_shown(self.where, self._node, self._site, explain(self.where, self._site, error))

    def insist(self, change: Callable[[], T]) -> T:
        """Return the answer of a change; repeat it only while the BMC refuses it with a known message (quirk).

        A refusal changed nothing. Raises BmcError.
        """
        known = self.quirks().all("retry-message")
        for attempt in range(1, max((quirk.tries for quirk in known), default=1) + 1):
            try:
                return change()
            except faults.SushyError as error:
                quirk = next((item for item in known if mentions(error, item.value)), None)
                if quirk is None or attempt >= quirk.tries:
                    raise self.explained(error) from error
            except ValueError as error:
                raise no_json(self.where, error) from error
            time.sleep(quirk.pause_s)
        raise AssertionError

    def ask(self, ask: Callable[[], T], *, long: bool = False) -> T:
        """Return a request's answer; ask at most three times while the fault passes by itself.

        ``long``: the limit of a request is minutes; one that was too short is not repeated.
        """
        for attempt in range(1, _TRIES + 1):
            try:
                return ask()
            except faults.SushyError as error:
                explained = self.explained(error)
                if attempt == _TRIES or not passes(error) or (long and is_slow(error)):
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
