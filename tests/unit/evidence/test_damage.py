"""Every kind of damaged evidence, on either database, costs one gate of one node; it is named and kept."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from rackready import __version__
from rackready.evidence.damaged_evidence import proof, set_aside
from rackready.evidence.output_place import ASIDE
from rackready.evidence.store import EvidenceError, EvidenceStore
from rackready.ledger.store import Ledger
from rackready.model.evidence import EvidenceRecord
from rackready.model.outcome import Finding, Outcome, Verdict
from tests.unit.evidence.test_store import GATE, fingerprint, judged_from, ledger, raw_file, record, store

__all__ = ["ledger", "store"]

OTHER = "node/gpu/sanity/versions"


def on(node: str, gate: str = GATE, outcome: Outcome = Outcome.PASS) -> EvidenceRecord:
    return record(node, gate=gate, outcome=outcome, prints=[fingerprint(node)])


def spoil(ledger: Ledger, one: EvidenceRecord, **columns: Any) -> None:
    """Change a row behind the back of the database's own guards."""
    suffix = " ON evidence" if ledger.engine.name == "postgresql" else ""
    with ledger.engine.begin() as connection:
        connection.execute(sa.text(f"DROP TRIGGER IF EXISTS evidence_no_update{suffix}"))
        connection.execute(
            sa.update(sa.table("evidence", *map(sa.column, ("id", *columns))))
            .where(sa.column("id") == one.id)
            .values(**columns)
        )


def text(words: str) -> dict[str, str]:
    """Return columns of a record that is wrong although its digest is right."""
    return {"record": words, "sha256": hashlib.sha256(words.encode()).hexdigest()}


def without(one: EvidenceRecord, *names: str, **more: Any) -> dict[str, str]:
    return text(json.dumps({**json.loads(one.model_dump_json(exclude=set(names))), **more}))


READS = f"a record that rackready {__version__} reads"

PASS, SKIP = '"pass"', '"skip"'

KINDS: dict[str, tuple[Callable[[EvidenceRecord], dict[str, str]], Callable[[EvidenceRecord], tuple[str, str]]]] = {
    "changed": (
        lambda one: {"record": one.model_dump_json().replace(PASS, SKIP)},
        lambda one: (
            (
                "the record as it was written, of SHA-256 "
                f"{hashlib.sha256(one.model_dump_json().encode()).hexdigest()[:12]}"
            ),
            (f"content of {hashlib.sha256(one.model_dump_json().replace(PASS, SKIP).encode()).hexdigest()[:12]}"),
        ),
    ),
    "cut": (lambda one: text(one.model_dump_json()[:-20]), lambda _: (READS, "no JSON")),
    "no object": (lambda _: text("[]"), lambda _: (READS, "not a mapping")),
    "lacks fields": (lambda one: without(one, "verdict"), lambda _: (READS, "verdict: missing")),
    "newer": (
        lambda one: without(one, rackready_version="99.1", verdict_v2={"outcome": "pass"}),
        lambda _: (READS, "one that the newer rackready 99.1 wrote"),
    ),
    "empty": (lambda _: {"record": ""}, lambda _: ("a record", "nothing")),
    "another's": (
        lambda one: without(one, id="0" * 20 + "-aaaaaaaa"),
        lambda one: (f"id {'0' * 20}-aaaaaaaa, as in the record", f"id {one.id} beside it"),
    ),
    "column": (lambda _: {"outcome": "skip"}, lambda _: ("outcome pass, as in the record", "outcome skip beside it")),
}


