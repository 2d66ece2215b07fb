"""Access to a BMC: its password by HTTP basic authentication, or a Redfish session (DSP0266, 13.3)."""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import secrets
import threading
from collections.abc import Callable, Iterable
from typing import Any

import flask

from rackready_sim.redfish.accounts import USER, Accounts
from rackready_sim.redfish.context import NODE
from rackready_sim.redfish.misbehave import Misbehaviour
from rackready_sim.store import Store

Environ = dict[str, Any]
StartResponse = Callable[[str, list[tuple[str, str]]], Any]
Wsgi = Callable[[Environ, StartResponse], Iterable[bytes]]

_USER = USER
_MAX_SESSIONS = 64
_SESSIONS = "/redfish/v1/SessionService/Sessions"
_OPEN_PATHS = frozenset({"", "/redfish", "/redfish/v1"})


class Sessions:
    """Sessions and passwords of every BMC; a session is valid only at the BMC that issued it."""

    def __init__(self, store: Store) -> None:
        self.accounts = Accounts(store)
        self.misbehaviour = Misbehaviour(store)
        self._tokens: dict[str, tuple[str, str]] = {}
        self._failures: dict[str, int] = {}
        """Failed logins in a row, by node. A locked account stays locked until its BMC restarts."""
        self._lock = threading.Lock()

    def accepts(self, user: str, password: str) -> bool:
        """Return whether these are the credentials of the BMC that is asked."""
        wanted = self.accounts.password()
        right = hmac.compare_digest(user.encode(), _USER.encode()) & hmac.compare_digest(
            password.encode(), wanted.encode()
        )
        locked = self._locked_out(failed=not right)
        return right and not locked

    def _locked_out(self, *, failed: bool) -> bool:
        """Count a login, and return whether the account is locked; a right password ends the count."""
        limit = int(self.accounts.service().get("lockout", 0))
        with self._lock:
            failures = self._failures.pop(NODE.get(), 0)
            if not limit:
                return False
            if failures >= limit:
                self._failures[NODE.get()] = failures
                return True
            if failed:
                self._failures[NODE.get()] = failures + 1
            return False

    def open(self) -> tuple[str, str]:
        """Start a session at the BMC that is asked; return its id and token.

        The oldest session is removed if there are too many.
        """
        token, ident = secrets.token_hex(16), secrets.token_hex(4)
        with self._lock:
            mine = [key for key, (node, _) in self._tokens.items() if node == NODE.get()]
            for old in mine[: max(0, len(mine) - _MAX_SESSIONS + 1)]:
                del self._tokens[old]
            self._tokens[token] = (NODE.get(), ident)
        return ident, token

    def close(self, ident: str) -> bool:
        """End a session of the BMC that is asked; return whether there was one."""
        with self._lock:
            found = [key for key, value in self._tokens.items() if value == (NODE.get(), ident)]
            for token in found:
                del self._tokens[token]
        return bool(found)

    def forget(self, node: str) -> None:
        """Drop the sessions of a BMC that restarts."""
        with self._lock:
            self._tokens = {token: value for token, value in self._tokens.items() if value[0] != node}
            self._failures.pop(node, None)

    def listed(self) -> list[str]:
        """Return the ids of the sessions of the BMC that is asked."""
        with self._lock:
            return [ident for node, ident in self._tokens.values() if node == NODE.get()]

    def knows(self, token: str) -> bool:
        """Return whether a token belongs to a session of the BMC that is asked."""
        with self._lock:
            return self._tokens.get(token, ("", ""))[0] == NODE.get()


