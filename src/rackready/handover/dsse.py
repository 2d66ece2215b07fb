"""DSSE envelopes with Ed25519 (secure-systems-lab/dsse v1): they carry the signed bytes, without a canonical form."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from rackready import files
from rackready.model.problems import RackreadyError

PAYLOAD_TYPE = "application/vnd.in-toto+json"


@dataclass(frozen=True, slots=True)
class Form:
    """A kind of signed document: the type of its payload, and the words of messages about it."""

    kind: str
    what: str
    next_step: str
    renewed: str = ""
    """What helps after the signing key was replaced; default: ``next_step``."""


CERTIFICATE = Form(
    PAYLOAD_TYPE,
    "certificate",
    "Certify the node again.",
    "Certify the node again; a key that you replaced belongs in certificates.retired_keys.",
)


class SignatureError(RackreadyError):
    """An envelope was not signed by our key, or is damaged."""


class Signer(Protocol):
    """A key that signs, wherever its private half is."""

    @property
    def public(self) -> Ed25519PublicKey:
        """Return the public half."""

    def sign(self, data: bytes) -> bytes:
        """Return the plain Ed25519 signature of data, 64 bytes. Raises SignatureError."""


@dataclass(frozen=True, slots=True)
class Key:
    """A signing key of a file."""

    private: Ed25519PrivateKey

    @property
    def public(self) -> Ed25519PublicKey:
        """Return the public half."""
        return self.private.public_key()

    @property
    def id(self) -> str:
        """Return the key's name in envelopes."""
        return key_id(self.public)

    def sign(self, data: bytes) -> bytes:
        """Return the signature of data."""
        return self.private.sign(data)


def key_id(public: Ed25519PublicKey) -> str:
    """Return a public key's name: its fingerprint as `ssh-keygen -l` and `ssh-add -l` print it.

    cosign 3.1.2 skips a bundle's signature with another name: go-securesystemslib 0.11.0 gives a key without a name
    this one (dsse/verify.go, SHA256KeyID), and compares.
    """
    return "SHA256:" + base64.b64encode(hashlib.sha256(key_blob(public)).digest()).decode().rstrip("=")


def key_line(public: Ed25519PublicKey) -> str:
    """Return a public key in OpenSSH's form: ssh-ed25519 AAAA..."""
    return public.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()


def key_blob(public: Ed25519PublicKey) -> bytes:
    """Return a public key as SSH programs hand it to each other."""
    return base64.b64decode(key_line(public).split()[1])


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


def public_pem(public: Ed25519PublicKey) -> bytes:
    """Return a public key in PEM, for people to pass on."""
    return public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def load_public(path: Path) -> Ed25519PublicKey:
    """Return the public key of a file (PEM). Raises SignatureError."""
    try:
        found: object = serialization.load_pem_public_key(path.read_bytes())
    except (OSError, ValueError) as error:
        found = error.strerror if isinstance(error, OSError) else "no PEM of a public key"
    if isinstance(found, Ed25519PublicKey):
        return found
    raise SignatureError(
        path,
        "public key",
        expected="an Ed25519 public key (PEM)",
        actual=found if isinstance(found, str) else type(found).__name__,
        next_step="`rackready certificate export NODE --format key` writes one.",
    )


def _encoded(payload_type: str, payload: bytes) -> bytes:
    """Return DSSE's pre-authentication encoding."""
    return b"DSSEv1 %d %s %d %s" % (len(payload_type), payload_type.encode(), len(payload), payload)


def sign(payload: bytes, key: Signer, form: Form = CERTIFICATE) -> dict[str, Any]:
    """Return the envelope of a payload. Raises SignatureError when the key does not sign."""
    signature = key.sign(_encoded(form.kind, payload))
    return {
        "payloadType": form.kind,
        "payload": base64.b64encode(payload).decode(),
        "signatures": [{"keyid": key_id(key.public), "sig": base64.b64encode(signature).decode()}],
    }


@dataclass(frozen=True, slots=True)
class Opened:
    """An envelope without its encoding. Nothing is verified."""

    kind: str
    payload: bytes
    signatures: tuple[tuple[str, bytes], ...]
    """Name of the key, which nothing protects, and signature."""

    def signed(self, keys: Sequence[Ed25519PublicKey]) -> Verified | None:
        """Return the payload with the first of these keys that signed it, None when none did."""
        encoded = _encoded(self.kind, self.payload)
        for key in keys:
            for _, signature in self.signatures:
                if _valid(key, signature, encoded):
                    return Verified(self.payload, key, signature)
        return None


@dataclass(frozen=True, slots=True)
class Verified:
    """A payload, the key that signed it, and its signature."""

    payload: bytes
    key: Ed25519PublicKey
    signature: bytes


def opened(envelope: Any, where: str, form: Form = CERTIFICATE) -> Opened:  # noqa: ANN401 - JSON of unknown shape
    """Return an envelope's content, unverified. Raises SignatureError when it is damaged or of another type."""
    try:
        kind, payload = str(envelope["payloadType"]), base64.b64decode(envelope["payload"], validate=True)
        signatures = tuple(
            (str(item.get("keyid", "")), base64.b64decode(item["sig"], validate=True))
            for item in envelope["signatures"]
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise SignatureError(
            where,
            form.what,
            expected="a DSSE envelope",
            actual=f"damaged ({type(error).__name__} {error})",
            next_step=form.next_step,
        ) from error
    if kind != form.kind:
        raise SignatureError(
            where,
            form.what,
            expected=f"payload of type {form.kind}",
            actual=kind,
            next_step=form.next_step,
        )
    return Opened(kind, payload, signatures)


def verify(
    envelope: Any,  # noqa: ANN401 - as above
    keys: Sequence[Ed25519PublicKey],
    where: str,
    form: Form = CERTIFICATE,
) -> Verified:
    """Return the payload that one of the keys signed. Raises SignatureError with the fault of the envelope."""
    found = opened(envelope, where, form)
    signed = found.signed(keys)
    if signed is not None:
        return signed
    names = ", ".join(name for name, _ in found.signatures) or "none"
    raise SignatureError(
        where,
        form.what,
        expected=f"signed by key {' or '.join(map(key_id, keys)) or '(none is known)'}",
        actual=f"no valid signature of it (key ids: {names})",
        next_step=form.renewed or form.next_step,
    )


def _valid(public: Ed25519PublicKey, signature: bytes, encoded: bytes) -> bool:
    try:
        public.verify(signature, encoded)
    except InvalidSignature:
        return False
    return True
