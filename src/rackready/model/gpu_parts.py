"""Parts of a GPU's profile: MIG, and the kernel modules of the driver that support it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rackready.model.base import Model

Flavour = Literal["open", "proprietary"]
"""Flavours of the driver's kernel modules, with NVIDIA's names for them."""


class Mig(Model):
    """MIG instances of one GPU."""

    instances: int = Field(ge=2, le=7, description="highest number of instances")
    profiles: dict[str, int] = Field(
        default_factory=dict, description="MIG profile to number of instances that fit, e.g. 1g.10gb: 7"
    )
    source: str = Field(min_length=5)


class KernelModules(Model):
    """The flavours of the driver's kernel modules that support a GPU: its architecture decides."""

    flavours: list[Flavour] = Field(min_length=1, max_length=2)
    source: str = Field(min_length=5)
