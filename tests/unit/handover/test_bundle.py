"""Certificates that leave the house: the bundle, and what is refused of a file. Signatures are checked by hand, too."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from rackready.handover.bundle import bundle, envelope_in
from rackready.handover.certificate import CertificateError, canonical, issue, on_file, read, statement
from rackready.handover.dsse import Key, SignatureError, key_id, load_public, sign
from rackready.handover.keys import Keys
from rackready.handover.policy import decide
from rackready.handover.validity import require_sound, require_subject, shown
from rackready.model.outcome import Criterion, Metric, Op, Outcome, Verdict
from rackready.paths import EnvPaths
from tests.unit.handover.evidence import ENTRIES, NOW, fingerprint, good

ABOUT = {"site": "sim", "gateSet": "bringup", "campaign": "c1"}
BUSBW = Verdict(
    outcome=Outcome.PASS,
    metrics=[
        Metric(name="busbw", target="node01/gpu0", value=455.0, unit="GB/s"),
        Metric(name="busbw", target="node01/gpu1", value=451.5, unit="GB/s"),
        Metric(name="busbw", target="node01/gpu2", value=452.0, unit="GB/s"),
        Metric(name="unjudged", target="node01/gpu2", value=1.0, unit="1"),
    ],
    criteria=[
        Criterion(metric="busbw", op=Op.GE, bound=440.0, unit="GB/s", label="floor", source="profile h100_sxm"),
        Criterion(metric="absent", op=Op.GE, bound=1.0, unit="1", label="floor", source="profile h100_sxm"),
    ],
)
"""A gate with one judged metric, one number that nothing judged, and a bound of a number that is not there."""


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(EnvPaths(tmp_path, "sim"))


def content(node: str = "node01") -> dict[str, Any]:
    records = good()
    r3 = "node/gpu/validation/dcgm-r3"
    records[r3] = records[r3].model_copy(update={"verdict": BUSBW})
    decision = decide(node, ENTRIES, records, {}, NOW)
    issued = datetime(2026, 11, 21, 13, 0, tzinfo=UTC)
    return statement(decision, fingerprint(node=node), records, about=ABOUT, issued=issued)


@pytest.fixture
def file(keys: Keys, tmp_path: Path) -> Path:
    """The bundle of node01's certificate, in a file."""
    issue(keys, content())
    path = tmp_path / "node01.bundle.json"
    path.write_text(json.dumps(bundle(on_file(keys, "node01"), keys, "node01")), encoding="utf-8")
    return path


def pae(kind: bytes, payload: bytes) -> bytes:
    """DSSE protocol.md: PAE(type, body) = "DSSEv1" + SP + LEN(type) + SP + type + SP + LEN(body) + SP + body."""
    return b" ".join([b"DSSEv1", str(len(kind)).encode(), kind, str(len(payload)).encode(), payload])


def by_hand(document: dict[str, Any], public: Ed25519PublicKey) -> dict[str, Any]:
    """Verify a bundle with nothing of rackready, and return its statement. Raises InvalidSignature."""
    envelope = document["dsseEnvelope"]
    (signature,) = envelope["signatures"]
    payload = base64.b64decode(envelope["payload"])
    public.verify(base64.b64decode(signature["sig"]), pae(envelope["payloadType"].encode(), payload))
    return dict(json.loads(payload))


def openssh_fingerprint(public: Ed25519PublicKey) -> str:
    """RFC 4253, 6.6 and RFC 8709, 4: the blob is string "ssh-ed25519" and string key; `ssh-keygen -l` hashes it."""
    blob = b"\0\0\0\x0bssh-ed25519\0\0\0\x20" + public.public_bytes_raw()
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def test_a_bundle_is_verified_with_nothing_of_ours(keys: Keys, file: Path) -> None:
    document = json.loads(file.read_text())
    public = load_pem_public_key((keys.folder / "signing.pub.pem").read_bytes())
    assert isinstance(public, Ed25519PublicKey)
    found = by_hand(document, public)
    assert document["mediaType"] == "application/vnd.dev.sigstore.bundle.v0.3+json"
    hint = openssh_fingerprint(public)
    assert document["verificationMaterial"] == {"publicKey": {"hint": hint}, "tlogEntries": []}
    assert document["dsseEnvelope"]["signatures"][0]["keyid"] == hint
    assert found["_type"] == "https://in-toto.io/Statement/v1"
    subject = canonical(fingerprint().identity())
    assert found["subject"] == [{"name": "node01", "digest": {"sha256": hashlib.sha256(subject).hexdigest()}}]


def test_gates_have_their_bounds_with_sources(file: Path) -> None:
    payload = json.loads(base64.b64decode(json.loads(file.read_text())["dsseEnvelope"]["payload"]))
    gates = {item["id"]: item for item in payload["predicate"]["gates"]}
    assert gates["node/gpu/sanity/versions"]["measured"] == []
    assert gates["node/gpu/validation/dcgm-r3"]["measured"] == [
        {
            "metric": "busbw",
            "unit": "GB/s",
            "values": 3,
            "lowest": {"value": 451.5, "on": "node01/gpu1"},
            "highest": {"value": 455.0, "on": "node01/gpu0"},
            "bounds": [
                {"label": "floor", "op": "ge", "bound": 440.0, "unit": "GB/s", "source": "profile h100_sxm"},
            ],
        }
    ]


