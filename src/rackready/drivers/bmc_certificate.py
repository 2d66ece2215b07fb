"""A TLS certificate of the site's CA for each BMC: made from its own request, installed, verified, then trusted.

Every step leaves a file, so an interrupted run continues where it stopped: the request (``<node>.csr``), then the
signed certificate (``<node>.pem``); both go when the BMC serves that certificate, a client that knows only the CA
accepts it, and a login over it works. Only then is the old trust (a pin) replaced. Until then it stays, and the BMC
shows either the old certificate or the new: a run trusts no other.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from sushy import exceptions as faults

from rackready import files
from rackready.design.bmc_pins import pin
from rackready.drivers import redfish_certificate
from rackready.drivers.bmc_authority import Authority
from rackready.drivers.bmc_request import BmcCertificateError, request_of, signed_of
from rackready.drivers.bmc_trust import Trust
from rackready.drivers.redfish import Bmc
from rackready.drivers.redfish_errors import BmcError, BmcLoginError, BmcTlsError, BmcUnreachableError
from rackready.drivers.redfish_tls import Served, distrust, fingerprint, served
from rackready.ledger.effect import Observation, run_effect
from rackready.ledger.store import Ledger
from rackready.model.bmc import Bmc as BmcSite
from rackready.paths import private_dir

BMC_CERTIFY = "bmc-certify"
"""The ledger's operation for an installed certificate."""
_ACTIVE_S = 60.0
"""Time for the web server to serve its new certificate, s. A Dell needs 10 to 20 s (dell/iDRAC-Redfish-Scripting
e7ba7634, ReplaceCertificateREDFISH.py); three times that."""
_RESTART_S = 300.0
"""Longest silence of a BMC that restarts, s (OpenStack Ironic's default after its own update)."""
_POLL_S = 2.0


