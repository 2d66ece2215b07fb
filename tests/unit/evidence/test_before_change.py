"""Which evidence a change found on record: by the order of writing, because clocks are set back."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from rackready.evidence.store import EvidenceStore
from rackready.ledger.batch import batch
from rackready.ledger.store import Ledger
from rackready.model.evidence import EvidenceRecord
from rackready.model.outcome import Outcome
from rackready.paths import Database
from tests.unit.evidence.test_store import GATE, record


@pytest.fixture
def ledger(database: Database) -> Iterator[Ledger]:
    made = Ledger.open(database)
    yield made
    made.close()


def change(ledger: Ledger, kind: str, *, happened: bool = True) -> None:
    if kind == "one":
        token = ledger.change_begins("node01", "repair")
        _ = ledger.done(token) if happened else ledger.failed(token, "unchanged")
        return
    with batch(ledger, ["node01"]) as records:
        token = records.changes_begin("install")["node01"]
        _ = records.done(token) if happened else records.failed(token, "unchanged")


def ahead(outcome: Outcome = Outcome.PASS) -> EvidenceRecord:
    now = record(outcome=outcome)
    later = now.started + timedelta(hours=8)
    nanoseconds = int(now.id.partition("-")[0]) + 8 * 3600 * 10**9
    return now.model_copy(update={"id": f"{nanoseconds:020d}-00000000", "started": later, "finished": later})


@pytest.mark.parametrize("kind", ["one", "many"])
def test_what_was_written_ahead_of_time_is_from_before_a_later_change(
    ledger: Ledger, tmp_path: Path, kind: str
) -> None:
    change(ledger, kind)
    assert ledger.last_change("node01").before == "", "there is no evidence yet"
    store = EvidenceStore.open(ledger, tmp_path / "raw")
    (first,) = store.append(ahead())
    change(ledger, kind, happened=False)
    assert ledger.last_change("node01").before == "", "nothing was changed"
    change(ledger, kind)
    (second,) = store.append(record())
    assert first.id <= ledger.last_change("node01").before < second.id
    assert first.started.timestamp() > ledger.last_change("node01").at, "its time alone would let it count"
    assert ledger.last_change("node02").before == ""


def test_a_fail_that_was_written_ahead_of_time_does_not_stand_after_a_repair(ledger: Ledger, tmp_path: Path) -> None:
    store = EvidenceStore.open(ledger, tmp_path / "raw")
    (bad,) = store.append(ahead(Outcome.FAIL))

    def valid() -> dict[str, EvidenceRecord]:
        return store.valid("node01", "d1", None, *ledger.last_change("node01"))

    (good,) = store.append(record())
    assert valid()[GATE].id == store.concluded("node01")[GATE].id == bad.id, "no repair: it stands"
    change(ledger, "one")
    (good,) = store.append(record())
    assert valid()[GATE].id == store.concluded("node01")[GATE].id == good.id
