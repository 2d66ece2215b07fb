"""AccountService: the one user of each BMC, its password, and the password of the factory that must be changed.

Shapes: NVIDIA/libredfish c094c9e6, tests/mockups/nvidia_gb200 (AccountService, Accounts/root) and nvidia_viking (AMI:
accounts by number). Until the factory's password is changed, all but the account itself is refused (DSP0266, Password
change required; openbmc/bmcweb 3bf4e63296f0).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import flask

from rackready_sim.redfish.context import NODE
from rackready_sim.redfish.resources import collection, resource
from rackready_sim.store import Store, write_json

_BASE = "/redfish/v1/AccountService"
_SHORTEST, _LONGEST = 8, 20
"""Lengths of a password (mockup nvidia_gb200: MinPasswordLength, MaxPasswordLength)."""
USER = "admin"


class Accounts:
    """Accounts of every BMC. ``bmc_service`` in the hardware state: how the asked BMC's service differs.

    ``factory_password``: what it has until it is changed; ``account``: id of the user's account (default: its name);
    ``if_match``: a PATCH needs If-Match; ``told``: whether it names the account in its refusals; ``lockout``: failed
    logins in a row after which the right password is refused too (AccountLockoutThreshold; none: never).
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def service(self) -> dict[str, Any]:
        """Return how this BMC's service differs from the plain one."""
        found: dict[str, Any] = self._store.seen(NODE.get()).get("bmc_service", {})
        return found

    @property
    def path(self) -> str:
        """Path of the user's account."""
        return f"{_BASE}/Accounts/{self.service().get('account', USER)}"

    def password(self) -> str:
        """Return the password that the BMC takes now."""
        own = self._own()
        if own is not None:
            return own
        factory = self.service().get("factory_password")
        return str(factory) if factory else self._store.secret(f"{NODE.get()}-bmc").read_text(encoding="utf-8").strip()

    def restricted(self) -> bool:
        """Return whether the password of the factory must be changed first."""
        return bool(self.service().get("factory_password")) and self._own() is None

    def message(self) -> dict[str, Any]:
        """Return the message that says so (DMTF Base registry)."""
        told = self.service().get("told", True)
        text = "The password provided for this account must be changed before access is granted."
        return {
            "MessageId": "Base.1.8.1.PasswordChangeRequired",
            "Message": text,
            "MessageArgs": [self.path] if told else [],
            "Severity": "Critical",
        }

    def refusal(self) -> bytes:
        """Return the body of a 403."""
        message = self.message()
        error = {"code": message["MessageId"], "message": message["Message"], "@Message.ExtendedInfo": [message]}
        return json.dumps({"error": error}).encode()

    def change(self, password: str) -> None:
        """Set the password."""
        write_json(self._file(), {"password": password})

    def _own(self) -> str | None:
        try:
            return str(json.loads(self._file().read_text(encoding="utf-8"))["password"])
        except FileNotFoundError:
            return None

    def _file(self) -> Path:
        return self._store.base / "bmc" / f"{NODE.get()}-account.json"

    def document(self) -> dict[str, Any]:
        """Return the account."""
        return resource(
            self.path,
            "ManagerAccount",
            "v1_7_0",
            Name="User Account",
            AccountTypes=["IPMI", "Redfish", "WebUI"],
            Enabled=True,
            Locked=False,
            Password=None,
            PasswordChangeRequired=self.restricted(),
            RoleId="Administrator",
            UserName=USER,
            Links={"Role": {"@odata.id": f"{_BASE}/Roles/Administrator"}},
        )


def blueprint(accounts: Accounts) -> flask.Blueprint:
    """Return the account service, which sushy-tools lacks."""
    service = flask.Blueprint("accounts", __name__)

    @service.get(_BASE)
    def _service() -> Any:  # noqa: ANN401 - a Flask response
        lengths = {"MinPasswordLength": _SHORTEST, "MaxPasswordLength": _LONGEST}
        lengths["AccountLockoutThreshold"] = int(accounts.service().get("lockout", 5))
        listed = {"Accounts": {"@odata.id": f"{_BASE}/Accounts"}}
        return resource(_BASE, "AccountService", "v1_15_0", Name="Account Service", **lengths, **listed)

    @service.get(f"{_BASE}/Accounts")
    def _list() -> Any:  # noqa: ANN401
        return collection(f"{_BASE}/Accounts", "ManagerAccount", {accounts.path: {}})[f"{_BASE}/Accounts"]

    @service.get(f"{_BASE}/Accounts/<ident>")
    def _one(ident: str) -> Any:  # noqa: ANN401
        if not accounts.path.endswith(f"/{ident}"):
            flask.abort(404)
        return accounts.document(), 200, {"ETag": '"1720647997"'}

    @service.patch(f"{_BASE}/Accounts/<ident>")
    def _change(ident: str) -> Any:  # noqa: ANN401
        if not accounts.path.endswith(f"/{ident}"):
            flask.abort(404)
        if accounts.service().get("if_match") and not flask.request.headers.get("If-Match"):
            return flask.Response(_error("Base.1.8.1.GeneralError", "If-Match is required"), status=428)
        body = flask.request.get_json(silent=True)
        password = str((body if isinstance(body, dict) else {}).get("Password", ""))
        if not _SHORTEST <= len(password) <= _LONGEST:
            return flask.Response(_error("Base.1.8.1.PropertyValueFormatError", "Password"), status=400)
        if accounts.service().get("ignores_password"):
            return flask.Response(status=204)
        accounts.change(password)
        return flask.Response(status=204)

    return service


def _error(code: str, text: str) -> str:
    return json.dumps({"error": {"code": code, "message": text}})
