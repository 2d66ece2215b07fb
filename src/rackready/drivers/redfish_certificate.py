"""The TLS certificate of one BMC through CertificateService: a request (CSR), and its replacement.

The private key never leaves the BMC (DMTF CertificateService schema, GenerateCSR). Vendors: Lenovo, Dell and OpenBMC
offer both actions; an HPE iLO 5 offers GenerateCSR only (NVIDIA/libredfish c094c9e6, tests/mockups; openbmc/bmcweb
7debb892, redfish-core/lib/certificate_service.hpp).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rackready.drivers.bmc_request import BmcCertificateError
from rackready.drivers.redfish_errors import BmcError
from rackready.model.bmc import CertificateSubject

if TYPE_CHECKING:
    from rackready.drivers.redfish import Bmc

_REQUEST, _REPLACE = "#CertificateService.GenerateCSR", "#CertificateService.ReplaceCertificate"
_RESETS = ("GracefulRestart", "ForceRestart")
_REQUEST_S = 60.0
"""Longest time for a key and its request. A Dell needs 10 to 20 s (dell/iDRAC-Redfish-Scripting e7ba7634,
GenerateCsrREDFISH.py), OpenBMC gives up after 10 s (bmcweb, handleGenerateCSRAction)."""


def require_service(bmc: Bmc) -> None:
    """Raise BmcCertificateError unless the BMC has both actions: a request that cannot be installed is no use."""
    actions = _actions(bmc)
    lacks = next((name for name in (_REQUEST, _REPLACE) if not actions.get(name)), "")
    if lacks:
        raise _without(bmc, f"no {lacks.rpartition('.')[2]}" if actions else "no CertificateService")


def generate(bmc: Bmc, subject: CertificateSubject, name: str) -> str:
    """Let the BMC make a key and return its request (PEM) for the common name. Raises BmcError.

    No alternative names are asked for: each vendor writes addresses among them differently, and the CA adds its own.
    """
    body = {
        "CertificateCollection": {"@odata.id": _collection(bmc)},
        "CommonName": name,
        "Country": subject.country,
        "State": subject.state,
        "City": subject.city,
        "Organization": subject.organization,
        "OrganizationalUnit": subject.unit,
    }
    answer = bmc.send(_target(bmc, _REQUEST), body, timeout=_REQUEST_S)
    try:
        found = answer.json()
    except ValueError:
        found = None
    request = found.get("CSRString") if isinstance(found, Mapping) else None
    if not isinstance(request, str) or not request:
        raise BmcCertificateError(
            bmc.where,
            "certificate request",
            expected="CSRString in the answer of GenerateCSR",
            actual=f"HTTP {answer.status_code} without it",
            next_step="Update the BMC's firmware.",
        )
    return request


def replace(bmc: Bmc, pem: str) -> None:
    """Replace the certificate of the web server. Raises BmcError; the answer may be lost with the web server."""
    found = [str(item.get("@odata.id", "")) for item in _members(bmc)]
    if len(found) != 1:
        raise BmcCertificateError(
            bmc.where,
            "TLS certificate",
            expected="one certificate of the web server",
            actual=", ".join(found) or "none",
            next_step="Remove those that are not in use at the BMC's console, then run again.",
        )
    body = {"CertificateString": pem, "CertificateType": "PEM", "CertificateUri": {"@odata.id": found[0]}}
    bmc.send(_target(bmc, _REPLACE), body)


def restart_manager(bmc: Bmc) -> bool:
    """Restart the BMC itself (Manager.Reset) and return whether it offers that. The host stays as it is."""
    action = (_manager(bmc).get("Actions") or {}).get("#Manager.Reset") or {}
    offered = action.get("ResetType@Redfish.AllowableValues") or [_RESETS[0]]
    kind = next((name for name in _RESETS if name in offered), "")
    if not action.get("target") or not kind:
        return False
    bmc.send(str(action["target"]), {"ResetType": kind})
    return True


def _actions(bmc: Bmc) -> dict[str, Any]:
    """Return the actions of CertificateService, none where the service root has no such service."""
    link = (bmc.get("/redfish/v1/").get("CertificateService") or {}).get("@odata.id")
    found = bmc.get(str(link)).get("Actions") if link else None
    return dict(found) if isinstance(found, Mapping) else {}


def _target(bmc: Bmc, action: str) -> str:
    return str((_actions(bmc).get(action) or {}).get("target") or "")


def _manager(bmc: Bmc) -> dict[str, Any]:
    """Return the manager of the host's system. Raises BmcError."""
    system = bmc.ask(bmc.system)
    managers = bmc.ask(lambda: system.managers)
    return dict(managers[0].json or {}) if managers else {}


def _collection(bmc: Bmc) -> str:
    """Return the path of the web server's certificates (ManagerNetworkProtocol, HTTPS.Certificates)."""
    link = (_manager(bmc).get("NetworkProtocol") or {}).get("@odata.id")
    https = bmc.get(str(link)).get("HTTPS") if link else None
    found = https.get("Certificates") if isinstance(https, Mapping) else None
    if not isinstance(found, Mapping) or not found.get("@odata.id"):
        raise _without(bmc, "no HTTPS.Certificates in its NetworkProtocol")
    return str(found["@odata.id"])


def _members(bmc: Bmc) -> list[Mapping[str, Any]]:
    found = bmc.get(_collection(bmc)).get("Members")
    return [item for item in found if isinstance(item, Mapping)] if isinstance(found, list) else []


def _without(bmc: Bmc, actual: str) -> BmcError:
    return BmcCertificateError(
        bmc.where,
        "TLS certificate",
        expected="CertificateService with GenerateCSR and ReplaceCertificate",
        actual=actual,
        next_step="Install a certificate with the vendor's tool, or keep the one that it has: "
        f"`rackready bmc trust {bmc.where.partition(' ')[0]}` pins it, or state bmc.fingerprint.",
    )