@pytest.mark.parametrize("kind", KINDS)
def test_damage_costs_one_gate_of_one_node_and_is_named(store: EvidenceStore, ledger: Ledger, kind: str) -> None:
    bad, other, neighbour = store.append(on("node01"), on("node01", OTHER), on("node02"))
    changes, words = KINDS[kind]
    spoil(ledger, bad, **changes(bad))
    expected, actual = words(bad)
    found = store.valid("node01", "d1", fingerprint())
    assert found[OTHER] == other
    assert (found[GATE].verdict.outcome, found[GATE].fingerprints) == (Outcome.ERROR, [])
    assert str(found[GATE].verdict.findings[0]) == (
        f"node01: evidence of {GATE} is damaged (record {bad.id}) - Expected: {expected} Actual: {actual}. "
        "rackready ignores this record. `rackready validate` archives it and runs the gate again."
    )
    assert found[GATE].verdict.findings[0].code == "evidence-damaged"
    assert store.valid("node02", "d1", fingerprint("node02")) == {GATE: neighbour}
    assert store.records() == [other, neighbour]
    assert store.newest(GATE) == {"node02": neighbour}
    assert list(store.last({"node01", "node02"})) == [other, neighbour]
    assert {gate: one.verdict.outcome for gate, one in store.concluded("node01").items()} == {
        GATE: Outcome.ERROR,
        OTHER: Outcome.PASS,
    }
    again = store.append(on("node01"))[0]
    assert store.valid("node01", "d1", fingerprint())[GATE] == again, "measured again, it counts"


def test_a_record_of_before_there_were_codes_counts_as_it_was_written(store: EvidenceStore, ledger: Ledger) -> None:
    new = {
        "code": "nvlink-inactive",
        "where": "node01 gpu2",
        "what": "NVLink down",
        "expected": "18",
        "actual": "17",
        "next_step": "Reseat it.",
        "nodes": [],
    }
    verdict = Verdict(outcome=Outcome.FAIL, findings=[Finding.model_validate(new)])
    kept = store.append(on("node01", outcome=Outcome.FAIL).model_copy(update={"verdict": verdict}))[0]
    old = json.loads(kept.model_dump_json())
    for later in ("code", "nodes"):
        del old["verdict"]["findings"][0][later]
    spoil(ledger, kept, **text(json.dumps(old)))
    (found,) = store.records()
    assert (str(found.verdict.findings[0]), found.verdict.findings[0].code) == (str(verdict.findings[0]), "")
    assert store.valid("node01", "d1", fingerprint())[GATE] == found, "its digest is that of its own text"


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_found_is_kept_as_proof_once(store: EvidenceStore, ledger: Ledger, kind: str) -> None:
    bad = store.append(on("node01"))[0]
    changes, words = KINDS[kind]
    spoil(ledger, bad, **changes(bad))
    store.records()
    assert set_aside(ledger) == []
    assert [item.text() for item in store.put_aside("c7")] == [
        f"node01: evidence of {GATE} is damaged (record {bad.id}) - Expected: {words(bad)[0]} Actual: {words(bad)[1]}."
    ]
    assert store.put_aside("c8") == []
    (row,) = set_aside(ledger)
    bytes_ = changes(bad).get("record", bad.model_dump_json()).encode()
    assert proof(ledger, row["id"]) == bytes_
    assert (row["kind"], row["name"], row["campaign"], row["gate"], row["target"]) == (
        "record",
        bad.id,
        "c7",
        GATE,
        "node01",
    )
    assert row["sha256"] == (hashlib.sha256(bytes_).hexdigest() if bytes_ else "")
    assert row["at"].startswith("20")
    with ledger.engine.connect() as connection:
        assert connection.execute(sa.text("SELECT count(*) FROM evidence")).scalar() == 1, "nothing was removed"


def test_what_is_set_aside_is_append_only(store: EvidenceStore, ledger: Ledger) -> None:
    bad = store.append(on("node01"))[0]
    spoil(ledger, bad, record="")
    store.records()
    store.put_aside("c1")
    for statement in ("UPDATE evidence_set_aside SET why = 'x'", "DELETE FROM evidence_set_aside"):
        with pytest.raises(sa.exc.IntegrityError, match="append-only"), ledger.engine.begin() as connection:
            connection.execute(sa.text(statement))


