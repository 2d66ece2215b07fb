"""A new password for a switch's user: kept before the switch gets it, proven by a login, and the old one until then.

The session that changes it stays open until a second one has logged in with the new password; if that is refused, the
first sets the old one again. A run that was cut observes which of the two works, each once: switches lock accounts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from rackready.design.secrets import reveal
from rackready.design.switch_systems import known_systems, system_of
from rackready.drivers.bmc_password import new_password
from rackready.drivers.secret_store import Store, store_of
from rackready.drivers.switch.base import SwitchDriver, SwitchError
from rackready.drivers.switch.configure import open_session
from rackready.drivers.switch.registry import driver_for
from rackready.drivers.switch.session import SwitchLoginError
from rackready.ledger.effect import Observation
from rackready.ledger.store import Ledger
from rackready.model.base import SecretRef
from rackready.model.site import Switch
from rackready.paths import EnvPaths

SWITCH_PASSWORD = "switch-password"  # noqa: S105 - the ledger's operation


class SwitchPasswordLostError(SwitchError):
    """Neither the old nor the new password works. Nothing else is tried: switches lock accounts."""


def able(switch: Switch) -> Store:
    """Return where a switch's password is kept. Raises SwitchError where rackready cannot change it, before anything.

    SecretUnreadableError and SecretUnwritableError: the place cannot be read or written.
    """
    if not switch.os or switch.password is None:
        raise SwitchError(
            switch.name,
            "has no login",
            expected="os, address and password",
            next_step="Leave it out: there is no password to change.",
        )
    if not driver_for(switch.name, switch.os).changes_passwords:
        raise SwitchError(
            switch.name,
            f"rackready does not change passwords of {switch.os}",
            expected=f"a system whose driver does: {', '.join(_able(switch.name))}",
            actual=switch.os,
            next_step="Change it on the switch by hand, then write it to its place.",
        )
    store = store_of(switch.password)
    if store is None:
        raise SwitchError(
            f"{switch.name} password",
            expected="file, sops or vault, which rackready writes",
            actual=switch.password,
            next_step="Name such a place in the site file.",
        )
    store.require_writable()
    return store


def look(switch: Switch) -> str:
    """Return what `rotate` would do, without a login. Raises as ``able`` does."""
    store = able(switch)
    how = "finish an interrupted change" if store.has_pending() else "set a new random password"
    return f"{switch.name}: would {how}, kept in {store.pending_name} until it works"


@dataclass(slots=True)
class Rotation:
    """The change of one switch's password."""

    ledger: Ledger
    paths: EnvPaths
    switch: Switch
    say: Callable[[str], None]

    def run(self) -> None:
        """Change the password, or finish an interrupted change. Raises SwitchPasswordLostError and SwitchError."""
        store = able(self.switch)
        with store.held():
            if not (store.has_pending() and self._finish(store)):
                self._change(store)

    def _finish(self, store: Store) -> bool:
        """Observe a change that was cut; return whether the switch has the new password already."""
        with suppress(SwitchLoginError):
            self._kept(store, self._open(store.pending))
            store.promote()
            self._end("observed after interruption")
            self.say(f"{self.switch.name}: a change was interrupted; the new password works and is now in {store.ref}")
            return True
        time.sleep(driver_for(self.switch.name, self.switch.os).login_pause_s)
        return False

    def _change(self, store: Store) -> None:
        cut = store.has_pending()
        try:
            driver = self._open(store.ref)
        except SwitchLoginError as error:
            if not cut:
                raise
            raise self._lost(store) from error
        try:
            if cut:
                self.say(
                    f"{self.switch.name}: a change was interrupted; the old password works, the new one is set again"
                )
            store.prepare(new_password)
            token = self._begin()
            driver.set_password(self._user, reveal(store.pending))
            self._prove(store, driver)
        finally:
            driver.close()
        store.promote()
        self.ledger.done(token, {"user": self._user})
        self.say(f"{self.switch.name}: has a new password, in {store.ref}")

    def _prove(self, store: Store, driver: SwitchDriver) -> None:
        """Log in with the new password and keep it. If it is refused, the open session sets the old one again."""
        try:
            second = self._open(store.pending)
        except SwitchLoginError as error:
            driver.restore_password(self._user, reveal(store.ref))
            raise SwitchError(
                self.switch.name,
                "the new password",
                expected="a login with it, after the switch accepted it",
                actual="refused; the old one was put back over the session that stayed open",
                next_step=f"Look at the switch's rules for passwords, then run again: it tries {store.pending_name} "
                "first.",
            ) from error
        try:
            self._kept(store, second)
        except SwitchLoginError as error:
            raise SwitchError(
                self.switch.name,
                "the new password",
                expected="the switch keeps it after a login with it",
                actual="the time for that ran out, and the switch took it back",
                next_step=f"Run again: it tries {store.pending_name} first, then the old one, which works.",
            ) from error

    def _kept(self, store: Store, driver: SwitchDriver) -> None:
        """Keep the new password over a session that has it, and end that. Raises SwitchLoginError if it is gone.

        The time limit of the change may end between the login and this. Then only another login tells.
        """
        try:
            stays = driver.keep_password()
        finally:
            driver.close()
        if stays:
            return
        again = self._open(store.pending)
        try:
            again.save()  # it was confirmed, and perhaps not saved: the next start would bring the old one back
        finally:
            again.close()

    def _open(self, password: SecretRef) -> SwitchDriver:
        """Log in once with one password. Raises SwitchLoginError when it is refused."""
        switch = self.switch.model_copy(update={"password": password})
        session, _ = open_session(self.paths, switch)
        return driver_for(switch.name, switch.os)(switch.name, session)

    @property
    def _user(self) -> str:
        system = system_of(self.switch.os)
        return self.switch.username or (system.username if system is not None else "")

    def _begin(self) -> int:
        last = self.ledger.latest(self.switch.name, SWITCH_PASSWORD)
        if last is not None and last.status == "intent":
            self.ledger.failed(last.token, f"observed: {Observation.NOT_HAPPENED}")
        seen: dict[str, Any] = {"place": str(self.switch.password)}
        return self.ledger.begin(self.switch.name, SWITCH_PASSWORD, str(time.time_ns()), seen).token

    def _end(self, why: str) -> None:
        last = self.ledger.latest(self.switch.name, SWITCH_PASSWORD)
        if last is not None and last.status == "intent":
            self.ledger.done(last.token, {"observed": why})

    def _lost(self, store: Store) -> SwitchPasswordLostError:
        return SwitchPasswordLostError(
            self.switch.name,
            "a change of its password was interrupted",
            expected="one of the two passwords works",
            actual=f"neither that in {store.pending_name} nor that in {store.ref}; each was tried once",
            next_step=f"Set a password at the switch's console, write it to {store.ref}, remove {store.pending_name}, "
            "then run again.",
        )


def _able(switch: str) -> list[str]:
    """Return the systems whose drivers change passwords."""
    return [os for os in known_systems() if driver_for(switch, os).changes_passwords]
