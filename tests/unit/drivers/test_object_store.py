"""Object stores: each thing that can be wrong is told apart, in exact words, and no key is in them."""

from __future__ import annotations

import builtins
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rackready.drivers import object_store
from rackready.drivers.object_store import Bucket, bucket_of
from rackready.drivers.object_store_error import ObjectStoreError
from rackready.model.problems import RackreadyError
from rackready_sim.tls import ensure_certificates
from tests.s3_server import (
    ACCESS,
    BUCKET,
    PREFIX,
    SECRET,
    SKEWED,
    RealServer,
    RecordedServer,
    serving,
    settings,
)

Server = RecordedServer | RealServer
WRONG = "another-secret-that-is-shown-nowhere"


@pytest.fixture(params=["recorded", "versitygw"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    with serving(request.param, tmp_path) as made:
        yield made


@pytest.fixture
def real(tmp_path: Path) -> Iterator[RealServer]:
    with serving("versitygw", tmp_path) as made:
        assert isinstance(made, RealServer)
        yield made


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[RecordedServer]:
    with serving("recorded", tmp_path) as made:
        assert isinstance(made, RecordedServer)
        yield made


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is not reached is not reached at once."""
    monkeypatch.setitem(object_store._RETRY, "max_retries", 0)


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(RackreadyError) as caught:
        call()
    text = str(caught.value)
    seen = f"{text} {caught.value!r} {caught.value.__cause__!r}"
    assert not [secret for secret in (SECRET, ACCESS, WRONG) if secret in seen]
    return text


def actions(bucket: Bucket) -> list[Callable[[], object]]:
    return [
        lambda: bucket.get("a/one"),
        lambda: bucket.create("a/one", b"x"),
        lambda: bucket.require_rights("a/o", b""),
    ]


def test_an_object_is_made_once_and_moved(server: Server, tmp_path: Path) -> None:
    bucket = Bucket(settings(server.endpoint, tmp_path))
    assert bucket.get("a/one") is None
    assert bucket.create("a/one", b"first")
    assert not bucket.create("a/one", b"second")
    assert bucket.get("a/one") == b"first"
    bucket.move("a/one", "aside/one")
    assert bucket.get("a/one") is None
    assert server.found(f"{PREFIX}/aside/one") == b"first"


def test_rights_are_checked_without_a_change(server: Server, tmp_path: Path) -> None:
    bucket = Bucket(settings(server.endpoint, tmp_path))
    bucket.require_rights("a/one", b"x")
    assert server.keys() == []
    bucket.create("a/one", b"first")
    bucket.require_rights("a/one", b"x")
    assert server.found(f"{PREFIX}/a/one") == b"first"


def test_a_bucket_that_is_not_there_is_no_empty_bucket(server: Server, tmp_path: Path) -> None:
    bucket = Bucket(settings(server.endpoint, tmp_path, bucket="nothere"))
    for action in actions(bucket):
        assert refused(action) == (
            f"bucket nothere of {server.endpoint} - Expected: that bucket Actual: NoSuchBucket. "
            "Make bucket nothere, or correct raw_outputs.s3.bucket in database.yml."
        )


def test_a_wrong_secret_key_is_named_by_its_place(real: RealServer, tmp_path: Path) -> None:
    bucket = Bucket(settings(real.endpoint, tmp_path, secret=WRONG))
    for action in actions(bucket):
        assert refused(action) == (
            f"bucket {BUCKET} of {real.endpoint} - Expected: the secret key of that access key Actual: "
            "SignatureDoesNotMatch (The request signature we calculated does not match the signature you provided. "
            f"Check your key and signing method). Correct the secret key in file {tmp_path}/s3-secret, or the access "
            f"key in file {tmp_path}/s3-access."
        )


def test_an_unknown_access_key_is_no_missing_object(real: RealServer, tmp_path: Path) -> None:
    """Versitygw answers 404 for it, as for an object that does not exist."""
    bucket = Bucket(settings(real.endpoint, tmp_path, access=WRONG))
    for action in actions(bucket):
        assert refused(action) == (
            f"bucket {BUCKET} of {real.endpoint} - Expected: an access key that the store knows Actual: "
            "XAdminUserNotFound (No user exists with the provided access key ID). "
            f"Correct the access key in file {tmp_path}/s3-access."
        )


def test_a_wrong_region_is_told(real: RealServer, tmp_path: Path) -> None:
    bucket = Bucket(settings(real.endpoint, tmp_path, region="eu-west-1"))
    assert refused(actions(bucket)[0]) == (
        f"bucket {BUCKET} of {real.endpoint} - Expected: region us-east-1 Actual: region eu-west-1. "
        "Correct raw_outputs.s3.region in database.yml."
    )


REFUSALS = {
    "clock": (
        403,
        SKEWED,
        "Expected: clocks that agree within 15 min Actual: the store's clock 2026-11-28T19:44:38Z, this machine's ",
        "Set the clock that is wrong (NTP).",
    ),
    "rights": (
        403,
        "<Code>AccessDenied</Code><Message>Access Denied.</Message>",
        "Expected: a key that may read and write there Actual: AccessDenied (Access Denied). Grant the key ",
        f"s3:ListBucket of that bucket, and s3:GetObject, s3:PutObject and s3:DeleteObject below {PREFIX}.",
    ),
    "access key": (
        403,
        f"<Code>InvalidAccessKeyId</Code><Message>{ACCESS} is unknown</Message>",
        "Expected: an access key that the store knows Actual: InvalidAccessKeyId (*** is unknown). ",
        "s3-access.",
    ),
    "conditions": (
        501,
        "<Code>NotImplemented</Code><Message>A header implies functionality that is not there.</Message>",
        "Expected: a store with conditional writes (If-None-Match) Actual: NotImplemented (A header",
        "Upgrade the store, or use a folder that all machines share.",
    ),
    "another": (
        500,
        "<Code>InternalError</Code><Message>We encountered an internal error.</Message>",
        "Expected: an object read or written Actual: InternalError (We encountered an internal error). ",
        "Look at the store's log, then run again.",
    ),
    "no code": (
        404,
        "",
        "Expected: an answer of the S3 API Actual: HTTP 404 Not Found, without a code. ",
        "run again.",
    ),
}


@pytest.mark.parametrize("kind", REFUSALS)
def test_each_refusal_of_a_store_has_its_words(recorded: RecordedServer, tmp_path: Path, kind: str) -> None:
    """The clock's answer is versitygw's to a request that was signed two hours early; others as in S3's reference."""
    status, inside, begins, ends = REFUSALS[kind]
    recorded.refusal = (status, inside)
    for action in actions(Bucket(settings(recorded.endpoint, tmp_path))):
        text = refused(action)
        assert text.startswith(f"bucket {BUCKET} of {recorded.endpoint} - {begins}")
        assert text.endswith(ends)


def test_a_store_that_is_not_reached_is_told_apart(recorded: RecordedServer, tmp_path: Path) -> None:
    reach = "Start the store, or correct raw_outputs.s3.endpoint in database.yml, then run again."
    recorded.close()
    causes = {
        recorded.endpoint: "connection refused",
        "http://nosuch.invalid": "its name is not known",
    }
    for endpoint, cause in causes.items():
        bucket = Bucket(settings(endpoint, tmp_path))
        for action in (actions(bucket)[1], actions(bucket)[0]):
            assert refused(action) == (
                f"bucket {BUCKET} of {endpoint} - Expected: a store that answers Actual: {cause}. {reach}"
            )


def test_a_store_that_never_answers_is_left_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "_TIMEOUT", timedelta(seconds=0.5))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        bucket = Bucket(settings(f"http://127.0.0.1:{silent.getsockname()[1]}", tmp_path))
        begun = time.monotonic()
        for action in (actions(bucket)[1], actions(bucket)[0]):
            assert "Actual: no answer in time. Start the store, or correct " in refused(action)
        assert time.monotonic() - begun < 60


@pytest.fixture
def encrypted(tmp_path: Path) -> Iterator[RecordedServer]:
    ensure_certificates(tmp_path, {"s3": "127.0.0.1"})
    made = RecordedServer(tmp_path / "s3.pem")
    yield made
    made.close()


def test_tls_is_verified_with_the_given_ca(
    encrypted: RecordedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bucket(endpoint: str = encrypted.endpoint, ca: str = "") -> Bucket:
        return Bucket(settings(endpoint, tmp_path, **({"ca": ca} if ca else {})))

    ca = str(tmp_path / "ca.pem")
    assert bucket(ca=ca).create("a/one", b"x")
    monkeypatch.setenv("AWS_ALLOW_INVALID_CERTIFICATES", "true")
    step = "Correct raw_outputs.s3.ca or endpoint in database.yml, or the store's own certificate."
    where = f"bucket {BUCKET} of {encrypted.endpoint}"
    assert refused(lambda: bucket().get("a/one")) == (
        f"{where} - Expected: a certificate signed by a CA of this system, for the name in endpoint "
        f"Actual: one of an unknown CA. {step}"
    )
    name = encrypted.endpoint.replace("127.0.0.1", "localhost")
    assert refused(lambda: bucket(name, ca).get("a/one")) == (
        f"bucket {BUCKET} of {name} - Expected: a certificate signed by {ca}, for the name in endpoint "
        f"Actual: one for another name. {step}"
    )
    plain = encrypted.endpoint.replace("https", "http")
    assert "Actual: the connection was " in refused(lambda: bucket(plain).get("a/one"))


def test_https_on_a_port_without_tls_is_told(recorded: RecordedServer, tmp_path: Path) -> None:
    bucket = Bucket(settings(recorded.endpoint.replace("http", "https"), tmp_path))
    assert refused(lambda: bucket.get("a/one")).endswith(
        "Expected: a store that answers Actual: no TLS on that port. "
        "Write http:// in raw_outputs.s3.endpoint, or correct its port."
    )


def test_a_ca_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    made = settings("https://127.0.0.1:1", tmp_path, ca=str(ca))
    assert refused(lambda: Bucket(made)) == (
        f"{ca} - Expected: a CA certificate (PEM) Actual: No such file or directory. Put it there, or correct ca."
    )
    ca.write_text("no certificate", encoding="utf-8")
    assert refused(lambda: Bucket(made)) == (
        f"{ca} - Expected: a CA certificate (PEM) Actual: no certificate in it. Put it there, or correct ca."
    )


def test_a_secret_that_is_not_there_is_told(tmp_path: Path) -> None:
    made = settings("http://127.0.0.1:1", tmp_path)
    (tmp_path / "s3-secret").unlink()
    assert refused(lambda: Bucket(made)).startswith(f"secret in file {tmp_path}/s3-secret - Expected: a readable file")


def test_without_the_client_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load = builtins.__import__

    def without(name: str, *others: Any) -> Any:  # noqa: ANN401 - a module
        if name.startswith("obstore"):
            raise ImportError(name)
        return load(name, *others)

    monkeypatch.setattr(builtins, "__import__", without)
    made = settings("http://127.0.0.1:1", tmp_path)
    text = f"bucket {BUCKET} of http://127.0.0.1:1 - Expected: the Python package obstore Actual: none. Run `{{}}`."
    assert refused(lambda: Bucket(made)) == text.format("make setup")
    monkeypatch.setattr(object_store, "is_checkout", lambda: False)
    assert refused(lambda: Bucket(made)) == text.format("pip install 'rackready[s3]'")


def test_a_process_has_one_client_of_a_bucket(recorded: RecordedServer, tmp_path: Path) -> None:
    made = settings(recorded.endpoint, tmp_path)
    assert bucket_of(made) is bucket_of(settings(recorded.endpoint, tmp_path))
    assert bucket_of(made) is not bucket_of(settings(recorded.endpoint, tmp_path, prefix="other"))


_WRITER = """
import sys
from pathlib import Path
from rackready.drivers.object_store import Bucket
from rackready.model.object_store import ObjectStore
bucket = Bucket(ObjectStore.model_validate_json(sys.stdin.read()))
data = bytes(64 << 20)
print("writes", flush=True)
while True:
    bucket.create(f"a/{len(data)}", data)
    data += b"1"
"""


def test_a_kill_in_the_middle_of_a_write_leaves_whole_objects_or_none(server: Server, tmp_path: Path) -> None:
    """Each object has its length in its key. Kills come at many moments of the writes."""
    made = settings(server.endpoint, tmp_path)
    for wait in (0.02, 0.05, 0.11, 0.17, 0.23):
        with subprocess.Popen(
            [sys.executable, "-c", _WRITER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdin is not None
            assert writer.stdout is not None
            writer.stdin.write(made.model_dump_json())
            writer.stdin.close()
            assert writer.stdout.readline() == "writes\n"
            time.sleep(wait)
            assert SECRET not in Path(f"/proc/{writer.pid}/cmdline").read_text(encoding="utf-8")
            assert SECRET not in Path(f"/proc/{writer.pid}/environ").read_text(encoding="utf-8", errors="replace")
            os.kill(writer.pid, signal.SIGKILL)
    time.sleep(0.3)
    for key in server.keys():  # noqa: SIM118 - no mapping
        found = server.found(key)
        assert found is not None
        assert len(found) == int(key.rpartition("/")[2])
    bucket = Bucket(made)
    bucket.create(f"a/{64 << 20}", bytes(64 << 20))
    assert bucket.get(f"a/{64 << 20}") == bytes(64 << 20)
    with contextlib.suppress(ObjectStoreError):
        bucket.get("a/none")
