"""The PostgreSQL server of an environment's ledger and evidence: ``inventories/<env>/database.yml``."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from rackready.model.base import Line, Model, SecretRef


class Server(Model):
    """One database of a PostgreSQL server, for one environment only. Without this file, the environment uses SQLite."""

    schema_: Literal["rackready/database/v1"] = Field(alias="schema", description="version of this format")
    host: str = Field(
        pattern=r"^[A-Za-z0-9_./:-]+$",
        description="name or address of the server, or the folder of its Unix socket (begins with /)",
    )
    port: int = Field(5432, ge=1, le=65535, description="TCP port, also part of the Unix socket's name")
    name: Line = Field("rackready", min_length=1, description="database on that server")
    user: Line = Field("rackready", min_length=1, description="role of the login")
    password: SecretRef | None = Field(
        None, description="place of the role's password; absent: a certificate or the socket authenticates the role"
    )
    tls: Literal["verify-full", "verify-ca", "disable"] = Field(
        "verify-full",
        description="like libpq's sslmode: certificate and name verified, certificate verified, or no TLS; "
        "a Unix socket needs none",
    )
    ca: Path | None = Field(
        None,
        description="CA certificate (PEM) of the server; default: the system's CA store (verify-full only)",
    )
    certificate: Path | None = Field(None, description="client certificate (PEM), when the server asks for one")
    private_key: Path | None = Field(None, description="private key of that certificate; mode 0600")

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if (self.certificate is None) != (self.private_key is None):
            message = "give certificate and private_key together, or neither"
            raise ValueError(message)
        if self.tls == "verify-ca" and self.ca is None:
            message = "tls: verify-ca needs ca"
            raise ValueError(message)
        return self

    def __str__(self) -> str:
        """Return the name of the database for messages."""
        return f"PostgreSQL database {self.name} on {self.host}:{self.port}"
