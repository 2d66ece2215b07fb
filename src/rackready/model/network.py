"""Networks of a site: compute fabric, management and storage networks, NIC plans, cables, tenants."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from rackready.model.base import Line, Model, Name, Names, ProfileId, RangeText, Reason
from rackready.model.choices import AddressManager, FabricKind, NcclNet
from rackready.model.infiniband import InfiniBand
from rackready.model.nccl import Nccl


class Link(Model):
    """Cables from one node's rails to consecutive ports of one switch (same number of rails and ports)."""

    node: Name
    rails: RangeText = Field(description="rails of the node, e.g. 1-4")
    switch: Name
    ports: RangeText = Field(description="switch ports in the same order, e.g. swp1-swp4, or sub-ports swp1s0-swp1s3")


class Rail(Model):
    """One rail of the compute fabric: the NICs of the same position in every node share one subnet."""

    rail: int = Field(ge=1, le=16)
    vlan: int = Field(ge=2, le=4094, description="VLAN of the rail on its leaf switch")
    subnet: IPv4Network = Field(
        description="IPv4 subnet of the rail; node k of the site (its index, else its "
        "place in the file) gets host number "
        "10 + k"
    )


PortSpeed = Literal[10, 25, 40, 50, 100, 200, 400, 800]
"""Gb/s per direction."""


class EcnThresholds(Model):
    """Depth of the queue of RoCE data at which a port marks packets (ECN, RFC 3168)."""

    speed: PortSpeed = Field(description="ports of this speed, Gb/s")
    low: int = Field(ge=1, le=100_000_000, description="bytes in the queue from which a share of packets is marked")
    high: int = Field(ge=1, le=100_000_000, description="bytes in the queue from which every packet is marked")

    @model_validator(mode="after")
    def _rising(self) -> EcnThresholds:
        if self.low > self.high:
            message = f"low ({self.low}) must not be above high ({self.high})"
            raise ValueError(message)
        return self


class Qos(Model):
    """Settings of lossless RoCE, for hosts and switches. Defaults: NVUE's (Cumulus Linux RoCE guide)."""

    dscp: int = Field(26, ge=0, le=63, description="DSCP of RoCE data")
    priority: int = Field(3, ge=0, le=7, description="switch priority and PFC priority of RoCE data")
    cnp_dscp: int = Field(48, ge=0, le=63, description="DSCP of congestion notification packets")
    cnp_priority: int = Field(6, ge=0, le=7, description="switch priority of congestion notification packets")
    ecn: list[EcnThresholds] = Field(
        default_factory=list,
        description="thresholds of switch ports by their speed; ports of another speed keep those of the switch system",
    )

    @model_validator(mode="after")
    def _each_speed_once(self) -> Qos:
        speeds = [one.speed for one in self.ecn]
        if twice := sorted({speed for speed in speeds if speeds.count(speed) > 1}):
            message = f"ecn has speed {twice[0]} twice"
            raise ValueError(message)
        return self


class Fabric(Model):
    """The compute fabric."""

    kind: FabricKind = Field(description="link layer")
    mtu: int = Field(9000, ge=1280, le=9216, description="L3 MTU in bytes on hosts")
    address_manager: AddressManager = Field(
        "auto",
        description="program that sets the compute interfaces' addresses on nodes; auto: the network manager that runs "
        "there, none: rackready's own unit (RoCE)",
    )
    switch_mtu: int = Field(9216, ge=1280, le=9216, description="L3 MTU in bytes on switch ports")
    qos: Qos = Field(default_factory=Qos)
    nccl_net: NcclNet = Field(
        "ib",
        description="network plugin that NCCL must use; ib: its own, ibext: nccl-rdma-sharp-plugins, ofi: "
        "aws-ofi-nccl (EFA)",
    )
    nccl: Nccl = Field(default_factory=Nccl)
    rails: list[Rail] = Field(
        default_factory=list,
        description="one VLAN and subnet per rail for the whole site; none when networks.compute plans them",
    )
    infiniband: InfiniBand | None = Field(
        None, description="subnet management; a site with kind: infiniband needs it to be deployed"
    )


