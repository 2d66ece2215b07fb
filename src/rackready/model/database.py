"""The PostgreSQL server of an environment's records, and its workers: ``inventories/<env>/database.yml``."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from rackready.model.base import Line, Model, SecretRef
from rackready.model.object_store import SharedOutputs

_STORES_OUTPUTS = frozenset({"validate", "revalidate"})


class WorkerUse(Model):
    """What `rackready worker` processes do. Without it, the controller does all work itself."""

    phases: tuple[Literal["install", "validate", "optimize", "revalidate"], ...] = Field(
        ("install", "optimize"),
        min_length=1,
        description="phases whose batches workers take; the others run on the controller",
    )
    place_by: Literal["hall", "row", "rack"] | None = Field(
        None,
        description="a batch has nodes of one such place only, and a worker needs its label (--label hall=a); "
        "default: any worker takes any node",
    )
    lease_s: int = Field(
        30, ge=2, le=600, description="a worker that is not heard of for this long has lost its batch, s"
    )
    wait_s: int = Field(
        600, ge=0, le=86400, description="how long a batch waits for a worker that can take it before it is an error, s"
    )
    batches: int = Field(16, ge=1, le=256, description="most batches of a campaign that are offered at once")
    attempts: int = Field(3, ge=1, le=20, description="how many workers a batch may outlive before it is an error")
    per_phase: int | None = Field(
        None, ge=1, description="most batches of one phase at work at once, over all workers: the load of the mirror"
    )
    per_rack: int | None = Field(
        None, ge=1, description="most batches at work at once with nodes of one rack: its power and its BMCs"
    )


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

    raw_outputs: SharedOutputs | None = Field(
        None,
        description="place of raw outputs that all machines share: a folder (NFS or the like), or {s3: ...}; default: "
        "each machine keeps its own below .rackready",
    )
    workers: WorkerUse | None = Field(None, description="what worker processes do; default: none are used")

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if (self.certificate is None) != (self.private_key is None):
            message = "give certificate and private_key together, or neither"
            raise ValueError(message)
        if self.tls == "verify-ca" and self.ca is None:
            message = "tls: verify-ca needs ca"
            raise ValueError(message)
        kept = sorted(_STORES_OUTPUTS.intersection(self.workers.phases)) if self.workers else []
        if kept and self.raw_outputs is None:
            shared = "a folder or an object store that all machines share"
            message = f"workers.phases: {', '.join(kept)} needs raw_outputs, {shared}"
            raise ValueError(message)
        return self

    def __str__(self) -> str:
        """Return the name of the database for messages."""
        return f"PostgreSQL database {self.name} on {self.host}:{self.port}"
