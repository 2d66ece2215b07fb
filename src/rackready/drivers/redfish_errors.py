"""Errors of a BMC, and their messages for the operator."""

from __future__ import annotations

import time
from collections.abc import Callable

from sushy import exceptions as faults

from rackready.drivers.redfish_http import CONNECT_S, RefusedError, is_slow, is_tls, root_cause
from rackready.model.problems import RackreadyError
from rackready.model.serials import Serials
from rackready.model.site import Bmc as BmcSite

_LOGINS = 3
"""Logins that may be refused in a row. Our choice: few, since BMCs lock accounts."""
_LOGIN_S = 60.0
"""Time from a refused login to the next one, s. Our choice."""


class BmcError(RackreadyError):
    """A BMC did not do what was requested."""


class BmcUnreachableError(BmcError):
    """The BMC's address does not answer in time."""


class BmcSlowError(BmcUnreachableError):
    """The BMC takes connections, and does not answer a request in time."""


class BmcLoginError(BmcError):
    """The BMC refused the user or the password."""


class BmcRefusedError(BmcError):
    """The BMC knows the user, and refused this request."""


class Refusals:
    """Refused logins, or requests, in a row.

    A BMC that boots may answer before its accounts are loaded, but BMCs lock accounts.
    """

    def __init__(self) -> None:
        self._found, self._until = 0, 0.0

    def count(self, error: BmcLoginError | BmcRefusedError) -> None:
        """Count a refusal. Raises it when it is the third in a row; before that, ``waiting`` is true for a minute."""
        self._found += 1
        if self._found >= _LOGINS:
            raise error
        self._until = time.monotonic() + _LOGIN_S

    def waiting(self) -> bool:
        """Return whether it is too early for the next login."""
        return time.monotonic() < self._until

    def pause(self, proceed: Callable[[], None]) -> None:
        """Wait until it is time for the next login. ``proceed`` is called once at least, and may raise to stop."""
        proceed()
        while self.waiting():
            time.sleep(1.0)
            proceed()

    def reset(self) -> None:
        """Start anew: the BMC let us in."""
        self._found = 0


class BmcPasswordChangeError(BmcError):
    """The BMC allows nothing until the password of the account is changed (DSP0266, Password change required)."""


class BmcTlsError(BmcError):
    """The BMC's certificate is not trusted."""


class BmcIdentityError(BmcError):
    """The BMC belongs to another machine than the intended one. ``serials``: what it reports."""

    def __init__(self, where: object = "", what: object = "", *, serials: Serials, **fields: object) -> None:
        super().__init__(where, what, **fields)
        self.serials = serials


def mentions(error: faults.SushyError, message: str) -> bool:
    """Return whether the extended information of an answer has a message with this key, of whatever registry."""
    info = getattr(error, "extended_info", None)
    entries = info if isinstance(info, list) else [info]
    ids = (str(entry.get("MessageId", "")) for entry in entries if isinstance(entry, dict))
    return any(ident.rpartition(".")[2] == message for ident in ids)


def _messages(error: faults.HTTPError) -> str:
    info = error.extended_info
    entries = [entry for entry in (info if isinstance(info, list) else [info]) if isinstance(entry, dict)]
    ids = (f"{entry.get('MessageId', '')}: {entry.get('Message', '')}".strip(": ") for entry in entries)
    return "; ".join(filter(None, ids))


def no_json(where: str, error: ValueError) -> BmcError:
    """Return the error for an answer that sushy cannot parse: a login page, or half a document.

    sushy lets the JSON decoder's error through.
    """
    return BmcError(
        where,
        "Redfish",
        expected="a JSON document",
        actual=error,
        next_step="Update the BMC's firmware, or run again.",
    )


def _refusal(where: str, site: BmcSite, error: faults.AccessError) -> BmcError:
    if mentions(error, "PasswordChangeRequired"):
        return BmcPasswordChangeError(
            where,
            f"user {site.username} has the password of the factory",
            expected="a password of its own",
            actual="the BMC refuses everything until it is changed",
            next_step="Name it in bmc.factory_password, then run `rackready bmc rotate NODE`.",
        )
    if isinstance(error, RefusedError):
        return BmcRefusedError(
            where,
            f"Redfish refused a request of user {site.username}",
            expected="success",
            actual=f"HTTP {error.status_code}: {_messages(error) or error}",
            next_step="The login itself is good. Give the user the privilege, or the BMC the licence, that it names.",
        )
    return BmcLoginError(
        where,
        f"Redfish refused the login of user {site.username}",
        expected="HTTP 200",
        actual=error.status_code,
        next_step=f"Check the password in {site.password}.",
    )


def explain(where: str, site: BmcSite, error: faults.SushyError) -> BmcError:
    """Return the error for the operator from one of sushy."""
    if isinstance(error, faults.AccessError):
        return _refusal(where, site, error)
    if is_tls(error):
        trusted = f"signed by {site.ca}" if site.ca is not None else "signed by an authority of the system's store"
        return BmcTlsError(
            where,
            "TLS",
            expected=f"a certificate for {site.address} {trusted}",
            actual=root_cause(error),
            next_step="Correct bmc.ca in the site file or the BMC's certificate, or pin the one that it shows: "
            "`rackready bmc trust NODE`.",
        )
    if isinstance(error, faults.ConnectionError) and is_slow(error):
        return BmcSlowError(
            where,
            "slow",
            expected="Redfish answers the request in time",
            actual=root_cause(error),
            next_step="It takes connections: look at its event log, restart the BMC if that stays, then run again.",
        )
    if isinstance(error, faults.ConnectionError):
        return BmcUnreachableError(
            where,
            "unreachable",
            expected=f"Redfish answers within {CONNECT_S:.0f} s",
            actual=root_cause(error),
            next_step="Check bmc.address, its cable and the route to the out-of-band network.",
        )
    code = f"HTTP {error.status_code}" if isinstance(error, faults.HTTPError) else type(error).__name__
    return BmcError(
        where,
        "Redfish",
        expected="success",
        actual=f"{code}: {error}",
        next_step="Look at the BMC's event log, then run again.",
    )
