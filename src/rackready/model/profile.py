"""Profiles: facts about hardware and software that are the same on every site, each figure with its source."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from rackready.model.base import Model, ProfileId, Rate
from rackready.model.baseline import Baseline
from rackready.model.gpu_parts import KernelModules, Mig
from rackready.model.server_parts import HostParts, KernelOptions, NicParameters, RedfishNames
from rackready.model.supply import Cooling, Figure, Psus

_NVLINK5_MBS = 50_000
"""Between the rates of NVLink 4 and 5, MB/s of one link and direction."""


class NvLink(Model):
    """NVLink of one GPU."""

    links: int = Field(ge=1, le=72, description="links that must be active on every GPU")
    speed: Figure = Field(description="raw rate of one link and direction as NVML and nvidia-smi report it, MB/s")
    ring: Figure = Field(description="rate of one link in NCCL's model, GB/s")
    per_gpu: Figure = Field(description="marketing rate of one GPU and direction, GB/s: the ceiling of a ring")
    copy_min: Figure | None = Field(
        None,
        description="rate of a copy between two GPUs below which an operator refuses them, GB/s; null: not published",
    )

    @property
    def has_subnet(self) -> bool:
        """Return whether the links are NVLink 5 or later, whose switches form a subnet that NVLSM manages.

        NVLink 5 runs a link at 53,125 MB/s, NVLink 4 at 26,562 (NVML). NVIDIA Fabric Manager user guide, NVLSM.
        """
        return self.speed.value >= _NVLINK5_MBS


class PowerAndClocks(Model):
    """Settings of optimize. Null: no published figure found; optimize refuses such a card instead of guessing."""

    limit: Figure = Field(description="power limit as shipped (TDP), W")
    min_limit: Figure | None = Field(
        None, description="lowest power limit that the card accepts, W; null: not published"
    )
    sm_clock_max: Figure | None = Field(
        None, description="highest SM clock, MHz: optimize locks to it; null: not published"
    )
    sm_clock_min: Figure | None = Field(
        None, description="lowest SM clock that may be locked, MHz; null: not published"
    )


Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "fp4"]
"""Number formats of the tensor cores (fp32: of the CUDA cores) with a known dense rate."""


class PcieLink(Model):
    """The PCIe link of one GPU's board."""

    gen: int = Field(ge=3, le=7, description="generation")
    lanes: int = Field(ge=1, le=16)
    rate: Figure = Field(description="rate of one direction, GB/s")


class GpuPath(Model):
    """Speed and width of every link of a path over PCIe, switches and risers included."""

    gen: int = Field(ge=3, le=7, description="generation")
    lanes: int = Field(ge=1, le=16)
    source: str = Field(min_length=5)


class GpuProfile(Model):
    """One GPU model."""

    id: ProfileId
    product_name: str = Field(description="name as NVML reports it")
    pci_device_id: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{4}$")] = Field(
        description="PCI device id; vendor is 10de"
    )
    architecture: str
    memory: Figure = Field(description="memory.total as NVML reports it, MiB")
    nvlink: NvLink | None = Field(description="null for GPUs without NVLink")
    power: PowerAndClocks
    min_driver_branch: int = Field(description="first driver branch that supports it")
    min_driver_source: str
    max_driver_branch: int | None = Field(
        None, description="last driver branch that supports it; null: the newest does"
    )
    kernel_modules: KernelModules | None = Field(
        None, description="flavours of the driver's kernel modules that support it; null: not published, both are taken"
    )
    collectives: dict[str, Figure] = Field(
        default_factory=dict,
        description="measured busbw of a healthy single node, GB/s, by '<collective>/<n>/<algorithm>'",
    )
    matmul: dict[Precision, Figure] = Field(
        default_factory=dict, description="best published rate of a matrix product on one healthy GPU, TFLOPS"
    )
    fp32_min: Figure | None = Field(
        None, description="FP32 rate that DCGM requires of one GPU, GFLOPS (its sm_stress); null: not in its table"
    )
    fp64_tensor: Figure | None = Field(
        None, description="dense FP64 rate of the tensor cores, TFLOPS, an upper bound of HPL; null: not published"
    )
    hpl: Figure | None = Field(
        None, description="HPL of a healthy node with this GPU, TFLOPS per GPU; null: not published"
    )
    form: Literal["sxm", "pcie", "superchip"] | None = Field(None, description="form factor in a server")
    memory_nominal: Figure | None = Field(None, description="memory as sold, GB (10^9 bytes); planning uses `memory`")
    memory_bandwidth: Figure | None = Field(None, description="GB/s")
    memory_temp_max: Figure | None = Field(
        None,
        description="highest operating temperature of the memory, C; above it the GPU slows down; null: not published",
    )
    compute: dict[Precision, Figure] = Field(
        default_factory=dict,
        description="DENSE TFLOPS by number format; vendors print twice that 'with sparsity'. "
        "Absent formats are not published",
    )
    nvlink_bridge: Figure | None = Field(
        None, description="rate of an optional NVLink bridge between a pair of cards, both directions, GB/s"
    )
    pcie: PcieLink | None = Field(None, description="PCIe link; null: not published")
    mig: Mig | None = Field(None, description="null: the GPU has no MIG")

    @property
    def registers(self) -> bool:
        """Return whether the GPU registers with an NVSwitch fabric, and so reports a fabric state.

        NVML has the fabric state only for Hopper or newer (nvmlDeviceGetGpuFabricInfo), and nvidia-smi prints N/A on
        A100 servers whose fabric manager runs (bottlerocket-os/bottlerocket pull request 3873, p4d).
        """
        return self.architecture != "ampere"


