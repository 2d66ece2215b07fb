"""Profiles: facts about hardware and software that do not change from site to site, each figure with its source."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveInt, StringConstraints, model_validator

from rackready.model.base import Model, ProfileId, Rate
from rackready.model.baseline import Baseline


class Figure(Model):
    """A number with its unit and where it comes from."""

    value: float
    unit: str = Field(min_length=1)
    source: str = Field(
        min_length=5, description="document, issue or file that gives it; 'derived: ...' with the formula when computed"
    )


class NvLink(Model):
    """NVLink of one GPU."""

    links: int = Field(ge=1, le=72, description="links that must be active on every GPU")
    speed: Figure = Field(description="raw rate of one link and direction as NVML and nvidia-smi print it, MB/s")
    ring: Figure = Field(description="what one link carries in NCCL's model, GB/s")
    per_gpu: Figure = Field(description="marketing rate of one GPU and direction, GB/s: the ceiling of a ring")
    copy_min: Figure | None = Field(
        None,
        description="rate of a copy between two GPUs below which an operator refuses them, GB/s; null: not published",
    )


class PowerAndClocks(Model):
    """What optimize sets. What is null was not found published, and is not guessed: optimize refuses such a card."""

    limit: Figure = Field(description="power limit as shipped (TDP), W")
    min_limit: Figure | None = Field(None, description="lowest power limit that the card takes, W; null: not published")
    sm_clock_max: Figure | None = Field(
        None, description="highest SM clock, MHz: optimize locks to it; null: not published"
    )
    sm_clock_min: Figure | None = Field(
        None, description="lowest SM clock that may be locked, MHz; null: not published"
    )


Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "fp4"]
"""Number formats of the tensor cores (fp32: the CUDA cores) for which a dense rate is known."""


class PcieLink(Model):
    """The PCIe link of one GPU as its board has it."""

    gen: int = Field(ge=3, le=7, description="generation")
    lanes: int = Field(ge=1, le=16)
    rate: Figure = Field(description="rate of one direction, GB/s")


class GpuPath(Model):
    """What every link between a GPU and its root port can do, switches and risers included."""

    gen: int = Field(ge=3, le=7, description="generation")
    lanes: int = Field(ge=1, le=16)
    source: str = Field(min_length=5)


class Mig(Model):
    """What MIG makes of one GPU."""

    instances: int = Field(ge=2, le=7, description="most instances at a time")
    profiles: dict[str, int] = Field(
        default_factory=dict, description="MIG profile to how many of it fit, e.g. 1g.10gb: 7"
    )
    source: str = Field(min_length=5)


class GpuProfile(Model):
    """One GPU model."""

    id: ProfileId
    product_name: str = Field(description="name as NVML gives it")
    pci_device_id: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{4}$")] = Field(
        description="PCI device id; vendor is 10de"
    )
    architecture: str
    memory: Figure = Field(description="memory.total as NVML gives it, MiB")
    nvlink: NvLink | None = Field(description="null for GPUs without NVLink")
    power: PowerAndClocks
    min_driver_branch: int = Field(description="first driver branch that supports it")
    min_driver_source: str
    max_driver_branch: int | None = Field(
        None, description="last driver branch that supports it; null when the newest does"
    )
    collectives: dict[str, Figure] = Field(
        default_factory=dict,
        description="measured busbw of a healthy single node, GB/s, by '<collective>/<n>/<algorithm>'",
    )
    matmul: dict[Precision, Figure] = Field(
        default_factory=dict, description="best published rate of a matrix product on one healthy GPU, TFLOPS"
    )
    fp32_min: Figure | None = Field(
        None, description="FP32 that DCGM asks of one GPU, GFLOPS (its sm_stress); null: not in its table"
    )
    fp64_tensor: Figure | None = Field(
        None, description="dense FP64 rate of the tensor cores, TFLOPS, which no HPL exceeds; null: not published"
    )
    hpl: Figure | None = Field(None, description="HPL of a healthy node of this GPU, TFLOPS a GPU; null: not published")
    form: Literal["sxm", "pcie", "superchip"] | None = Field(None, description="how it sits in a server")
    memory_nominal: Figure | None = Field(
        None, description="memory as it is sold, GB (10^9 bytes); planning uses `memory`"
    )
    memory_bandwidth: Figure | None = Field(None, description="GB/s")
    memory_temp_max: Figure | None = Field(
        None,
        description="highest operating temperature of the memory, C: above it the GPU slows down; null: not published",
    )
    compute: dict[Precision, Figure] = Field(
        default_factory=dict,
        description="DENSE TFLOPS by number format: vendors print twice as much 'with sparsity'. "
        "A format that is absent is not published",
    )
    nvlink_bridge: Figure | None = Field(
        None, description="rate of an optional NVLink bridge between a pair of cards, both directions, GB/s"
    )
    pcie: PcieLink | None = Field(None, description="PCIe link; null: not published")
    mig: Mig | None = Field(None, description="null: the GPU has no MIG")


Cage = Literal["osfp_finned", "osfp_flat", "qsfp112", "qsfp56", "qsfp28", "sfp28", "rj45"]
"""What plugs into a port: finned OSFP in air-cooled switches, flat-top OSFP where the heat sink rides on the cage (adapters, DGX), and so on."""


class PlatformNic(Model):
    """One compute NIC of a server model. Names that the vendor does not publish are empty: such a server can be planned, not installed."""

    rail: int = Field(ge=1, le=16)
    rdma_device: str = Field("", description="device below /sys/class/infiniband, e.g. mlx5_0; empty: not published")
    netdev: str = Field("", description="network interface name, e.g. enp26s0np0; empty: not published")
    pci: str = Field("", description="PCI address (domain:bus:device.function); empty: not published")
    gpu: int = Field(ge=0, description="index of the GPU behind the same PCIe switch")
    numa: int = Field(0, ge=0)
    rate: Rate
    cage: Cage | None = Field(None, description="connector of the port that the cable enters; null: not published")
    planes: int = Field(1, ge=1, le=8, description="network planes that this NIC feeds; each gets rate / planes")
    port: str = Field(
        "", description="label of the port on the chassis, e.g. OSFP4P2: two NICs may share one twin-port cage"
    )


class OtherNic(Model):
    """One network port of a server model beside the compute rails."""

    role: Literal["inband", "storage", "oob"]
    name: str = Field(min_length=1, description="what people call it, e.g. bf3-1p1")
    rate: Literal[1, 10, 25, 100, 200, 400, 800] = Field(description="Gb/s per direction")
    cage: Cage | None = Field(None, description="null: not published")
    dpu: bool = Field(default=False, description="a BlueField: it has its own BMC, operating system and addresses")


Inlet = Literal["C14", "C16", "C20", "C22"]
"""Appliance inlet of a power supply, IEC 60320-1 (C22: -3)."""


class InputVolts(Model):
    """Nominal voltages that a power supply takes at full output."""

    low: float = Field(gt=0, description="V")
    high: float = Field(gt=0, description="V")
    source: str = Field(min_length=5)

    @model_validator(mode="after")
    def _ascending(self) -> InputVolts:
        if self.high < self.low:
            message = f"high {self.high:g} V is below low {self.low:g} V"
            raise ValueError(message)
        return self


class Psus(Model):
    """Power supplies of one server or switch."""

    count: int = Field(ge=1, le=16)
    min_count: int | None = Field(
        None, ge=1, le=16, description="supplies with input that keep it at full performance; null: not published"
    )
    min_boot: int | None = Field(
        None, ge=1, le=16, description="supplies with input that it needs to start; null: not published"
    )
    max_w: Figure | None = Field(None, description="output of one supply, W; null: not published")
    input: InputVolts | None = Field(
        None, description="nominal voltages at which one supply gives its output, V; null: not published"
    )
    inlet: Inlet | None = Field(None, description="inlet of one supply, IEC 60320; null: not published")
    inlet_source: str | None = Field(None, min_length=5, description="where the inlet comes from")
    source: str = Field(min_length=5, description="where count and redundancy come from")

    @model_validator(mode="after")
    def _inlet_has_its_source(self) -> Psus:
        if (self.inlet is None) != (self.inlet_source is None):
            message = "inlet and inlet_source go together"
            raise ValueError(message)
        return self


class Cooling(Model):
    """How the heat of one server leaves it."""

    kind: Literal["air", "liquid", "hybrid"]
    liquid_share: Figure | None = Field(
        None, description="share of the heat that goes into liquid, 0 to 1; null: not published (air: 0)"
    )
    source: str = Field(min_length=5)


class HostParts(Model):
    """Processors, memory and drives of one server model as it is shipped: what host gates hold a node against."""

    cpu_model: str = Field(min_length=3, description="words that the processor's model name must contain, e.g. '8480C'")
    sockets: int = Field(ge=1, le=8)
    cores: int = Field(ge=1, le=256, description="cores of one socket")
    threads: int = Field(
        ge=1, le=4, description="hardware threads of one core; more than one means that SMT is on as shipped"
    )
    numa_nodes: int = Field(ge=1, le=64, description="NUMA nodes with processors")
    dimms: int = Field(ge=0, le=64, description="memory modules; 0 where memory is soldered to the processor")
    memory_gib: int = Field(ge=16, description="memory of all modules, GiB")
    drives: int = Field(ge=0, le=64, description="drives of the host, boot drives included")
    drive_gb: dict[PositiveInt, PositiveInt] = Field(
        default_factory=dict,
        description="nominal capacity of a drive, GB (10^9 bytes) -> how many drives have it; empty: not published",
    )
    source: str = Field(min_length=5, description="where all of this comes from")

    @model_validator(mode="after")
    def _every_drive_has_its_capacity(self) -> HostParts:
        if self.drive_gb and sum(self.drive_gb.values()) != self.drives:
            message = f"drive_gb counts {sum(self.drive_gb.values())} drives - Expected: {self.drives}, as drives says"
            raise ValueError(message)
        return self


class PlatformProfile(Model):
    """One server model."""

    id: ProfileId
    manufacturer: str = Field(description="as Redfish gives it")
    product: str = Field(description="as Redfish gives it")
    gpu: ProfileId
    gpus: int = Field(ge=1, le=16)
    gpu_pci: list[str] = Field(
        default_factory=list, description="PCI address of every GPU, by index; empty: not published"
    )
    gpu_path: GpuPath | None = Field(
        None,
        description="PCIe from each GPU to its root port; "
        "null: not published, the GPU's own link is held against the GPU "
        "model, the rest end against end",
    )
    nvswitch: bool = Field(description="GPUs are joined by NVSwitches")
    nvswitches: Figure | None = Field(
        None,
        description="NVSwitches that the server itself sees through NSCQ (boards of A100, H100, H200); "
        "null: none, or not published",
    )
    nics: list[PlatformNic] = Field(
        default_factory=list, description="compute NICs, one a rail; empty: the server has no compute fabric of its own"
    )
    rack_units: int = Field(ge=1)
    max_power: Figure = Field(description="highest draw of the whole server, W")
    source: str
    fabric_manager: bool | None = Field(
        None,
        description="the server runs the fabric manager; null: as `nvswitch`. "
        "False on NVL72 trays: the switch trays run it",
    )
    nvlink_domain: int | None = Field(
        None,
        ge=2,
        le=576,
        description="GPUs of one NVLink domain when it spans servers (NVL72: 72); null: the server's own GPUs",
    )
    su_nodes: Figure | None = Field(
        None, description="nodes of one scalable unit in the vendor's reference architecture"
    )
    weight: Figure | None = Field(None, description="kg; null: not published")
    typical_power: Figure | None = Field(None, description="draw under a typical training load, W; null: not published")
    transient_power: Figure | None = Field(
        None, description="highest draw for tens of milliseconds, W; null: not published"
    )
    psus: Psus | None = Field(None, description="power supplies; null: not published, or fed by a rack's bus bar")
    fed: Literal["bus_bar", "either"] | None = Field(
        None,
        description="bus_bar: by a rack's DC bus bar; either: by it or by cords, as it is ordered; "
        "null: by cords from outlets",
    )
    cooling: Cooling | None = Field(None, description="null: not published")
    airflow: Figure | None = Field(None, description="air through the chassis, m3/h; null: not published")
    other_nics: list[OtherNic] = Field(
        default_factory=list, description="storage, in-band and out-of-band ports; empty: not published"
    )
    baseline: Baseline | None = Field(
        None, description="firmware and BIOS as a source gives them; null: none known, the site says (baselines)"
    )
    host: HostParts | None = Field(
        None, description="processors, memory and drives; null: chosen with the order, or not published"
    )

    @property
    def runs_fabric_manager(self) -> bool:
        """Whether the server itself runs the fabric manager: install puts it there, and gates ask for it."""
        return self.nvswitch if self.fabric_manager is None else self.fabric_manager

    def unpublished(self) -> tuple[str, ...]:
        """Return what installing needs and nobody publishes for this server: empty when it can be installed."""
        names = ("rdma_device", "netdev", "pci")
        missing = ["the PCI addresses of its GPUs"] if len(self.gpu_pci) != self.gpus else []
        if any(not getattr(nic, name) for nic in self.nics for name in names):
            missing.append("the device names of its compute NICs")
        return tuple(missing)


class ManagementPort(Model):
    """The port over which a switch or device is managed out of band."""

    name: str = Field(min_length=1, description="as its operating system or its label names it, e.g. eth0")
    rate: Literal[1, 10, 25] = Field(1, description="Gb/s per direction")
    cage: Literal["rj45", "sfp28"] = Field(description="what plugs into it")


class SwitchManagement(ManagementPort):
    """The management port of a switch model."""

    source: str = Field(min_length=5)


class SwitchProfile(Model):
    """One switch model."""

    id: ProfileId
    ports: str = Field(description="range of its ports, e.g. swp1-swp64")
    os: list[ProfileId] = Field(
        description="network operating systems that it runs and rackready configures; "
        "empty: it can be planned, not configured"
    )
    rate: Literal[1, 100, 200, 400, 800] = Field(description="Gb/s per direction of one of `ports`")
    source: str
    layer: Literal["ethernet", "infiniband"] = "ethernet"
    cage: Cage | None = Field(None, description="connector of `ports`; null: not published")
    ports_per_cage: int = Field(1, ge=1, le=2, description="ports of `ports` that share one cage (twin-port OSFP: 2)")
    breakout: list[int] = Field(
        default_factory=lambda: [1], description="ways in which one of `ports` may be split; 1: whole"
    )
    lanes: int | None = Field(None, ge=1, le=8, description="electrical lanes of one of `ports`; null: not published")
    uplinks: str | None = Field(
        None, description="range of further ports of another rate, e.g. swp49-swp52; null: none"
    )
    uplink_rate: Literal[10, 25, 100, 200, 400, 800] | None = Field(
        None, description="Gb/s per direction of one uplink"
    )
    uplink_cage: Cage | None = Field(None, description="connector of an uplink; null: not published")
    radix: int | None = Field(
        None,
        ge=2,
        description="ports towards others after the breakout that the profile stands "
        "for; null: as many as `ports` names",
    )
    port_pattern: str | None = Field(
        None,
        description="port name by cage {c} and twin {t}, where names are not those of `ports`; null: names of `ports`",
    )
    power: Figure | None = Field(None, description="highest draw, W; null: not published")
    typical_power: Figure | None = Field(None, description="typical draw, W; null: not published")
    weight: Figure | None = Field(None, description="kg; null: not published")
    rack_units: int | None = Field(None, ge=1, description="null: not published")
    management: SwitchManagement | None = Field(None, description="null: not published")
    psus: Psus | None = Field(None, description="null: not published")


class GateSetEntry(Model):
    """One gate of a set."""

    id: str
    required: bool = Field(default=True, description="a node without a pass of it is not handed over")
    inputs: dict[str, object] = Field(default_factory=dict, description="overrides of the gate's typed inputs")
    after_boot: bool = Field(default=False, description="evidence made before the node's present boot does not count")
    max_age_hours: float | None = Field(
        None, gt=0, strict=True, description="evidence older than this many hours does not count; null: it does not age"
    )


class Unseen(Model):
    """A kind of fault that a gate set cannot see, and the gate that does."""

    gate: str = Field(description="id of the gate that sees it")
    what: str = Field(min_length=10, description="what stays unseen without that gate")


class GateSet(Model):
    """Gates that are run together, level by level, and within a level in this order."""

    id: ProfileId
    description: str
    gates: list[GateSetEntry] = Field(min_length=1)
    unseen: list[Unseen] = Field(
        default_factory=list, description="what the set cannot see, for reports; a gate that the site adds sees it"
    )
    repeat_hours: float | None = Field(
        None,
        gt=0,
        le=168,
        description="all gates are run again and again until so many hours are over; "
        "a node that fails leaves; null: once",
    )
    wave_gap_s: float | None = Field(
        None,
        ge=0,
        description="load comes on in the waves of the capacity plan (facility.power_on), so many seconds apart; "
        "null: on all nodes at once",
    )