@dataclass(frozen=True, slots=True)
class Place:
    """Files of one BMC on its way to a certificate, in a private folder."""

    folder: Path
    node: str

    @property
    def request(self) -> Path:
        """The BMC's request."""
        return self.folder / f"{self.node}.csr"

    @property
    def signed(self) -> Path:
        """The signed certificate, written here or put here by the operator."""
        return self.folder / f"{self.node}.pem"

    def clear(self) -> None:
        """Remove both; the request first, because a run goes on only where there is one."""
        self.request.unlink(missing_ok=True)
        self.signed.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Certify:
    """One BMC that gets a certificate. ``trust``: what it shows and what is trusted; ``pins``: the pins' file.

    ``expected``: SHA-256 that the operator compared at the console, where ``bmc.ca`` decides and the BMC does not
    show a certificate of it yet. ``say`` is told the outcome, ``tell`` the steps.
    """

    ledger: Ledger
    trust: Trust
    authority: Authority
    place: Place
    pins: Path
    expected: frozenset[str]
    say: Callable[[str], None]
    tell: Callable[[str], None]

    def run(self, *, renew: bool) -> str:
        """Give the BMC a certificate and return "changed", "unchanged" or "waiting" (for the operator's signature).

        Raises BmcCertificateError, other kinds of BmcError; the old trust is then as before.
        """
        shown = served(self._node, self._site)
        accepted = not distrust(self._node, self._site, self.authority.file)
        if accepted and not renew and not self.place.request.exists():
            self._adopt(shown.sha256)
            self.say(f"{self._node}: has a certificate of {self.authority.name}, valid until {shown.until:%Y-%m-%d}")
            return "unchanged"
        self._require_way_back()
        if accepted and shown.sha256 == self._stored_sha256():
            self.say(f"{self._node}: a run was interrupted after the BMC took its certificate; this run finishes it")
            self._close_intent()
            return self._finish(shown)
        return self._install(self._old_trust(shown, accepted=accepted))

    @property
    def _node(self) -> str:
        return self.trust.node

    @property
    def _site(self) -> BmcSite:
        return self.trust.site

    @property
    def _where(self) -> str:
        return f"{self._node} BMC {self._site.address}:{self._site.port}"

    def _require_way_back(self) -> None:
        """Raise unless the site file will accept the new certificate: nothing was sent to the BMC then."""
        if self.trust.decides == "bmc.fingerprint":
            raise self._refused(
                "bmc.ca, or a pin",
                "bmc.fingerprint in the site file, which would refuse the new certificate",
                f"Move it to the pins: remove it from the site file, then run `rackready bmc trust {self._node} "
                f"--expect {self._site.fingerprint}`.",
            )
        if self.trust.decides == "bmc.ca" and not set(self.authority.chain) <= set(self._known()):
            raise self._refused(
                f"bmc.ca with {self.authority.name} and the CAs above it",
                f"{self._site.ca} without",
                f"Name {self.authority.file} in bmc.ca, or append it to that file.",
            )

    def _known(self) -> list[x509.Certificate]:
        assert self._site.ca is not None  # noqa: S101 - it decides
        try:
            return x509.load_pem_x509_certificates(self._site.ca.read_bytes())
        except (OSError, ValueError):
            return []

    def _old_trust(self, shown: Served, *, accepted: bool) -> BmcSite:
        """Return the BMC with the trust that holds now; a pin is compared by the connection itself.

        Raises BmcCertificateError where ``bmc.ca`` decides and accepts nothing that the BMC shows.
        """
        ca = self._site.ca
        if ca is None:
            by_ca = {"ca": self.authority.file, "fingerprint": None}
            return self._site.model_copy(update=by_ca) if accepted else self._site
        if accepted or not distrust(self._node, self._site, ca):
            return self._site
        if shown.sha256 in self.expected:
            return self._site.model_copy(update={"ca": None, "fingerprint": shown.sha256})
        raise self._refused(
            f"a certificate that {ca} accepts",
            f"SHA-256 {shown.sha256}",
            f"Compare it at the BMC's console, then give --expect {shown.sha256}.",
        )

    def _close_intent(self) -> None:
        last = self.ledger.latest(self._node, BMC_CERTIFY)
        if last is not None and last.status == "intent":
            self.ledger.done(last.token, {"observed": "after interruption"})

    def _install(self, site: BmcSite) -> str:
        resumed = self.place.signed.exists()
        with Bmc(self._node, site) as bmc:
            redfish_certificate.require_service(bmc)
            request = self._request(bmc)
            signed = self._signed(bmc.where, request)
            if signed is None:
                return "waiting"
            try:
                self._replace(bmc, signed)
            except BmcError as error:
                if not resumed or not isinstance(error.__cause__, faults.BadRequestError):
                    raise
                # A BMC keeps one key: whoever made another request since then has replaced that of the first
                # (openbmc/phosphor-certificate-manager, certs_manager.cpp and certificate.cpp, compareKeys).
                self.say(f"{self._node}: the BMC refuses the certificate of its earlier request; a new one is made")
                self.place.clear()
                signed = self._signed(bmc.where, self._request(bmc))
                if signed is None:
                    return "waiting"
                self._replace(bmc, signed)
        return self._finish(served(self._node, self._site))

    def _request(self, bmc: Bmc) -> x509.CertificateSigningRequest:
        """Return the BMC's request: the one of a run that was cut, else a new one."""
        address = self._site.address
        if self.place.request.exists():
            with suppress(BmcCertificateError):
                return request_of(bmc.where, self.place.request.read_text(encoding="utf-8", errors="replace"), address)
        self.place.clear()  # what is left belongs to another request, or to an address that the BMC had before
        self.tell(f"{self._node}: the BMC makes a key and a request")
        text = redfish_certificate.generate(bmc, self.authority.subject, str(address))
        found = request_of(bmc.where, text, address)
        private_dir(self.place.folder)
        files.replace(self.place.request, text.encode())
        return found

    def _signed(self, where: str, request: x509.CertificateSigningRequest) -> x509.Certificate | None:
        """Return the signed certificate; None while the operator has yet to sign the request."""
        address = self._site.address
        if not self.place.signed.exists():
            if self.authority.key is None:
                self.say(
                    f"{self._node}: certificate - Expected: a certificate in {self.place.signed} Actual: none. "
                    f"Have {self.authority.name} sign {self.place.request} with subjectAltName IP:{address}, put the "
                    f"certificate there, then run `rackready bmc certify {self._node}` again."
                )
                return None
            files.replace(self.place.signed, self.authority.sign(request, address))
        return signed_of(where, self.place.signed.read_bytes(), request, address, self.authority)

    def _replace(self, bmc: Bmc, signed: x509.Certificate) -> None:
        """Install the certificate and wait until the BMC serves it. Raises BmcError."""
        wanted = _sha256(signed)
        pem = signed.public_bytes(serialization.Encoding.PEM).decode()

        def act(_token: int) -> dict[str, Any]:
            self.tell(f"{self._node}: the certificate is installed, the BMC's web server restarts")
            with suppress(BmcUnreachableError, BmcTlsError):  # with its answer
                redfish_certificate.replace(bmc, pem)
            bmc.forget()
            if not self._serves(wanted, _ACTIVE_S):
                self._restart(bmc, wanted)
            return {"sha256": wanted}

        run_effect(
            self.ledger,
            self._node,
            BMC_CERTIFY,
            hashlib.sha256(wanted.encode()).hexdigest(),
            before=lambda: {"shown": served(self._node, self._site).sha256},
            observe=lambda _stored: (
                Observation.HAPPENED if served(self._node, self._site).sha256 == wanted else Observation.NOT_HAPPENED
            ),
            act=act,
        )

    def _restart(self, bmc: Bmc, wanted: str) -> None:
        """Restart a BMC that took the certificate and still serves the old one: an iDRAC9 before 5.10.10 needs it.

        (dell/iDRAC-Redfish-Scripting e7ba7634, ReplaceCertificateREDFISH.py: --reset.) Raises BmcCertificateError.
        """
        self.tell(f"{self._node}: the BMC serves its old certificate; it is restarted")
        restarted = False
        with suppress(BmcUnreachableError, BmcTlsError):
            restarted = redfish_certificate.restart_manager(bmc)
        bmc.forget()
        if self._serves(wanted, _RESTART_S if restarted else 0.0):
            return
        raise BmcCertificateError(
            bmc.where,
            "TLS certificate",
            expected=f"SHA-256 {wanted}",
            actual=f"accepted and ignored: it shows SHA-256 {served(self._node, self._site).sha256}",
            next_step="The old trust is unchanged. Restart the BMC at its console, then run again.",
        )

    def _serves(self, wanted: str, wait_s: float) -> bool:
        deadline = time.monotonic() + wait_s
        while True:
            with suppress(BmcError):  # it restarts
                if served(self._node, self._site).sha256 == wanted:
                    return True
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)

    def _finish(self, shown: Served) -> str:
        """Prove the new trust by a client that knows only the CA, and by a login; then drop the old trust."""
        trouble = distrust(self._node, self._site, self.authority.file)
        if trouble:
            raise BmcCertificateError(
                self._where,
                "TLS certificate",
                expected=f"one that {self.authority.file} accepts for {self._site.address}",
                actual=f"{trouble} (SHA-256 {shown.sha256})",
                next_step="The old trust is unchanged. Look at the certificate at the BMC's console, then run again.",
            )
        self._log_in()
        self._adopt(shown.sha256)
        self.place.clear()
        self.say(
            f"{self._node}: the BMC has a certificate of {self.authority.name}, valid until {shown.until:%Y-%m-%d}, "
            f"SHA-256 {shown.sha256}"
        )
        return "changed"

    def _log_in(self) -> None:
        """Log in over the new chain. A BMC that restarts gets its time; a refused login is not tried again."""
        deadline = time.monotonic() + _RESTART_S
        with Bmc(self._node, self._site.model_copy(update={"ca": self.authority.file, "fingerprint": None})) as bmc:
            while True:
                try:
                    return bmc.login()
                except BmcLoginError:
                    raise
                except BmcError:
                    if time.monotonic() > deadline:
                        raise
                bmc.forget()
                time.sleep(_POLL_S)

    def _adopt(self, sha256: str) -> None:
        """Pin the certificate in place of the old one, unless ``bmc.ca`` decides."""
        if not self.trust.decides and self.trust.pinned != sha256:
            pin(self.pins, self._node, sha256)

    def _stored_sha256(self) -> str:
        """Return the fingerprint of the signed certificate of a run that was cut, "" without one."""
        try:
            return _sha256(x509.load_pem_x509_certificate(self.place.signed.read_bytes()))
        except (OSError, ValueError):
            return ""

    def _refused(self, expected: str, actual: str, next_step: str) -> BmcCertificateError:
        return BmcCertificateError(
            self._where,
            "trust in its certificate",
            expected=expected,
            actual=actual,
            next_step=f"{next_step} Nothing was changed.",
        )


def _sha256(certificate: x509.Certificate) -> str:
    return fingerprint(certificate.public_bytes(serialization.Encoding.DER))