class Network(Model):
    """One management or storage network. Every rack has a block of its pool, so an added rack changes no other."""

    pool: IPv4Network = Field(description="addresses of the whole network")
    per_rack: int = Field(26, ge=16, le=29, description="prefix length of one rack's block")
    routed: bool = Field(
        default=True,
        description="true: each rack's block is a subnet with a gateway; false: the pool is one subnet and one VLAN",
    )
    vlan: int | None = Field(None, ge=2, le=4094, description="VLAN on the switches of this network; none: untagged")
    dhcp_servers: list[IPv4Address] = Field(
        default_factory=list, description="DHCP servers to which a rack's gateway relays requests"
    )
    mtu: int = Field(1500, ge=1280, le=9216, description="L3 MTU in bytes")


class ComputeNetwork(Model):
    """Subnets of the compute fabric: one per scalable unit, plane and rail."""

    pool: IPv4Network = Field(description="addresses of all compute NICs")
    per_unit: int = Field(
        24, ge=16, le=29, description="prefix length of the subnet of one rail and plane in one scalable unit"
    )
    vlan_first: int = Field(
        901,
        ge=2,
        le=4079,
        description="VLAN of rail 1 of plane 1; the others follow. A VLAN exists only on its leaf switch",
    )
    rails: int = Field(
        8, ge=1, le=16, description="rails that the address plan reserves; fixed for the life of the site"
    )
    planes: int = Field(
        1, ge=1, le=8, description="planes that the address plan reserves; fixed for the life of the site"
    )


class Underlay(Model):
    """Routing between leaf, spine and core switches (eBGP, RFC 7938)."""

    links: Literal["unnumbered", "numbered"] = Field(
        "unnumbered", description="unnumbered: IPv6 link-local (RFC 5549); numbered: one /31 per cable (RFC 3021)"
    )
    pool: IPv4Network | None = Field(None, description="addresses of numbered links")
    asn_first: int = Field(
        4_200_000_000, ge=1, le=4_294_967_294, description="first AS number (private 4-byte range of RFC 6996)"
    )

    adaptive_routing: bool = Field(
        default=False,
        description="whether switches choose the path packet by packet; changing it interrupts all ports of a switch",
    )

    @model_validator(mode="after")
    def _numbered_needs_pool(self) -> Underlay:
        if self.links == "numbered" and self.pool is None:
            message = "links: numbered needs a pool"
            raise ValueError(message)
        return self


class Networks(Model):
    """Address pools. An explicit ``address`` is kept; all others are computed from rack and node numbers."""

    rack_slots: int = Field(
        32,
        ge=1,
        le=128,
        description="highest node number per rack that the address plan reserves; fixed for the life of the site",
    )
    oob: Network | None = Field(
        None,
        description="out-of-band network: BMCs (of nodes and of DPUs), switch management, power and cooling devices",
    )
    in_band: Network | None = Field(
        None, description="in-band network: SSH and provisioning of nodes, operating systems of DPUs"
    )
    storage: Network | None = Field(None, description="storage network")
    compute: ComputeNetwork | None = Field(
        None, description="compute fabric; use fabric.rails for a site with one subnet per rail"
    )
    loopbacks: IPv4Network | None = Field(None, description="loopback addresses (/32) of fabric switches")
    underlay: Underlay = Field(default_factory=Underlay)


NicRole = Literal["compute", "storage", "in_band", "oob"]


class NicUse(Model):
    """The role of one NIC port of a node."""

    name: Line = Field(min_length=1, description="port name in the platform profile, e.g. its netdev, or slot3p1")
    role: NicRole
    rail: int | None = Field(None, ge=1, le=16, description="rail of a compute port")
    plane: int = Field(1, ge=1, le=8, description="plane of a compute port")
    gpu: int | None = Field(None, ge=0, le=15, description="index of the GPU whose traffic the port carries")


