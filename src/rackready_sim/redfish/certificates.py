"""CertificateService, the certificates of the web server, and Manager.Reset.

Written from openbmc/bmcweb 7debb892 (redfish-core/lib/certificate_service.hpp, managers.hpp, network_protocol.hpp),
openbmc/phosphor-certificate-manager 912fd4c1 (certs_manager.cpp, certificate.cpp, dist/env/bmcweb) and the DMTF schema
CertificateService.v1_0_0. As there: there is one key of requests, and a new request replaces it; the wishes of a
request are attributes of its subject; a certificate for another key, or one that has expired, is refused; the web
server restarts with its new certificate, and its sessions live on.

``bmc_service``: ``no_certificates``: no such service; ``no_replace``: GenerateCSR only, as an iLO 5
(NVIDIA/libredfish c094c9e6, tests/mockups/hpe). ``bmc_faults``: ``certificate_waits``: the new certificate is served
after a restart of the BMC only, as by an iDRAC9 before 5.10.10 (dell/iDRAC-Redfish-Scripting e7ba7634,
ReplaceCertificateREDFISH.py); ``ignores_certificate``: it is accepted and lost; ``request_names``: names that the BMC
adds to its requests.
"""

from __future__ import annotations

import json
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import flask
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtensionOID, NameOID

from rackready_sim.redfish.context import NODE
from rackready_sim.redfish.driver import Hardware
from rackready_sim.redfish.misbehave import Misbehaviour
from rackready_sim.redfish.resources import Document, collection, resource
from rackready_sim.store import write_private

_BASE = "/redfish/v1/CertificateService"
_RESTART_S = 0.3
"""Silence of the web server while it restarts, s; of this rack, to be quick."""
_SUBJECT = {
    "City": NameOID.LOCALITY_NAME,
    "CommonName": NameOID.COMMON_NAME,
    "Country": NameOID.COUNTRY_NAME,
    "Organization": NameOID.ORGANIZATION_NAME,
    "OrganizationalUnit": NameOID.ORGANIZATIONAL_UNIT_NAME,
    "State": NameOID.STATE_OR_PROVINCE_NAME,
}
"""Parameters that bmcweb requires beside CertificateCollection."""
_ALGORITHM = x509.ObjectIdentifier("1.3.14.3.2")
"""OpenSSL's "algorithm", which OpenBMC writes into the subject."""


