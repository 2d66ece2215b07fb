"""A password of its own for each BMC, in place of the factory's: set so that a kill at any moment loses none.

The new password is written beside the old one (`drivers/secret_store.py`: ``<file>.pending``, or ``<key>_pending`` in
an encrypted file) before the BMC gets it, and takes its place after a login with it. A run that finds a pending one was
cut: it tries that, then the old one, each once, because BMCs lock accounts (NVIDIA/libredfish c094c9e6, mockup
nvidia_viking: AccountLockoutThreshold 5).
No password is in a log, a message, the ledger or an argument of a program.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import string
from collections.abc import Callable
from typing import Any

from rackready.design.secrets import reveal
from rackready.drivers.redfish import Bmc
from rackready.drivers.redfish_errors import BmcError, BmcLoginError
from rackready.drivers.secret_store import Store, store_of
from rackready.ledger.effect import Observation, run_effect
from rackready.ledger.store import Ledger
from rackready.model.base import SecretRef
from rackready.model.bmc import Bmc as BmcSite
from rackready.model.problems import RackreadyError

BMC_PASSWORD = "bmc-password"  # noqa: S105 - the ledger's operation
_LENGTH = 16
"""Characters of a new password: the most that IPMI 1.5 of older BMCs takes (IPMI 2.0, 22.30)."""
_LETTERS = string.ascii_letters + string.digits
_SPECIAL = "-_.+"
"""Vendors want a special character; these need no quoting anywhere."""
_ACCOUNTS = "/redfish/v1/AccountService/Accounts"


class BmcPasswordPlaceError(RackreadyError):
    """The site file names no place where a new password can be written."""


class BmcPasswordLostError(BmcLoginError):
    """Neither the old nor the new password works. Nothing else is tried: BMCs lock accounts and addresses."""


def new_password() -> str:
    """Return a random password that every vendor's policy takes: all four kinds of characters, none of them odd."""
    while True:
        letters = [secrets.choice(_LETTERS) for _ in range(_LENGTH - 1)]
        found = "".join([*letters[:7], secrets.choice(_SPECIAL), *letters[7:]])
        kinds = (str.islower, str.isupper, str.isdigit)
        if all(any(kind(letter) for letter in found) for kind in kinds):
            return found


def needs_rotation(site: BmcSite) -> bool:
    """Whether a BMC still has the password of the factory, or a change of its password was interrupted."""
    store = store_of(site.password)
    if site.factory_password is None or store is None:
        return False
    return not store.exists() or store.has_pending()


def rotate(ledger: Ledger, node: str, site: BmcSite, say: Callable[[str], None]) -> None:
    """Give a BMC a new random password and write it to the place of ``bmc.password``.

    A change that was cut is finished instead. Raises BmcPasswordPlaceError, BmcLoginError when neither password works,
    other kinds of BmcError.
    """
    rotation = _Rotation(ledger, node, site, say)
    with rotation.place.held():
        rotation.run()


def look_row(node: str, site: BmcSite) -> dict[str, str]:
    """Return the row of a dry run: whether the password's place can be written. The BMC is not asked."""
    try:
        store = _writable(node, site)
    except RackreadyError as error:
        return {"name": node, "outcome": "error", "message": str(error)}
    how = "finish an interrupted change" if store.has_pending() else "set a new random password"
    text = f"{node}: would {how}, kept in {store.pending_name} until it works; the BMC was not asked"
    return {"name": node, "outcome": "would change", "message": text}


def _writable(node: str, site: BmcSite) -> Store:
    """Return where a BMC's password is kept. Raises BmcPasswordPlaceError, and as ``Store.require_writable`` does."""
    store = store_of(site.password)
    if store is None:
        raise BmcPasswordPlaceError(
            f"{node} bmc.password",
            expected="file, sops or vault, which rackready writes",
            actual=str(site.password),
            next_step="Name such a place in the site file.",
        )
    store.require_writable()
    return store