class Bond(Model):
    """Ports that form one interface."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,14}$")] = Field(
        description="interface name (15 characters at most), e.g. bond0"
    )
    members: list[Line] = Field(min_length=2, description="names of its ports")
    mode: Literal["active-backup", "802.3ad"] = Field(
        "802.3ad", description="802.3ad: LACP, which the switches must also run"
    )


class Dpu(Model):
    """A BlueField in a node. In DPU mode it is a separate computer with its own BMC, operating system and addresses."""

    name: Name = Field(description="name, e.g. dpu1; its host name is <node>-<name>")
    mode: Literal["nic", "dpu"] = Field("nic", description="nic: a plain NIC; dpu: its Arm cores own the ports")
    ports: list[Line] = Field(default_factory=list, description="names of the node's ports on this DPU")
    os: Line | None = Field(None, description="image of its operating system (BFB) in DPU mode")


class UnusedPort(Model):
    """A port of a server model that intentionally has no cable."""

    name: str = Field(min_length=1, description="port name in the platform profile, e.g. slot3p1")
    reason: Reason = Field(description="reason; shown in every plan")


class NicPlan(Model):
    """Use of a server model's NICs, for every node of the platform or for the nodes that name it."""

    name: Name
    platform: ProfileId = Field(description="server model of the plan")
    nics: list[NicUse] = Field(
        default_factory=list,
        description="ports and their roles; compute ports come from the platform profile and need no entry",
    )
    bonds: list[Bond] = Field(default_factory=list)
    dpus: list[Dpu] = Field(default_factory=list)
    unused: list[UnusedPort] = Field(
        default_factory=list, description="ports beside the compute fabric that get no cable"
    )


Fec = Literal["rs", "fc", "off"]
"""rs: Reed-Solomon (IEEE 802.3 clause 91 and 119); fc: FireCode (clause 74), of 10G to 50G NRZ links."""


class PortGroup(Model):
    """Set-up of a range of switch ports."""

    ports: RangeText = Field(description="whole ports, e.g. swp1-swp32")
    breakout: Literal[1, 2, 4, 8] = Field(1, description="number of sub-ports of each port (swp1s0, swp1s1, ...)")
    speed: PortSpeed | None = Field(
        None, description="Gb/s of each (sub-)port; default: the switch negotiates it, or with breakout its share"
    )
    fec: Fec | None = Field(None, description="forward error correction; default: the switch's own choice")
    cage: Line | None = Field(None, description="cage of the port; default: the profile's")
    polarity: Literal["A", "B", "C"] | None = Field(None, description="MPO polarity of the fibre (TIA-568)")


Pkey = Annotated[str, StringConstraints(pattern=r"^0x[0-9a-f]{1,4}$", to_lower=True)]


class Tenant(Model):
    """A tenant: its nodes, and what isolates them."""

    name: Name
    nodes: list[Names] = Field(default_factory=list, description="nodes, e.g. gpu[001-032]")
    racks: list[Names] = Field(default_factory=list, description="all nodes of these racks")
    vlan: int | None = Field(
        None,
        ge=2,
        le=4094,
        description="VLAN of the tenant; with a RoCE topology that of rail 1 of plane 1, and the others follow",
    )
    vrf: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,14}$")] | None = Field(
        None, description="VRF of the tenant"
    )
    vni: int | None = Field(None, ge=1, le=16_777_215, description="VXLAN network identifier (24 bits, RFC 7348)")
    pkey: Pkey | None = Field(
        None,
        description="InfiniBand partition key without its top bit: 0x0001 to 0x7ffe; 0x7fff is the default partition",
    )
    full_member: bool = Field(
        default=True,
        description="full members (top bit set) reach the whole partition; limited members reach only full members",
    )
