"""Certificates of BMCs by the site's CA: made, verified, trusted; cut at every step; refused before access is lost."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from rackready.design.bmc_pins import pin, pins
from rackready.drivers import bmc_certificate, redfish
from rackready.drivers.bmc_authority import load
from rackready.drivers.bmc_certificate import BMC_CERTIFY, Certify, Place
from rackready.drivers.bmc_request import BmcCertificateError, request_of
from rackready.drivers.bmc_trust import Trust
from rackready.drivers.redfish import Bmc
from rackready.drivers.redfish_errors import BmcError, BmcTlsError, BmcUnreachableError
from rackready.drivers.redfish_tls import distrust
from rackready.drivers.redfish_tls import served as shown_by
from rackready.ledger.store import Ledger
from tests.unit.sim.bmc_service import ADDRESS, NODE, Service, served
from tests.unit.sim.site_ca import NAME, SiteCa, make

OTHER = ":".join(["ab"] * 32)
MADE = "POST /redfish/v1/CertificateService/Actions/CertificateService.GenerateCSR"
INSTALLED = "POST /redfish/v1/CertificateService/Actions/CertificateService.ReplaceCertificate"


class _CutError(Exception):
    """The process was killed here."""


@dataclass
class Case:
    """One served BMC, pinned, and the site's CA."""

    service: Service
    root: Path
    ledger: Ledger
    ca: SiteCa
    said: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    decides: str = ""
    site: dict[str, Any] = field(default_factory=dict)
    authority: dict[str, Any] = field(default_factory=dict)

    @property
    def pins(self) -> Path:
        return self.root / "bmc_pins"

    @property
    def place(self) -> Place:
        return Place(self.root / "certificates", NODE)

    @property
    def where(self) -> str:
        return f"{NODE} BMC {ADDRESS}:{self.service.server.server_port}"

    def work(self, *, expected: frozenset[str] = frozenset()) -> Certify:
        pinned = pins(self.pins).get(NODE, "")
        site = self.service.site(**({"ca": None, "fingerprint": pinned or None} | self.site))
        trust = Trust(NODE, site, pinned, decides=self.decides)
        authority = load(self.ca.model(**self.authority))
        return Certify(
            self.ledger, trust, authority, self.place, self.pins, expected, self.said.append, self.told.append
        )

    def run(self, *, renew: bool = False, expected: frozenset[str] = frozenset()) -> str:
        return self.work(expected=expected).run(renew=renew)

    def error(self, **how: Any) -> str:
        with pytest.raises(BmcError) as caught:
            self.run(**how)
        return str(caught.value).removeprefix(f"{self.where}: ")

    def now(self) -> str:
        return shown_by(NODE, self.service.site()).sha256

    def reaches(self) -> str:
        """Log in with the trust that every other command has."""
        pinned = pins(self.pins)[NODE]
        with Bmc(NODE, self.service.site(**({"ca": None, "fingerprint": pinned} | self.site))) as bmc:
            return bmc.identify().serial

    def statuses(self) -> list[str]:
        return [item.status for item in self.ledger.entries(NODE) if item.operation == BMC_CERTIFY]


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Case]:
    monkeypatch.setattr(redfish, "_PAUSE_S", 0.01)
    monkeypatch.setattr(bmc_certificate, "_POLL_S", 0.05)
    monkeypatch.setattr(bmc_certificate, "_ACTIVE_S", 2.0)
    monkeypatch.setattr(bmc_certificate, "_RESTART_S", 2.0)
    with served(tmp_path) as service, Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        found = Case(service, tmp_path, ledger, make(tmp_path / "ca"))
        pin(found.pins, NODE, service.shown())
        yield found


def test_the_bmc_makes_the_request_and_the_pin_follows_the_verified_certificate(case: Case) -> None:
    old = case.now()
    assert case.run() == "changed"
    new = case.now()
    assert new != old
    assert pins(case.pins) == {NODE: new}
    assert distrust(NODE, case.service.site(), case.ca.file) == ""
    assert distrust(NODE, case.service.site(), case.service.rack.store.tls / "ca.pem") != "", (
        "the old CA did not sign it"
    )
    until = shown_by(NODE, case.service.site()).until
    assert case.said == [f"{NODE}: the BMC has a certificate of {NAME}, valid until {until:%Y-%m-%d}, SHA-256 {new}"]
    assert [case.service.asked.count(item) for item in (MADE, INSTALLED)] == [1, 1]
    assert not case.place.request.exists()
    assert not case.place.signed.exists()
    assert case.reaches() == "SERIAL-3"
    assert case.statuses() == ["done"]
    leaf = x509.load_pem_x509_certificate(
        ssl.get_server_certificate((ADDRESS, case.service.server.server_port)).encode()
    )
    assert leaf.subject.rfc4514_string() == f"CN={ADDRESS},OU=GPU racks,O=Example,L=Frankfurt,ST=Hessen,C=DE"
    assert leaf.not_valid_after_utc == case.ca.certificate.not_valid_after_utc, "never longer than its CA"