class _Rotation:
    def __init__(self, ledger: Ledger, node: str, site: BmcSite, say: Callable[[str], None]) -> None:
        self._ledger, self._node, self._site, self._say = ledger, node, site, say
        self.place = _writable(node, site)
        self._old_works = False

    def run(self) -> None:
        cut = self.place.has_pending()
        if cut and self._seen() is Observation.HAPPENED:
            self._close_intent()
            return
        if cut and not self._old_works:
            raise self._neither()
        desired = self._digest()
        result = run_effect(
            self._ledger,
            self._node,
            BMC_PASSWORD,
            desired,
            before=lambda: {
                "account": self._site.username,
                "place": str(self._site.password),
                "written": self.place.written(),
            },
            observe=lambda stored: Observation.NOT_HAPPENED if self._old_works else self._without_pending(stored),
            act=lambda _token: self._set(),
        )
        if result.outcome == "unknown":
            raise self._neither()
        if result.outcome == "already":
            self._say(f"{self._node}: the password in {self._site.password} works; the change was not recorded as done")

    def _digest(self) -> str:
        """Return the digest of this change: the next one after the last that ended."""
        done = [item for item in self._ledger.entries(self._node) if item.operation == BMC_PASSWORD]
        last = max((item.token for item in done if item.status == "done"), default=0)
        wanted = {"operation": BMC_PASSWORD, "account": self._site.username, "after": last}
        return hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()

    def _close_intent(self) -> None:
        last = self._ledger.latest(self._node, BMC_PASSWORD)
        if last is not None and last.status == "intent":
            self._ledger.done(last.token, {"observed": "after interruption"})

    def _without_pending(self, stored: dict[str, Any]) -> Observation:
        """Judge a change that was cut without a pending password: before it was written, or after it was in place."""
        if self.place.written() == stored.get("written"):
            return Observation.NOT_HAPPENED
        return Observation.HAPPENED if self._works(self._site.password) else Observation.UNKNOWN

    def _seen(self) -> Observation:
        """Try the pending password, then the old one, each once, and say which works."""
        if self._works(self.place.pending):
            last = self._ledger.latest(self._node, BMC_PASSWORD)
            self.place.promote(last.observed.get("written") if last is not None and last.status == "intent" else None)
            self._say(
                f"{self._node}: a change of the BMC's password was interrupted; the pending password works and is now "
                f"in {self._site.password}"
            )
            return Observation.HAPPENED
        if self._works(self._old()):
            self._old_works = True
            self._say(
                f"{self._node}: a change of the BMC's password was interrupted; the old password works, the new one is "
                "set again"
            )
        return Observation.NOT_HAPPENED

    @property
    def _where(self) -> str:
        """The place of the password, in words: a file by its path alone."""
        return str(self._site.password.file or self._site.password)

    def _old(self) -> SecretRef:
        """Return the place of the password that the BMC has before the change."""
        if self.place.exists():
            return self._site.password
        if self._site.factory_password is None:
            raise BmcPasswordPlaceError(
                f"{self._node} bmc",
                expected=f"a password in {self._where}, or bmc.factory_password",
                actual="neither",
                next_step="Write the BMC's present password there (mode 0600), or name the factory's.",
            )
        return self._site.factory_password

    def _works(self, ref: SecretRef) -> bool:
        """Log in once."""
        try:
            with self._with(ref) as bmc:
                bmc.login()
        except BmcLoginError:
            return False
        return True

    def _with(self, ref: SecretRef) -> Bmc:
        return Bmc(self._node, self._site.model_copy(update={"password": ref}))

    def _set(self) -> dict[str, Any]:
        """Write a pending password, set it with a login by the old one, prove it with a new login, put it in place."""
        old, since = self._old(), self.place.written()
        with self._with(old) as bmc:
            bmc.login()
            self.place.prepare(new_password)
            quirks = bmc.quirks()
            match = "*" if quirks.has("if-match-any") else ""
            account = self._account(bmc)
            bmc.patch(account, {"Password": reveal(self.place.pending)}, match=match)
        if not self._works(self.place.pending):
            raise BmcLoginError(
                bmc.where,
                f"the password of user {self._site.username}",
                expected="the new one works after it was set",
                actual="the BMC accepted the change and refuses the new password",
                next_step=f"Run `rackready bmc rotate {self._node}` again: it tries {self.place.pending_name}, then "
                "the old one.",
            )
        self.place.promote(since)
        self._say(f"{self._node}: the BMC has a password of its own, in {self._site.password}")
        return {"account": account}

    def _account(self, bmc: Bmc) -> str:
        """Return the path of the account: by the BMC's own message, by quirk, else by user name."""
        told = bmc.account_to_change
        if told.startswith("/redfish/"):
            return told
        by_quirk = bmc.quirks().answer("account-uri")
        if by_quirk:
            return by_quirk.replace("{user}", self._site.username)
        listed = bmc.get(_ACCOUNTS).get("Members") or []
        for link in listed:
            path = str(link.get("@odata.id", "")) if isinstance(link, dict) else ""
            if path and bmc.get(path).get("UserName") == self._site.username:
                return path
        raise BmcError(
            bmc.where,
            _ACCOUNTS,
            expected=f"an account with UserName {self._site.username}",
            actual=f"{len(listed)} accounts, none of that name",
            next_step="Correct bmc.username in the site file.",
        )

    def _neither(self) -> BmcPasswordLostError:
        pending = self.place.pending_name
        tried = (
            f"neither the password in {pending} nor the one in" if self.place.has_pending() else "not with the one in"
        )
        return BmcPasswordLostError(
            f"{self._node} BMC {self._site.address}:{self._site.port}",
            f"a change of the password of user {self._site.username} was interrupted",
            expected="one of the two passwords works",
            actual=f"{tried} {self._old()}; each was tried once",
            next_step=f"Reset the user at the BMC's console, write its password to {self._where}, remove "
            f"{pending}, then run again.",
        )
