"""Certificates: what is signed, what a tampered one says, and what drift does to it."""

from __future__ import annotations

import base64
import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from rackready.handover.certificate import (
    PREDICATE_TYPE,
    CertificateError,
    Issued,
    issue,
    read,
    require,
    statement,
)
from rackready.handover.dsse import Key, SignatureError, key_id, sign, verify
from rackready.handover.keys import Keys
from rackready.handover.policy import decide
from rackready.paths import EnvPaths
from tests.unit.handover.evidence import ENTRIES, fingerprint, good, record
from tests.unit.handover.evidence import NOW as MOMENT

ABOUT = {"site": "sim", "gateSet": "bringup", "campaign": "c1"}
NOW = datetime(2026, 11, 21, 13, 0, tzinfo=UTC)


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(EnvPaths(tmp_path, "sim"))


def content(**about: str) -> dict[str, Any]:
    return statement(
        decide("node01", ENTRIES, good(), {}, MOMENT), fingerprint(), good(), about=ABOUT | about, issued=NOW
    )


def test_a_certificate_says_what_was_measured_on_what(keys: Keys) -> None:
    made = issue(keys, content())
    path, new = made.path, made.new
    assert new
    certificate = require(keys, "node01", fingerprint())
    assert certificate.statement["_type"] == "https://in-toto.io/Statement/v1"
    assert certificate.statement["predicateType"] == PREDICATE_TYPE
    assert certificate.predicate["fingerprint"]["gpus"] == ["G0", "G1"]
    assert [gate["id"] for gate in certificate.predicate["gates"]] == [entry.id for entry in ENTRIES]
    assert json.loads(path.read_text())["payloadType"] == "application/vnd.in-toto+json"


def test_anybody_can_verify_it_with_the_public_key_alone(keys: Keys) -> None:
    path = issue(keys, content()).path
    envelope = json.loads(path.read_text())
    public = load_pem_public_key((keys.folder / "signing.pub.pem").read_bytes())
    payload = base64.b64decode(envelope["payload"])
    public.verify(
        base64.b64decode(envelope["signatures"][0]["sig"]),
        b"DSSEv1 28 application/vnd.in-toto+json %d " % len(payload) + payload,
    )


def test_a_second_issue_changes_nothing(keys: Keys) -> None:
    path = issue(keys, content()).path
    before = path.read_bytes()
    assert issue(keys, content(campaign="c2")) == Issued(path, new=False)
    assert path.read_bytes() == before


def test_a_certificate_that_did_not_count_is_made_anew_and_that_is_told(keys: Keys) -> None:
    path = issue(keys, content()).path
    _tamper(keys, lambda envelope: envelope["signatures"][0].update(sig="AAAA"))
    made = issue(keys, content())
    assert (made.path, made.new) == (path, True)
    assert re.fullmatch(
        r"node01: certificate - Expected: signed by key SHA256:\S{43} Actual: no valid signature of it "
        r"\(key ids: SHA256:\S{43}\)\. Certify the node again; a key that you replaced belongs in "
        r"certificates\.retired_keys\.",
        made.voided,
    )
    assert issue(keys, content()) == Issued(path, new=False), "the new one counts"


def test_a_look_alone_makes_no_new_certificate_and_a_load_does(keys: Keys) -> None:
    issue(keys, content())
    for gate, new in (("node/gpu/sanity/versions", False), ("node/gpu/validation/dcgm-r3", True)):
        again = {**good(), gate: record(gate, minutes=5)}
        made = issue(
            keys,
            statement(decide("node01", ENTRIES, again, {}, MOMENT), fingerprint(), again, about=ABOUT, issued=NOW),
        )
        assert made.new is new, gate


def test_the_key_is_private_and_made_once(keys: Keys) -> None:
    first = keys.signer()
    assert key_id(keys.signer().public) == key_id(first.public)
    file = keys.paths.state / "secrets/signing"
    assert file.stat().st_mode & 0o777 == 0o600
    assert (keys.paths.state / "secrets").stat().st_mode & 0o777 == 0o700
    file.chmod(0o644)
    with pytest.raises(
        SignatureError,
        match=r"signing key - Expected: mode 0600 Actual: 0644\. Others may have read it: remove it and certify "
        r"again\.",
    ):
        keys.signer()


