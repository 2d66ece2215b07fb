"""The evidence store: append-only, tamper-evident, without secrets."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import time
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa

from rackready.evidence.scrub import scrub
from rackready.evidence.store import EMPTY, EvidenceError, EvidenceStore, new_id
from rackready.ledger.evidence_mark import LastChange
from rackready.ledger.store import Ledger
from rackready.model.evidence import EvidenceRecord, Fingerprint, RawOutput
from rackready.model.outcome import Outcome, Verdict
from rackready.paths import Database

GATE = "node/gpu/sanity/inventory"


def fingerprint(node: str = "node01", *, gpu: str = "1650000000000", desired: str = "d1") -> Fingerprint:
    return Fingerprint(
        node=node,
        chassis_serial="S1",
        gpus=[gpu],
        nics=["mlx5_0=0000"],
        driver="580.173.02",
        vbios=["96"],
        nic_firmware=["28"],
        kernel="6.1",
        desired_digest=desired,
    )


def record(
    target: str = "node01",
    *,
    outcome: Outcome = Outcome.PASS,
    nodes: list[str] | None = None,
    prints: list[Fingerprint] | None = None,
    gate: str = GATE,
) -> EvidenceRecord:
    now = datetime.now(UTC)
    return EvidenceRecord(
        id=new_id(),
        campaign="c1",
        gate=gate,
        target=target,
        nodes=nodes or [target],
        fingerprints=prints if prints is not None else [fingerprint()],
        verdict=Verdict(outcome=outcome),
        rackready_version="0",
        started=now,
        finished=now,
    )


@pytest.fixture
def ledger(database: Database) -> Iterator[Ledger]:
    made = Ledger.open(database)
    yield made
    made.close()


@pytest.fixture
def store(ledger: Ledger, tmp_path: Path) -> EvidenceStore:
    return EvidenceStore.open(ledger, tmp_path / "raw")


def test_what_was_appended_is_read_back(store: EvidenceStore) -> None:
    one, two = (
        record(),
        record("node01+node02/rail1", nodes=["node01", "node02"], gate="pair/fabric/performance/ib-write-bw"),
    )
    store.append(one)
    store.append(two)
    assert store.records() == [one, two]
    assert store.records(node="node02") == [two]
    assert store.records(gate=GATE) == [one]
    assert store.records(campaign="other") == []


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE evidence SET outcome = 'pass'",
        "DELETE FROM evidence",
        "UPDATE evidence_nodes SET node = 'x'",
        "DELETE FROM evidence_nodes",
    ],
)
def test_the_database_itself_refuses_changes(store: EvidenceStore, ledger: Ledger, statement: str) -> None:
    store.append(record(outcome=Outcome.FAIL))
    with pytest.raises(sa.exc.IntegrityError, match="append-only"), ledger.engine.begin() as connection:
        connection.execute(sa.text(statement))
    assert store.records()[0].verdict.outcome is Outcome.FAIL


def test_a_record_is_appended_once(store: EvidenceStore) -> None:
    one = record()
    store.append(one)
    with pytest.raises(EvidenceError) as refusal:
        store.append(record("node02"), one)
    text = (
        f"evidence {one.id} cannot be appended - Expected: a new record Actual: its id exists. "
        "Measure again: it gets a new id."
    )
    assert str(refusal.value) == text
    assert store.records() == [one]


OTHER = [fingerprint(gpu="1650000000009")]


@pytest.mark.parametrize(
    ("then", "now", "changed", "stands"),
    [
        (None, None, 0.0, True),
        (None, [], 0.0, True),
        ([], None, 0.0, False),
        (OTHER, None, 0.0, False),
        (None, None, math.inf, False),
    ],
    ids=["same node", "proves no host", "never proved one", "other GPU", "changed since"],
)
def test_a_fail_is_shown_where_a_newer_pass_does_not_cover_it(
    store: EvidenceStore,
    monkeypatch: pytest.MonkeyPatch,
    then: list[Fingerprint] | None,
    now: list[Fingerprint] | None,
    changed: float,
    *,
    stands: bool,
) -> None:
    """`rackready gate run` decides nothing: what it passes is no pass where handover sees a fail."""
    fail, later = store.append(record(outcome=Outcome.FAIL, prints=then), record(prints=now))
    monkeypatch.setattr(Ledger, "last_change", lambda _ledger, _node: LastChange(changed, ""))
    found = store.concluded("node01")[GATE]
    if not stands:
        assert found == later
        return
    step = "`rackready repair node01 --reason '...'`"
    note = f"pass at {later.started:%Y-%m-%d %H:%M} UTC (c1); the fail stands until {step}"
    assert found == fail.model_copy(update={"verdict": Verdict(outcome=Outcome.FAIL, note=note)})


def test_a_clock_that_was_stepped_back_hides_no_newer_record(
    store: EvidenceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = record()
    store.append(good)
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() - 3600 * 10**9)
    run, bad = store.append(record("node01+node02/rail1"), record(outcome=Outcome.FAIL))
    assert [item.id for item in store.records()] == [good.id, run.id, bad.id]
    assert re.fullmatch(r"\d{20}-[0-9a-f]{8}", bad.id)
    assert store.concluded("node01") == {GATE: bad}
    assert store.newest(GATE)["node01"] == bad
    assert store.valid("node01", "d1") == {GATE: bad}
    monkeypatch.undo()
    again = record()
    assert store.append(again) == [again], "with a clock that goes on, ids are the time again"


def test_a_changed_record_is_noticed(store: EvidenceStore, ledger: Ledger) -> None:
    store.append(record(outcome=Outcome.FAIL))
    with ledger.engine.begin() as connection:
        connection.execute(
            sa.text("DROP TRIGGER evidence_no_update" + (" ON evidence" if ledger.engine.name == "postgresql" else ""))
        )
        connection.execute(sa.text("""UPDATE evidence SET record = replace(record, '"fail"', '"pass"')"""))
    assert store.records() == []
    finding = store.concluded("node01")[GATE].verdict.findings[0]
    assert finding.expected.startswith("the record as it was written, of SHA-256 ")


def test_raw_output_is_kept_by_hash_compressed_and_private(store: EvidenceStore, tmp_path: Path) -> None:
    digest = store.put_raw("busbw 478.6\n" * 1000)
    assert store.put_raw("busbw 478.6\n" * 1000) == digest
    assert store.raw(digest) == "busbw 478.6\n" * 1000
    file = next((tmp_path / "raw").rglob("*.z"))
    assert file.stat().st_size < 1000
    assert file.stat().st_mode & 0o077 == 0
    assert not list((tmp_path / "raw").rglob("*.part"))


STEP = "Run the gate again. Passes based on this output no longer count."


def raw_file(tmp_path: Path, digest: str) -> Path:
    return tmp_path / "raw" / digest[:2] / f"{digest}.z"


def test_a_raw_output_that_the_disk_does_not_take_is_refused_in_words_and_leaves_nothing(
    store: EvidenceStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(EvidenceError) as refusal:
        store.put_raw("one")
    monkeypatch.undo()
    digest = hashlib.sha256(b"one").hexdigest()
    assert str(refusal.value) == (
        f"{tmp_path}/raw/{digest[:2]}: a raw output cannot be stored - Expected: a writable folder with room "
        "Actual: No space left on device. "
        "Free disk space or correct its owner, then run again."
    )
    assert [path for path in (tmp_path / "raw").rglob("*") if path.is_file()] == []
    assert store.raw(store.put_raw("one")) == "one"


def test_a_damaged_raw_output_is_noticed(store: EvidenceStore, ledger: Ledger, tmp_path: Path) -> None:
    digest = store.put_raw("one")
    raw_file(tmp_path, digest).write_bytes(zlib.compress(b"two"))
    with pytest.raises(EvidenceError) as refusal:
        store.raw(digest)
    assert str(refusal.value) == f"raw output {digest} - Expected: content of that hash Actual: another. {STEP}"
    raw_file(tmp_path, digest).write_bytes(zlib.compress(b"one")[:-3])
    with pytest.raises(EvidenceError) as refusal:
        store.raw(digest)
    assert str(refusal.value).startswith(
        f"raw output {digest} cannot be read - Expected: a stored output Actual: Error -5 "
    )
    assert str(refusal.value).endswith(STEP)
    step = "Measure again" if ledger.alone else "Copy it from the machine that measured, or measure again"
    with pytest.raises(EvidenceError) as refusal:
        store.raw("0" * 64)
    text = f"raw output {'0' * 64} cannot be read - Expected: a stored output Actual: none. {step}."
    assert str(refusal.value) == text
    with pytest.raises(EvidenceError, match="64 hexadecimal"):
        store.raw("../../etc/passwd")


@pytest.mark.parametrize("damaged", [b"", zlib.compress(b"two"), zlib.compress(b"one")[:-3]])
def test_a_damaged_raw_output_is_replaced_when_it_comes_again(
    store: EvidenceStore, tmp_path: Path, damaged: bytes
) -> None:
    digest = store.put_raw("one")
    raw_file(tmp_path, digest).write_bytes(damaged)
    assert store.put_raw("one") == digest
    assert store.raw(digest) == "one"
    assert [path.name for path in raw_file(tmp_path, digest).parent.iterdir()] == [f"{digest}.z"]


def judged_from(store: EvidenceStore, text: str, outcome: Outcome = Outcome.PASS) -> EvidenceRecord:
    digest = store.put_raw(text)
    raw = RawOutput(host="node01", command="c", exit_code=0, stdout_sha256=digest, stderr_sha256=EMPTY, seconds=1)
    return store.append(record(outcome=outcome).model_copy(update={"raw": [raw]}))[0]


def test_a_pass_whose_output_is_damaged_or_gone_counts_no_longer(
    store: EvidenceStore, ledger: Ledger, tmp_path: Path
) -> None:
    """Of a server that several machines share, the outputs may lie on another one of them."""
    good = judged_from(store, "one")
    file = raw_file(tmp_path, good.raw[0].stdout_sha256)
    assert store.valid("node01", "d1") == {GATE: good}
    whole = file.read_bytes()
    for damaged in (b"", whole[:-3], zlib.compress(b"two")):
        file.write_bytes(damaged)
        assert store.valid("node01", "d1")[GATE].verdict.outcome is Outcome.ERROR
    file.unlink()
    assert (store.valid("node01", "d1")[GATE] == good) is not ledger.alone
    store.put_raw("one")
    assert store.valid("node01", "d1") == {GATE: good}


def test_a_fail_stands_whatever_becomes_of_its_output(store: EvidenceStore, tmp_path: Path) -> None:
    bad = judged_from(store, "one", Outcome.FAIL)
    raw_file(tmp_path, bad.raw[0].stdout_sha256).unlink()
    assert store.valid("node01", "d1") == {GATE: bad}
    later = judged_from(store, "two")
    assert store.valid("node01", "d1", fails_since=0.0) == {GATE: bad}
    raw_file(tmp_path, later.raw[0].stdout_sha256).write_bytes(b"")
    assert store.valid("node01", "d1", fails_since=0.0) == {GATE: bad}


def test_only_the_newest_conclusion_of_the_present_node_counts(store: EvidenceStore) -> None:
    good = record()
    store.append(good)
    assert store.valid("node01", "d1") == {GATE: good}
    assert store.valid("node01", "d1", fingerprint()) == {GATE: good}
    assert store.valid("node01", "d2") == {}, "another desired state"
    assert store.valid("node01", "d1", fingerprint(gpu="another")) == {}, "a GPU was replaced"
    assert store.valid("node02", "d1") == {}
    bad = record(outcome=Outcome.FAIL)
    store.append(bad)
    assert store.valid("node01", "d1") == {GATE: bad}, "an older pass never covers a newer fail"


def test_evidence_of_an_earlier_boot_is_of_the_same_node(store: EvidenceStore) -> None:
    """Whether it counts after a reboot is the gate set's to say, gate by gate."""
    good = record(prints=[fingerprint().model_copy(update={"boot_id": "b1"})])
    store.append(good)
    assert store.valid("node01", "d1", fingerprint().model_copy(update={"boot_id": "b2"})) == {GATE: good}


