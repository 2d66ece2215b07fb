"""Certificates of the simulated BMCs: the rack's own authority, and one certificate for each BMC's address."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rackready_sim.store import write_private

_DAYS = 3650
_CURVE = ec.SECP256R1()


def ensure_certificates(folder: Path, bmcs: dict[str, str]) -> None:
    """Create ``ca.pem``, and a missing ``<node>.pem`` (certificate and key) for every node -> address."""
    authority, key = _authority(folder)
    for node, address in bmcs.items():
        path = folder / f"{node}.pem"
        if not _covers(path, address):
            write_private(path, _server(node, address, authority, key))


def _authority(folder: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    path = folder / "ca-key.pem"
    if path.exists() and (folder / "ca.pem").exists():
        key = serialization.load_pem_private_key(path.read_bytes(), None)
        if isinstance(key, ec.EllipticCurvePrivateKey):
            return x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes()), key
    for stale in folder.glob("*.pem"):  # signed by an authority whose key is lost
        stale.unlink()
    made = ec.generate_private_key(_CURVE)
    name = _name("rackready simulated rack")
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        _builder(name, name, made.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
    )
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(made.public_key()), critical=False)
    certificate = builder.sign(made, hashes.SHA256())
    write_private(path, _pem(made))
    write_private(folder / "ca.pem", certificate.public_bytes(serialization.Encoding.PEM).decode())
    return certificate, made


def _server(node: str, address: str, authority: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> str:
    own = ec.generate_private_key(_CURVE)
    builder = (
        _builder(_name(f"{node}-bmc"), authority.subject, own.public_key())
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address(address))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
    )
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode() + _pem(own)


def _builder(subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(public)
    return (
        builder.serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=_DAYS))
    )


def _covers(path: Path, address: str) -> bool:
    if not path.exists():
        return False
    names = (
        x509.load_pem_x509_certificate(path.read_bytes())
        .extensions.get_extension_for_class(x509.SubjectAlternativeName)
        .value
    )
    return IPv4Address(address) in names.get_values_for_type(x509.IPAddress)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