def test_an_envelope_of_an_older_release_gets_the_name_that_cosign_knows(keys: Keys) -> None:
    path = issue(keys, content()).path
    envelope = json.loads(path.read_text())
    good_one = envelope["signatures"][0]["sig"]
    envelope["signatures"] = [{"keyid": "x", "sig": "AAAA"}, {"keyid": "0" * 64, "sig": good_one}]
    path.write_text(json.dumps(envelope))
    made = bundle(on_file(keys, "node01"), keys, "node01")
    assert made["dsseEnvelope"]["signatures"] == [{"sig": good_one, "keyid": key_id(keys.signer().public)}]


# what is refused ------------------------------------------------------------------------------------------------------


def _edited(document: dict[str, Any]) -> None:
    envelope = document["dsseEnvelope"]
    payload = base64.b64decode(envelope["payload"]).replace(b"451.5", b"459.5")
    envelope["payload"] = base64.b64encode(payload).decode()


def _by_another_key(document: dict[str, Any]) -> None:
    payload = base64.b64decode(document["dsseEnvelope"]["payload"])
    document["dsseEnvelope"] = sign(payload, Key(Ed25519PrivateKey.from_private_bytes(b"x" * 32)))


OTHER = openssh_fingerprint(Ed25519PrivateKey.from_private_bytes(b"x" * 32).public_key())


@pytest.mark.parametrize(
    ("change", "named"), [(_edited, ""), (_by_another_key, OTHER)], ids=["edited by hand", "signed by another key"]
)
def test_a_certificate_that_the_key_did_not_sign_is_refused(
    keys: Keys, file: Path, change: Callable[[dict[str, Any]], None], named: str
) -> None:
    document = json.loads(file.read_text())
    change(document)
    file.write_text(json.dumps(document))
    own = openssh_fingerprint(keys.signer().public)
    with pytest.raises(SignatureError) as caught:
        require_sound(envelope_in(file), keys.trusted(), str(file))
    text = (
        f"{file}: certificate - Expected: signed by key {own} Actual: no valid signature of it (key ids: "
        f"{named or own}). "
        "Certify the node again; a key that you replaced belongs in certificates.retired_keys."
    )
    assert str(caught.value) == text
    seen = shown(envelope_in(file), keys.trusted(), str(file))
    assert (seen.signer, seen.void) == ("", (text,)), "it is shown all the same, as void"


def test_a_certificate_of_another_node_is_refused_by_its_subject(keys: Keys, file: Path, tmp_path: Path) -> None:
    own, other = tmp_path / "node01.json", tmp_path / "node02.json"
    own.write_bytes(canonical(fingerprint().identity()))
    other.write_bytes(canonical(fingerprint(node="node02").identity()))
    found = require_sound(envelope_in(file), keys.trusted(), str(file))
    require_subject(found.statement, own)
    with pytest.raises(CertificateError) as caught:
        require_subject(found.statement, other)
    wanted, actual = (hashlib.sha256(item.read_bytes()).hexdigest() for item in (other, own))
    assert str(caught.value) == (
        f"{other}: another subject - Expected: a certificate of sha256 {wanted} "
        f"Actual: one of node01, sha256 {actual}. "
        "Compare the fingerprints: the certificate is of another node, or of another state of it."
    )


def test_a_subject_that_is_not_the_fingerprint_inside_is_refused(keys: Keys) -> None:
    made = content()
    made["predicate"]["fingerprint"]["gpus"] = ["G0", "G7"]
    issue(keys, made)
    own = hashlib.sha256(canonical(made["predicate"]["fingerprint"])).hexdigest()
    named = hashlib.sha256(canonical(fingerprint().identity())).hexdigest()
    with pytest.raises(CertificateError) as caught:
        require_sound(on_file(keys, "node01"), keys.trusted(), "node01")
    assert str(caught.value) == (
        f"node01: certificate - Expected: subject sha256 {own}, its own fingerprint's Actual: {named}. "
        "Run `rackready deploy`: it measures again what is void, and certifies the node."
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            None,
            "Expected: a certificate: a Sigstore bundle or a DSSE envelope (JSON) Actual: No such file or directory.",
        ),
        ("x", "Expected: a certificate: a Sigstore bundle or a DSSE envelope (JSON) Actual: Expecting value: line 1"),
        (
            '{"mediaType": "text/plain"}',
            (
                "Expected: a bundle (application/vnd.dev.sigstore.bundle.v0.3+json) with a dsseEnvelope "
                "Actual: text/plain."
            ),
        ),
    ],
    ids=["no file", "no JSON", "no bundle"],
)
def test_a_file_that_is_no_certificate_is_refused(tmp_path: Path, text: str | None, said: str) -> None:
    path = tmp_path / "x.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(CertificateError) as caught:
        envelope_in(path)
    assert str(caught.value).startswith(f"{path} - {said}")


def test_a_public_key_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "k.pem"
    path.write_text("-----BEGIN X-----\n")
    with pytest.raises(SignatureError) as caught:
        load_public(path)
    assert str(caught.value) == (
        f"{path}: public key - Expected: an Ed25519 public key (PEM) Actual: no PEM of a public key. "
        "`rackready certificate export NODE --format key` writes one."
    )


def test_a_signed_payload_that_is_no_statement_is_refused(keys: Keys) -> None:
    (keys.folder / "node01.json").write_text(json.dumps(sign(b"[1]", keys.signer())))
    with pytest.raises(CertificateError, match="node01: certificate - Expected: an in-toto statement Actual: other"):
        read(keys, "node01")
