"""When a gate last passed on a node: the newest pass on this very chassis, or a repair that somebody declared later."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rackready.evidence.store import EvidenceStore, new_id
from rackready.gates.bmc.events import Events
from rackready.gates.judging.last_pass import last_passes
from rackready.ledger.store import Ledger
from rackready.model.evidence import EvidenceRecord, Fingerprint
from rackready.model.outcome import Finding, Metric, Outcome, Verdict

AT = datetime(2026, 6, 1, tzinfo=UTC)
KEY = (Events.id, "node01")


def fingerprint(serial: str) -> Fingerprint:
    return Fingerprint(
        node="node01",
        chassis_serial=serial,
        gpus=["1"],
        nics=["mlx5_0=b8"],
        driver="580",
        vbios=["96"],
        nic_firmware=["28"],
        kernel="6.1",
        desired_digest="d",
        boot_id="b",
    )


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    made = Ledger.open(tmp_path / "state.sqlite")
    yield made
    made.close()


@pytest.fixture
def store(ledger: Ledger, tmp_path: Path) -> EvidenceStore:
    return EvidenceStore.open(ledger, tmp_path / "raw")


def write(store: EvidenceStore, outcome: Outcome, days: int, *, serial: str = "A", gate: str = Events.id) -> None:
    at = AT + timedelta(days=days)
    metrics = [Metric(name="log_entries", target="node01/x", value=days, unit="1")]
    verdict = Verdict(outcome=outcome, metrics=metrics)
    record = EvidenceRecord(
        id=new_id(),
        campaign="c",
        gate=gate,
        target="node01",
        nodes=["node01"],
        fingerprints=[fingerprint(serial)],
        inputs={},
        verdict=verdict,
        raw=[],
        tool_versions={},
        rackready_version="0",
        started=at,
        finished=at,
    )
    store.append(record)


def test_the_newest_pass_counts_and_a_later_fail_does_not_hide_it(store: EvidenceStore, ledger: Ledger) -> None:
    write(store, Outcome.PASS, 1)
    write(store, Outcome.PASS, 3)
    write(store, Outcome.FAIL, 5)
    write(store, Outcome.PASS, 7, gate="bmc/power/sanity/supplies")
    found = last_passes(store, ledger, ["node01", "node02"], {"node01": fingerprint("A")})
    assert set(found) == {KEY}
    assert (found[KEY].at, found[KEY].metrics[0].value) == (AT + timedelta(days=3), 3)


def test_another_chassis_and_an_unknown_one_have_no_past(store: EvidenceStore, ledger: Ledger) -> None:
    write(store, Outcome.PASS, 1)
    unread = Finding(where="node01", what="x", expected="x", actual="x", next_step="x")
    assert last_passes(store, ledger, ["node01"], {"node01": fingerprint("B")}) == {}
    assert last_passes(store, ledger, ["node01"], {"node01": unread}) == {}


def test_a_repair_after_the_pass_stands_in_its_place(store: EvidenceStore, ledger: Ledger) -> None:
    write(store, Outcome.PASS, 1)
    before = time.time()
    ledger.raise_epoch("node01", "repaired: DIMM 3 replaced")
    ledger.done(ledger.change_begins("node01", "repair"), {"reason": "DIMM 3 replaced"})
    found = last_passes(store, ledger, ["node01"], {"node01": fingerprint("A")})[KEY]
    assert found.at.timestamp() >= before
    assert found.metrics == ()


def test_other_changes_of_a_node_are_no_repair(store: EvidenceStore, ledger: Ledger) -> None:
    ledger.done(ledger.change_begins("node01", "install"))
    assert last_passes(store, ledger, ["node01"], {"node01": fingerprint("A")}) == {}
