"""Keys of the control plane: its CA, the API server's certificate, logins as kubeconfigs, and the nodes' token."""

from __future__ import annotations

import base64
import hashlib
import secrets
import string
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rackready.design.yaml import dump_yaml
from rackready_sim.store import write_private

CONTEXT = "sim"
JOINING = "kubernetes-join"
"""Name of the secret by which nodes join."""
ADMIN, PRODUCT = "admin", "rackready"
_GROUPS = {ADMIN: "system:masters", PRODUCT: ""}
_DAYS = 3650
_LETTERS = string.ascii_lowercase + string.digits
_ID, _SECRET = 6, 16
"""Length of a bootstrap token's parts (k8s.io/cluster-bootstrap/token/api)."""


def ensure(folder: Path, token: Path, address: str, port: int) -> None:
    """Write what is missing: all of it belongs to one CA and one address of the API server."""
    if not token.exists():
        parts = ("".join(secrets.choice(_LETTERS) for _ in range(length)) for length in (_ID, _SECRET))
        write_private(token, ".".join(parts))
    made_for = folder / "address"
    if made_for.exists() and made_for.read_text(encoding="utf-8") == f"{address}:{port}":
        return
    key = _key()
    authority = _certificate(key, key, "rackready-sim-kubernetes", None, days=_DAYS)
    for name, text in {"ca.crt": _text(authority), "ca.key": _pem(key), "sa.key": _pem(sa := _key())}.items():
        write_private(folder / name, text)
    write_private(folder / "sa.pub", _public(sa.public_key()).decode())
    own = _key()
    write_private(folder / "server.key", _pem(own))
    write_private(folder / "server.crt", _text(_certificate(own, key, "kube-apiserver", authority, address=address)))
    for user, group in _GROUPS.items():
        login = _key()
        issued = _certificate(login, key, user, authority, group=group)
        write_private(folder / f"{user}.kubeconfig", _kubeconfig(address, port, user, authority, issued, login))
    write_private(made_for, f"{address}:{port}")


def pin(folder: Path) -> str:
    """Return the CA's hash, as kubeadm wants it (caCertHashes)."""
    found = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes()).public_key()
    spki = found.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return f"sha256:{hashlib.sha256(spki).hexdigest()}"


def cluster(folder: Path, address: str, port: int) -> dict[str, str]:
    """Return the cluster's entry of a kubeconfig."""
    data = base64.b64encode((folder / "ca.crt").read_bytes()).decode()
    return {"certificate-authority-data": data, "server": f"https://{address}:{port}"}


def _kubeconfig(
    address: str,
    port: int,
    user: str,
    authority: x509.Certificate,
    issued: x509.Certificate,
    key: ec.EllipticCurvePrivateKey,
) -> str:
    def data(text: str) -> str:
        return base64.b64encode(text.encode()).decode()

    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": CONTEXT,
                "cluster": {
                    "certificate-authority-data": data(_text(authority)),
                    "server": f"https://{address}:{port}",
                },
            }
        ],
        "users": [
            {
                "name": user,
                "user": {"client-certificate-data": data(_text(issued)), "client-key-data": data(_pem(key))},
            }
        ],
        "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": user}}],
        "current-context": CONTEXT,
    }
    return dump_yaml(document)


def _certificate(  # noqa: PLR0913 - what a certificate says
    own: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    name: str,
    issuer: x509.Certificate | None,
    *,
    address: str = "",
    group: str = "",
    days: int = _DAYS,
) -> x509.Certificate:
    """Return a certificate: of the CA without ``issuer``, of a server with ``address``, else of a user."""
    now = datetime.now(UTC)
    names = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
    names += [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group)] if group else []
    subject = x509.Name(names)
    usage = ExtendedKeyUsageOID.SERVER_AUTH if address else ExtendedKeyUsageOID.CLIENT_AUTH
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer else subject)
        .public_key(own.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(_usage(ca=issuer is None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(own.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    if issuer is not None:
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    if address:
        hosts = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address(address))])
        builder = builder.add_extension(hosts, critical=False)
    return builder.sign(signer, hashes.SHA256())


def _usage(*, ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=ca,
        crl_sign=ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _public(key: ec.EllipticCurvePublicKey) -> bytes:
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def _pem(key: ec.EllipticCurvePrivateKey) -> str:
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, plain).decode()


def _text(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
