"""The TLS certificate that a BMC serves: read without trusting it, and without a login."""

from __future__ import annotations

import hashlib
import socket
import ssl
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cryptography import x509

from rackready.drivers.redfish_errors import BmcError, BmcTlsError, BmcUnreachableError
from rackready.drivers.redfish_http import CONNECT_S, READ_S
from rackready.model.bmc import Bmc as BmcSite


@dataclass(frozen=True, slots=True)
class Served:
    """A served certificate. ``sha256`` as openssl prints it; ``until``: the end of its validity, UTC."""

    sha256: str
    subject: str
    issuer: str
    until: datetime


def fingerprint(certificate: bytes) -> str:
    """Return the SHA-256 of a certificate (DER) in openssl's form, in lower case."""
    return hashlib.sha256(certificate).digest().hex(":")


def served(node: str, site: BmcSite) -> Served:
    """Return the certificate that a BMC shows now. Raises BmcUnreachableError, or BmcTlsError when it is unreadable."""
    where = f"{node} BMC {site.address}:{site.port}"
    try:
        found = _leaf(str(site.address), site.port)
        read = x509.load_der_x509_certificate(found)
    except ssl.SSLError as error:
        raise _no_tls(where, error) from error
    except OSError as error:
        raise _unreachable(where, error) from error
    except ValueError as error:
        raise _no_tls(where, error) from error
    return Served(
        fingerprint(found), read.subject.rfc4514_string(), read.issuer.rfc4514_string(), read.not_valid_after_utc
    )


def distrust(node: str, site: BmcSite, ca: Path) -> str:
    """Return why a client that trusts only the authorities of a file does not trust a BMC; "" when it does.

    Raises BmcUnreachableError.
    """
    try:
        _leaf(str(site.address), site.port, ssl.create_default_context(cafile=str(ca)))
    except ssl.SSLError as error:
        return str(getattr(error, "verify_message", "") or error)
    except OSError as error:
        raise _unreachable(f"{node} BMC {site.address}:{site.port}", error) from error
    return ""


def _leaf(address: str, port: int, context: ssl.SSLContext | None = None) -> bytes:
    if context is None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # the certificate itself is asked for; nothing is sent here
    with socket.create_connection((address, port), timeout=CONNECT_S) as raw:
        raw.settimeout(READ_S)
        with context.wrap_socket(raw, server_hostname=address) as secured:
            return secured.getpeercert(binary_form=True) or b""


def _unreachable(where: str, error: OSError) -> BmcUnreachableError:
    return BmcUnreachableError(
        where,
        "unreachable",
        expected=f"a TLS certificate within {CONNECT_S:.0f} s",
        actual=error,
        next_step="Check bmc.address, its cable and the route to the out-of-band network.",
    )


def _no_tls(where: str, error: Exception) -> BmcTlsError:
    return BmcTlsError(
        where,
        "TLS",
        expected="a certificate",
        actual=error,
        next_step="Check bmc.port, or restart the BMC.",
    )


def with_shown(where: str, node: str, site: BmcSite, error: BmcError) -> BmcError:
    """Return an error of a connection; where it is about a pinned certificate, one with the pinned and the shown."""
    if not isinstance(error, BmcTlsError) or site.fingerprint is None:
        return error
    try:
        shown = served(node, site)
    except BmcError:  # it went away meanwhile: the first error counts
        return error
    return error if shown.sha256 == site.fingerprint else not_pinned(where, site.fingerprint, shown.sha256)


def not_pinned(where: str, pinned: str, shown: str) -> BmcTlsError:
    """Return the refusal of a certificate that is not the pinned one."""
    node = where.partition(" ")[0]
    return BmcTlsError(
        where,
        "TLS certificate, nothing was sent to it",
        expected=f"SHA-256 {pinned}",
        actual=f"SHA-256 {shown}",
        next_step="If the BMC or its certificate was replaced, compare the value at its console, then correct "
        f"bmc.fingerprint, or run `rackready bmc trust {node}`. If `rackready bmc certify {node}` was "
        "interrupted, run it again.",
    )
