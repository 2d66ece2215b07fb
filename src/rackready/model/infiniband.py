"""How an InfiniBand fabric is managed: its subnet manager, and where it runs."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from rackready.model.base import Line, Model, Names, PathLine, SecretRef, Sha256

SubnetManager = Literal["opensm", "ufm", "external"]
RoutingEngine = Literal["minhop", "updn", "dnup", "ftree", "lash", "dor", "torus-2QoS", "nue", "dfsssp", "sssp"]
"""Engines of upstream opensm (linux-rdma/opensm, osm_opensm.c). opensm starts with an unknown name, too, and then
routes by minhop with only a line in its log."""


class Ufm(Model):
    """NVIDIA UFM Enterprise of the site's subnet, reached over its REST interface. TLS is always verified."""

    url: str = Field(
        pattern=r"^https://[A-Za-z0-9_.:\[\]-]+/?$", description="address, e.g. https://ufm.example.com; HTTPS only"
    )
    token: SecretRef | None = Field(None, description="place of an access token (POST /ufmRest/app/tokens)")
    username: Line | None = Field(None, min_length=1, description="user, where there is no token")
    password: SecretRef | None = Field(None, description="place of the user's password")
    ca: PathLine | None = Field(
        None, description="CA certificate (PEM) of UFM's TLS certificate; default: the system's CA store"
    )
    certificate_sha256: Sha256 | None = Field(
        None,
        description="SHA-256 of UFM's own certificate, in place of ca: exactly this certificate is accepted, whatever "
        "name it has",
    )

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if (self.username is None) != (self.password is None) or (self.token is None) == (self.username is None):
            message = "give token, or username and password"
            raise ValueError(message)
        if self.ca is not None and self.certificate_sha256 is not None:
            message = "give ca or certificate_sha256, not both"
            raise ValueError(message)
        return self


class InfiniBand(Model):
    """Subnet management of an InfiniBand fabric."""

    subnet_manager: SubnetManager = Field(
        description="opensm: rackready runs opensm on `nodes`; external: somebody else runs one, and rackready checks "
        "that it answers; ufm: NVIDIA UFM, which rackready reads and whose partitions it sets"
    )
    ufm: Ufm | None = Field(None, description="access to UFM; only with subnet_manager: ufm")
    nodes: list[Names] = Field(
        default_factory=list,
        description="nodes that run opensm, the master first; the others stand by, in this order of priority",
    )
    routing_engine: RoutingEngine = Field(
        "updn", description="routing of opensm; updn is free of deadlocks in every topology, ftree needs a fat tree"
    )

    @model_validator(mode="after")
    def _opensm_needs_nodes(self) -> InfiniBand:
        if (self.subnet_manager == "opensm") != bool(self.nodes):
            message = "subnet_manager: opensm, and only opensm, needs nodes"
            raise ValueError(message)
        if (self.subnet_manager == "ufm") != (self.ufm is not None):
            message = "subnet_manager: ufm, and only ufm, needs ufm with its url and login"
            raise ValueError(message)
        return self
