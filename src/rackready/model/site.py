"""The site file: what a data centre is meant to be. ``inventories/<env>/site.yml`` is one of these."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from rackready.model.base import MacAddress, Model, Name, ProfileId, SecretRef, expand_range


def _is_range(text: str) -> str:
    expand_range(text)
    return text


RangeText = Annotated[str, AfterValidator(_is_range)]
"""``swp1-swp4`` or ``1-4``: a run of ports or rails."""


class Bmc(Model):
    """The baseboard management controller of one node, reached over Redfish (HTTPS)."""

    address: IPv4Address = Field(description="address of the BMC on the out-of-band network")
    port: int = Field(443, ge=1, le=65535, description="TCP port of its Redfish service")
    mac: MacAddress | None = Field(None, description="MAC address, as the vendor's manifest gives it")
    username: str = Field("admin", min_length=1, description="Redfish user")
    password: SecretRef = Field(description="where this BMC's password is kept")
    ca: Path | None = Field(None, description="CA certificate (PEM) that signed the BMC's TLS certificate; system store when absent")


class Node(Model):
    """One GPU server."""

    name: Name = Field(description="host name")
    platform: ProfileId = Field(description="server model: a profile of profiles/platform")
    serial: str = Field(min_length=1, description="chassis serial number; the BMC must report it before anything is done to it")
    unit: int = Field(ge=1, le=60, description="lowest rack unit that it occupies")
    address: IPv4Address = Field(description="address on the in-band network; SSH answers here")
    bmc: Bmc


class Rack(Model):
    """One rack; one Pulumi stack provisions it."""

    name: Name
    nodes: list[Node] = Field(min_length=1)


class Switch(Model):
    """One switch of the compute fabric."""

    name: Name
    os: ProfileId = Field(description="network operating system: a driver of drivers/switch, e.g. cumulus_nvue")
    model: ProfileId = Field(description="switch model: a profile of profiles/switch, which says its ports")
    address: IPv4Address = Field(description="management address; SSH answers here")
    port: int = Field(22, ge=1, le=65535, description="TCP port of its SSH service")
    username: str = Field("cumulus", min_length=1)
    password: SecretRef


class Link(Model):
    """A run of cables from one node's rails to consecutive ports of one switch (same number of rails and ports)."""

    node: Name
    rails: RangeText = Field(description="rails of the node, e.g. 1-4")
    switch: Name
    ports: RangeText = Field(description="switch ports in the same order, e.g. swp1-swp4")


class Rail(Model):
    """One rail of the compute fabric: the NICs of the same position in every node share one subnet."""

    rail: int = Field(ge=1, le=16)
    vlan: int = Field(ge=2, le=4094, description="VLAN of the rail on its leaf switch")
    subnet: IPv4Network = Field(description="IPv4 subnet of the rail; node k of the site gets host number 10 + k")


class Qos(Model):
    """What makes RoCE lossless, on hosts and switches alike. Defaults: NVUE's lossless defaults (Cumulus Linux RoCE guide)."""

    dscp: int = Field(26, ge=0, le=63, description="DSCP of RoCE data")
    priority: int = Field(3, ge=0, le=7, description="switch priority and PFC priority of RoCE data")
    cnp_dscp: int = Field(48, ge=0, le=63, description="DSCP of congestion notification packets")
    cnp_priority: int = Field(6, ge=0, le=7, description="switch priority of congestion notification packets")


class Fabric(Model):
    """The compute fabric."""

    kind: Literal["roce"] = Field(description="link layer; InfiniBand is not supported yet")
    mtu: int = Field(9000, ge=1280, le=9216, description="L3 MTU in bytes on hosts")
    switch_mtu: int = Field(9216, ge=1280, le=9216, description="L3 MTU in bytes on switch ports")
    qos: Qos = Field(default_factory=Qos)
    rails: list[Rail] = Field(min_length=1)


