"""The site: what a data centre is meant to be, everything written out. ``site_file`` is the compact form that people may write instead."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Network
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import Field, model_validator

from rackready.model.base import Line, MacAddress, Model, Name, Names, PathLine, ProfileId, RangeText, SecretRef, Told
from rackready.model.baseline import Baseline
from rackready.model.facility import Facility, Feed, Hall, RackCooling
from rackready.model.network import Fabric, Link, Networks, NicPlan, PortGroup, Qos, Rail, Tenant
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
from rackready.model.own_profile import WithOwnProfiles
from rackready.model.profile import Inlet, ManagementPort
from rackready.model.serials import SerialKind
from rackready.model.topology import Topology

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


class NodeBmc(Model):
    """The baseboard management controller of one node, reached over Redfish (HTTPS). Before delivery much of it is unknown."""

    address: IPv4Address | None = Field(
        None, description="address of the BMC on the out-of-band network; planned from networks.oob when absent"
    )
    port: int = Field(443, ge=1, le=65535, description="TCP port of its Redfish service")
    mac: MacAddress | None = Field(None, description="MAC address, as the vendor's manifest gives it")
    username: Line = Field("admin", min_length=1, description="Redfish user")
    password: SecretRef | None = Field(
        None, description="where this BMC's password is kept; the vendor's manifest brings it"
    )
    ca: PathLine | None = Field(
        None, description="CA certificate (PEM) that signed the BMC's TLS certificate; system store when absent"
    )

    def known(self) -> Bmc | None:
        """Return the BMC as what talks to it needs it, None while its address or password is unknown."""
        if self.address is None or self.password is None:
            return None
        return Bmc.model_validate({name: getattr(self, name) for name in NodeBmc.model_fields})


class Bmc(NodeBmc):
    """A BMC of which everything is known that is needed to talk to it."""

    address: IPv4Address = Field(description="address of the BMC on the out-of-band network")
    password: SecretRef = Field(description="where this BMC's password is kept")


_UNKNOWN_BMC = NodeBmc()


class Outlet(Model):
    """One outlet of a rack PDU that feeds a power supply of a node. The site states it, nothing computes it: power is switched by it."""

    pdu: Name = Field(description="device of kind pdu that has a bmc")
    outlet: str = Field(
        pattern=r"^[A-Za-z0-9_.:-]{1,64}$",
        description="Id of the outlet in the Redfish service of the PDU, e.g. A1; a plain number stands in quotes",
    )
    rack_pdu: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9_.:-]{1,64}$",
        description="Id of the PDU in that service, where one service speaks for several that are chained",
    )

    @property
    def called(self) -> str:
        """As messages call it."""
        return (
            f"{self.pdu} outlet {self.outlet}"
            if self.rack_pdu is None
            else f"{self.pdu} PDU {self.rack_pdu} outlet {self.outlet}"
        )


class Node(Model):
    """One server."""

    name: Name = Field(description="host name")
    kind: Literal["metal", "virtual"] = Field("metal", description="a machine of its own, or a virtual one on ``host``")
    platform: ProfileId = Field(description="server model: a profile of profiles/platform")
    serial: Line | None = Field(
        None,
        min_length=1,
        description="serial number on the label (Dell: the Service Tag); the BMC must report it before anything is "
        "done to it",
    )
    serial_kind: SerialKind = Field(
        "any", description="which number of the BMC `serial` is; any: of the system, SKU, a chassis or the board"
    )
    unit: int | None = Field(
        None, ge=1, le=60, description="lowest rack unit that it occupies; virtual nodes have none"
    )
    slot: int | None = Field(
        None, ge=1, le=128, description="number of the node in its rack; the number in its name when absent"
    )
    index: int | None = Field(
        None,
        ge=1,
        description="number of the node in the site, from which addresses derive; "
        "from rack number and slot when absent",
    )
    address: IPv4Address = Field(description="address on the in-band network; SSH answers here")
    bmc: NodeBmc = Field(default=_UNKNOWN_BMC)
    nic_plan: Name | None = Field(None, description="how its NICs are used; that of its platform when absent")
    host: Name | None = Field(None, description="hypervisor on which a virtual node runs")
    outlets: list[Outlet] = Field(
        default_factory=list,
        description="outlets that feed it, one for each of its power supplies: by them its power may be cycled "
        "(docs/howto/bmc.md)",
    )


class Rack(Model):
    """One rack; one Pulumi stack provisions it."""

    name: Name
    nodes: list[Node] = Field(default_factory=list)
    index: int | None = Field(
        None,
        ge=1,
        description="number of the rack in the site, from which addresses derive; the number in its name when absent",
    )
    su: int | None = Field(
        None, ge=1, description="scalable unit to which its nodes belong; from the rack's number when absent"
    )
    su_slot: int | None = Field(
        None,
        ge=1,
        description="place of its first node in that unit; else by the rack's number (networks), or the next free one",
    )
    height_u: int = Field(48, ge=1, le=60, description="rack units")
    hall: Name | None = Field(None, description="hall in which it stands")
    row: Name | None = Field(None, description="row of the hall")
    position: int | None = Field(None, ge=1, description="place along the row, counted from 1")
    feeds: list[Feed] = Field(default_factory=list, description="supplies of the rack")
    cooling: RackCooling | None = None
    max_weight_kg: float | None = Field(None, gt=0, description="load that rack and floor carry, kg")
    model: Told | None = Field(
        None, min_length=2, description="maker's model or part number of the rack, for the bill of materials"
    )


class Switch(Model):
    """One switch that is written by hand: of a site without ``topology``, or to say more of one that the topology names."""

    name: Name
    os: ProfileId = Field(description="network operating system: a driver of drivers/switch, e.g. cumulus_nvue")
    model: ProfileId = Field(description="switch model: a profile of profiles/switch, which says its ports")
    address: IPv4Address = Field(description="management address; SSH answers here")
    port: int = Field(22, ge=1, le=65535, description="TCP port of its SSH service")
    username: Line = Field("cumulus", min_length=1)
    password: SecretRef
    role: Literal["compute", "in_band", "storage", "oob"] = Field("compute", description="network that it belongs to")
    rack: Name | None = Field(None, description="rack that holds it")
    unit: int | None = Field(None, ge=1, le=60, description="lowest rack unit that it occupies")
    ports: list[PortGroup] = Field(
        default_factory=list, description="ports that are set up in another way than the profile says"
    )


class SwitchSlot(Model):
    """Room for switches that the topology or another fabric makes: they are placed in the order of their names."""

    rack: Name
    fabric: Name | None = Field(
        None, description="one of other_fabrics whose switches stand here; the compute fabric when absent"
    )
    tier: Literal["leaf", "spine", "core"]
    units: RangeText = Field(
        description="lowest unit of each switch, e.g. 20-27; with switches of two units every second one"
    )
    step: int = Field(1, ge=1, le=8, description="units from one switch to the next")


DeviceKind = Literal[
    "ufm", "nmx", "nvlink_tray", "cdu", "power_shelf", "pdu", "storage", "login", "head", "console", "patch_panel"
]


class Device(Model):
    """What stands beside GPU nodes and fabric switches."""

    name: Name
    kind: DeviceKind = Field(
        description="ufm: InfiniBand manager; nmx: NVLink manager; cdu: coolant distribution unit; "
        "head: management server of the cluster"
    )
    rack: Name | None = Field(None, description="rack that holds it")
    unit: int | None = Field(
        None, ge=1, le=60, description="lowest rack unit; none for what hangs beside the units (zero-U PDU)"
    )
    height_u: int = Field(1, ge=0, le=60, description="rack units")
    index: int | None = Field(
        None,
        ge=1,
        description="number among the devices of its rack, from which addresses derive; its unit when absent",
    )
    address: IPv4Address | None = Field(None, description="management address; planned from networks.oob when absent")
    pair: Name | None = Field(None, description="the other one of a redundant pair")
    fabric_ports: int = Field(0, ge=0, le=16, description="ports on the compute fabric (a UFM host takes one)")
    max_power_w: float | None = Field(None, gt=0, description="highest draw, W, e.g. by its nameplate")
    psus: int | None = Field(None, ge=1, le=16, description="power supplies, each with a cord of its own")
    psus_needed: int | None = Field(None, ge=1, le=16, description="power supplies with input that keep it running")
    inlet: Inlet | None = Field(None, description="inlet of one supply, IEC 60320")
    management: ManagementPort | None = Field(
        None, description="its management port; without it no cable to it is listed"
    )
    ports: list[DevicePort] = Field(default_factory=list, description="its ports on the in-band and storage networks")
    weight_kg: float | None = Field(None, gt=0)
    model: Told | None = Field(
        None, min_length=2, description="maker's model or part number, for the bill of materials"
    )
    serial: Line | None = Field(None, min_length=1)
    serves: list[Names] = Field(
        default_factory=list, description="racks whose liquid a coolant distribution unit carries, e.g. a[01-08]"
    )
    cooling_kw: float | None = Field(
        None, gt=0, description="heat that a coolant distribution unit carries away without end, kW"
    )
    loss_accepted: Told | None = Field(
        None,
        min_length=10,
        description="why the loss of this coolant distribution unit may take racks down; shown in every plan",
    )
    bmc: Bmc | None = Field(
        None, description="its Redfish service (power shelf, PDU, coolant distribution unit); null: gates do not ask it"
    )

    @model_validator(mode="after")
    def _supplies_agree(self) -> Device:
        if self.psus_needed is not None and self.psus_needed > (self.psus or 0):
            message = (
                f"psus_needed {self.psus_needed} of {self.psus or 'unknown'} psus - "
                "Expected: psus, and no more needed than there are"
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
    """GPUs of several nodes that one NVLink fabric joins (NVL72)."""

    name: Name
    rack: Name | None = Field(None, description="all nodes of this rack")
    nodes: list[Names] = Field(default_factory=list, description="nodes, when they are not just those of one rack")
    across_racks: bool = Field(default=False, description="its nodes stand in more than one rack on purpose")


class _Memo(dict[str, Any]):
    """What was computed from one site, kept with it."""


class Site(WithOwnProfiles):
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
    handover: Annotated[Handover, Field(discriminator="kind")]
    campaign: Campaign = Field(default_factory=Campaign)
    halls: list[Hall] = Field(default_factory=list)
    facility: Facility | None = None
    networks: Networks | None = None
    public_space: list[IPv4Network] = Field(
        default_factory=list,
        description="public IPv4 space that a registry gave to the site's owner: "
        "addresses and pools in other public space "
        "are refused, for they are others'",
    )
    topology: Topology | None = None
    other_fabrics: list[OtherFabric] = Field(
        default_factory=list,
        description="in-band, storage and out-of-band fabrics whose switches stand in network racks",
    )
    nic_plans: list[NicPlan] = Field(default_factory=list)
    switch_slots: list[SwitchSlot] = Field(default_factory=list)
    devices: list[Device] = Field(default_factory=list)
    nvlink_domains: list[NvlinkDomain] = Field(default_factory=list)
    tenants: list[Tenant] = Field(default_factory=list)
    deliveries: list[Delivery] = Field(default_factory=list)
    cable_stock: dict[str, list[float]] = Field(
        default_factory=dict, description="lengths on the shelf, m, by series of the parts profile"
    )
    maintenance: list[MaintenanceWindow] = Field(default_factory=list)
    baselines: dict[ProfileId, Baseline] = Field(
        default_factory=dict,
        description="firmware and BIOS that the site wants, by server model; "
        "stands in place of its profile's as a whole",
    )

    def remember(self, key: str, make: Callable[[], _T]) -> _T:
        """Return what ``make`` gives, computed once for this site: indexes over 12,500 nodes are not built for each of them again."""
        memo = self.__dict__.get("_memo")
        if memo is None:
            memo = self.__dict__["_memo"] = _Memo()
        if key not in memo:
            memo[key] = make()
        found: _T = memo[key]
        return found

    def __copy__(self) -> Self:
        """A changed copy computes its own."""
        copied = super().__copy__()
        copied.__dict__.pop("_memo", None)
        return copied

    def nodes(self) -> list[Node]:
        """Every node, in the order of the file. Not to be changed by the caller."""
        return self.remember("nodes", lambda: [node for rack in self.racks for node in rack.nodes])

    def node(self, name: str) -> Node:
        """Return the node of that name; KeyError when there is none."""
        return self._by_name()[name][0]

    def rack_of(self, name: str) -> Rack:
        """Return the rack that holds the node of that name; KeyError when there is none."""
        return self._by_name()[name][1]

    def position_of(self, name: str) -> int:
        """Return the number of the node in the site: its index, else its place in the file counted from 1; KeyError when there is none."""
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
