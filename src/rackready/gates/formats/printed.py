"""Shapes of the documents of our scripts (``ondevice``): a value of another type is refused with its place.

A value that a script could not read is null; the gate decides what that means.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from rackready.format_error import FormatError
from rackready.model.wanted import fault


class Shape(BaseModel):
    """Base of all shapes. Nothing is converted: a number in quotes is not a number."""

    model_config = ConfigDict(defer_build=True, strict=True)


class _Gpu(Shape):
    index: int
    lost: str | None = None
    name: str | None = None
    uuid: str | None = None
    serial: str | None = None
    vbios: str | None = None
    board_part: str | None = None
    device_id: str | None = None
    memory_mib: int | None = None
    pci: str | None = None
    pcie_width: int | None = None
    pcie_gen: int | None = None
    pcie_gen_max: int | None = None
    nvlinks: dict[Annotated[str, Field(pattern=r"^[0-9]{1,3}$")], bool | None] | None = None
    unread: dict[str, str] = {}


class NvmlInventory(Shape):
    """Document of ``nvml_inventory``."""

    count: int
    gpus: list[_Gpu]


class _Nvml(Shape):
    error: str | None = None
    driver: str | None = None
    cuda: str | None = None


class PrintedVersions(Shape):
    """Document of ``versions``."""

    driver_module: str | None = None
    fabric_manager: str | None = None
    nvml: _Nvml | None = None
    packages: dict[str, str | None] | None = None
    services: dict[str, str | None] | None = None


class _Nic(Shape):
    device: str
    guid: str | None = None
    firmware: str | None = None


class _Board(Shape):
    index: int
    id: str | None = None
    vbios: str | None = None


class Fingerprint(Shape):
    """Document of ``fingerprint``."""

    nics: list[_Nic]
    gpus: list[_Board] = []
    gpu_error: str | None = None
    chassis_serial: str | None = None
    serials: dict[str, str | None] = {}
    driver: str | None = None
    kernel: str | None = None
    boot_id: str | None = None


class _Function(Shape):
    id: str
    kind: str | None = Field(None, alias="class")
    width: int | None = None
    speed: str | None = None


class _Disk(Shape):
    name: str
    sectors: str | None = None


class PartInventory(Shape):
    """Document of ``part_inventory``."""

    boot_id: str
    pci: dict[str, _Function]
    disks: dict[str, _Disk]
    memory_bytes: int | None = None


class NodeParts(Shape):
    """Document of ``node_parts``."""

    boot_id: str | None = None
    parts: dict[str, dict[str, str]]
    numbers: dict[str, dict[str, dict[str, str]]] = {}
    unread: dict[str, str]


class _File(Shape):
    path: str
    real: str
    package: str | None
    version: str | None
    md5: str
    sha256: str
    wanted: str | None


class TrustedPrograms(Shape):
    """Document of ``trusted_programs``."""

    files: dict[str, _File]


class _Server(Shape):
    address: str
    answer: str | None


class Names(Shape):
    """Document of ``names``."""

    hostname: str
    hosts: list[Annotated[list[str], Field(min_length=2, max_length=2)]]
    addresses: list[str]
    resolved: dict[str, list[str]]
    servers: list[_Server]


class _Proof(Shape):
    """Proof that outlets are the node's own: inputs of its supplies, or only the silence of its BMC, and why.

    ``took``: outlet -> supply that lost input. ``back``: supply -> whether it has input again; None if not reported.
    """

    by: Literal["inputs", "silence"]
    why: str | None = None
    took: dict[str, str] = {}
    back: dict[str, bool | None] = {}


class PowerCycle(Shape):
    """A completed power cycle. ``by``: what cut the mains (AC cycles only).

    Cycles of earlier versions have no ``proof``.
    """

    kind: Literal["ac", "cold", "warm"]
    by: Literal["pdu", "bmc"] | None = None
    proof: _Proof | None = None
    result: Literal["done"]
    complete: Literal[True]

    @model_validator(mode="after")
    def _ac_by_something(self) -> Self:
        if (self.kind == "ac") != (self.by is not None):
            message = f"kind {self.kind} by {self.by or 'nothing'}"
            raise ValueError(message)
        return self


def require_shape(found: Mapping[str, Any], shape: type[Shape]) -> None:
    """Raise FormatError, with the first wrong place, if a document does not have a shape."""
    try:
        shape.model_validate(dict(found))
    except ValidationError as error:
        raise FormatError(fault(error.errors(include_input=False)[0])) from error
