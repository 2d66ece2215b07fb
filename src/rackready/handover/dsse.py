"""DSSE envelopes with Ed25519 (secure-systems-lab/dsse v1): they carry the signed bytes, without a canonical form."""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from rackready import files
from rackready.model.problems import RackreadyError

PAYLOAD_TYPE = "application/vnd.in-toto+json"


class SignatureError(RackreadyError):
    """An envelope was not signed by our key, or is damaged."""


@dataclass(frozen=True, slots=True)
class Key:
    """A signing key. ``id``: SHA-256 (hex) of the public key's SubjectPublicKeyInfo."""

    private: Ed25519PrivateKey

    @property
    def public(self) -> Ed25519PublicKey:
        """Return the public half."""
        return self.private.public_key()

    @property
    def id(self) -> str:
        """Return the key's name in envelopes."""
        return key_id(self.public)


def key_id(public: Ed25519PublicKey) -> str:
    """Return the SHA-256 (hex) of a public key's SubjectPublicKeyInfo."""
    der = public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()


def load_key(path: Path) -> Key:
    """Return the signing key; the first call makes it, with mode 0600. Raises SignatureError when it cannot be used."""
    if not path.exists():
        _make(path)
    if path.stat().st_mode & 0o077:
        raise SignatureError(
            path,
            "signing key",
            expected="mode 0600",
            actual=f"{path.stat().st_mode & 511:04o}",
            next_step="Others may have read it: remove it and certify again.",
        )
    try:
        private = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise SignatureError(
            path,
            "signing key",
            expected="an Ed25519 key (PEM)",
            actual=error,
            next_step="Restore it, or remove it and certify again.",
        ) from error
    if not isinstance(private, Ed25519PrivateKey):
        raise SignatureError(
            path,
            "signing key",
            expected="Ed25519",
            actual=type(private).__name__,
            next_step="Restore it, or remove it and certify again.",
        )
    return Key(private)


def _make(path: Path) -> None:
    pem = Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    files.create(path, pem)  # if another process was first, its key is the key


def public_pem(key: Key) -> bytes:
    """Return the public key in PEM, for people to pass on."""
    return key.public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def _encoded(payload_type: str, payload: bytes) -> bytes:
    """Return DSSE's pre-authentication encoding."""
    return b"DSSEv1 %d %s %d %s" % (len(payload_type), payload_type.encode(), len(payload), payload)


def sign(payload: bytes, key: Key) -> dict[str, Any]:
    """Return the envelope of a payload."""
    signature = key.private.sign(_encoded(PAYLOAD_TYPE, payload))
    return {
        "payloadType": PAYLOAD_TYPE,
        "payload": base64.b64encode(payload).decode(),
        "signatures": [{"keyid": key.id, "sig": base64.b64encode(signature).decode()}],
    }


def verify(envelope: Any, public: Ed25519PublicKey, where: str) -> bytes:  # noqa: ANN401 - JSON of unknown shape
    """Return the payload that the key signed. Raises SignatureError with the fault of the envelope."""
    try:
        kind, payload = str(envelope["payloadType"]), base64.b64decode(envelope["payload"], validate=True)
        signatures = [
            (str(item.get("keyid", "")), base64.b64decode(item["sig"], validate=True))
            for item in envelope["signatures"]
        ]
    except (KeyError, TypeError, AttributeError, binascii.Error) as error:
        raise SignatureError(
            where,
            "certificate",
            expected="a DSSE envelope",
            actual=f"damaged ({type(error).__name__} {error})",
            next_step="Certify the node again.",
        ) from error
    if kind != PAYLOAD_TYPE:
        raise SignatureError(
            where,
            "certificate",
            expected=f"payload of type {PAYLOAD_TYPE}",
            actual=kind,
            next_step="Certify the node again.",
        )
    if any(_valid(public, signature, kind, payload) for _, signature in signatures):
        return payload
    names = ", ".join(name[:12] for name, _ in signatures) or "none"
    raise SignatureError(
        where,
        "certificate",
        expected=f"signed by key {key_id(public)[:12]}",
        actual=f"no valid signature of it (key ids: {names})",
        next_step="Certify the node again.",
    )


def _valid(public: Ed25519PublicKey, signature: bytes, kind: str, payload: bytes) -> bool:
    try:
        public.verify(signature, _encoded(kind, payload))
    except InvalidSignature:
        return False
    return True
