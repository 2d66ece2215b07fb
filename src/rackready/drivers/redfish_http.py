"""HTTP to a BMC below sushy: login, time limits, and the causes of faults."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import requests
from sushy import connector as sushy_connector
from sushy import exceptions as faults
from sushy.auth import SessionAuth
from urllib3.exceptions import ReadTimeoutError

from rackready.drivers.pinned_tls import Pinned

CONNECT_S = 5.0
READ_S = 30.0
INVENTORY_S = 240.0
"""Longest time to an answer of the firmware inventory, s. A DGX H100 takes 2 to 3 minutes (issue 1584 of
NVIDIA/infra-controller; NVIDIA/libredfish c094c9e6, src/nvidia_viking.rs, waits 180 s); our choice: a margin more."""
_FORBIDDEN = 403
_NO_SESSION = (".NoValidSession", ".SessionTerminated")
"""Ends of message ids (DMTF Base registry, DSP8011) of a session that is gone, whatever the HTTP status."""
_INVENTORY = "/UpdateService/FirmwareInventory"


class RefusedError(faults.AccessError):  # type: ignore[misc]
    """The BMC knows the user and refuses this request (403): no privilege (DSP0266, HTTP status codes), or no licence.

    A Supermicro without DCMS answers so to SecureBoot (metal3-io/ironic-image, issue 688).
    """


class Auth(SessionAuth):  # type: ignore[misc]
    """A Redfish session if the service has sessions, else basic authentication; never both in turn."""

    def _do_authenticate(self) -> None:
        root = self._root_resource.json or {}
        if "Sessions" in (root.get("Links") or {}) or "SessionService" in root:
            super()._do_authenticate()
        else:
            self._connector.set_http_basic_auth(self._username, self._password)

    def refresh_session(self) -> None:
        """Log in again where the session is gone; raise the refusal where only this request was refused.

        sushy would log in again after any 403, and forget the session that is still open: BMCs allow few.
        """
        if self._connector.refused is not None:
            raise self._connector.refused
        super().refresh_session()

    def drop(self) -> None:
        """End the session at the BMC if it still has it: BMCs allow few. It never logs in again to do so, unlike sushy.

        A BMC that does not answer ends an idle session by itself.
        """
        address = self.get_session_resource_id()
        if address is not None:
            with suppress(faults.SushyError):
                self._connector.delete(address, timeout=CONNECT_S, allow_reauth=False)
            self.reset_session_attrs()


class Connector(sushy_connector.Connector):  # type: ignore[misc]
    """Direct HTTP to the BMC: proxies and certificate stores of the environment are not for the out-of-band network."""

    def __init__(self, url: str, *, verify: str | bool, fingerprint: str | None = None) -> None:
        # One try: sushy would repeat a POST whose answer was lost, and so reset a node twice.
        self.account = ""
        """Path of the account whose password must be changed, from the BMC's own message."""
        self.refused: RefusedError | None = None
        """The last answer, where it refuses a request and not the user."""
        super().__init__(
            url,
            verify=verify,
            response_callback=self._look_at,
            server_side_retries=1,
            server_side_retries_delay=1,
            default_request_timeout=READ_S,
            connect_timeout=CONNECT_S,
        )
        self._session.trust_env = False
        if fingerprint is not None:
            self._session.mount("https://", Pinned(fingerprint))

    def get(self, path: str = "", *given: Any, **more: Any) -> requests.Response:
        """Request a resource, with more time for the one that takes long."""
        long = {"timeout": INVENTORY_S} if takes_long(path) else {}
        found: requests.Response = super().get(path, *given, **{**long, **more})
        return found

    def _look_at(self, response: requests.Response) -> None:
        self._read_account(response)
        self.refused = None
        method, url = str(response.request.method), str(response.url)
        login = method == "POST" and url.rstrip("/").endswith("/Sessions")
        gone = any(word in response.text for word in _NO_SESSION)
        if response.status_code == _FORBIDDEN and not login and not gone:
            self.refused = RefusedError(method, url, response)

    def _op(self, *given: Any, **more: Any) -> requests.Response:
        """Send a request as sushy does. A refused one is not repeated with a new session (see ``Auth``)."""
        try:
            found: requests.Response = super()._op(*given, **more)
        except faults.AccessError as error:
            if self.refused is None:
                raise
            raise self.refused from error
        return found

    def _read_account(self, response: requests.Response) -> None:
        """Keep the path that PasswordChangeRequired names (DMTF Base registry: its one argument).

        A session carries the message at its top level (DSP0266, Password change required), a refusal in its error.
        """
        if "PasswordChangeRequired" not in response.text:
            return
        try:
            body = response.json()
        except ValueError:  # the caller reports an answer that is no JSON
            return
        holder = body.get("error", body) if isinstance(body, dict) else {}
        for entry in holder.get("@Message.ExtendedInfo") or []:
            if str(entry.get("MessageId", "")).endswith(".PasswordChangeRequired"):
                self.account = str((entry.get("MessageArgs") or [""])[0])


def takes_long(address: str) -> bool:
    """Whether a BMC may need minutes to answer for this address."""
    return _INVENTORY in address


def passes(error: faults.SushyError) -> bool:
    """Whether a fault is transient: no answer, or a server error."""
    return isinstance(error, faults.ServerSideError) or (
        isinstance(error, faults.ConnectionError) and not is_tls(error)
    )


def _causes(error: BaseException) -> list[BaseException]:
    out: list[BaseException] = [error]
    while (below := out[-1].__cause__ or out[-1].__context__ or _reason(out[-1])) is not None and below not in out:
        out.append(below)
    return out


def _reason(error: BaseException) -> BaseException | None:
    found = getattr(error, "reason", None)
    if isinstance(found, BaseException):
        return found
    return next((arg for arg in error.args if isinstance(arg, BaseException)), None)


def is_tls(error: BaseException) -> bool:
    """Whether a fault is about TLS."""
    return any(isinstance(cause, requests.exceptions.SSLError) for cause in _causes(error))


def is_slow(error: BaseException) -> bool:
    """Whether the BMC took the connection, and gave no answer in time."""
    return any(isinstance(cause, (requests.exceptions.ReadTimeout, ReadTimeoutError)) for cause in _causes(error))


def root_cause(error: BaseException) -> str:
    """Return the text of the first cause of a fault, at most 200 characters."""
    text = str(_causes(error)[-1])
    return text if len(text) < 200 else text[:200] + "..."  # noqa: PLR2004 - a line that people read