def test_a_row_that_the_database_cannot_read_costs_only_itself(store: EvidenceStore, ledger: Ledger) -> None:
    """SQLite gives no text that is no UTF-8, and ends the whole query with it."""
    if ledger.engine.name == "postgresql":
        pytest.skip("PostgreSQL stores no text that is no UTF-8")
    first, bad, last = store.append(on("node01", OTHER), on("node01"), on("node02"))
    with ledger.engine.begin() as connection:
        connection.execute(sa.text("DROP TRIGGER evidence_no_update"))
        connection.execute(
            sa.text("UPDATE evidence SET record = CAST(x'7bff7d' AS TEXT) WHERE id = :id"), {"id": bad.id}
        )
    assert store.records() == [first, last]
    finding = store.valid("node01", "d1")[GATE].verdict.findings[0]
    assert finding.expected == "a record that the database can read"
    assert finding.actual.startswith("Could not decode to UTF-8 column 'record'")
    assert store.concluded("node01")[GATE].verdict.outcome is Outcome.ERROR
    store.put_aside("c1")
    assert proof(ledger, set_aside(ledger)[0]["id"]) == b"{\xff}"


def test_bytes_in_the_place_of_a_text_are_judged_like_it(store: EvidenceStore, ledger: Ledger) -> None:
    if ledger.engine.name == "postgresql":
        pytest.skip("a column of PostgreSQL holds its own type alone")
    bad = store.append(on("node01"))[0]
    spoil(ledger, bad, record=b"\x00\x01")
    assert store.valid("node01", "d1")[GATE].verdict.outcome is Outcome.ERROR


def test_a_fail_whose_record_is_damaged_stands_until_the_node_is_repaired(store: EvidenceStore, ledger: Ledger) -> None:
    """Measuring until it passes must not become possible by damage."""
    bad, later = store.append(on("node01", outcome=Outcome.FAIL), on("node01"))
    spoil(ledger, bad, record="{}")
    found = store.valid("node01", "d1", fingerprint(), fails_since=0.0)[GATE]
    assert (found.verdict.outcome, found.verdict.findings[0].code) == (Outcome.FAIL, "evidence-damaged-fail")
    assert (
        found.verdict.findings[0].next_step
        == "A fail was recorded and stands: when the node is repaired, `rackready repair node01 --reason '...'`."
    )
    assert store.concluded("node01")[GATE].verdict.outcome is Outcome.FAIL
    assert store.valid("node01", "d1", fingerprint())[GATE] == later, (
        "a fail from before the last change stands in nobody's way"
    )
    assert store.valid("node01", "d1", fingerprint(), fails_since=later.started.timestamp() + 1)[GATE] == later


def test_an_older_record_that_is_damaged_does_not_cover_a_newer_one(store: EvidenceStore, ledger: Ledger) -> None:
    bad, later = store.append(on("node01"), on("node01"))
    spoil(ledger, bad, record="{}")
    assert store.valid("node01", "d1", fingerprint(), fails_since=0.0) == {GATE: later}


def test_a_run_over_several_nodes_is_shown_as_damaged(store: EvidenceStore, ledger: Ledger) -> None:
    pair = record("node01+node02/rail1", nodes=["node01", "node02"], gate="pair/fabric/performance/ib-write-bw")
    good = pair.model_copy(update={"id": "9" * 20 + "-00000000", "target": "node01+node02/rail2"})
    store.append(pair, good)
    spoil(ledger, pair, record="")
    found = list(store.over_several("c1"))
    assert [(one.target, one.verdict.outcome, one.nodes) for one in found] == [
        ("node01+node02/rail1", Outcome.ERROR, ["node01", "node02"]),
        ("node01+node02/rail2", Outcome.PASS, ["node01", "node02"]),
    ]


