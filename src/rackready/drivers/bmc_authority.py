"""The CA of the BMCs' certificates: read and checked before any BMC is asked; what it signs, and what is accepted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rackready.design.secrets import reveal
from rackready.model.bmc import BmcAuthority, CertificateSubject
from rackready.model.problems import RackreadyError

Key = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
Kind = TypeVar("Kind", bound=x509.ExtensionType)
_WHERE = "bmc_authority"
_EARLIER = timedelta(days=1)
"""Certificates begin a day ago: clocks of controllers differ."""


class BmcAuthorityError(RackreadyError):
    """The CA in the site file cannot sign certificates of BMCs."""


@dataclass(frozen=True, slots=True)
class Authority:
    """The CA of the site. ``chain``: its certificate, then those above it up to the root; ``key`` None: others sign."""

    file: Path
    chain: tuple[x509.Certificate, ...]
    key: Key | None
    days: int
    subject: CertificateSubject

    @property
    def name(self) -> str:
        """Subject of the signing CA, for messages."""
        return self.chain[0].subject.rfc4514_string()

    def sign(self, request: x509.CertificateSigningRequest, address: IPv4Address) -> bytes:
        """Return a server certificate (PEM) for the key of a request and the address of its BMC.

        Of the request only the key is taken: OpenBMC writes its other wishes into the subject
        (openbmc/phosphor-certificate-manager, certs_manager.cpp, generateCSRHelper).
        """
        assert self.key is not None  # noqa: S101 - without a key others sign
        issuer, public, now = self.chain[0], request.public_key(), datetime.now(UTC)
        until = min(now + timedelta(days=self.days), *(item.not_valid_after_utc for item in self.chain))
        made = (
            x509.CertificateBuilder(issuer_name=issuer.subject, subject_name=_name(self.subject, address))
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(max(now - _EARLIER, issuer.not_valid_before_utc))
            .not_valid_after(until)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(enciphers=isinstance(public, rsa.RSAPublicKey)), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(address)]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(_signer(issuer), critical=False)
            .sign(self.key, None if isinstance(self.key, ed25519.Ed25519PrivateKey) else hashes.SHA256())
        )
        return made.public_bytes(serialization.Encoding.PEM)


def load(site: BmcAuthority) -> Authority:
    """Return the CA of a site. Raises BmcAuthorityError for one that cannot sign now, SecretUnreadableError."""
    try:
        chain = tuple(x509.load_pem_x509_certificates(site.certificate.read_bytes()))
    except (OSError, ValueError) as error:
        raise _refused(
            f"{_WHERE}.certificate",
            site.certificate,
            "certificates in PEM",
            getattr(error, "strerror", None) or error,
            "Put the CA's certificate there, or correct the path.",
        ) from error
    for item in chain:
        _require_ca(site.certificate, item)
    _require_root(site.certificate, chain)
    key = None if site.key is None else _key(reveal(site.key).encode(), str(site.key), chain[0])
    return Authority(site.certificate, chain, key, site.days, site.subject)


def extension(found: x509.Certificate | x509.CertificateSigningRequest, kind: type[Kind]) -> Kind | None:
    """Return an extension of a certificate or request, None without it."""
    try:
        return found.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def valid_now(found: x509.Certificate) -> str:
    """Return "" for a certificate that is valid now, else why it is not."""
    now = datetime.now(UTC)
    if now < found.not_valid_before_utc:
        return f"valid from {found.not_valid_before_utc:%Y-%m-%d}"
    return "" if now < found.not_valid_after_utc else f"expired on {found.not_valid_after_utc:%Y-%m-%d}"


def issued_by(found: x509.Certificate, issuer: x509.Certificate) -> bool:
    """Return whether an authority's key signed a certificate, under the authority's name."""
    try:
        found.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _require_ca(file: Path, found: x509.Certificate) -> None:
    name = found.subject.rfc4514_string()
    basic, usage = extension(found, x509.BasicConstraints), extension(found, x509.KeyUsage)
    lacks = "no basicConstraints CA:TRUE" if basic is None or not basic.ca else ""
    lacks = lacks or ("keyUsage without keyCertSign" if usage is not None and not usage.key_cert_sign else "")
    if lacks:
        raise _refused(f"{_WHERE}.certificate", file, "a CA", f"{name} has {lacks}", "Name the CA's own certificate.")
    if wrong := valid_now(found):
        raise _refused(
            f"{_WHERE}.certificate",
            file,
            "a CA that is valid now",
            f"{name} {wrong}",
            "Renew the CA, or correct this machine's clock.",
        )


def _require_root(file: Path, chain: Sequence[x509.Certificate]) -> None:
    last = chain[-1]
    broken = next((low for low, high in pairwise(chain) if not issued_by(low, high)), None)
    if broken is None and last.issuer == last.subject:
        return
    found = broken or last
    raise _refused(
        f"{_WHERE}.certificate",
        file,
        "a chain up to its root, each certificate signed by the next",
        f"{found.subject.rfc4514_string()} is signed by {found.issuer.rfc4514_string()}, which does not follow",
        "Append the certificates of the CAs above it, in this order.",
    )


def _key(pem: bytes, place: str, owner: x509.Certificate) -> Key:
    name = owner.subject.rfc4514_string()
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError) as error:
        raise _refused(
            f"{_WHERE}.key",
            place,
            "a private key in PEM without passphrase",
            error,
            "Decrypt it, or leave out key: you sign then.",
        ) from error
    if not isinstance(key, Key) or key.public_key() != owner.public_key():
        raise _refused(f"{_WHERE}.key", place, f"the private key of {name}", "another key", "Name the key of that CA.")
    return key


def _refused(where: str, what: object, expected: str, actual: object, next_step: str) -> BmcAuthorityError:
    step = f"{next_step} No BMC was asked."
    return BmcAuthorityError(where, what, expected=expected, actual=actual, next_step=step)


def _name(subject: CertificateSubject, address: IPv4Address) -> x509.Name:
    parts = (
        (NameOID.COUNTRY_NAME, subject.country),
        (NameOID.STATE_OR_PROVINCE_NAME, subject.state),
        (NameOID.LOCALITY_NAME, subject.city),
        (NameOID.ORGANIZATION_NAME, subject.organization),
        (NameOID.ORGANIZATIONAL_UNIT_NAME, subject.unit),
        (NameOID.COMMON_NAME, str(address)),
    )
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in parts])


def _signer(issuer: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    known = extension(issuer, x509.SubjectKeyIdentifier)
    if known is not None:
        return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(known)
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.public_key())  # type: ignore[arg-type]


def _usage(*, enciphers: bool) -> x509.KeyUsage:
    """Return the usage of a server's key; RSA also enciphers keys (RFC 5246, 7.4.2)."""
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=enciphers,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
