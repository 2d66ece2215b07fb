"""The boot authority of an environment: its own CA, which signs the certificate of the HTTPS server and nothing else.

Certificates begin in the year 2000: a node whose clock battery is empty starts with such a date, and the agent trusts
the authority by its hash, not by a date.
"""

from __future__ import annotations

import hashlib
import os
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rackready import files
from rackready.model.problems import RackreadyError
from rackready.paths import private_dir

_BEGIN = datetime(2000, 1, 1, tzinfo=UTC)
_CA_DAYS = 3650
_SERVER_DAYS = 825
"""Longest validity that TLS clients in the field accept (Apple's limit for servers, the strictest)."""
_RENEW_DAYS = 30


class AuthorityError(RackreadyError):
    """The boot authority's files cannot be used."""


def ensure(folder: Path, address: IPv4Address) -> bool:
    """Make the authority and the server's certificate where they are missing, expire soon, or name another address.

    Returns whether a file changed. Raises AuthorityError for files that cannot be read, OSError.
    """
    private_dir(folder)
    changed = not (folder / "ca.pem").exists()
    if changed:
        _make_authority(folder)
    if changed or not _serves(folder, address):
        _make_server(folder, address)
        changed = True
    return changed


def fingerprint(folder: Path) -> str:
    """Return the SHA-256 of the authority's certificate (DER), in hex. Raises AuthorityError."""
    return hashlib.sha256(_certificate(folder / "ca.pem").public_bytes(serialization.Encoding.DER)).hexdigest()


def _make_authority(folder: Path) -> None:
    """Write key, then certificate: without a certificate, a later run makes both anew."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "rackready boot authority")])
    made = (
        _builder(name, name, key.public_key(), key, _CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    _write_pair(folder, "ca", key, made)


def _make_server(folder: Path, address: IPv4Address) -> None:
    authority, signer = _certificate(folder / "ca.pem"), _key(folder / "ca.key")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"rackready boot service {address}")])
    made = (
        _builder(name, authority.subject, key.public_key(), signer, _SERVER_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(address)]), critical=False)
        .sign(signer, hashes.SHA256())
    )
    _write_pair(folder, "server", key, made)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey,
    signer: ec.EllipticCurvePrivateKey,
    days: int,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_BEGIN)
        .not_valid_after(datetime.now(UTC) + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _write_pair(folder: Path, stem: str, key: ec.EllipticCurvePrivateKey, made: x509.Certificate) -> None:
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    files.replace(folder / f"{stem}.key", private)
    files.replace(folder / f"{stem}.pem", made.public_bytes(serialization.Encoding.PEM), mode=0o644)


def _serves(folder: Path, address: IPv4Address) -> bool:
    """Whether the server's certificate is this authority's, for this address and this key, and lasts long enough."""
    path = folder / "server.pem"
    if not path.exists() or not (folder / "server.key").exists():
        return False
    found, authority = _certificate(path), _certificate(folder / "ca.pem")
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    issuer = found.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier
    signer = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
    return (
        address in names.get_values_for_type(x509.IPAddress)
        and issuer == signer
        and found.public_key() == _key(folder / "server.key").public_key()
        and found.not_valid_after_utc > datetime.now(UTC) + timedelta(days=_RENEW_DAYS)
    )


def _certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise _unusable(path, "a certificate", error) from error


def _key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError) as error:
        raise _unusable(path, "a private key", error) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise _unusable(path, "an elliptic-curve key", type(key).__name__)
    return key


def _unusable(path: Path, expected: str, actual: object) -> AuthorityError:
    return AuthorityError(
        path,
        "boot authority",
        expected=expected,
        actual=os.strerror(actual.errno) if isinstance(actual, OSError) and actual.errno else actual,
        next_step=f"Remove {path.parent} and start the boot service again: it makes a new authority.",
    )
