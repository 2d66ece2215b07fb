"""Raw outputs in an object store: made once, verified always, and no outcome from a store that is away."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest

from rackready.drivers import object_store
from rackready.evidence.damaged_evidence import set_aside
from rackready.evidence.error import EvidenceError
from rackready.evidence.raw_outputs import AT_ONCE, EMPTY, RawOutputs
from rackready.evidence.report_source import ReportSource
from rackready.evidence.store import EvidenceStore
from rackready.ledger.sqlite import SqliteFile
from rackready.ledger.store import Ledger
from rackready.model.evidence import RawOutput
from rackready.model.object_store import ObjectStore, SharedOutputs
from rackready.model.outcome import Outcome
from rackready.model.site import Site
from tests.postgres import PostgresServer, name_of
from tests.s3_server import ACCESS, BUCKET, PREFIX, SECRET, RealServer, RecordedServer, serving, settings
from tests.unit.evidence.test_store import GATE, judged_from, record

Server = RecordedServer | RealServer


@pytest.fixture(params=["recorded", "versitygw"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    with serving(request.param, tmp_path) as made:
        yield made


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[RecordedServer]:
    with serving("recorded", tmp_path) as made:
        assert isinstance(made, RecordedServer)
        yield made


class Machine:
    """One machine: a cache of its own, and the ledger and the bucket that all share."""

    def __init__(self, folder: Path, name: str, store: ObjectStore) -> None:
        shared = SharedOutputs.model_validate({"s3": store})
        backend = replace(SqliteFile(folder / "state.sqlite"), alone=False, raw_outputs=shared)
        self.ledger = Ledger(backend, backend.engine())
        self.cache = folder / name / "raw"
        self.outputs = RawOutputs(self.ledger, self.cache)

    def evidence(self) -> EvidenceStore:
        return EvidenceStore.open(self.ledger, self.cache)

    def file(self, digest: str) -> Path:
        return self.cache / digest[:2] / f"{digest}.z"


@pytest.fixture
def here(server: Server, tmp_path: Path) -> Machine:
    return Machine(tmp_path, "here", settings(server.endpoint, tmp_path))


@pytest.fixture
def there(server: Server, tmp_path: Path) -> Machine:
    return Machine(tmp_path, "there", settings(server.endpoint, tmp_path))


def key(digest: str) -> str:
    return f"{PREFIX}/{digest[:2]}/{digest}.z"


def test_an_output_of_one_machine_is_read_on_another(server: Server, here: Machine, there: Machine) -> None:
    digest = here.outputs.put("busbw 478.6\n" * 1000)
    assert server.keys() == [key(digest)]
    stored = server.found(key(digest))
    assert stored is not None
    assert zlib.decompress(stored).decode() == "busbw 478.6\n" * 1000
    assert here.outputs.put("busbw 478.6\n" * 1000) == digest
    assert there.outputs.put("busbw 478.6\n" * 1000) == digest
    assert server.found(key(digest)) == stored
    there.file(digest).unlink()
    assert there.outputs.get(digest) == "busbw 478.6\n" * 1000
    assert there.file(digest).read_bytes() == stored, "kept in the cache"
    assert there.file(digest).stat().st_mode & 0o777 == 0o600
    server.lose(key(digest))
    assert there.outputs.get(digest) == "busbw 478.6\n" * 1000
    assert there.outputs.whole
    with pytest.raises(EvidenceError) as caught:
        there.outputs.get("0" * 64)
    assert str(caught.value) == (
        f"raw output {'0' * 64} cannot be read - Expected: a stored output Actual: none. Measure again."
    )


def test_secrets_in_an_output_never_reach_the_store(server: Server, here: Machine) -> None:
    digest = here.outputs.put("password: hunter2hunter2\n")
    stored = server.found(key(digest))
    assert stored is not None
    assert b"hunter2" not in zlib.decompress(stored)


def test_no_output_at_all_needs_no_object(server: Server, here: Machine, there: Machine) -> None:
    assert here.outputs.put("") == EMPTY
    assert server.keys() == []
    assert there.outputs.get(EMPTY) == ""


def test_what_a_cache_has_and_the_store_has_not_is_stored_when_it_comes_again(server: Server, here: Machine) -> None:
    """A machine's files from before the store was named are in no store."""
    digest = here.outputs.put("one")
    server.lose(key(digest))
    here.outputs.put("one")
    assert server.keys() == [key(digest)]