def test_a_second_run_changes_nothing_and_renew_makes_another(case: Case) -> None:
    assert case.run() == "changed"
    first, asked = case.now(), len(case.service.asked)
    assert case.run() == "unchanged"
    assert len(case.service.asked) == asked, "nothing was sent to the BMC"
    assert case.run(renew=True) == "changed"
    assert case.now() != first
    assert pins(case.pins) == {NODE: case.now()}


def cut(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, *, after: bool) -> None:  # noqa: ANN401 - a class or module
    real: Callable[..., object] = getattr(owner, name)

    def killed(*args: object, **more: object) -> None:
        if after:
            real(*args, **more)
        raise _CutError

    monkeypatch.setattr(owner, name, killed)


CUTS: dict[str, tuple[Any, str, bool]] = {
    "before the request": (bmc_certificate.redfish_certificate, "generate", False),
    "the BMC has made it, it is not stored": (bmc_certificate.redfish_certificate, "generate", True),
    "the request is stored, not signed": (Certify, "_signed", False),
    "signed, not sent": (Certify, "_replace", False),
    "sent, the old one is served": (bmc_certificate.redfish_certificate, "replace", True),
    "installed, not verified": (Certify, "_finish", False),
    "verified, not trusted": (Certify, "_adopt", False),
    "trusted, not cleared": (Place, "clear", False),
}


