"""Whether a certificate counts, as far as signature and records tell. No node is asked."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from rackready.design.check_gates import today
from rackready.design.facts import desired_digest
from rackready.evidence.store import EvidenceStore
from rackready.handover.certificate import CertificateError, canonical, parsed, require_parts, require_same
from rackready.handover.certify import entries
from rackready.handover.dsse import SignatureError, key_id, opened, verify
from rackready.handover.policy import Decision, Moment, decide
from rackready.handover.record_digests import altered
from rackready.handover.returned import kept_out
from rackready.ledger.part_history import void_since
from rackready.ledger.store import Ledger
from rackready.model.evidence import EvidenceRecord, Fingerprint
from rackready.model.problems import RackreadyError
from rackready.model.site import Site
from rackready.model.state import NodeState
from rackready.paths import EnvPaths

_IN_ORDER = frozenset({NodeState.CERTIFIED, NodeState.READY})
_AGAIN = "Run `rackready deploy`: it measures again what is void, and certifies the node."


@dataclass(frozen=True, slots=True)
class Shown:
    """A certificate as it is, valid or not.

    ``signer``: the key that signed it, empty when none of the known ones did; ``named``: the key ids that the envelope
    states, which nothing protects; ``void``: why it does not count.
    """

    statement: dict[str, Any]
    digest: str
    signer: str
    named: tuple[str, ...]
    void: tuple[str, ...]

    @property
    def node(self) -> str:
        """Return the node that it is about."""
        return str(self.statement["subject"][0]["name"])


def shown(envelope: Any, keys: Sequence[Ed25519PublicKey], where: str, node: str = "") -> Shown:  # noqa: ANN401 - JSON of unknown shape
    """Return a certificate with the faults of its signature and subject.

    ``node``: whose it must be; empty: anybody's. Raises SignatureError and CertificateError when it cannot be read.
    """
    found = opened(envelope, where)
    content = parsed("", found.payload)
    require_parts(content, where)
    faults = []
    signed = found.signed(keys)
    for check in (
        lambda: verify(envelope, keys, where),
        lambda: parsed(node, found.payload),
        lambda: require_whole(content, where),
    ):
        try:
            check()
        except (SignatureError, CertificateError) as error:
            faults.append(str(error))
    return Shown(
        content,
        hashlib.sha256(found.payload).hexdigest(),
        key_id(signed.key) if signed else "",
        tuple(name for name, _ in found.signatures),
        tuple(faults),
    )


def require_sound(envelope: Any, keys: Sequence[Ed25519PublicKey], where: str) -> Shown:  # noqa: ANN401 - as above
    """Return a certificate with a good signature and subject. Raises SignatureError and CertificateError."""
    content = parsed("", verify(envelope, keys, where).payload)
    require_parts(content, where)
    require_whole(content, where)
    return shown(envelope, keys, where)


def require_whole(statement: dict[str, Any], where: str) -> None:
    """Refuse a statement whose subject is not the fingerprint that it contains. Raises CertificateError."""
    own, named = _digest(canonical(statement["predicate"]["fingerprint"])), subject(statement)
    if own != named:
        raise CertificateError(
            where,
            "certificate",
            expected=f"subject sha256 {own}, its own fingerprint's",
            actual=named,
            next_step=_AGAIN,
        )


def subject(statement: dict[str, Any]) -> str:
    """Return the digest of a statement's subject, SHA-256 (hex)."""
    return str(statement["subject"][0]["digest"]["sha256"])


def require_subject(statement: dict[str, Any], file: Path) -> None:
    """Refuse a certificate whose subject is not this file, a fingerprint. Raises CertificateError and OSError."""
    wanted = _digest(file.read_bytes())
    if wanted != subject(statement):
        raise CertificateError(
            file,
            "another subject",
            expected=f"a certificate of sha256 {wanted}",
            actual=f"one of {statement['subject'][0]['name']}, sha256 {subject(statement)}",
            next_step="Compare the fingerprints: the certificate is of another node, or of another state of it.",
        )


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def void_by_records(site: Site, paths: EnvPaths, certificate: Shown) -> list[str]:
    """Return why a node's certificate does not count any more, by the site file and the records. Raises LedgerError."""
    if not Ledger.exists(paths.database):
        return [f"{certificate.node}: certificate - Expected: evidence for it on record Actual: no ledger here."]
    with Ledger.read_only(paths.database) as ledger:
        return void_by(site, ledger, EvidenceStore.read_only(ledger, paths.raw), certificate)


def void_by(site: Site, ledger: Ledger, store: EvidenceStore, certificate: Shown) -> list[str]:
    """Return the same with an open ledger."""
    node = certificate.node
    found = last_seen(store, node)
    reasons = [_state(ledger, node), str(kept_out(ledger, node, found) or ""), _desired(site, certificate)]
    if found is None:
        reasons.append(f"{node}: certificate - Expected: evidence for it on record Actual: none.")
    else:
        reasons += altered(store, certificate.statement)
        reasons += [_drifted(certificate, found), *decided(site, ledger, store, found)[0].refusals]
    return [reason for reason in reasons if reason]


def last_seen(store: EvidenceStore, node: str) -> Fingerprint | None:
    """Return the fingerprint of a node in its newest record, None when there is none."""
    for record in store.last([node]):
        return next((item for item in record.fingerprints if item.node == node), None)
    return None


def _state(ledger: Ledger, node: str) -> str:
    row = ledger.state(node)
    if row is None or row.state in _IN_ORDER:
        return ""
    why = f" ({row.reason})" if row.reason else ""
    return f"{node}: state - Expected: certified or ready Actual: {row.state.value}{why}. {_AGAIN}"


def _desired(site: Site, certificate: Shown) -> str:
    now = desired_digest(site, certificate.node)
    then = certificate.statement["predicate"]["fingerprint"]["desired_digest"]
    if now == then:
        return ""
    return (
        f"{certificate.node}: desired state in the site file - Expected: sha256 {then[:12]}, as certified "
        f"Actual: {now[:12]}. {_AGAIN}"
    )


def _drifted(certificate: Shown, found: Fingerprint) -> str:
    try:
        require_same(certificate.statement, certificate.node, found)
    except RackreadyError as error:
        return str(error)
    then = certificate.statement["predicate"].get("parts", "")
    if found.parts and then != found.parts:
        return (
            f"{certificate.node}: certificate - Expected: made for the parts that it has now Actual: list of parts "
            f"{found.parts[:12]}, certified {then[:12] or 'none'}. {_AGAIN}"
        )
    return ""


def decided(
    site: Site, ledger: Ledger, store: EvidenceStore, found: Fingerprint
) -> tuple[Decision, dict[str, EvidenceRecord]]:
    """Return the policy's decision about a node as it was last seen, with its evidence. A look of any run is enough."""
    node = found.node
    (changed, before), voids = ledger.last_change(node), void_since(ledger, node)
    records = store.valid(node, desired_digest(site, node), found, changed, before)
    moment = Moment(time.time(), found.boot_id, changed, before=before, voids=voids)
    return decide(node, entries(site), records, site.gates.skipped(node, today()), moment), records
