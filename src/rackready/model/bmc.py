"""A BMC: how it is reached, how it proves itself, and where its passwords are."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Annotated

from pydantic import Field, StringConstraints

from rackready.model.base import Line, MacAddress, Model, PathLine, SecretRef, Sha256


class NodeBmc(Model):
    """The BMC of one node, reached over Redfish (HTTPS). Before delivery, most of it is unknown."""

    address: IPv4Address | None = Field(
        None, description="address on the out-of-band network; default: planned from networks.oob"
    )
    port: int = Field(443, ge=1, le=65535, description="TCP port of the Redfish service")
    mac: MacAddress | None = Field(None, description="MAC address, as in the vendor's manifest")
    username: Line = Field("admin", min_length=1, description="Redfish user")
    password: SecretRef | None = Field(None, description="place of the BMC's password; `import manifest` sets it")
    ca: PathLine | None = Field(
        None, description="CA certificate (PEM) of the BMC's TLS certificate; default: the system's CA store"
    )
    fingerprint: Sha256 | None = Field(
        None,
        description="SHA-256 of the BMC's own TLS certificate, as `openssl x509 -fingerprint -sha256` prints it: "
        "exactly this certificate is accepted, whatever name it has; with ca, both must hold. `bmc trust` pins it",
    )
    factory_password: SecretRef | None = Field(
        None,
        description="place of the password that the BMC has from the factory: at first contact rackready sets a new "
        "random one and writes it to the file of password",
    )

    def known(self) -> Bmc | None:
        """Return the BMC with all that a connection needs, None while its address or password is unknown."""
        if self.address is None or self.password is None:
            return None
        return Bmc.model_validate({name: getattr(self, name) for name in NodeBmc.model_fields})


class Bmc(NodeBmc):
    """A BMC whose address and password are known."""

    address: IPv4Address = Field(description="address on the out-of-band network")
    password: SecretRef = Field(description="place of the BMC's password")


class CertificateSubject(Model):
    """Owner of the BMCs' certificates. Redfish's GenerateCSR wants each of these (DMTF CertificateService schema)."""

    country: Annotated[str, StringConstraints(pattern=r"^[A-Z]{2}$")] = Field(description="ISO 3166 code, e.g. DE")
    state: Line = Field(min_length=1, max_length=128, description="state or province")
    city: Line = Field(min_length=1, max_length=128, description="city")
    organization: Line = Field(min_length=1, max_length=64, description="organization")
    unit: Line = Field(min_length=1, max_length=64, description="unit of the organization")


class BmcAuthority(Model):
    """The CA that signs the TLS certificates of the site's BMCs (`bmc certify`)."""

    certificate: PathLine = Field(
        description="PEM file: the certificate of the CA that signs, then those above it up to the root"
    )
    key: SecretRef | None = Field(
        None,
        description="its private key (PEM without passphrase); none: you sign each BMC's request with your own CA",
    )
    days: int = Field(825, ge=1, le=3650, description="validity of a BMC's certificate, in days")
    subject: CertificateSubject = Field(description="owner in each BMC's certificate; its common name is the address")