@pytest.mark.parametrize("damaged", [b"", zlib.compress(b"one")[:-3], zlib.compress(b"two")])
def test_a_damaged_object_is_set_aside_and_made_again(
    server: Server, here: Machine, there: Machine, damaged: bytes
) -> None:
    digest = here.outputs.put("one")
    server.plant(key(digest), damaged)
    assert here.outputs.get(digest) == "one", "the cache is good"
    with pytest.raises(EvidenceError, match="Run the gate again"):
        there.outputs.get(digest)
    assert not there.file(digest).exists(), "what is damaged is not kept"
    there.outputs.put("one")
    assert there.outputs.get(digest) == "one"
    (row,) = set_aside(here.ledger)
    aside, good = sorted(server.keys(), reverse=True)
    assert good == key(digest)
    assert row["file"] == f"s3://{BUCKET}/{aside}"
    assert aside.startswith(f"{PREFIX}/set-aside/{digest}.z.")
    assert server.found(aside) == damaged
    assert row["sha256"] == (hashlib.sha256(damaged).hexdigest() if damaged else "")


@pytest.mark.parametrize("conflicts", [1, 9])
def test_an_output_is_not_taken_as_stored_because_another_machine_was_about_to_store_it(
    recorded: RecordedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, conflicts: int
) -> None:
    """S3, PutObject: 409 ConditionalRequestConflict, while another upload of the key is under way. That one fails."""
    machine = Machine(tmp_path, "here", settings(recorded.endpoint, tmp_path))
    answer, left = recorded.answer, [conflicts]

    def conflict(verb: str, path: str, headers: object, body: bytes) -> tuple[int, bytes]:
        if verb == "PUT" and left[0]:
            left[0] -= 1
            return 409, b"<Error><Code>ConditionalRequestConflict</Code><Message>Conflict.</Message></Error>"
        return answer(verb, path, headers, body)

    monkeypatch.setattr(recorded, "answer", conflict)
    if conflicts == 1:
        stored = machine.outputs.put("one")
        assert recorded.keys() == [key(stored)]
        return
    digest = hashlib.sha256(b"one").hexdigest()
    with pytest.raises(EvidenceError) as caught:
        machine.outputs.put("one")
    assert str(caught.value) == (
        f"bucket {BUCKET} of {recorded.endpoint}: a raw output cannot be stored - Expected: an object once it is made "
        f"Actual: no {digest[:2]}/{digest}.z. Look at the store's log, then run again."
    )
    assert not machine.file(digest).exists()


def test_a_damaged_file_of_the_cache_is_mended_from_the_store(server: Server, here: Machine) -> None:
    digest = here.outputs.put("one")
    here.file(digest).write_bytes(b"rot")
    assert here.outputs.get(digest) == "one"
    assert zlib.decompress(here.file(digest).read_bytes()) == b"one"
    here.file(digest).write_bytes(b"rot")
    server.lose(key(digest))
    with pytest.raises(EvidenceError, match="Run the gate again"):
        here.outputs.get(digest)


def test_a_pass_counts_on_another_machine_until_its_object_is_damaged(
    server: Server, here: Machine, there: Machine
) -> None:
    good = judged_from(here.evidence(), "one")
    digest = good.raw[0].stdout_sha256
    assert there.evidence().valid("node01", "d1") == {GATE: good}
    there.file(digest).unlink()
    server.plant(key(digest), b"rot")
    store = there.evidence()
    assert store.valid("node01", "d1")[GATE].verdict.outcome is Outcome.ERROR
    (item,) = store.put_aside("c1")
    assert item.text().startswith(f"node01: evidence of {GATE} lost raw output {digest[:12]} - Expected: the output")
    assert server.found(key(digest)) is None
    assert there.evidence().valid("node01", "d1")[GATE].verdict.outcome is Outcome.ERROR
    judged_from(there.evidence(), "one")
    assert there.evidence().valid("node01", "d1")[GATE].verdict.outcome is Outcome.PASS


