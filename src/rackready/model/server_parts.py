"""Parts of one server model, the names that its BMC gives to GPUs and NICs, and what its kernel and NICs need."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, PositiveInt, StringConstraints, model_validator

from rackready.model.base import Model


class HostParts(Model):
    """Processors, memory and drives of one server model as shipped. Host gates compare nodes with them."""

    cpu_model: str = Field(min_length=3, description="text that the processor's model name must contain, e.g. '8480C'")
    sockets: int = Field(ge=1, le=8)
    cores: int = Field(ge=1, le=256, description="cores of one socket")
    threads: int = Field(ge=1, le=4, description="hardware threads of one core; above 1: SMT is on as shipped")
    numa_nodes: int = Field(ge=1, le=64, description="NUMA nodes with processors")
    dimms: int = Field(ge=0, le=64, description="memory modules; 0: memory is soldered to the processor")
    memory_gib: int = Field(ge=16, description="total memory of all modules, GiB")
    drives: int = Field(ge=0, le=64, description="drives of the host, including boot drives")
    drive_gb: dict[PositiveInt, PositiveInt] = Field(
        default_factory=dict,
        description="nominal capacity of a drive, GB (10^9 bytes) -> number of such drives; empty: not published",
    )
    source: str = Field(min_length=5, description="source of these facts")

    @model_validator(mode="after")
    def _every_drive_has_its_capacity(self) -> HostParts:
        if self.drive_gb and sum(self.drive_gb.values()) != self.drives:
            message = f"drive_gb counts {sum(self.drive_gb.values())} drives - Expected: {self.drives}, as drives says"
            raise ValueError(message)
        return self


class RedfishNames(Model):
    """Names that the BMC of one server model gives to its GPUs and to the places of its NICs."""

    gpus: list[str] = Field(
        default_factory=list,
        description="id of every GPU among the processors or PCIe devices; empty: not published",
    )
    nics: list[str] = Field(
        default_factory=list,
        description="id of the PCIe device to which the adapter of each compute NIC links, in the order of `nics` of "
        "the platform; empty: not published",
    )
    other_nics: list[str] = Field(
        default_factory=list, description="the same of its other network cards: findings do not name those"
    )
    bios: str = Field(
        "",
        description="id in the firmware inventory of the BIOS version, where the system has none (UEFI of a Grace "
        "host); empty: the system has it",
    )
    source: str = Field(min_length=5, description="capture or document that shows these names")


class KernelOptions(Model):
    """Options that a server's kernel command line needs."""

    options: list[Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.,:=/+-]+$")]] = Field(
        min_length=1, description="options as in /proc/cmdline, e.g. iommu=pt"
    )
    source: str = Field(min_length=5)


class NicParameters(Model):
    """Non-volatile parameters of a server's compute NICs, by mlxconfig's names."""

    values: dict[Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]*$")], int] = Field(
        min_length=1, description="parameter to its number, e.g. MAX_ACC_OUT_READ: 44"
    )
    source: str = Field(min_length=5)
