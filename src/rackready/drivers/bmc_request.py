"""Requests of BMCs for a certificate (CSR), and certificates signed for them: accepted only for the BMC itself."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID, NameOID

from rackready.drivers.bmc_authority import Authority, extension, issued_by, valid_now
from rackready.drivers.redfish_errors import BmcError

_RSA_BITS = 2048
"""Shortest RSA key that TLS clients take (NIST SP 800-131A; OpenSSL's default security level from version 3.0 on)."""
_UNSIGNED = "Nothing was signed. "


class BmcCertificateError(BmcError):
    """A BMC's request or certificate is not for this BMC, or the BMC does not take it."""


def request_of(where: str, pem: str, address: IPv4Address) -> x509.CertificateSigningRequest:
    """Return a BMC's request. Raises BmcCertificateError unless it is for this address and nothing else.

    A request that names another host would get that host a certificate that the site trusts.
    """
    try:
        found = x509.load_pem_x509_csr(pem.encode())
        valid = found.is_signature_valid
    except (ValueError, UnsupportedAlgorithm) as error:
        raise _no_request(where, error) from error
    if not valid:
        raise _no_request(where, "its signature is wrong")
    common = [str(item.value) for item in found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    names = ", ".join(f"CN={name}" for name in common) if common != [str(address)] else ""
    names = names or ("no common name" if not common else "")
    others = ", ".join(name for name in _alternatives(found) if name.removeprefix("IP:") != str(address))
    if names or others:
        raise BmcCertificateError(
            where,
            "certificate request names another host",
            expected=f"CN={address} and no other name",
            actual=names or f"subjectAltName {others}",
            next_step=f"{_UNSIGNED}Clear the names that the BMC adds in its network settings, or pin the certificate "
            f"that it has: `rackready bmc trust {where.partition(' ')[0]}`.",
        )
    key = found.public_key()
    if isinstance(key, rsa.RSAPublicKey) and key.key_size < _RSA_BITS:
        raise BmcCertificateError(
            where,
            "certificate request",
            expected=f"an RSA key of at least {_RSA_BITS} bits",
            actual=f"{key.key_size} bits",
            next_step=f"{_UNSIGNED}Choose a longer key in the BMC's settings, or update its firmware.",
        )
    return found


def signed_of(
    where: str, pem: bytes, request: x509.CertificateSigningRequest, address: IPv4Address, authority: Authority
) -> x509.Certificate:
    """Return a certificate for a request. Raises BmcCertificateError for one with which access would be lost."""
    try:
        found = x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        raise _unfit(where, "a certificate in PEM", error) from error
    if len(found) != 1:
        raise _unfit(where, "one certificate, without those of its CAs", f"{len(found)} certificates")
    leaf = found[0]
    names = extension(leaf, x509.SubjectAlternativeName)
    purpose = extension(leaf, x509.ExtendedKeyUsage)
    if leaf.public_key() != request.public_key():
        raise _unfit(where, "a certificate for the key of the BMC's request", "one for another key")
    if not issued_by(leaf, authority.chain[0]):
        raise _unfit(where, f"signed by {authority.name}", f"signed by {leaf.issuer.rfc4514_string()}")
    if wrong := valid_now(leaf):
        raise _unfit(where, "valid now", wrong)
    if names is None or address not in names.get_values_for_type(x509.IPAddress):
        raise _unfit(where, f"subjectAltName IP:{address}", "subjectAltName without it")
    if purpose is not None and ExtendedKeyUsageOID.SERVER_AUTH not in purpose:
        raise _unfit(where, "extendedKeyUsage serverAuth", "extendedKeyUsage without it")
    return leaf


def _alternatives(request: x509.CertificateSigningRequest) -> Iterator[str]:
    """Yield the alternative names; OpenBMC writes them into the subject (see Authority.sign)."""
    names = extension(request, x509.SubjectAlternativeName)
    for name in names or ():
        yield f"{'IP' if isinstance(name, x509.IPAddress) else type(name).__name__.removesuffix('Name')}:{name.value}"
    for item in request.subject.get_attributes_for_oid(ExtensionOID.SUBJECT_ALTERNATIVE_NAME):
        yield str(item.value)


def _no_request(where: str, actual: object) -> BmcCertificateError:
    return BmcCertificateError(
        where,
        "certificate request",
        expected="a signed PKCS #10 request in PEM",
        actual=actual,
        next_step=f"{_UNSIGNED}Update the BMC's firmware.",
    )


def _unfit(where: str, expected: str, actual: object) -> BmcCertificateError:
    return BmcCertificateError(
        where,
        "signed certificate",
        expected=expected,
        actual=actual,
        next_step="It was not installed. Sign the request again, and put the certificate in its place.",
    )
