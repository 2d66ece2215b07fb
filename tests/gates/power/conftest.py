"""A node on the outlets of two PDUs, its ledger, and short waits.

A file's ``NET`` keeps its addresses apart from those of others that run at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rackready.ledger.store import Ledger
from tests.gates.fake_pdu import Room
from tests.gates.fake_supplies import Supplies, of_room
from tests.gates.mains import hurry, two_pdus


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)


@pytest.fixture
def room(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Room]:
    made = two_pdus(tmp_path / "rack", net=request.module.NET)
    yield made
    made.rack.stop()


@pytest.fixture
def supplies(room: Room) -> Supplies:
    """The two supplies of its node, as its BMC reports them."""
    return of_room(room)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    made = Ledger.open(tmp_path / "state.sqlite")
    yield made
    made.close()
