"""Certificates before a real cosign, offline: it accepts a good one, and refuses what it must."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from rackready.handover.acceptance_files import ACCEPTANCE_TYPE, write
from rackready.handover.bundle import bundle
from rackready.handover.certificate import PREDICATE_TYPE, canonical, issue, on_file, statement
from rackready.handover.dsse import Key, public_pem, sign
from rackready.handover.keys import Keys
from rackready.handover.policy import decide
from rackready.paths import EnvPaths
from tests.unit.handover.evidence import ENTRIES, NOW, fingerprint, good

pytestmark = [pytest.mark.integration, pytest.mark.slow]

COSIGN = Path(__file__).resolve().parents[2] / ".rackready/tools/cosign/cosign"
ABOUT = {"site": "sim", "gateSet": "bringup", "campaign": "c1"}
NOT_SIGNED = "accepted signatures do not match threshold, Found: 0, Expected 1"
NO_NETWORK = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}
"""A proxy where nobody listens: what asks the network fails."""


@dataclass
class Desk:
    """A folder with a bundle, the key that signed it, and the fingerprint that it is about."""

    folder: Path
    keys: Keys

    @property
    def bundle(self) -> Path:
        return self.folder / "node01.bundle.json"

    @property
    def key(self) -> Path:
        return self.keys.folder / "signing.pub.pem"

    def subject(self, **changes: object) -> Path:
        path = self.folder / "subject.json"
        path.write_bytes(canonical(fingerprint(**changes).identity()))
        return path

    def verify(self, *words: str, key: Path | None = None, subject: Path | None = None) -> tuple[int, str]:
        home = {"HOME": str(self.folder), "PATH": os.environ["PATH"], **NO_NETWORK}
        done = subprocess.run(
            [
                *(str(COSIGN), "verify-blob-attestation", "--bundle", str(self.bundle)),
                *("--key", str(key or self.key), "--type", PREDICATE_TYPE, "--insecure-ignore-tlog", *words),
                *([str(subject or self.subject())] if "--digest" not in words else []),
            ],
            env=home,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        return done.returncode, "".join(line for line in done.stderr.splitlines() if not line.startswith("WARNING: "))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    if not COSIGN.exists():
        pytest.skip("no cosign: `make setup-cosign` builds it")
    keys = Keys(EnvPaths(tmp_path, "sim"))
    decision = decide("node01", ENTRIES, good(), {}, NOW)
    issue(keys, statement(decision, fingerprint(), good(), about=ABOUT, issued=datetime(2026, 11, 21, 13, tzinfo=UTC)))
    made = Desk(tmp_path, keys)
    made.bundle.write_text(json.dumps(bundle(on_file(keys, "node01"), keys, "node01")), encoding="utf-8")
    return made


def test_a_good_one_is_verified_offline(desk: Desk) -> None:
    assert desk.verify() == (0, "Verified OK")


def test_it_is_verified_by_the_digest_of_the_fingerprint_alone(desk: Desk) -> None:
    document = json.loads(desk.bundle.read_text())
    digest = json.loads(base64.b64decode(document["dsseEnvelope"]["payload"]))["subject"][0]["digest"]["sha256"]
    assert desk.verify("--digest", digest, "--digestAlg", "sha256") == (0, "Verified OK")


def _edited(document: dict[str, Any]) -> None:
    payload = json.loads(base64.b64decode(document["dsseEnvelope"]["payload"]))
    payload["predicate"]["gates"][0]["outcome"] = "skip"
    document["dsseEnvelope"]["payload"] = base64.b64encode(json.dumps(payload).encode()).decode()


def _forged(document: dict[str, Any]) -> None:
    payload = base64.b64decode(document["dsseEnvelope"]["payload"])
    document["dsseEnvelope"] = sign(payload, Key(Ed25519PrivateKey.generate()))


def _named_otherwise(document: dict[str, Any]) -> None:
    """A key id that is not the fingerprint of the key: why ours is."""
    document["dsseEnvelope"]["signatures"][0]["keyid"] = "0" * 64


@pytest.mark.parametrize(
    "change", [_edited, _forged, _named_otherwise], ids=["edited by hand", "signed by another key", "another key id"]
)
def test_what_the_key_did_not_sign_is_refused(desk: Desk, change: Callable[[dict[str, Any]], None]) -> None:
    document = json.loads(desk.bundle.read_text())
    change(document)
    desk.bundle.write_text(json.dumps(document), encoding="utf-8")
    code, said = desk.verify()
    assert (code, NOT_SIGNED in said) == (1, True), said


def test_another_key_is_refused(desk: Desk) -> None:
    other = desk.folder / "other.pem"
    other.write_bytes(public_pem(Ed25519PrivateKey.generate().public_key()))
    code, said = desk.verify(key=other)
    assert (code, NOT_SIGNED in said) == (1, True), said


def test_the_fingerprint_of_another_node_is_refused(desk: Desk) -> None:
    code, said = desk.verify(subject=desk.subject(node="node02"))
    assert (code, "provided artifact digests do not match digests in statement" in said) == (1, True), said


def test_another_predicate_is_refused(desk: Desk) -> None:
    code, said = desk.verify("--type", "https://slsa.dev/provenance/v1")
    assert (code, "invalid predicate type, expected https://slsa.dev/provenance/v1" in said) == (1, True), said


def test_an_acceptance_report_is_verified_and_an_edited_one_refused(desk: Desk) -> None:
    about = {"site": "sim", "env": "sim", "rack": "r1", "gate_set": "bringup", "rackready": "0", "accepted": 0}
    made = write({**about, "generated": "2026-11-28T02:00:00+00:00", "nodes": []}, desk.keys, desk.folder, None)
    made.bundle.rename(desk.bundle)
    assert desk.verify("--type", ACCEPTANCE_TYPE, subject=made.html) == (0, "Verified OK")
    made.html.write_text(made.html.read_text().replace("0 of 0", "8 of 8"))
    code, said = desk.verify("--type", ACCEPTANCE_TYPE, subject=made.html)
    assert (code, "provided artifact digests do not match digests in statement" in said) == (1, True), said
