"""`rackready bmc certify`: what the operator reads, exit codes, and a CA that cannot sign."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509

from rackready.drivers import bmc_certificate
from rackready.paths import EnvPaths
from tests.unit.sim.bmc_service import Service, served
from tests.unit.sim.site_ca import NAME, SiteCa, make, private

Call = Callable[..., tuple[int, str, str]]
KEY = "bmc_authority.key"
FILE = "bmc_authority.certificate"


@dataclass
class Site:
    """node01 of the simulated rack's site, whose BMC is the served one, and the site's CA."""

    call: Call
    service: Service
    root: Path
    ca: SiteCa

    def states(self, section: dict[str, Any] | None) -> None:
        bmc = self.service.site().model_dump(mode="json", exclude_none=True)
        overlay: dict[str, Any] = {
            "racks": [{"name": "rack01", "nodes": [{"name": "node01", "bmc": bmc | {"ca": None}}]}]
        }
        overlay |= {"bmc_authority": section} if section is not None else {}
        path = EnvPaths(self.root, "sim").overlay
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(overlay), encoding="utf-8")


@pytest.fixture
def site(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(bmc_certificate, "_POLL_S", 0.05)
    with served(tmp_path) as service:
        found = Site(call, service, tmp_path, make(tmp_path / "ca"))
        found.states(found.ca.section())
        yield found


def test_a_pinned_bmc_gets_its_certificate_and_the_next_command_trusts_it(site: Site) -> None:
    assert site.call("bmc", "trust", "node01", "--trust-first")[0] == 0
    code, out, _ = site.call("bmc", "certify", "node01")
    assert (code, out.partition(" valid until")[0]) == (0, f"node01: the BMC has a certificate of {NAME},")
    again = site.call("bmc", "certify", "node01", "--output", "json")
    rows = json.loads(again[1])["bmcs"]
    assert (again[0], [(row["name"], row["outcome"]) for row in rows]) == (0, [("node01", "unchanged")])
    assert site.call("bmc", "trust", "node01")[1].startswith("node01: trusted already, SHA-256 ")
    assert site.call("bmc", "rotate", "node01")[0] == 0, "a login with the new trust"


def test_a_request_waits_for_the_operators_signature(site: Site) -> None:
    site.states(site.ca.section(key=None))
    site.call("bmc", "trust", "node01", "--trust-first")
    code, out, err = site.call("bmc", "certify", "node01")
    folder = EnvPaths(site.root, "sim").bmc_certificates
    assert (code, out) == (1, "")
    assert f"Expected: a certificate in {folder / 'node01.pem'} Actual: none." in err
    row = json.loads(site.call("bmc", "certify", "node01", "--output", "json")[1])["bmcs"][0]
    assert row["outcome"] == "waiting"
    (folder / "node01.pem").write_bytes(site.ca.sign(folder / "node01.csr", "127.85.1.3"))
    assert site.call("bmc", "certify", "node01")[0] == 0


def test_a_site_without_a_ca_is_refused(site: Site) -> None:
    site.states(None)
    code, _, err = site.call("bmc", "certify", "node01")
    assert code == 2
    assert err == (
        "bmc certify - Expected: bmc_authority in the site file Actual: none. Name the CA there, or pin the "
        "certificates that the BMCs have: `rackready bmc trust`.\n"
    )


WRONG: dict[str, tuple[Callable[[Path, SiteCa], dict[str, Any]], str]] = {
    "no CA": (
        lambda folder, _: make(folder, ca=False).section(),
        FILE + ": {folder}/site-ca.pem - Expected: a CA Actual: CN=Example site CA has no basicConstraints CA:TRUE. "
        "Name the CA's own certificate. No BMC was asked.",
    ),
    "a CA that signs no certificates": (
        lambda folder, _: make(folder, signs=False).section(),
        FILE + ": {folder}/site-ca.pem - Expected: a CA Actual: CN=Example site CA has keyUsage without keyCertSign. "
        "Name the CA's own certificate. No BMC was asked.",
    ),
    "an expired CA": (
        lambda folder, _: make(folder, days=-2).section(),
        FILE + ": {folder}/site-ca.pem - Expected: a CA that is valid now Actual: CN=Example site CA expired on {day}. "
        "Renew the CA, or correct this machine's clock. No BMC was asked.",
    ),
    "no file": (
        lambda folder, ca: ca.section(certificate=str(folder / "none.pem")),
        FILE + ": {folder}/none.pem - Expected: certificates in PEM Actual: No such file or directory. Put the CA's "
        "certificate there, or correct the path. No BMC was asked.",
    ),
    "a chain without its root": (
        lambda folder, ca: make(folder, above=ca).section(),
        FILE + ": {folder}/site-ca.pem - Expected: a chain up to its root, each certificate signed by the next Actual: "
        "CN=Example issuing CA is signed by CN=Example site CA, which does not follow. Append the certificates of the "
        "CAs above it, in this order. No BMC was asked.",
    ),
    "another key": (
        lambda folder, ca: ca.section(key={"file": str(make(folder).key_file)}),
        KEY + ": file {folder}/site-ca.key - Expected: the private key of CN=Example site CA Actual: another key. Name "
        "the key of that CA. No BMC was asked.",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_ca_that_cannot_sign_is_refused_before_any_request(site: Site, tmp_path: Path, name: str) -> None:
    section, text = WRONG[name]
    folder = tmp_path / "wrong"
    folder.mkdir()
    site.states(section(folder, site.ca))
    if (folder / "site-ca.pem").exists():
        until = x509.load_pem_x509_certificate((folder / "site-ca.pem").read_bytes()).not_valid_after_utc
        text = text.replace("{day}", f"{until:%Y-%m-%d}")
    code, _, err = site.call("bmc", "certify", "node01")
    assert (code, err) == (2, text.replace("{folder}", str(folder)) + "\n")
    assert site.service.asked == []


def test_a_key_with_a_passphrase_is_refused(site: Site, tmp_path: Path) -> None:
    key = tmp_path / "locked.key"
    key.write_bytes(private(site.ca.key, b"secret"))
    site.states(site.ca.section(key={"file": str(key)}))
    code, _, err = site.call("bmc", "certify", "node01")
    assert code == 2
    assert f"{KEY}: file {key} - Expected: a private key in PEM without passphrase Actual: " in err
    assert err.endswith("Decrypt it, or leave out key: you sign then. No BMC was asked.\n")


def test_a_failure_of_one_bmc_is_of_that_one_alone(site: Site) -> None:
    site.service.faulty(request_names=["DNS:other.example"])
    site.call("bmc", "trust", "node01", "--trust-first")
    code, out, err = site.call("bmc", "certify", "node01")
    assert (code, out) == (1, "")
    assert "Actual: subjectAltName DNS:other.example. Nothing was signed." in err