@pytest.mark.parametrize(
    ("damaged", "actual"),
    [
        (b"", "Error -5 while decompressing data: incomplete or truncated stream"),
        (b"x\x9cnonsense", "Error -3 while decompressing data"),
    ],
)
def test_a_damaged_output_is_moved_out_of_the_way_and_kept(
    store: EvidenceStore, ledger: Ledger, tmp_path: Path, damaged: bytes, actual: str
) -> None:
    good = judged_from(store, "one")
    digest = good.raw[0].stdout_sha256
    file = raw_file(tmp_path, digest)
    file.write_bytes(damaged)
    finding = store.valid("node01", "d1")[GATE].verdict.findings[0]
    assert (finding.code, finding.what, finding.expected) == (
        "evidence-output-lost",
        f"evidence of {GATE} lost a raw output (record {good.id})",
        "the output that it was judged from",
    )
    assert finding.actual.startswith(actual)
    (lost,) = store.put_aside("c7")
    assert lost.text().startswith(
        f"node01: evidence of {GATE} lost raw output {digest[:12]} - Expected: the output that it was judged from "
        f"Actual: {actual}"
    )
    assert not file.exists()
    (row,) = set_aside(ledger)
    assert (row["kind"], row["name"], row["campaign"], row["sha256"]) == (
        "raw output",
        digest,
        "c7",
        hashlib.sha256(damaged).hexdigest() if damaged else "",
    )
    assert Path(row["file"]).read_bytes() == damaged
    assert Path(row["file"]).parent == tmp_path / ASIDE
    assert store.put_raw("one") == digest
    assert store.raw(digest) == "one"


def test_an_output_that_is_gone_is_named(store: EvidenceStore, ledger: Ledger, tmp_path: Path) -> None:
    """On a server that several machines share it may lie on another one."""
    good = judged_from(store, "one")
    raw_file(tmp_path, good.raw[0].stdout_sha256).unlink()
    found = store.valid("node01", "d1")[GATE]
    if not ledger.alone:
        assert found == good
        return
    assert found.verdict.findings[0].actual == "none"
    assert len(store.put_aside("c7")) == 1
    assert store.put_aside("c8") == []
    (row,) = set_aside(ledger)
    assert (row["name"], row["file"], row["sha256"]) == (good.raw[0].stdout_sha256, "", "")


def test_a_folder_in_the_place_of_an_output_is_moved_away_too(
    store: EvidenceStore, ledger: Ledger, tmp_path: Path
) -> None:
    digest = hashlib.sha256(b"one").hexdigest()
    raw_file(tmp_path, digest).mkdir(parents=True)
    assert store.put_raw("one") == digest
    assert store.raw(digest) == "one"
    assert Path(set_aside(ledger)[0]["file"]).is_dir()


def test_what_a_new_output_replaces_is_kept(store: EvidenceStore, ledger: Ledger, tmp_path: Path) -> None:
    digest = store.put_raw("one")
    raw_file(tmp_path, digest).write_bytes(b"damaged")
    store.put_raw("one")
    assert Path(set_aside(ledger)[0]["file"]).read_bytes() == b"damaged"


@pytest.mark.parametrize("damaged", [False, True])
def test_threads_that_store_the_same_output_set_no_good_file_aside(
    store: EvidenceStore, ledger: Ledger, tmp_path: Path, *, damaged: bool
) -> None:
    texts = [f"the same output {number}" for number in range(40)]
    for one in texts if damaged else ():
        raw_file(tmp_path, store.put_raw(one)).write_bytes(b"damaged")
    start = threading.Barrier(8)

    def put(one: str) -> str:
        start.wait()
        return store.put_raw(one)

    with ThreadPoolExecutor(8) as pool:
        for one in texts:
            assert len(set(pool.map(put, [one] * 8))) == 1
    assert {store.raw(hashlib.sha256(one.encode()).hexdigest()) for one in texts} == set(texts)
    assert [Path(row["file"]).read_bytes() for row in set_aside(ledger)] == [b"damaged"] * 40 * damaged


def test_a_store_that_nothing_was_set_aside_from(store: EvidenceStore, ledger: Ledger) -> None:
    assert store.put_aside("c1") == []
    assert (set_aside(ledger), proof(ledger, "x")) == ([], None)


def test_a_table_that_is_gone_is_no_damaged_record(store: EvidenceStore, ledger: Ledger) -> None:
    store.append(on("node01"))
    store.records()
    with ledger.engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE evidence"))
    with pytest.raises(Exception, match="the ledger cannot be read") as refusal:
        store.records()
    assert not isinstance(refusal.value, EvidenceError)
