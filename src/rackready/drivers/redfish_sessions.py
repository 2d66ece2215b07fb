"""Who may use a BMC now: its open sessions and its accounts (DMTF DSP0266, SessionService and AccountService)."""

from __future__ import annotations

from dataclasses import dataclass

from sushy import exceptions as faults

from rackready.drivers.redfish import Bmc
from rackready.drivers.redfish_errors import BmcError
from rackready.drivers.redfish_read import read

_SESSIONS, _ACCOUNTS = "SessionService/Sessions/*", "AccountService/Accounts/*"


@dataclass(frozen=True, slots=True)
class Users:
    """``sessions``: address -> user of each session but our own; ``accounts``: names of accounts that are enabled."""

    sessions: dict[str, str]
    accounts: tuple[str, ...]


class BmcDoor(Bmc):
    """A BMC, with the means to show others out."""

    def users(self) -> Users:
        """Return who is in, and who may come in. Raises BmcError, also where one of the two cannot be read."""
        self.login()
        found = read(self, (_SESSIONS, _ACCOUNTS), lambda: None)
        if found.unread:
            address, why = next(iter(found.unread.items()))
            raise BmcError(
                self.where, address, expected="readable", actual=why, next_step="Look at its log, then run again."
            )
        sessions = {
            address: str(found.documents.get(address, {}).get("UserName") or "a user without a name")
            for address in found.trails[_SESSIONS]
            if not self._is_ours(address)
        }
        accounts = [found.documents.get(address, {}) for address in found.trails[_ACCOUNTS]]
        if not accounts:
            raise BmcError(
                self.where,
                "AccountService",
                expected="the accounts of the BMC",
                actual="none",
                next_step="Give its user the right to read them, or update the BMC's firmware.",
            )
        # Unused places of AMI's and Dell's fixed tables have an empty name (NVIDIA/libredfish, mockups).
        enabled = {
            str(item["UserName"]) for item in accounts if item.get("UserName") and item.get("Enabled") is not False
        }
        return Users(sessions, tuple(sorted(enabled)))

    def close_others(self) -> int:
        """End every session but our own and return how many there were. Raises BmcError."""
        others = self.users().sessions
        for address in others:
            self.insist(lambda address=address: self._end(address))  # type: ignore[misc]
        return len(others)

    def _end(self, address: str) -> None:
        try:
            self._connect()._conn.delete(address)  # noqa: SLF001 - sushy has no plain DELETE
        except faults.ResourceNotFoundError:
            return

    def _is_ours(self, address: str) -> bool:
        own = self._auth.get_session_resource_id() if self._auth is not None else None
        return own is not None and str(own).rstrip("/").endswith(address.rstrip("/"))