def test_evidence_without_a_fingerprint_counts_for_nothing(store: EvidenceStore) -> None:
    store.append(record(prints=[]))
    assert store.valid("node01", "d1") == {}


def test_of_a_node_with_a_gpu_that_does_not_say_who_it_is_only_fails_count(store: EvidenceStore) -> None:
    lost = fingerprint(gpu="unread:gpu2")
    assert lost.unread == ["gpu2"]
    store.append(record(prints=[lost]))
    assert store.valid("node01", "d1", lost) == {}
    bad = record(outcome=Outcome.FAIL, prints=[lost])
    store.append(bad)
    assert store.valid("node01", "d1", lost) == {GATE: bad}


def test_a_run_of_a_pair_is_no_conclusion_about_a_node(store: EvidenceStore) -> None:
    store.append(record("node01+node02/rail1", nodes=["node01", "node02"]))
    assert store.valid("node01", "d1") == {}


def test_a_store_that_was_never_written_reads_as_empty(ledger: Ledger, tmp_path: Path) -> None:
    assert EvidenceStore.read_only(ledger, tmp_path / "raw").records() == []


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\n-----END OPENSSH PRIVATE KEY-----", "b3BlbnNzaC1rZXk"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIB cut off", "MIIEpAIB"),
        ('{"version": 3, "env": ["PATH=/usr/bin", "REGISTRY=do-not-keep-me"], "results": []}', "do-not-keep-me"),
        ('{"env": ["A=do-not-keep-me", "B=cut', "do-not-keep-me"),
        ('{"env": ["A=1", "DB=do-not-keep-me rest', "do-not-keep-me"),
        ('{"env": ["A=1", "DB=do-not-keep-me\\', "do-not-keep-me"),
        ("PASSWORD='do-not-keep-me either'", "either"),
        ('"passphrase" : "x do-not-keep-me"', "do-not-keep-me"),
        ('{"bmc_password": "x, do-not-keep-me', "do-not-keep-me"),
        ("DB_PASS=do-not-keep-me", "do-not-keep-me"),
        ("SLURM_JWT=do-not-keep-me", "do-not-keep-me"),
        ("HF_TOKEN=do-not-keep-me", "do-not-keep-me"),
        ("PIN_TOKEN=123456", "123456"),
        ("Authorization: Bearer do-not-keep-me", "do-not-keep-me"),
        ("{'authorization': 'Basic do-not-keep-me'}", "do-not-keep-me"),
        ("ipmitool -H 192.0.2.1 -U root -P do-not-keep-me sdr", "do-not-keep-me"),
        ("curl -k -u root:do-not-keep-me https://192.0.2.1/redfish/v1", "do-not-keep-me"),
        ("export WANDB_API_KEY=do-not-keep-me", "do-not-keep-me"),
        ('{"bmc_password": "do-not-keep-me"}', "do-not-keep-me"),
        ("curl https://user:do-not-keep-me@mirror.example/x", "do-not-keep-me"),
        ("https://user:a@do-not-keep-me@mirror.example/x", "do-not-keep-me"),
        ("redis://:do-not-keep-me@cache.example:6379/0", "do-not-keep-me"),
        ("git clone https://do-not-keep-me@mirror.example/x", "do-not-keep-me"),
        ("bmcctl --password do-not-keep-me status", "do-not-keep-me"),
        ("bmcctl --bmc-password 'do-not-keep-me either' status", "either"),
        ("kubeadm join 192.0.2.1:6443 --token do-not-keep-me", "do-not-keep-me"),
        ("tool --api-key do-not-keep-me", "do-not-keep-me"),
        ("SSHPASS=do-not-keep-me", "do-not-keep-me"),
        ("DBPASS=do-not-keep-me", "do-not-keep-me"),
        ("dbpass: do-not-keep-me", "do-not-keep-me"),
        ("AZURE_STORAGE_KEY=do-not-keep-me", "do-not-keep-me"),
        ("DefaultEndpointsProtocol=https;AccountKey=do-not-keep-me;EndpointSuffix=x", "do-not-keep-me"),
        ("MUNGE_KEY=do-not-keep-me", "do-not-keep-me"),
        ('{"private_key": "do-not-keep-me"}', "do-not-keep-me"),
        ("PrivateKey = do-not-keep-me", "do-not-keep-me"),
        ('{"auths": {"nvcr.io": {"auth": "do-not-keep-me"}}}', "do-not-keep-me"),
        ("//registry.example/:_auth=do-not-keep-me", "do-not-keep-me"),
        ("sshpass -p do-not-keep-me ssh root@192.0.2.1", "do-not-keep-me"),
        ("sshpass -pdo-not-keep-me ssh root@192.0.2.1", "do-not-keep-me"),
        ("racadm -r 192.0.2.1 -u root -p do-not-keep-me getsel", "do-not-keep-me"),
        ("redfishtool -r 192.0.2.1 -u root -p do-not-keep-me Systems", "do-not-keep-me"),
        ("mysql -u slurm -pdo-not-keep-me slurm_acct_db", "do-not-keep-me"),
    ],
)
def test_secrets_are_scrubbed(store: EvidenceStore, text: str, secret: str) -> None:
    assert secret not in scrub(text)
    assert secret not in store.raw(store.put_raw(text))