def test_an_object_that_is_gone_takes_the_pass_with_it(server: Server, here: Machine, there: Machine) -> None:
    good = judged_from(here.evidence(), "one")
    server.lose(key(good.raw[0].stdout_sha256))
    assert there.evidence().valid("node01", "d1")[GATE].verdict.outcome is Outcome.ERROR


def test_a_store_that_is_away_stores_nothing_and_proves_nothing(server: Server, here: Machine, there: Machine) -> None:
    good = judged_from(here.evidence(), "one")
    server.close()
    away = (
        f"bucket {BUCKET} of {server.endpoint}: {{}} - Expected: a store that answers Actual: connection refused. "
        "Start the store, or correct raw_outputs.s3.endpoint in database.yml, then run again."
    )
    with pytest.raises(EvidenceError) as caught:
        here.outputs.put("two")
    assert str(caught.value) == away.format("a raw output cannot be stored")
    assert not here.file(hashlib.sha256(b"two").hexdigest()).exists()
    digest = good.raw[0].stdout_sha256
    store = there.evidence()
    with pytest.raises(EvidenceError) as caught:
        store.valid("node01", "d1")
    assert str(caught.value) == away.format(f"raw output {digest} cannot be read")
    assert store.put_aside("c1") == [], "an outage is no damage"
    assert here.evidence().valid("node01", "d1") == {GATE: good}, "the cache is verified by hash"


def test_a_report_does_not_ask_a_store_that_is_away_for_each_output(recorded: RecordedServer, tmp_path: Path) -> None:
    """Each read alone waits some seconds for a store that restarts."""
    machine = Machine(tmp_path, "here", settings(recorded.endpoint, tmp_path))
    recorded.close()
    digests = [hashlib.sha256(f"{number}".encode()).hexdigest() for number in range(50)]
    machine.outputs.prefetch(digests)
    begun = time.monotonic()
    for digest in digests:
        with pytest.raises(EvidenceError, match="connection refused"):
            machine.outputs.get(digest)
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize("refusal", [(503, "<Code>SlowDown</Code><Message>Slower.</Message>"), (502, "")])
def test_a_report_does_not_ask_a_store_in_trouble_for_each_output(
    recorded: RecordedServer, tmp_path: Path, refusal: tuple[int, str]
) -> None:
    """Each read alone is tried five times within some seconds. A store that wants fewer requests gets fewer."""
    machine = Machine(tmp_path, "here", settings(recorded.endpoint, tmp_path))
    recorded.refusal = refusal
    digests = [hashlib.sha256(f"{number}".encode()).hexdigest() for number in range(50)]
    for digest in digests:
        with pytest.raises(EvidenceError, match=r"SlowDown \(Slower\)|HTTP 502 Bad Gateway"):
            machine.outputs.get(digest)
    assert len(recorded.requests) == 5


def test_many_outputs_are_brought_in_parallel(recorded: RecordedServer, tmp_path: Path) -> None:
    here, there = (Machine(tmp_path, name, settings(recorded.endpoint, tmp_path)) for name in ("here", "there"))
    digests = [here.outputs.put(f"output {number}\n") for number in range(200)]
    recorded.requests.clear()
    recorded.delay = 0.02
    there.outputs.prefetch(digests)
    assert 8 <= recorded.most <= AT_ONCE
    recorded.delay = 0.0
    assert [there.outputs.get(digest) for digest in digests] == [f"output {number}\n" for number in range(200)]
    assert sorted(recorded.requests) == sorted(("GET", f"/{BUCKET}/{key(digest)}") for digest in digests)


def test_verdicts_and_reports_read_many_outputs_at_once(recorded: RecordedServer, tmp_path: Path) -> None:
    here, there, third = (
        Machine(tmp_path, name, settings(recorded.endpoint, tmp_path)) for name in ("here", "there", "third")
    )
    store = here.evidence()
    digests = [store.put_raw(f"output {number}\n") for number in range(40)]
    raw = [
        RawOutput(host="node01", command="c", exit_code=0, stdout_sha256=one, stderr_sha256=EMPTY, seconds=1)
        for one in digests
    ]
    good = store.append(record().model_copy(update={"raw": raw}))[0]
    recorded.delay = 0.05
    assert there.evidence().valid("node01", "d1") == {GATE: good}
    assert recorded.most > 4
    recorded.most = 0
    source = ReportSource(cast("Site", None), "lab", "c1", third.ledger, third.evidence())
    assert source.raw(digests) == {one: f"output {number}\n" for number, one in enumerate(digests)}
    assert recorded.most > 4


