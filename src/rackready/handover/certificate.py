"""The certificate of a node: an in-toto statement about its fingerprint, in a DSSE envelope, signed with Ed25519."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rackready import __version__, files
from rackready.handover.dsse import Key, SignatureError, load_key, public_pem, sign, verify
from rackready.handover.policy import Decision, light
from rackready.model.evidence import EvidenceRecord, Fingerprint
from rackready.model.problems import RackreadyError
from rackready.paths import EnvPaths, private_dir

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://github.com/rackready/rackready/node-certificate/v1"
_AGAIN = "Validate and certify the node again."


class CertificateError(RackreadyError):
    """A node has no certificate that counts for what it is now."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """A verified certificate."""

    node: str
    statement: dict[str, Any]
    digest: str

    @property
    def predicate(self) -> dict[str, Any]:
        """Return the statement about the node."""
        return dict(self.statement["predicate"])


def signing_key(paths: EnvPaths) -> Key:
    """Return the environment's signing key, made at first use. Its public half lies beside the certificates."""
    key = load_key(private_dir(paths.state / "secrets") / "signing")
    public = folder(paths) / "signing.pub.pem"
    if not public.exists() or public.read_bytes() != public_pem(key):
        files.replace(public, public_pem(key))
    return key


def folder(paths: EnvPaths) -> Path:
    """Return the folder of certificates: one file per node."""
    return private_dir(paths.state / "certificates")


def fingerprint_digest(fingerprint: Fingerprint) -> str:
    """Return the SHA-256 (hex) of a fingerprint's identity in canonical JSON."""
    return hashlib.sha256(
        json.dumps(fingerprint.identity(), sort_keys=True, separators=(",", ":")).encode()
    ).hexdigest()


def statement(
    decision: Decision,
    fingerprint: Fingerprint,
    records: Mapping[str, EvidenceRecord],
    *,
    about: Mapping[str, str],
    issued: datetime,
) -> dict[str, Any]:
    """Return the in-toto statement. Raises CertificateError when policy refuses the node.

    ``about`` names site, gateSet and campaign.
    """
    if not decision.allowed:
        raise CertificateError("; ".join(decision.refusals))
    gates = [
        {
            "id": gate,
            "record": records[gate].id,
            "outcome": records[gate].verdict.outcome.value,
            "finished": records[gate].finished.isoformat(),
        }
        for gate in (*decision.passed, *decision.skips)
    ]
    return {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": decision.node, "digest": {"sha256": fingerprint_digest(fingerprint)}}],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            **about,
            "fingerprint": fingerprint.identity(),
            "parts": fingerprint.parts,
            "gates": gates,
            "declaredSkips": [{"gate": gate, "reason": reason} for gate, reason in sorted(decision.skips.items())],
            "issued": issued.astimezone(UTC).isoformat(timespec="seconds"),
            "rackready": __version__,
        },
    }


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate on file.

    ``new``: it was signed now. ``voided``: why the earlier one did not count; empty when it counts or there was none.
    """

    path: Path
    new: bool
    voided: str = ""


def issue(paths: EnvPaths, content: dict[str, Any]) -> Issued:
    """Sign a statement and store it. A certificate on file with the same statement stays as it is."""
    node = content["subject"][0]["name"]
    key, path = signing_key(paths), folder(paths) / f"{node}.json"
    voided = ""
    try:
        if path.exists() and _same(read(paths, node).statement, content):
            return Issued(path, new=False)
    except (CertificateError, SignatureError) as error:
        voided = str(error)
    envelope = sign(json.dumps(content, sort_keys=True, separators=(",", ":")).encode(), key)
    files.replace(path, (json.dumps(envelope, indent=2) + "\n").encode())
    return Issued(path, new=True, voided=voided)


def read(paths: EnvPaths, node: str) -> Certificate:
    """Return a node's certificate, its signature verified. Raises CertificateError or SignatureError."""
    path = folder(paths) / f"{node}.json"
    try:
        envelope = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CertificateError(node, "certificate", expected=path, actual="no such file", next_step=_AGAIN) from error
    except (OSError, ValueError) as error:
        raise CertificateError(node, f"certificate {path}", expected="JSON", actual=error, next_step=_AGAIN) from error
    payload = verify(envelope, signing_key(paths).public, node)
    return _parsed(node, payload)


def _parsed(node: str, payload: bytes) -> Certificate:
    content = json.loads(payload)
    kinds = (content.get("_type"), content.get("predicateType"))
    if kinds != (STATEMENT_TYPE, PREDICATE_TYPE):
        raise CertificateError(
            node, "certificate", expected=f"an in-toto statement of {PREDICATE_TYPE}", actual=kinds[1], next_step=_AGAIN
        )
    named = content["subject"][0]["name"]
    if named != node:
        raise CertificateError(
            node, "certificate", expected=f"one of {node}", actual=f"one of {named}", next_step=_AGAIN
        )
    return Certificate(node, content, hashlib.sha256(payload).hexdigest())


def require(paths: EnvPaths, node: str, fingerprint: Fingerprint) -> Certificate:
    """Return the certificate that counts for a node as it is now. Raises CertificateError with the differences."""
    certificate = read(paths, node)
    if certificate.statement["subject"][0]["digest"]["sha256"] != fingerprint_digest(fingerprint):
        raise _drift(node, certificate.predicate["fingerprint"], fingerprint.identity())
    return certificate


def _drift(node: str, then: dict[str, Any], now: dict[str, Any]) -> CertificateError:
    changed = [key for key in now if now[key] != then.get(key)]
    pairs = [f"{key} was {_short(then.get(key))}, is {_short(now[key])}" for key in changed]
    return CertificateError(
        node,
        "certificate",
        expected="made for the node as it is now",
        actual="; ".join(pairs),
        next_step=f"It does not count any more. {_AGAIN}",
    )


def _short(value: object) -> str:
    text = ",".join(value) if isinstance(value, list) else str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."  # noqa: PLR2004 - a line of the terminal


def _same(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Return whether two statements are the same, except for time, campaign, and records of gates that only look."""

    def core(content: dict[str, Any]) -> dict[str, Any]:
        about = {key: value for key, value in content["predicate"].items() if key not in {"issued", "campaign"}}
        gates = [
            {"id": item["id"], "outcome": item["outcome"]} if light(item["id"]) else item for item in about["gates"]
        ]
        return {**content, "predicate": {**about, "gates": gates}}

    return core(old) == core(new)