def guard(app: Wsgi, node: str, sessions: Sessions) -> Wsgi:
    """Return the application of one BMC: it answers only for ``node`` and only with that BMC's password."""

    def guarded(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        mark = NODE.set(node)
        try:
            refused = sessions.misbehaviour.before(environ)
            if refused is not None:
                return _answer(start_response, *refused)
            if not _is_open(environ) and not _authenticated(environ, sessions):
                return _refuse(start_response)
            if sessions.accounts.restricted() and not _may_change(environ, sessions):
                return _answer(start_response, "403 Forbidden", [sessions.accounts.refusal()])
            answer = app(environ, start_response)
            sessions.misbehaviour.after(environ)
            return answer
        finally:
            NODE.reset(mark)

    return guarded


def _is_open(environ: Environ) -> bool:
    path = str(environ.get("PATH_INFO", "")).rstrip("/")
    return path in _OPEN_PATHS or (path == _SESSIONS and environ.get("REQUEST_METHOD") == "POST")


def _may_change(environ: Environ, sessions: Sessions) -> bool:
    """Return whether a request is allowed before the password of the factory is changed: login, logout, the account."""
    path = str(environ.get("PATH_INFO", "")).rstrip("/")
    own = path == sessions.accounts.path and environ.get("REQUEST_METHOD") in {"GET", "PATCH"}
    return own or _is_open(environ) or path.startswith(_SESSIONS)


def _answer(start_response: StartResponse, status: str, body: Iterable[bytes]) -> Iterable[bytes]:
    whole = b"".join(body)
    start_response(status, [("Content-Type", "application/json"), ("Content-Length", str(len(whole)))])
    return [whole]


def _authenticated(environ: Environ, sessions: Sessions) -> bool:
    token = environ.get("HTTP_X_AUTH_TOKEN")
    if token:
        return sessions.knows(str(token))
    scheme, _, encoded = str(environ.get("HTTP_AUTHORIZATION", "")).partition(" ")
    if scheme.lower() != "basic":
        return False
    try:
        user, _, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return False
    return sessions.accepts(user, password)


def _refuse(start_response: StartResponse) -> list[bytes]:
    body = _refusal()
    headers = [
        ("Content-Type", "application/json"),
        ("Content-Length", str(len(body))),
        ("WWW-Authenticate", 'Basic realm="Redfish"'),
    ]
    start_response("401 Unauthorized", headers)
    return [body]


def _refusal() -> bytes:
    text = "The authentication credentials included with this request are missing or invalid."
    return json.dumps({"error": {"code": "Base.1.0.NoValidSession", "message": text}}).encode()


def blueprint(sessions: Sessions) -> flask.Blueprint:
    """Return the session service, which sushy-tools lacks."""
    service = flask.Blueprint("sessions", __name__)

    @service.get("/redfish/v1/SessionService")
    def _service() -> Any:  # noqa: ANN401 - a Flask response
        ident = {"@odata.id": "/redfish/v1/SessionService", "@odata.type": "#SessionService.v1_1_3.SessionService"}
        facts = {"Id": "SessionService", "Name": "Session Service", "ServiceEnabled": True, "SessionTimeout": 1800}
        return {**ident, **facts, "Sessions": {"@odata.id": _SESSIONS}}

    @service.get(_SESSIONS)
    def _list() -> Any:  # noqa: ANN401
        members = [{"@odata.id": f"{_SESSIONS}/{ident}"} for ident in sessions.listed()]
        kind = "#SessionCollection.SessionCollection"
        return {
            "@odata.id": _SESSIONS,
            "@odata.type": kind,
            "Name": "Sessions",
            "Members@odata.count": len(members),
            "Members": members,
        }

    @service.post(_SESSIONS)
    def _open() -> Any:  # noqa: ANN401
        body = flask.request.get_json(silent=True)
        given = body if isinstance(body, dict) else {}
        if not sessions.accepts(str(given.get("UserName", "")), str(given.get("Password", ""))):
            return flask.Response(_refusal(), status=401, content_type="application/json")
        ident, token = sessions.open()
        told = {"@Message.ExtendedInfo": [sessions.accounts.message()]} if sessions.accounts.restricted() else {}
        return _session(ident) | told, 201, {"X-Auth-Token": token, "Location": f"{_SESSIONS}/{ident}"}

    @service.get(f"{_SESSIONS}/<ident>")
    def _one(ident: str) -> Any:  # noqa: ANN401
        return _session(ident) if ident in sessions.listed() else flask.abort(404)

    @service.delete(f"{_SESSIONS}/<ident>")
    def _close(ident: str) -> Any:  # noqa: ANN401
        return flask.Response(status=204) if sessions.close(ident) else flask.abort(404)

    return service


def _session(ident: str) -> dict[str, Any]:
    return {
        "@odata.id": f"{_SESSIONS}/{ident}",
        "@odata.type": "#Session.v1_1_0.Session",
        "Id": ident,
        "Name": "User Session",
        "UserName": _USER,
    }