Cage = Literal["osfp_finned", "osfp_flat", "qsfp112", "qsfp56", "qsfp28", "sfp28", "rj45"]
"""Connector of a port. Finned OSFP: air-cooled switches; flat-top OSFP: heat sink on the cage (adapters, DGX)."""


class PlatformNic(Model):
    """One compute NIC of a server model. Unpublished names are empty: such a server can be planned, not installed."""

    rail: int = Field(ge=1, le=16)
    rdma_device: str = Field("", description="device below /sys/class/infiniband, e.g. mlx5_0; empty: not published")
    netdev: str = Field("", description="network interface name, e.g. enp26s0np0; empty: not published")
    pci: str = Field("", description="PCI address (domain:bus:device.function); empty: not published")
    gpu: int = Field(ge=0, description="index of the GPU behind the same PCIe switch, or whose rail it is")
    numa: int = Field(0, ge=0)
    rate: Rate
    cage: Cage | None = Field(None, description="connector of the cable's port; null: not published")
    planes: int = Field(1, ge=1, le=8, description="network planes of this NIC; each gets rate / planes")
    port: str = Field(
        "", description="label of the port on the chassis, e.g. OSFP4P2: two NICs may share one twin-port cage"
    )


class OtherNic(Model):
    """One network port of a server model beside the compute rails."""

    role: Literal["inband", "storage", "oob"]
    name: str = Field(min_length=1, description="name of the port, e.g. bf3-1p1")
    rate: Literal[1, 10, 25, 100, 200, 400, 800] = Field(description="Gb/s per direction")
    cage: Cage | None = Field(None, description="null: not published")
    dpu: bool = Field(default=False, description="a BlueField with its own BMC, operating system and addresses")


class PlatformProfile(Model):
    """One server model."""

    id: ProfileId
    manufacturer: str = Field(description="as Redfish reports it")
    product: str = Field(description="as Redfish reports it")
    gpu: ProfileId
    gpus: int = Field(ge=1, le=16)
    gpu_pci: list[str] = Field(
        default_factory=list, description="PCI address of every GPU, by index; empty: not published"
    )
    gpu_path: GpuPath | None = Field(
        None,
        description="PCIe from each GPU to its root port; "
        "null: not published; the GPU's own link is compared with the GPU "
        "model, the others end to end",
    )
    host_path: GpuPath | None = Field(
        None,
        description="PCIe between the host's memory and a GPU or compute NIC, where the processors are slower than "
        "both; null: as the GPU's own link, and no limit of a NIC",
    )
    nvswitch: bool = Field(description="NVSwitches connect the GPUs")
    nvswitches: Figure | None = Field(
        None,
        description="NVSwitches that the server sees through NSCQ (boards of A100, H100, H200); "
        "null: none, or not published",
    )
    nics: list[PlatformNic] = Field(
        default_factory=list, description="compute NICs, one per rail; empty: the server has no compute fabric"
    )
    nic_path: Literal["switch", "root_ports"] = Field(
        "switch",
        description="between a GPU and its compute NIC; switch: a PCIe switch; root_ports: each has a root port of its "
        "own, so that distance (`nvidia-smi topo -m`) tells nothing",
    )
    rack_units: int = Field(ge=1)
    max_power: Figure = Field(description="highest draw of the whole server, W")
    source: str
    fabric_manager: bool | None = Field(
        None,
        description="whether the server runs the fabric manager; null: same as `nvswitch`. "
        "False on NVL72 trays, whose switch trays run it",
    )
    nvlink_domain: int | None = Field(
        None,
        ge=2,
        le=576,
        description="GPUs of an NVLink domain that spans servers (NVL72: 72); null: the server's own GPUs",
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
        description="input; bus_bar: the rack's DC bus bar; either: bus bar or cords, as ordered; "
        "null: cords from outlets",
    )
    cooling: Cooling | None = Field(None, description="null: not published")
    airflow: Figure | None = Field(None, description="airflow through the chassis, m3/h; null: not published")
    other_nics: list[OtherNic] = Field(
        default_factory=list, description="storage, in-band and out-of-band ports; empty: not published"
    )
    baseline: Baseline | None = Field(
        None, description="firmware and BIOS baseline from a source; null: none known, the site sets it (baselines)"
    )
    host: HostParts | None = Field(
        None, description="processors, memory and drives; null: chosen when ordered, or not published"
    )
    redfish: RedfishNames | None = Field(
        None,
        description="names of its parts over Redfish, with which provision compares what the BMC lists; "
        "null: not published",
    )
    kernel_options: KernelOptions | None = Field(
        None, description="options of the kernel command line; null: none (role base adds none)"
    )

    nic_parameters: NicParameters | None = Field(None, description="beside link type and ATS; null: none (nic_stack)")

    @model_validator(mode="after")
    def _redfish_names_every_part_once(self) -> PlatformProfile:
        if self.redfish is None:
            return self
        named = (("gpus", self.redfish.gpus, self.gpus), ("nics", self.redfish.nics, len(self.nics)))
        for key, names, count in named:
            if names and len(set(names)) != count:
                message = (
                    f"redfish.{key} - Expected: {count} different names, as many as it has Actual: {len(set(names))}"
                )
                raise ValueError(message)
        return self

    @property
    def runs_fabric_manager(self) -> bool:
        """Return whether the server runs the fabric manager: install adds it and gates check it."""
        return self.nvswitch if self.fabric_manager is None else self.fabric_manager

    @property
    def runs_imex(self) -> bool:
        """Return whether the server's NVLink domain spans servers, so that it runs IMEX."""
        return self.nvlink_domain is not None and self.nvlink_domain > self.gpus

    def unpublished(self) -> tuple[str, ...]:
        """Return the unpublished facts that installing needs; empty when the server can be installed."""
        names = ("rdma_device", "netdev", "pci")
        missing = ["the PCI addresses of its GPUs"] if len(self.gpu_pci) != self.gpus else []
        if any(not getattr(nic, name) for nic in self.nics for name in names):
            missing.append("the device names of its compute NICs")
        return tuple(missing)


