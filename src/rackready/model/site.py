"""The site in full. ``site_file`` describes the compact form that people may write instead."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Network
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import Field, field_validator, model_validator

from rackready.model.base import MacAddress, Model, Name, Names, ProfileId, RangeText, Told
from rackready.model.baseline import Baseline
from rackready.model.bmc import Bmc, BmcAuthority, NodeBmc
from rackready.model.certificates import Certificates
from rackready.model.facility import Facility, Feed, Hall, RackCooling
from rackready.model.hand_back import HandBack
from rackready.model.kubernetes import KubernetesHandover
from rackready.model.monitoring import Monitoring
from rackready.model.network import Fabric, Link, Networks, NicPlan, Qos, Rail, Tenant
from rackready.model.operations import (
    Access,
    Campaign,
    DeclaredSkip,
    Delivery,
    FileHandover,
    Gates,
    Handover,
    MaintenanceWindow,
    Mirror,
    PlugInHandover,
    SlurmHandover,
    Software,
)
from rackready.model.other_fabric import DevicePort, OtherFabric
from rackready.model.profile import ManagementPort
from rackready.model.provisioning import BootKind, NodeDisks, Provisioning
from rackready.model.pull import Pull
from rackready.model.rma import Rma
from rackready.model.serials import Serial, SerialKind
from rackready.model.several import SeveralHandover, WithPart
from rackready.model.supply import Inlet
from rackready.model.switch import Switch
from rackready.model.topology import Topology
from rackready.model.upgrade import Upgrade
from rackready.model.virtual import Hypervisor, VirtualMachine
from rackready.model.watch import Watch

__all__ = [
    "Access",
    "Baseline",
    "Bmc",
    "Campaign",
    "DeclaredSkip",
    "Device",
    "Fabric",
    "FileHandover",
    "Gates",
    "Handover",
    "KubernetesHandover",
    "Link",
    "Mirror",
    "Node",
    "NodeBmc",
    "NvlinkDomain",
    "Outlet",
    "PlugInHandover",
    "Qos",
    "Rack",
    "Rail",
    "RangeText",
    "Site",
    "SlurmHandover",
    "Software",
    "Switch",
    "SwitchSlot",
]
_T = TypeVar("_T")


_UNKNOWN_BMC = NodeBmc()


class Outlet(Model):
    """One rack PDU outlet that feeds a power supply of a node. Power is switched by it, so the site must state it."""

    pdu: Name = Field(description="device of kind pdu with a bmc")
    outlet: str = Field(
        pattern=r"^[A-Za-z0-9_.:-]{1,64}$",
        description="id of the outlet in the PDU's Redfish service, e.g. A1; quote a plain number",
    )
    rack_pdu: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9_.:-]{1,64}$",
        description="id of the PDU in that service, when one service manages several chained PDUs",
    )

    @property
    def called(self) -> str:
        """Return the name used in messages."""
        return (
            f"{self.pdu} outlet {self.outlet}"
            if self.rack_pdu is None
            else f"{self.pdu} PDU {self.rack_pdu} outlet {self.outlet}"
        )


class Node(Model):
    """One server."""

    name: Name = Field(description="host name")
    kind: Literal["metal", "virtual"] = Field(
        "metal", description="metal: a physical server; virtual: a virtual machine on ``host``"
    )
    platform: ProfileId = Field(description="server model: id of a platform profile")
    serial: Serial | None = Field(
        None,
        description="serial number on the label (Dell: the Service Tag); rackready acts on the node only when the BMC "
        "reports it",
    )
    serial_kind: SerialKind = Field(
        "any", description="which number of the BMC `serial` is; any: of the system, SKU, a chassis or the board"
    )
    unit: int | None = Field(None, ge=1, le=60, description="lowest rack unit; virtual nodes have none")
    slot: int | None = Field(
        None, ge=1, le=128, description="number of the node in its rack; default: the number in its name"
    )
    index: int | None = Field(
        None,
        ge=1,
        description="number of the node in the site, from which addresses are computed; "
        "default: from rack number and slot",
    )
    address: IPv4Address = Field(description="in-band address, used for SSH")
    bmc: NodeBmc = Field(default=_UNKNOWN_BMC)
    boot: BootKind | None = Field(
        None, description="where it boots from while it is provisioned; default: provisioning.boot"
    )
    boot_mac: MacAddress | None = Field(None, description="MAC address of the port that it boots from over the network")
    disks: NodeDisks | None = Field(None, description="its disks; default: provisioning.disks")
    nic_plan: Name | None = Field(
        None, description="NIC plan of this node, one of nic_plans; default: that of its platform"
    )
    host: Name | None = Field(None, description="hypervisor of a virtual node")
    virtual: VirtualMachine | None = Field(
        None, description="what a virtual node gets of its host; absent: only planned"
    )
    outlets: list[Outlet] = Field(
        default_factory=list,
        description="outlets that feed it, one per power supply; used to cycle its power (docs/howto/bmc.md)",
    )

    @field_validator("kind", mode="before")
    @classmethod
    def _made_by_rackready(cls, kind: object) -> object:
        if kind == "aws":
            message = (
                "no command works on AWS instances: the stack stacks/aws makes them (docs/howto/aws.md) - "
                "Expected: metal or virtual Actual: aws"
            )
            raise ValueError(message)
        return kind


class Rack(Model):
    """One rack. One Pulumi stack provisions it."""

    name: Name
    nodes: list[Node] = Field(default_factory=list)
    index: int | None = Field(
        None,
        ge=1,
        description="number of the rack in the site, used for addresses; default: the number in its name",
    )
    su: int | None = Field(None, ge=1, description="scalable unit of its nodes; default: from the rack's number")
    su_slot: int | None = Field(
        None,
        ge=1,
        description="place of its first node in that unit; default: from the rack's number, else the next free place",
    )
    height_u: int = Field(48, ge=1, le=60, description="rack units")
    hall: Name | None = Field(None, description="hall of the rack")
    row: Name | None = Field(None, description="row of the hall")
    position: int | None = Field(None, ge=1, description="place in the row, counted from 1")
    feeds: list[Feed] = Field(default_factory=list, description="power feeds of the rack")
    cooling: RackCooling | None = None
    max_weight_kg: float | None = Field(None, gt=0, description="highest load of rack and floor, kg")
    model: Told | None = Field(
        None, min_length=2, description="model or part number of the rack, for the bill of materials"
    )


class SwitchSlot(Model):
    """Rack units for switches of the topology or of another fabric. Switches take them in the order of their names."""

    rack: Name
    fabric: Name | None = Field(
        None, description="fabric of these switches, one of other_fabrics; default: the compute fabric"
    )
    tier: Literal["leaf", "spine", "core"]
    units: RangeText = Field(
        description="lowest unit of each switch, e.g. 20-27; every second one for switches of two units"
    )
    step: int = Field(1, ge=1, le=8, description="rack units from one switch to the next")


DeviceKind = Literal[
    "ufm", "nmx", "nvlink_tray", "cdu", "power_shelf", "pdu", "storage", "login", "head", "console", "patch_panel"
]


class Device(Model):
    """Equipment beside GPU nodes and fabric switches."""

    name: Name
    kind: DeviceKind = Field(
        description="ufm: InfiniBand manager; nmx: NVLink manager; cdu: coolant distribution unit; "
        "head: management server of the cluster"
    )
    rack: Name | None = Field(None, description="rack that holds it")
    unit: int | None = Field(
        None, ge=1, le=60, description="lowest rack unit; none for zero-U devices such as vertical PDUs"
    )
    height_u: int = Field(1, ge=0, le=60, description="rack units")
    index: int | None = Field(
        None,
        ge=1,
        description="number among the devices of its rack, from which addresses are computed; default: its unit",
    )
    address: IPv4Address | None = Field(None, description="management address; default: planned from networks.oob")
    pair: Name | None = Field(None, description="the other device of a redundant pair")
    fabric_ports: int = Field(0, ge=0, le=16, description="ports on the compute fabric (1 for a UFM host)")
    max_power_w: float | None = Field(None, gt=0, description="highest draw, W, e.g. from its nameplate")
    psus: int | None = Field(None, ge=1, le=16, description="power supplies, each with its own cord")
    psus_needed: int | None = Field(
        None, ge=1, le=16, description="power supplies that must have input to keep it running"
    )
    inlet: Inlet | None = Field(None, description="inlet of one power supply, IEC 60320")
    management: ManagementPort | None = Field(
        None, description="management port; without it, the plan lists no cable to it"
    )
    ports: list[DevicePort] = Field(default_factory=list, description="ports on the in-band and storage networks")
    weight_kg: float | None = Field(None, gt=0)
    model: Told | None = Field(None, min_length=2, description="model or part number, for the bill of materials")
    serial: Serial | None = None
    serves: list[Names] = Field(
        default_factory=list, description="racks that a coolant distribution unit serves, e.g. a[01-08]"
    )
    cooling_kw: float | None = Field(
        None, gt=0, description="heat that a coolant distribution unit carries away continuously, kW"
    )
    loss_accepted: Told | None = Field(
        None,
        min_length=10,
        description="reason why the loss of this coolant distribution unit may take racks down; shown in every plan",
    )
    bmc: Bmc | None = Field(
        None, description="Redfish service (power shelf, PDU, coolant distribution unit); null: gates do not read it"
    )

    @model_validator(mode="after")
    def _supplies_agree(self) -> Device:
        if self.psus_needed is not None and self.psus_needed > (self.psus or 0):
            message = (
                f"psus_needed {self.psus_needed} of {self.psus or 'unknown'} psus - "
                "Expected: psus, and psus_needed no greater than psus"
            )
            raise ValueError(message)
        return self

    @model_validator(mode="after")
    def _coolant_of_cdus(self) -> Device:
        given = [name for name in ("serves", "cooling_kw", "loss_accepted") if getattr(self, name)]
        if given and self.kind != "cdu":
            message = f"{', '.join(given)} - Expected: kind: cdu Actual: kind: {self.kind}"
            raise ValueError(message)
        return self


class NvlinkDomain(Model):
    """GPUs of several nodes in one NVLink fabric (NVL72)."""

    name: Name
    rack: Name | None = Field(None, description="all nodes of this rack")
    nodes: list[Names] = Field(default_factory=list, description="nodes, when they are not all nodes of one rack")
    across_racks: bool = Field(default=False, description="allow nodes in more than one rack")


class _Memo(dict[str, Any]):
    """Values computed from one site, kept with it."""


class Site(WithPart):
    """One site: all that the site file and its overlays state."""

    schema_: Literal["rackready/site/v1"] = Field(alias="schema", description="version of this format")
    name: Name
    access: Access
    software: Software
    fabric: Fabric
    racks: list[Rack] = Field(min_length=1)
    switches: list[Switch] = Field(default_factory=list)
    links: list[Link] = Field(default_factory=list)
    gates: Gates
    handover: Annotated[Handover | SeveralHandover, Field(discriminator="kind")]
    campaign: Campaign = Field(default_factory=Campaign)
    upgrade: Upgrade = Field(default_factory=Upgrade, description="waves and limits of `rackready upgrade`")
    hand_back: HandBack = Field(
        default_factory=HandBack, description="what `hand-back` scrubs of a node between two tenants, and what stays"
    )
    rma: Rma = Field(default_factory=Rma, description="what `rma` gathers of a node that goes back to its vendor")
    monitoring: Monitoring = Field(
        default_factory=Monitoring, description="exporters and receivers of alerts, for `export prometheus`"
    )
    watch: Watch = Field(default_factory=Watch, description="rates, limits and receivers of `rackready watch`")
    provisioning: Provisioning | None = Field(
        None, description="how nodes get their operating system; absent: they boot what is on their disks"
    )
    pull: Pull | None = Field(None, description="how nodes apply signed releases themselves; absent: push only")
    certificates: Certificates = Field(default_factory=Certificates)
    bmc_authority: BmcAuthority | None = Field(
        None, description="CA of the BMCs' TLS certificates; absent: `bmc certify` is refused"
    )
    hypervisors: list[Hypervisor] = Field(default_factory=list, description="metal nodes that run virtual nodes")
    halls: list[Hall] = Field(default_factory=list)
    facility: Facility | None = None
    networks: Networks | None = None
    public_space: list[IPv4Network] = Field(
        default_factory=list,
        description="public IPv4 space that a registry assigned to the site's owner; "
        "addresses and pools in other public space "
        "are refused",
    )
    topology: Topology | None = None
    other_fabrics: list[OtherFabric] = Field(
        default_factory=list,
        description="in-band, storage and out-of-band fabrics with switches in network racks",
    )
    nic_plans: list[NicPlan] = Field(default_factory=list)
    switch_slots: list[SwitchSlot] = Field(default_factory=list)
    devices: list[Device] = Field(default_factory=list)
    nvlink_domains: list[NvlinkDomain] = Field(default_factory=list)
    tenants: list[Tenant] = Field(default_factory=list)
    deliveries: list[Delivery] = Field(default_factory=list)
    cable_stock: dict[str, list[float]] = Field(
        default_factory=dict, description="stocked cable lengths, m, by series of the parts profile"
    )
    maintenance: list[MaintenanceWindow] = Field(default_factory=list)
    baselines: dict[ProfileId, Baseline] = Field(
        default_factory=dict,
        description="firmware and BIOS baselines by server model; each replaces its profile's as a whole",
    )

    def remember(self, key: str, make: Callable[[], _T]) -> _T:
        """Return the result of ``make``, computed once per site.

        An index over 12,500 nodes is not built again for each of them.
        """
        memo = self.__dict__.get("_memo")
        if memo is None:
            memo = self.__dict__["_memo"] = _Memo()
        if key not in memo:
            memo[key] = make()
        found: _T = memo[key]
        return found

    def __copy__(self) -> Self:
        """Return a copy without kept values: a changed copy computes its own."""
        copied = super().__copy__()
        copied.__dict__.pop("_memo", None)
        return copied

    def nodes(self) -> list[Node]:
        """Return every node, in the order of the file. The caller must not change the result."""
        return self.remember("nodes", lambda: [node for rack in self.racks for node in rack.nodes])

    def node(self, name: str) -> Node:
        """Return the node of that name. Raises KeyError when there is none."""
        return self._by_name()[name][0]

    def rack_of(self, name: str) -> Rack:
        """Return the rack of the node of that name. Raises KeyError when there is none."""
        return self._by_name()[name][1]

    def position_of(self, name: str) -> int:
        """Return the number of a node: its index, else its place in the file, counted from 1. Raises KeyError."""
        node, _, place = self._by_name()[name]
        return node.index or place

    def _by_name(self) -> dict[str, tuple[Node, Rack, int]]:
        return self.remember("by_name", self._index)

    def _index(self) -> dict[str, tuple[Node, Rack, int]]:
        out: dict[str, tuple[Node, Rack, int]] = {}
        place = 0
        for rack in self.racks:
            for node in rack.nodes:
                place += 1
                out.setdefault(node.name, (node, rack, place))
        return out