class Mirror(Model):
    """A signed apt repository that carries the vendor's packages: NVIDIA's own, or a local mirror of it."""

    url: str = Field(pattern=r"^(https?|file)://\S+$", description="base URL of the repository")
    suite: str = Field(min_length=1, description="apt suite, e.g. bookworm; a flat repository ends in /")
    components: list[str] = Field(default_factory=list, description="apt components; empty for a flat repository")
    key: Path = Field(description="the repository's OpenPGP public key (ASCII armoured), on the controller")


class Software(Model):
    """Which versions are installed, and from where."""

    set: ProfileId = Field(description="version set known to work together: a profile of profiles/software")
    driver_branch: int | None = Field(None, ge=450, le=999, description="driver branch; the set's own when absent. Must be one of the set's branches")
    mirror: Mirror


class Access(Model):
    """How rackready logs in to nodes."""

    user: str = Field("root", min_length=1)
    port: int = Field(22, ge=1, le=65535, description="TCP port of SSH on nodes")
    private_key: Path = Field(description="OpenSSH private key on the controller")


class DeclaredSkip(Model):
    """A gate that is not to run on some nodes, and why. It is shown in every report."""

    gate: str = Field(description="gate id")
    nodes: list[Name] = Field(min_length=1, description="nodes on which it is skipped")
    reason: str = Field(min_length=10, description="why, in words that a reader of the report understands")


class Gates(Model):
    """Which gates a node must pass."""

    set: ProfileId = Field(description="a profile of profiles/gate_sets")
    skip: list[DeclaredSkip] = Field(default_factory=list)


class SlurmHandover(Model):
    """Nodes are handed to a Slurm cluster that exists; rackready drains and resumes them, no more."""

    kind: Literal["slurm"]
    controller: IPv4Address = Field(description="host of slurmctld; SSH answers here")
    port: int = Field(22, ge=1, le=65535, description="TCP port of SSH on the controller")
    user: str = Field("root", min_length=1)
    private_key: Path
    partition: Name = Field("gpu", description="partition that users submit to")
    munge_key: SecretRef | None = Field(None, description="the cluster's munge key (base64), put on every node")
    drain_wait_s: int = Field(3600, ge=0, description="longest wait in s for the jobs of a node in production to end before something changes on it")


class FileHandover(Model):
    """No scheduler: the list of nodes that are ready is written to a file."""

    kind: Literal["file"]
    path: Path


class Campaign(Model):
    """How a deploy walks through the site."""

    batch_size: int = Field(32, ge=1, le=256, description="nodes in one Ansible run")
    wave_size: int = Field(128, ge=1, description="nodes that go through all phases together")
    stop_above_pct: int = Field(100, ge=0, le=100, description="no further wave begins when more than this share of a wave's nodes did not become ready")
    provision_timeout_s: int = Field(900, ge=5, description="longest time from power-on until SSH answers")


class Site(Model):
    """One site: everything that rackready is told about it."""

    schema_: Literal["rackready/site/v1"] = Field(alias="schema", description="version of this format")
    name: Name
    access: Access
    software: Software
    fabric: Fabric
    racks: list[Rack] = Field(min_length=1)
    switches: list[Switch] = Field(default_factory=list)
    links: list[Link] = Field(default_factory=list)
    gates: Gates
    handover: Annotated[SlurmHandover | FileHandover, Field(discriminator="kind")]
    campaign: Campaign = Field(default_factory=Campaign)

    def nodes(self) -> list[Node]:
        """Every node, in the order of the file."""
        return [node for rack in self.racks for node in rack.nodes]

    def node(self, name: str) -> Node:
        """Return the node of that name; KeyError when there is none."""
        for node in self.nodes():
            if node.name == name:
                return node
        raise KeyError(name)

    def rack_of(self, name: str) -> Rack:
        """Return the rack that holds the node of that name; KeyError when there is none."""
        for rack in self.racks:
            if any(node.name == name for node in rack.nodes):
                return rack
        raise KeyError(name)