class ManagementPort(Model):
    """The out-of-band management port of a switch or device."""

    name: str = Field(min_length=1, description="name in its operating system or on its label, e.g. eth0")
    rate: Literal[1, 10, 25] = Field(1, description="Gb/s per direction")
    cage: Literal["rj45", "sfp28"] = Field(description="connector of the port")


class SwitchManagement(ManagementPort):
    """The management port of a switch model."""

    source: str = Field(min_length=5)


class SwitchProfile(Model):
    """One switch model."""

    id: ProfileId
    ports: str = Field(description="range of its ports, e.g. swp1-swp64")
    os: list[ProfileId] = Field(
        description="network operating systems that rackready configures on it; "
        "empty: the switch can be planned, not configured"
    )
    rate: Literal[1, 100, 200, 400, 800] = Field(description="Gb/s per direction of one of `ports`")
    source: str
    layer: Literal["ethernet", "infiniband"] = "ethernet"
    asic: str | None = Field(None, description="its switch chip, e.g. Spectrum-4; null: not published")
    cage: Cage | None = Field(None, description="connector of `ports`; null: not published")
    ports_per_cage: int = Field(1, ge=1, le=2, description="ports that share one cage (twin-port OSFP: 2)")
    breakout: list[int] = Field(
        default_factory=lambda: [1], description="allowed splits of one of `ports`; 1: not split"
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
        description="ports to other equipment after the profile's breakout; null: as many as in `ports`",
    )
    port_pattern: str | None = Field(
        None,
        description="port name by cage {c} and twin {t}; null: the names of `ports`",
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
    required: bool = Field(default=True, description="whether handover needs a pass of this gate")
    inputs: dict[str, object] = Field(
        default_factory=dict, description="values of the gate's inputs that replace the defaults"
    )
    after_boot: bool = Field(
        default=False, description="whether evidence from before the node's present boot no longer counts"
    )
    max_age_hours: float | None = Field(
        None, gt=0, strict=True, description="age above which evidence no longer counts, h; null: it does not age"
    )


class Unseen(Model):
    """A kind of fault that a gate set cannot detect, and the gate that can."""

    gate: str = Field(description="id of the gate that detects it")
    what: str = Field(min_length=10, description="what is not detected without that gate")


class GateSet(Model):
    """Gates that run together, level by level, and within a level in this order."""

    id: ProfileId
    description: str
    gates: list[GateSetEntry] = Field(min_length=1)
    unseen: list[Unseen] = Field(
        default_factory=list,
        description="faults that the set cannot detect, for reports; a gate that the site adds can",
    )
    repeat_hours: float | None = Field(
        None,
        gt=0,
        le=168,
        description="time for which all gates run repeatedly, h; a node that fails leaves; null: run once",
    )
    wave_gap_s: float | None = Field(
        None,
        ge=0,
        description="time between the waves of the capacity plan (facility.power_on) in which load comes on, s; "
        "null: all nodes at once",
    )
