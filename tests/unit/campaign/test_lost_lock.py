"""A lost database stops the campaign as Ctrl-C does; the engine must not record its error as the end of the step."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest

from rackready.campaign import lost_lock, step
from rackready.campaign.request import CampaignRequest
from rackready.drivers.process import STOP, Interrupted
from rackready.ledger.error import LedgerError
from rackready.ledger.store import Ledger


@pytest.fixture(autouse=True)
def _free() -> Iterator[None]:
    yield
    STOP.clear()


def gone(*_given: object, **_named: object) -> NoReturn:
    raise LedgerError("the database does not answer")


def server(monkeypatch: pytest.MonkeyPatch, *, alone: bool) -> None:
    monkeypatch.setattr(lost_lock, "backend_of", lambda _database: SimpleNamespace(alone=alone))


def install(root: Path) -> None:
    step.run_phase(
        CampaignRequest("c1", "x", str(root), "install", ("install",), ("node01",), 8, (1,), 100, "d"),
        "install",
        ["node01"],
    )


@pytest.mark.parametrize("where", ["at its begin", "in its course"])
def test_the_loss_that_is_seen_later_stops_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    server(monkeypatch, alone=False)
    monkeypatch.setattr(*((Ledger, "open", gone) if where == "at its begin" else (step, "_begin", gone)))
    timer = threading.Timer(0.3, STOP.set)
    timer.start()
    with pytest.raises(Interrupted):
        install(tmp_path)
    timer.join()


def test_an_error_of_a_server_that_keeps_the_lock_ends_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server(monkeypatch, alone=False)
    monkeypatch.setattr(lost_lock, "_LOST_S", 0.1)
    monkeypatch.setattr(step, "_begin", gone)
    with pytest.raises(LedgerError, match="does not answer"):
        install(tmp_path)


def test_an_error_of_a_file_is_not_waited_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server(monkeypatch, alone=True)
    monkeypatch.setattr(STOP, "wait", gone)
    monkeypatch.setattr(step, "_begin", gone)
    with pytest.raises(LedgerError):
        install(tmp_path)
