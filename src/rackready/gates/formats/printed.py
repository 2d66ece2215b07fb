"""Shapes of those documents of our own scripts (``ondevice``) that gates take apart: a value of another type is refused with its place.

A value that a script could not read is null; what null means is for the gate to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from rackready.gates.formats.error import FormatError


class Shape(BaseModel):
    """Nothing is converted: a number that came as a word is no number."""

    model_config = ConfigDict(strict=True)


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
    """What ``nvml_inventory`` prints."""

    count: int
    gpus: list[_Gpu]


class _Nvml(Shape):
    error: str | None = None
    driver: str | None = None
    cuda: str | None = None


class Versions(Shape):
    """What ``versions`` prints."""

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
    """What ``fingerprint`` prints."""

    nics: list[_Nic]
    gpus: list[_Board] = []
    gpu_error: str | None = None
    chassis_serial: str | None = None
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
    """What ``part_inventory`` prints."""

    boot_id: str
    pci: dict[str, _Function]
    disks: dict[str, _Disk]
    memory_bytes: int | None = None


class NodeParts(Shape):
    """What ``node_parts`` prints."""

    boot_id: str | None = None
    parts: dict[str, dict[str, str]]
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
    """What ``trusted_programs`` prints."""

    files: dict[str, _File]


class _Server(Shape):
    address: str
    answer: str | None


class Names(Shape):
    """What ``names`` prints."""

    hostname: str
    hosts: list[Annotated[list[str], Field(min_length=2, max_length=2)]]
    addresses: list[str]
    resolved: dict[str, list[str]]
    servers: list[_Server]


class _Proof(Shape):
    """What showed that outlets are the node's own: its supplies' inputs (outlet -> supply that lost it), or its BMC's silence alone, and why.

    ``back``: supply -> whether it has input again, None where that is not told.
    """

    by: Literal["inputs", "silence"]
    why: str | None = None
    took: dict[str, str] = {}
    back: dict[str, bool | None] = {}


class PowerCycle(Shape):
    """What is told of a power cycle that was done; ``by``: what took the mains away, which AC alone does. Cycles of earlier versions have no ``proof``."""

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
    """Raise FormatError, with the first place that is not as it must be, when a document is not of a shape."""
    try:
        shape.model_validate(dict(found))
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")
        raise FormatError(f"{path}: {first['msg']}" if path else first["msg"]) from error
