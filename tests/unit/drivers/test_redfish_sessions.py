"""Who is in a BMC: sessions of others are ended, our own stays, accounts are read and never guessed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rackready.drivers import redfish_sessions
from rackready.drivers.redfish_errors import BmcError
from rackready.drivers.redfish_read import Gathered
from rackready.drivers.redfish_sessions import BmcDoor
from tests.unit.sim.bmc_service import NODE, Service, served

SESSIONS = "/redfish/v1/SessionService/Sessions"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with served(tmp_path) as found:
        yield found


def test_sessions_of_others_end_and_ours_stays(service: Service) -> None:
    with BmcDoor(NODE, service.site()) as theirs:
        theirs.close_others()  # of other tests: the emulator lives as long as its worker
        service.asked.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(BmcDoor, "__enter__", lambda self: self)  # two logins at once, as two programs have them
            patch.setattr(BmcDoor, "__exit__", lambda _self, *_: None)
            ours = BmcDoor(NODE, service.site())
            assert sorted(ours.users().sessions.values()) == ["admin"]
            assert ours.users().accounts == ("admin",)
            assert ours.close_others() == 1
            assert ours.users().sessions == {}
            assert sum(item.startswith(f"DELETE {SESSIONS}/") for item in service.asked) == 1


def test_accounts_by_the_vendors_tables(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[dict[str, Any]] = [
        {"UserName": "", "Enabled": False},
        {"UserName": "root", "Enabled": True},
        {"UserName": "eve"},
        {"UserName": "old", "Enabled": False},
    ]
    given(monkeypatch, {f"/redfish/v1/AccountService/Accounts/{k}": row for k, row in enumerate(rows)})
    with BmcDoor(NODE, service.site()) as door:
        assert door.users().accounts == ("eve", "root")


def given(monkeypatch: pytest.MonkeyPatch, accounts: dict[str, dict[str, Any]], **unread: str) -> None:
    found = Gathered({"SessionService/Sessions/*": [], "AccountService/Accounts/*": list(accounts)}, accounts, unread)
    monkeypatch.setattr(redfish_sessions, "read", lambda *_: found)


def test_a_bmc_without_accounts_is_no_answer(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, {})
    with BmcDoor(NODE, service.site()) as door, pytest.raises(BmcError) as caught:
        door.users()
    assert str(caught.value) == (
        f"{door.where}: AccountService - Expected: the accounts of the BMC Actual: none. Give its user the right to "
        "read them, or update the BMC's firmware."
    )


def test_accounts_that_cannot_be_read_are_no_answer(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, {"/a": {"UserName": "admin"}}, **{"/redfish/v1/AccountService/Accounts/2": "HTTP 403"})
    with BmcDoor(NODE, service.site()) as door, pytest.raises(BmcError) as caught:
        door.users()
    assert str(caught.value) == (
        f"{door.where}: /redfish/v1/AccountService/Accounts/2 - Expected: readable Actual: HTTP 403. Look at its log, "
        "then run again."
    )