def test_a_write_without_an_answer_is_tried_again_and_stores_once(
    recorded: RecordedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The object of the first try may be there: then the second finds it, and verifies it."""
    monkeypatch.setattr(object_store, "_TIMEOUT", timedelta(seconds=1))
    machine = Machine(tmp_path, "here", settings(recorded.endpoint, tmp_path))
    recorded.silent = 1
    digest = machine.outputs.put("one")
    assert [verb for verb, _ in recorded.requests] == ["PUT", "PUT", "GET"]
    assert recorded.keys() == [key(digest)]
    recorded.silent = 9
    with pytest.raises(EvidenceError) as caught:
        machine.outputs.put("two")
    assert "Expected: a store that answers Actual: no answer in time. " in str(caught.value)
    assert [verb for verb, _ in recorded.requests[3:]] == ["PUT", "PUT"]


def test_a_passing_trouble_of_the_store_is_waited_for(recorded: RecordedServer, tmp_path: Path) -> None:
    machine = Machine(tmp_path, "here", settings(recorded.endpoint, tmp_path))
    recorded.refusal = (503, "<Code>SlowDown</Code><Message>Reduce your request rate.</Message>")
    with pytest.raises(EvidenceError) as caught:
        machine.outputs.put("one")
    assert "Actual: SlowDown (Reduce your request rate). Look at the store's log, then run again." in str(caught.value)
    assert len(recorded.requests) == 5, "the first, and four tries more"


def test_nothing_from_the_environment_decides_where_outputs_go(
    server: Server, here: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1",
        "AWS_ACCESS_KEY_ID": "another",
        "AWS_SECRET_ACCESS_KEY": "another",
        "AWS_SESSION_TOKEN": "another",
        "AWS_SKIP_SIGNATURE": "true",
        "AWS_REGION": "eu-west-1",
        "AWS_BUCKET": "another",
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true",
    }.items():
        monkeypatch.setenv(name, value)
    digest = here.outputs.put("one")
    assert server.keys() == [key(digest)]


def test_the_keys_are_in_no_text_and_in_no_environment(here: Machine, server: Server) -> None:
    here.outputs.put("one")
    server.close()
    with pytest.raises(EvidenceError) as caught:
        here.outputs.put("two")
    seen = " ".join([repr(caught.value), repr(caught.value.__cause__), repr(here.ledger.backend), *os.environ.values()])
    assert SECRET not in seen
    assert ACCESS not in seen


def test_the_command_reads_what_another_machine_stored(
    server: Server, postgres: PostgresServer, tmp_path: Path
) -> None:
    """From the settings file to the object, on two machines with one PostgreSQL database."""
    place = {"s3": json.loads(settings(server.endpoint, tmp_path).model_dump_json(exclude_none=True))}
    database = postgres.database(tmp_path / "here", raw_outputs=place)
    postgres.settings(tmp_path / "there", name=name_of(database), raw_outputs=place)
    with Ledger.open(database) as ledger:
        digest = EvidenceStore.open(ledger, tmp_path / "here/raw").put_raw("busbw 478.6\n")

    def report(wanted: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "rackready", "report", "--env", "lab", "--raw", wanted]
        environment = {**os.environ, "RACKREADY_ROOT": str(tmp_path / "there"), "COLUMNS": "500"}
        return subprocess.run(argv, capture_output=True, text=True, env=environment, timeout=120, check=False)

    done = report(digest)
    assert (done.stdout, done.returncode) == ("busbw 478.6\n", 0), done.stderr
    assert list((tmp_path / "there").rglob(f"{digest}.z")) != []
    server.close()
    done = report("0" * 64)
    assert done.returncode == 2
    assert done.stdout == ""
    assert " ".join(done.stderr.split()).endswith(
        f"bucket {BUCKET} of {server.endpoint}: raw output {'0' * 64} cannot be read - Expected: a store that answers "
        "Actual: connection refused. Start the store, or correct raw_outputs.s3.endpoint in database.yml, "
        "then run again."
    )
    assert SECRET not in done.stderr