@pytest.mark.parametrize("where", CUTS)
def test_a_cut_run_goes_on_and_access_is_never_lost(case: Case, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    owner, name, after = CUTS[where]
    old = case.now()
    with monkeypatch.context() as patched:
        cut(patched, owner, name, after=after)
        with pytest.raises(_CutError):
            case.run()
    installed = case.service.asked.count(INSTALLED)
    if pins(case.pins)[NODE] != case.now():
        with pytest.raises(BmcTlsError, match=f"If `rackready bmc certify {NODE}` was interrupted, run it again"):
            case.reaches()
    assert case.run() == "changed", case.said
    new = case.now()
    assert new != old
    assert pins(case.pins) == {NODE: new}
    assert case.service.asked.count(INSTALLED) - installed == (installed == 0), "never installed twice"
    assert case.reaches() == "SERIAL-3"
    assert not case.place.request.exists()
    assert case.statuses()[-1] == "done"


def test_a_run_cut_while_it_clears_has_nothing_left_to_do(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.unlink

    def killed(path: Path, *, missing_ok: bool = False) -> None:
        if path == case.place.signed and not case.place.request.exists() and path.exists():
            raise _CutError
        real(path, missing_ok=missing_ok)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", killed)
        with pytest.raises(_CutError):
            case.run()
    assert case.run() == "unchanged"
    assert case.reaches() == "SERIAL-3"
    assert case.run(renew=True) == "changed", "the old certificate is not taken for the new one"


def test_a_lost_answer_is_no_failure(case: Case) -> None:
    case.service.faulty(answer_lost=True)
    assert case.run() == "changed"
    assert case.service.asked.count(INSTALLED) == 1


def test_a_bmc_that_serves_it_after_a_restart_only_is_restarted(case: Case) -> None:
    case.service.faulty(certificate_waits=True)
    assert case.run() == "changed"
    assert case.told == [
        f"{NODE}: the BMC makes a key and a request",
        f"{NODE}: the certificate is installed, the BMC's web server restarts",
        f"{NODE}: the BMC serves its old certificate; it is restarted",
    ]
    assert sum(item.endswith("/Actions/Manager.Reset") for item in case.service.asked) == 1


def test_a_bmc_that_accepts_and_ignores_keeps_the_old_trust(case: Case) -> None:
    case.service.faulty(ignores_certificate=True)
    old = case.now()
    text = case.error()
    assert text.startswith("TLS certificate - Expected: SHA-256 ")
    assert text.endswith(
        f" Actual: accepted and ignored: it shows SHA-256 {old}. The old trust is unchanged. "
        "Restart the BMC at its console, then run again."
    )
    assert pins(case.pins) == {NODE: old}
    assert case.reaches() == "SERIAL-3"


def test_the_old_trust_stays_while_the_new_chain_is_not_accepted(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    old = case.now()
    monkeypatch.setattr(bmc_certificate, "distrust", lambda _node, _site, _ca: "EE certificate key too weak")
    message = case.error()
    assert message == (
        f"TLS certificate - Expected: one that {case.ca.file} accepts for {ADDRESS} Actual: EE certificate key too "
        f"weak (SHA-256 {case.now()}). The old trust is unchanged. Look at the certificate at the BMC's console, then "
        "run again."
    )
    assert pins(case.pins) == {NODE: old}
    monkeypatch.undo()
    assert case.run() == "changed", "the run goes on from the installed certificate"


def test_a_request_that_somebody_replaced_is_made_again(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        cut(patched, Certify, "_replace", after=False)
        with pytest.raises(_CutError):
            case.run()
    key = case.service.rack.store.base / "bmc" / f"{NODE}-request.key"
    key.write_bytes(make(case.root / "other").key_file.read_bytes())
    assert case.run() == "changed"
    assert f"{NODE}: the BMC refuses the certificate of its earlier request; a new one is made" in case.said


def test_without_a_key_the_operator_signs(case: Case) -> None:
    case.authority = {"key": None}
    assert case.run() == "waiting"
    (told,) = case.said
    assert told == (
        f"{NODE}: certificate - Expected: a certificate in {case.place.signed} Actual: none. Have {NAME} sign "
        f"{case.place.request} with subjectAltName IP:{ADDRESS}, put the certificate there, then run "
        f"`rackready bmc certify {NODE}` again."
    )
    assert case.place.request.stat().st_mode & 0o777 == 0o600
    assert INSTALLED not in case.service.asked
    case.place.signed.write_bytes(case.ca.sign(case.place.request, ADDRESS))
    assert case.run() == "changed"
    assert case.service.asked.count(MADE) == 1
    assert case.reaches() == "SERIAL-3"


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "another host": ({"name": "192.0.2.1"}, f"subjectAltName IP:{ADDRESS} Actual: subjectAltName without it"),
    "expired": ({"days": -3}, "valid now Actual: expired on "),
    "another key": (
        {"key": ec.generate_private_key(ec.SECP256R1()).public_key()},
        "a certificate for the key of the BMC's request Actual: one for another key",
    ),
    "another signer": (
        {"signer": ec.generate_private_key(ec.SECP256R1())},
        f"signed by {NAME} Actual: signed by {NAME}",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_signed_certificate_that_would_lose_access_is_not_installed(case: Case, name: str) -> None:
    wrong, text = WRONG[name]
    case.authority = {"key": None}
    case.run()
    case.place.signed.write_bytes(case.ca.sign(case.place.request, ADDRESS, **wrong))
    message = case.error()
    assert message.startswith(f"signed certificate - Expected: {text}")
    assert message.endswith(" It was not installed. Sign the request again, and put the certificate in its place.")
    assert INSTALLED not in case.service.asked


def test_more_or_other_than_one_certificate_is_not_installed(case: Case) -> None:
    case.authority = {"key": None}
    case.run()
    one = case.ca.sign(case.place.request, ADDRESS)
    case.place.signed.write_bytes(one + case.ca.file.read_bytes())
    assert "Expected: one certificate, without those of its CAs Actual: 2 certificates." in case.error()
    case.place.signed.write_text("no certificate", encoding="utf-8")
    assert "signed certificate - Expected: a certificate in PEM Actual: " in case.error()


@pytest.mark.parametrize("name", ["DNS:other.example", "IP:192.0.2.1"])
def test_a_request_that_names_another_host_is_not_signed(case: Case, name: str) -> None:
    case.service.faulty(request_names=[name])
    assert case.error() == (
        f"certificate request names another host - Expected: CN={ADDRESS} and no other name Actual: subjectAltName "
        f"{name}. Nothing was signed. Clear the names that the BMC adds in its network settings, or pin the "
        f"certificate that it has: `rackready bmc trust {NODE}`."
    )
    assert not case.place.request.exists()
    assert case.reaches() == "SERIAL-3"


LACKS = {"no_certificates": "no CertificateService", "no_replace": "no ReplaceCertificate"}


@pytest.mark.parametrize("lack", LACKS)
def test_a_bmc_without_the_service_is_told_what_to_do_instead(case: Case, lack: str) -> None:
    case.service.set(bmc_service={lack: True})
    assert case.error() == (
        "TLS certificate - Expected: CertificateService with GenerateCSR and ReplaceCertificate Actual: "
        f"{LACKS[lack]}. Install a certificate with the vendor's tool, or keep the one that it has: "
        f"`rackready bmc trust {NODE}` pins it, or state bmc.fingerprint."
    )
    assert MADE not in case.service.asked


def test_a_fingerprint_of_the_site_file_would_lose_access(case: Case) -> None:
    case.decides, old = "bmc.fingerprint", case.now()
    case.site = {"fingerprint": old}
    assert case.error() == (
        "trust in its certificate - Expected: bmc.ca, or a pin Actual: bmc.fingerprint in the site file, which would "
        f"refuse the new certificate. Move it to the pins: remove it from the site file, then run `rackready bmc trust "
        f"{NODE} --expect {old}`. Nothing was changed."
    )
    assert case.service.asked == []


def test_another_authority_in_bmc_ca_would_lose_access(case: Case) -> None:
    case.decides, ca = "bmc.ca", case.service.rack.store.tls / "ca.pem"
    case.site = {"ca": str(ca), "fingerprint": None}
    assert case.error() == (
        f"trust in its certificate - Expected: bmc.ca with {NAME} and the CAs above it Actual: {ca} without. "
        f"Name {case.ca.file} in bmc.ca, or append it to that file. Nothing was changed."
    )
    assert case.service.asked == []


def test_bmc_ca_accepts_a_compared_factory_certificate_once(case: Case) -> None:
    case.pins.unlink()
    case.decides, old = "bmc.ca", case.now()
    case.site = {"ca": str(case.ca.file), "fingerprint": None}
    for expected in (frozenset[str](), frozenset({OTHER})):
        assert case.error(expected=expected) == (
            f"trust in its certificate - Expected: a certificate that {case.ca.file} accepts Actual: SHA-256 {old}. "
            f"Compare it at the BMC's console, then give --expect {old}. Nothing was changed."
        )
    assert case.service.asked == []
    assert case.run(expected=frozenset({old})) == "changed"
    assert not case.pins.exists(), "bmc.ca decides"
    with Bmc(NODE, case.service.site(**case.site)) as bmc:
        assert bmc.identify().serial == "SERIAL-3"
    assert case.run(renew=True) == "changed"


def test_another_certificate_than_the_pinned_one_gets_no_login(case: Case) -> None:
    pin(case.pins, NODE, OTHER)
    with pytest.raises(BmcTlsError, match="nothing was sent to it"):
        case.run()
    assert case.service.logins() == 0
    assert pins(case.pins) == {NODE: OTHER}


def test_an_issuing_ca_below_a_root_signs(case: Case) -> None:
    root = case.ca
    case.ca = make(case.root / "issuing", above=root)
    case.ca.file.write_bytes(case.ca.file.read_bytes() + root.file.read_bytes())
    assert case.run() == "changed"
    assert distrust(NODE, case.service.site(), case.ca.file) == ""


def asked_for(name: str, bits: int = 2048) -> str:
    key = rsa.generate_private_key(65537, bits)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    made = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    return made.public_bytes(serialization.Encoding.PEM).decode()


def test_a_request_of_an_address_before_is_made_again(case: Case) -> None:
    case.place.folder.mkdir()
    case.place.request.write_text(asked_for("192.0.2.1"), encoding="utf-8")
    assert case.run() == "changed"
    assert case.service.asked.count(MADE) == 1


def test_a_bmc_that_does_not_answer_is_told(case: Case) -> None:
    site = case.service.site(address="127.85.1.99")
    with pytest.raises(BmcUnreachableError, match="Expected: a TLS certificate within 5 s Actual: "):
        distrust(NODE, site, case.ca.file)


REQUESTS = {
    "another common name": (
        asked_for("other.example"),
        f"certificate request names another host - Expected: CN={ADDRESS} and no other name Actual: CN=other.example.",
    ),
    "a short key": (
        asked_for(ADDRESS, 1024),
        "certificate request - Expected: an RSA key of at least 2048 bits Actual: 1024 bits. Nothing was signed.",
    ),
    "no request": ("-----", "certificate request - Expected: a signed PKCS #10 request in PEM Actual: "),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_is_checked_before_it_is_signed(name: str) -> None:
    pem, text = REQUESTS[name]
    with pytest.raises(BmcCertificateError) as caught:
        request_of("node03 BMC", pem, IPv4Address(ADDRESS))
    assert str(caught.value).startswith(f"node03 BMC: {text}")


def test_a_good_request_of_an_rsa_key_is_accepted() -> None:
    assert request_of("node03 BMC", asked_for(ADDRESS), IPv4Address(ADDRESS)).is_signature_valid