@pytest.mark.parametrize(
    "text",
    [
        "ib_write_bw -d mlx5_0 -p 18515 192.0.2.1",
        "mpirun -np 16 -x NCCL_DEBUG=INFO -p 4 all_reduce_perf",
        "vllm bench serve --max-tokens 128 --random-input-len 512",
        "Output token throughput (tok/s): 812.5",
        "result: PASS, bypass: 3, first_pass: 12, PWD=/root, OLDPWD=/",
        "NCCL_IB_PKEY=0 NCCL_IB_TC=106 NCCL_PAT_ENABLE=1",
        "Bootstrap: Using eth0:192.0.2.11<0>; ssh://root@node02/x; http://192.0.2.1:8000/v1/models",
        '{"auth": null, "secret_service": false, "tokens": 12}',
        "chronyc authdata: auth NTS, key id 3",
    ],
)
def test_what_only_looks_like_a_secret_stays(text: str) -> None:
    assert scrub(text) == text


def test_measurements_are_not_scrubbed() -> None:
    text = "# Avg bus bandwidth    : 478.6\n 17179869184 4294967296 float sum -1 62836 273.41 478.60 0\n"
    assert scrub(text) == text
    report = '{"tokens_per_second": 812.5, "total_output_tokens": 4096, "time_per_token": 1.2e-3}'
    assert scrub(report) == report
    assert json.loads(scrub('{"password": "a \\" b", "rest": 1}')) == {"password": "[scrubbed]", "rest": 1}


def test_the_newest_record_of_each_target(store: EvidenceStore) -> None:
    for target, outcome in (
        ("node01", Outcome.FAIL),
        ("node02", Outcome.PASS),
        ("node01", Outcome.PASS),
        ("node03", Outcome.FAIL),
    ):
        store.append(record(target, outcome=outcome))
    store.append(record("node09", gate="node/gpu/sanity/versions"))
    assert {target: found.verdict.outcome for target, found in store.newest(GATE).items()} == {
        "node01": "pass",
        "node02": "pass",
        "node03": "fail",
    }
    assert set(store.newest(GATE, most=2)) == {"node01", "node03"}, "those that were measured last"