def _tamper(keys: Keys, change: Any) -> None:  # noqa: ANN401 - a function on the envelope
    path = keys.folder / "node01.json"
    envelope = json.loads(path.read_text())
    change(envelope)
    path.write_text(json.dumps(envelope))


def _forge(envelope: dict[str, Any]) -> None:
    payload = json.loads(base64.b64decode(envelope["payload"]))
    payload["predicate"]["fingerprint"]["gpus"] = ["G0", "STOLEN"]
    envelope["payload"] = base64.b64encode(json.dumps(payload).encode()).decode()


def _resign(envelope: dict[str, Any]) -> None:
    envelope.update(sign(base64.b64decode(envelope["payload"]), Key(Ed25519PrivateKey.generate())))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (_forge, r"node01: certificate - Expected: signed by key SHA256:\S{43} Actual: no valid signature of it"),
        (_resign, r"node01: certificate - Expected: signed by key SHA256:\S{43} Actual: no valid signature of it"),
        (
            lambda envelope: envelope.update(signatures=[]),
            r"Actual: no valid signature of it \(key ids: none\)\. Certify the node again; ",
        ),
        (
            lambda envelope: envelope.update(payloadType="text/plain"),
            r"Expected: payload of type application/vnd.in-toto\+json Actual: text/plain",
        ),
        (lambda envelope: envelope.pop("payload"), r"Expected: a DSSE envelope Actual: damaged \(KeyError 'payload'\)"),
        (lambda envelope: envelope.update(payload="%%%"), r"Expected: a DSSE envelope Actual: damaged \(Error "),
        (
            lambda envelope: envelope.update(signatures="x"),
            r"Expected: a DSSE envelope Actual: damaged \(AttributeError ",
        ),
    ],
)
def test_a_tampered_certificate_counts_for_nothing(keys: Keys, change: Any, text: str) -> None:  # noqa: ANN401
    issue(keys, content())
    _tamper(keys, change)
    with pytest.raises(SignatureError, match=text):
        require(keys, "node01", fingerprint())


def test_a_certificate_of_another_node_does_not_serve(keys: Keys) -> None:
    path = issue(keys, content()).path
    (keys.folder / "node02.json").write_bytes(path.read_bytes())
    with pytest.raises(CertificateError, match="node02: certificate - Expected: one of node02 Actual: one of node01"):
        read(keys, "node02")


def test_something_else_that_our_key_signed_does_not_serve(keys: Keys) -> None:
    other = {**content(), "predicateType": "https://slsa.dev/provenance/v1"}
    (keys.folder / "node01.json").write_text(json.dumps(sign(json.dumps(other).encode(), keys.signer())))
    with pytest.raises(
        CertificateError, match=r"Expected: an in-toto statement of .* Actual: https://slsa\.dev/provenance/v1"
    ):
        read(keys, "node01")


def test_drift_voids_it_and_names_what_changed(keys: Keys) -> None:
    issue(keys, content())
    with pytest.raises(CertificateError) as caught:
        require(keys, "node01", fingerprint(gpus=["G0", "G9"], driver="580.173.03"))
    assert str(caught.value) == (
        "node01: certificate - Expected: made for the node as it is now Actual: gpus was G0,G1, is G0,G9; "
        "driver was 580.173.02, is 580.173.03. "
        "It does not count any more. Validate and certify the node again."
    )


def test_a_reboot_is_no_drift(keys: Keys) -> None:
    """A boot voids evidence of the gates that declare it; the policy asks for it before signing or handover."""
    issue(keys, content())
    assert "boot_id" not in require(keys, "node01", fingerprint(boot_id="b2")).predicate["fingerprint"]


def test_a_missing_certificate_says_where_it_was_looked_for(keys: Keys) -> None:
    with pytest.raises(CertificateError) as caught:
        require(keys, "node01", fingerprint())
    assert str(caught.value) == (
        f"node01: certificate - Expected: {keys.folder / 'node01.json'} Actual: no such file. "
        "Validate and certify the node again."
    )


def test_a_refused_node_gets_no_statement() -> None:
    decision = decide("node01", ENTRIES, {}, {}, MOMENT)
    with pytest.raises(CertificateError, match="no such evidence"):
        statement(decision, fingerprint(), {}, about=ABOUT, issued=NOW)


def test_an_envelope_that_is_no_object_is_damaged() -> None:
    with pytest.raises(SignatureError, match="damaged"):
        verify([], [Ed25519PrivateKey.generate().public_key()], "node01")