class Certificates:
    """The certificate of each BMC's web server."""

    def __init__(self, hardware: Hardware, misbehaviour: Misbehaviour) -> None:
        self._hardware, self._misbehaviour = hardware, misbehaviour

    def answer(self, manager: str) -> Any:  # noqa: ANN401 - a Flask response or None
        """Answer a request for one of these resources; None for others."""
        request, path = flask.request, flask.request.path.rstrip("/")
        given = request.get_json(silent=True)
        body: dict[str, Any] = given if isinstance(given, dict) else {}
        if request.method == "POST" and path == f"{manager}/Actions/Manager.Reset":
            return self._reset(body)
        if self._service().get("no_certificates"):
            return None
        if request.method == "POST" and path == f"{_BASE}/Actions/CertificateService.GenerateCSR":
            return self._generate(body, manager)
        if request.method == "POST" and path == f"{_BASE}/Actions/CertificateService.ReplaceCertificate":
            return self._replace(body, manager)
        mine = path.startswith((_BASE, f"{manager}/NetworkProtocol"))
        return self._documents(manager).get(path) if mine and request.method == "GET" else None

    def links(self, manager: str) -> Document:
        """Return what a manager has of these in its resource."""
        allowed = {"ResetType@Redfish.AllowableValues": ["GracefulRestart", "ForceRestart"]}
        action = {"#Manager.Reset": {"target": f"{manager}/Actions/Manager.Reset", **allowed}}
        return {"Actions": action, "NetworkProtocol": {"@odata.id": f"{manager}/NetworkProtocol"}}

    def root(self) -> Document:
        """Return what the service root has of these."""
        return {} if self._service().get("no_certificates") else {"CertificateService": {"@odata.id": _BASE}}

    def _documents(self, manager: str) -> dict[str, Document]:
        protocol = f"{manager}/NetworkProtocol"
        place = f"{protocol}/HTTPS/Certificates"
        https = {"Port": 443, "ProtocolEnabled": True, "Certificates": {"@odata.id": place}}
        names = ["GenerateCSR"] if self._service().get("no_replace") else ["GenerateCSR", "ReplaceCertificate"]
        actions = {
            f"#CertificateService.{name}": {"target": f"{_BASE}/Actions/CertificateService.{name}"} for name in names
        }
        locations = f"{_BASE}/CertificateLocations"
        listed = {"Certificates": [{"@odata.id": f"{place}/1"}], "Certificates@odata.count": 1}
        return {
            _BASE: resource(
                _BASE, "CertificateService", "v1_0_0", Actions=actions, CertificateLocations={"@odata.id": locations}
            ),
            locations: resource(locations, "CertificateLocations", "v1_0_0", Links=listed),
            protocol: resource(protocol, "ManagerNetworkProtocol", "v1_5_0", HTTPS=https),
            **collection(place, "Certificate", {f"{place}/1": self._shown(f"{place}/1")}),
        }

    def _shown(self, address: str) -> Document:
        found = x509.load_pem_x509_certificate(self._file().read_bytes())
        return resource(
            address,
            "Certificate",
            "v1_0_0",
            Name="HTTPS Certificate",
            CertificateString=found.public_bytes(serialization.Encoding.PEM).decode(),
            KeyUsage=[],
            Issuer=_names(found.issuer),
            Subject=_names(found.subject),
            ValidNotAfter=found.not_valid_after_utc.isoformat(),
            ValidNotBefore=found.not_valid_before_utc.isoformat(),
        )

    def _generate(self, body: dict[str, Any], manager: str) -> Any:  # noqa: ANN401 - a Flask response
        missing = next((name for name in _SUBJECT if not isinstance(body.get(name), str)), "")
        if missing:
            return _refused("ActionParameterMissing", missing)
        link = body.get("CertificateCollection")
        place = f"{manager}/NetworkProtocol/HTTPS/Certificates"
        if not isinstance(link, dict) or link.get("@odata.id") != place:
            return _refused("ActionParameterNotSupported", "CertificateCollection")
        key = ec.generate_private_key(ec.SECP384R1())
        write_private(self._key(), _pem(key))
        others = [*body.get("AlternativeNames", []), *self._faults().get("request_names", [])]
        words = [(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, name) for name in others]
        words += [(oid, body[name]) for name, oid in _SUBJECT.items()]
        words += [(_ALGORITHM, "EC"), (ExtensionOID.EXTENDED_KEY_USAGE, "ServerAuthentication")]
        subject = x509.Name([x509.NameAttribute(oid, value) for oid, value in words])
        made = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
        text = made.public_bytes(serialization.Encoding.PEM).decode()
        return flask.jsonify({"CSRString": text, "CertificateCollection": {"@odata.id": place}})

    def _replace(self, body: dict[str, Any], manager: str) -> Any:  # noqa: ANN401 - a Flask response
        text, link = body.get("CertificateString"), body.get("CertificateUri")
        place = f"{manager}/NetworkProtocol/HTTPS/Certificates/1"
        if not isinstance(text, str):
            return _refused("ActionParameterMissing", "CertificateString")
        if body.get("CertificateType", "PEM") != "PEM":
            return _refused("ActionParameterNotSupported", "CertificateType")
        if not isinstance(link, dict) or link.get("@odata.id") != place:
            return _refused("ActionParameterNotSupported", "CertificateUri")
        whole = self._with_key(text)
        if whole is None:
            return _refused("PropertyValueIncorrect", "Certificate")
        if not self._faults().get("ignores_certificate"):
            waits = self._faults().get("certificate_waits")
            write_private(self._staged() if waits else self._file(), whole)
        self._misbehaviour.silence(_RESTART_S)
        return flask.jsonify(self._shown(place))

    def _with_key(self, text: str) -> str | None:
        """Return a certificate with the key of the last request; None for another key, or an expired certificate."""
        try:
            found = x509.load_pem_x509_certificate(text.encode())
            key = self._key().read_text(encoding="utf-8")
        except (ValueError, FileNotFoundError):
            return None
        own = serialization.load_pem_private_key(key.encode(), None)
        if found.public_key() != own.public_key() or found.not_valid_after_utc < datetime.now(UTC):
            return None
        return ssl.DER_cert_to_PEM_cert(found.public_bytes(serialization.Encoding.DER)) + key

    def _reset(self, body: dict[str, Any]) -> flask.Response:
        if body.get("ResetType") not in {"GracefulRestart", "ForceRestart"}:
            return _refused("ActionParameterNotSupported", "ResetType")
        if self._staged().exists():
            self._staged().replace(self._file())
        self._misbehaviour.silence(_RESTART_S)
        return flask.Response(status=204)

    def _file(self) -> Path:
        return self._hardware.store.tls / f"{NODE.get()}.pem"

    def _staged(self) -> Path:
        return self._hardware.store.base / "bmc" / f"{NODE.get()}-certificate.pem"

    def _key(self) -> Path:
        return self._hardware.store.base / "bmc" / f"{NODE.get()}-request.key"

    def _service(self) -> dict[str, Any]:
        found: dict[str, Any] = self._hardware.state().get("bmc_service", {})
        return found

    def _faults(self) -> dict[str, Any]:
        return self._misbehaviour.faults()


def _names(name: x509.Name) -> dict[str, str]:
    words = {oid: word for word, oid in _SUBJECT.items()}
    return {words[item.oid]: str(item.value) for item in name if item.oid in words}


def _pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def _refused(code: str, argument: str) -> flask.Response:
    message = {"MessageId": f"Base.1.13.0.{code}", "MessageArgs": [argument], "Message": f"{argument} is wrong."}
    body = {"error": {"code": message["MessageId"], "message": message["Message"], "@Message.ExtendedInfo": [message]}}
    return flask.Response(json.dumps(body), status=400, content_type="application/json")
