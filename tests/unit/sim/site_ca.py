"""A site's CA for tests: its certificate, key and section of the site file, whole or wrong in one way."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from rackready.model.bmc import BmcAuthority

SUBJECT = {"country": "DE", "state": "Hessen", "city": "Frankfurt", "organization": "Example", "unit": "GPU racks"}
NAME = "CN=Example site CA"


@dataclass(frozen=True, slots=True)
class SiteCa:
    """The CA's files."""

    folder: Path
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def file(self) -> Path:
        return self.folder / "site-ca.pem"

    @property
    def key_file(self) -> Path:
        return self.folder / "site-ca.key"

    def section(self, **more: Any) -> dict[str, Any]:
        return {"certificate": str(self.file), "key": {"file": str(self.key_file)}, "subject": SUBJECT} | more

    def model(self, **more: Any) -> BmcAuthority:
        return BmcAuthority.model_validate(self.section(**more))

    def sign(self, request: Path, address: str, **wrong: Any) -> bytes:
        """Sign as an operator's own CA does. ``wrong``: name (of another host), days, key."""
        asked = x509.load_pem_x509_csr(request.read_bytes())
        now = datetime.now(UTC)
        names = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address(wrong.get("name", address)))])
        made = (
            x509.CertificateBuilder(issuer_name=self.certificate.subject, subject_name=asked.subject)
            .public_key(wrong.get("key", asked.public_key()))
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=9))
            .not_valid_after(now + timedelta(days=wrong.get("days", 30)))
            .add_extension(names, critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .sign(wrong.get("signer", self.key), hashes.SHA256())
        )
        return made.public_bytes(serialization.Encoding.PEM)


def make(folder: Path, *, ca: bool = True, signs: bool = True, days: int = 365, above: SiteCa | None = None) -> SiteCa:
    """Make a CA, or something that is none."""
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    common = NAME if above is None else "CN=Example issuing CA"
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common.removeprefix("CN="))])
    issuer, signer = (above.certificate.subject, above.key) if above is not None else (name, key)
    now = datetime.now(UTC)
    usage = dict.fromkeys(("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"), False)
    made = (
        x509.CertificateBuilder(issuer_name=issuer, subject_name=name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=400))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.KeyUsage(
                digital_signature=True,
                key_cert_sign=signs,
                crl_sign=signs,
                encipher_only=False,
                decipher_only=False,
                **usage,
            ),
            critical=True,
        )
        .sign(signer, hashes.SHA256())
    )
    found = SiteCa(folder, made, key)
    found.file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    found.key_file.write_bytes(private(key))
    return found


def private(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, password: bytes = b"") -> bytes:
    how = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how)
