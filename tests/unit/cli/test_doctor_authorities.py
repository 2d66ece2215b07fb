"""`rackready doctor` reads the CA certificates that the site file names, before a deploy needs them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from rackready.cli.doctor_authorities import authorities
from rackready.cli.doctor_scene import Scene
from rackready.design.site import load_site
from rackready.model.outcome import Outcome
from rackready.paths import EnvPaths

ROOT = Path(__file__).resolve().parents[3]
WANTED = "Expected: a file of CA certificates (PEM), one of them valid now Actual:"
STEP = "Put it there, or correct `ca` in the site file."


def scene(tmp_path: Path) -> Scene:
    """Return the example site, whose BMCs all name `bmc-ca.pem`."""
    folder = tmp_path / "inventories/prod"
    folder.mkdir(parents=True)
    (folder / "site.yml").write_text((ROOT / "inventories/example/site.yml").read_text(encoding="utf-8"), "utf-8")
    return Scene(EnvPaths(tmp_path, "prod"), load_site("prod", root=tmp_path))


def certificate(end: datetime) -> bytes:
    key, name = Ed25519PrivateKey.generate(), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bmc ca")])
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    dated = made.not_valid_before(end - timedelta(days=9)).not_valid_after(end)
    return dated.sign(key, None).public_bytes(Encoding.PEM)


PAST = datetime(2020, 1, 31, tzinfo=UTC)
FUTURE = datetime.now(UTC) + timedelta(days=9)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (None, "No such file or directory"),
        (b"", "no PEM certificate"),
        (b"-----BEGIN CERTIFICATE-----\nnone\n-----END CERTIFICATE-----\n", "no PEM certificate"),
        (certificate(PAST), "expired on 2020-01-31"),
    ],
    ids=["absent", "empty", "damaged", "expired"],
)
def test_a_ca_that_cannot_verify_is_named_once_with_the_next_step(
    content: bytes | None, found: str, tmp_path: Path
) -> None:
    case = scene(tmp_path)
    file = tmp_path / "inventories/prod/bmc-ca.pem"
    if content is not None:
        file.write_bytes(content)
    assert authorities(case) == (Outcome.FAIL, f"{file} - {WANTED} {found}. {STEP}")


@pytest.mark.parametrize("ends", [[FUTURE], [PAST, FUTURE]], ids=["one", "an old one beside it"])
def test_a_ca_that_is_valid_passes(ends: list[datetime], tmp_path: Path) -> None:
    case = scene(tmp_path)
    (tmp_path / "inventories/prod/bmc-ca.pem").write_bytes(b"".join(map(certificate, ends)))
    assert authorities(case) == (Outcome.PASS, f"valid: {tmp_path}/inventories/prod/bmc-ca.pem")


def test_a_site_without_any_passes(tmp_path: Path) -> None:
    case = scene(tmp_path)
    file = tmp_path / "inventories/prod/site.yml"
    document = yaml.safe_load(file.read_text(encoding="utf-8"))
    for rack in document["racks"]:
        for node in rack["nodes"]:
            del node["bmc"]["ca"]
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    site = load_site("prod", root=tmp_path)
    assert authorities(Scene(case.paths, site)) == (Outcome.PASS, "the site file names none")
    assert authorities(Scene(case.paths, None)) == (Outcome.SKIP, "the site file cannot be used")
