"""The certificate of a node: an in-toto statement about its fingerprint, in a DSSE envelope, signed with Ed25519."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from rackready import __version__, files
from rackready.handover.dsse import SignatureError, key_id, sign, verify
from rackready.handover.judged import judged_metrics
from rackready.handover.keys import Keys
from rackready.handover.policy import Decision, light
from rackready.model.evidence import EvidenceRecord, Fingerprint
from rackready.model.problems import RackreadyError

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://github.com/rackready/rackready/node-certificate/v1"
_PARTS: dict[str, type] = {
    **dict.fromkeys(("site", "gateSet", "campaign", "issued", "rackready"), str),
    "fingerprint": dict,
    "gates": list,
    "declaredSkips": list,
}
"""What the predicate of every certificate has, and its type."""
_NONE: Mapping[str, str] = MappingProxyType({})
_AGAIN = "Validate and certify the node again."


class CertificateError(RackreadyError):
    """A node has no certificate that counts for what it is now."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """A verified certificate."""

    node: str
    statement: dict[str, Any]
    digest: str
    key: Ed25519PublicKey

    @property
    def signer(self) -> str:
        """Return the name of the key that signed it."""
        return key_id(self.key)

    @property
    def predicate(self) -> dict[str, Any]:
        """Return the statement about the node."""
        return dict(self.statement["predicate"])


def canonical(identity: Mapping[str, object]) -> bytes:
    """Return the identity of a fingerprint in canonical JSON: the bytes whose SHA-256 is a certificate's subject."""
    return json.dumps(identity, sort_keys=True, separators=(",", ":")).encode()


def fingerprint_digest(fingerprint: Fingerprint) -> str:
    """Return the SHA-256 (hex) of a fingerprint's identity in canonical JSON."""
    return hashlib.sha256(canonical(fingerprint.identity())).hexdigest()


def statement(
    decision: Decision,
    fingerprint: Fingerprint,
    records: Mapping[str, EvidenceRecord],
    *,
    about: Mapping[str, str],
    issued: datetime,
    digests: Mapping[str, str] = _NONE,
) -> dict[str, Any]:
    """Return the in-toto statement. Raises CertificateError when policy refuses the node.

    ``about`` names site, gateSet and campaign; ``digests``: id of a record -> SHA-256 of its stored text.
    """
    if not decision.allowed:
        raise CertificateError("; ".join(decision.refusals))
    gates = [
        {
            "id": gate,
            "record": records[gate].id,
            **({"recordSha256": digests[records[gate].id]} if records[gate].id in digests else {}),
            "outcome": records[gate].verdict.outcome.value,
            "finished": records[gate].finished.isoformat(),
            "measured": judged_metrics(records[gate].verdict),
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


def issue(keys: Keys, content: dict[str, Any]) -> Issued:
    """Sign a statement and store it. A certificate on file with the same statement stays as it is."""
    node = content["subject"][0]["name"]
    path = keys.folder / f"{node}.json"
    voided = ""
    try:
        if path.exists() and _same(read(keys, node).statement, content):
            return Issued(path, new=False)
    except (CertificateError, SignatureError) as error:
        voided = str(error)
    envelope = sign(json.dumps(content, sort_keys=True, separators=(",", ":")).encode(), keys.signer())
    files.replace(path, (json.dumps(envelope, indent=2) + "\n").encode())
    return Issued(path, new=True, voided=voided)


def read(keys: Keys, node: str) -> Certificate:
    """Return a node's certificate, its signature verified. Raises CertificateError or SignatureError."""
    found = verify(on_file(keys, node), keys.trusted(), node)
    content = parsed(node, found.payload)
    return Certificate(node, content, hashlib.sha256(found.payload).hexdigest(), found.key)


def on_file(keys: Keys, node: str) -> Any:  # noqa: ANN401 - JSON of unknown shape
    """Return the envelope of a node's certificate, unverified. Raises CertificateError."""
    path = keys.folder / f"{node}.json"
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CertificateError(node, "certificate", expected=path, actual="no such file", next_step=_AGAIN) from error
    except (OSError, ValueError) as error:
        raise CertificateError(node, f"certificate {path}", expected="JSON", actual=error, next_step=_AGAIN) from error


def parsed(node: str, payload: bytes) -> dict[str, Any]:
    """Return the statement of a payload. ``node``: whose it must be; empty: anybody's. Raises CertificateError."""
    try:
        content = json.loads(payload)
        kinds = (content.get("_type"), content.get("predicateType"))
        named = _named(content) if kinds == (STATEMENT_TYPE, PREDICATE_TYPE) else ""
    except (ValueError, AttributeError, LookupError, TypeError) as error:
        raise CertificateError(
            node, "certificate", expected="an in-toto statement", actual=f"other content ({error})", next_step=_AGAIN
        ) from error
    if kinds != (STATEMENT_TYPE, PREDICATE_TYPE):
        raise CertificateError(
            node, "certificate", expected=f"an in-toto statement of {PREDICATE_TYPE}", actual=kinds[1], next_step=_AGAIN
        )
    if node and named != node:
        raise CertificateError(
            node, "certificate", expected=f"one of {node}", actual=f"one of {named}", next_step=_AGAIN
        )
    return dict(content)


def _named(content: dict[str, Any]) -> str:
    """Return the node of a statement that has what every reader needs. Raises LookupError and TypeError."""
    subject = content["subject"][0]
    if not isinstance(content["predicate"]["fingerprint"], dict) or not subject["digest"]["sha256"]:
        message = "no fingerprint, or no digest of it"
        raise LookupError(message)
    return str(subject["name"])


def require_parts(content: Mapping[str, Any], where: str) -> None:
    """Refuse a statement without a part that every certificate has. Raises CertificateError."""
    lacking = [name for name, kind in _PARTS.items() if not isinstance(content["predicate"].get(name), kind)]
    if lacking:
        raise CertificateError(
            where, "certificate", expected=", ".join(_PARTS), actual=f"no {', '.join(lacking)}", next_step=_AGAIN
        )


def require(keys: Keys, node: str, fingerprint: Fingerprint) -> Certificate:
    """Return the certificate that counts for a node as it is now. Raises CertificateError with the differences."""
    certificate = read(keys, node)
    require_same(certificate.statement, node, fingerprint)
    return certificate


def require_same(statement: Mapping[str, Any], node: str, fingerprint: Fingerprint) -> None:
    """Refuse a certificate of another state of the node. Raises CertificateError with the differences."""
    if statement["subject"][0]["digest"]["sha256"] != fingerprint_digest(fingerprint):
        raise _drift(node, statement["predicate"]["fingerprint"], fingerprint.identity())


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
