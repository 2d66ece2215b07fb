"""Drift: what differs on a node or switch from its site, item by item, and since which run."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from rackready.model.base import Model


class DriftKind(StrEnum):
    """What an item is about."""

    PACKAGE = "package"
    FILE = "file"
    UNIT = "unit"
    KERNEL = "kernel"
    DRIVER = "driver"
    GPU = "gpu"
    NIC = "nic"
    SWITCH = "switch"
    HOST_KEY = "host-key"
    FIRMWARE = "firmware"
    PART = "part"
    CHECK = "check"
    TASK = "task"


class WhenSeen(Model):
    """A campaign or a drift run, and when."""

    run: str = Field(description="id of the campaign or of the drift run")
    at: str = Field(description="when it ended or looked, UTC")


class DriftItem(Model):
    """One thing that differs."""

    kind: DriftKind
    name: str = Field(description="package, path, unit, sysctl key, GPU or interface with its setting, command, ...")
    expected: str
    actual: str
    source: str = Field(description="what compared it: 'role base', 'switch driver', 'gate ID', 'certificate', 'pins'")
    phase: str = Field(description="phase that puts it right; empty where none does")
    task: str = Field("", description="task of the role that would change it")
    next_step: str = ""
    since: WhenSeen | None = Field(None, description="last campaign in which that phase passed on the node")
    first_seen: WhenSeen | None = Field(None, description="first drift run of those in a row that found it")
    last_without: WhenSeen | None = Field(None, description="last drift run that compared it and found no difference")

    @property
    def key(self) -> str:
        """Return what makes it the same item in another run: an item that changes its value again stays the same."""
        return f"{self.kind.value}\0{self.name}\0{self.source}"


class DriftReport(Model):
    """One node or switch, as a drift run found it."""

    name: str
    target: Literal["node", "switch"]
    asked: bool = Field(description="whether everything that was applied to it could be compared")
    compared: list[str] = Field(description="phases whose result was compared: install, fabric, optimize, handover")
    items: list[DriftItem] = Field(default_factory=list)
    not_asked: list[str] = Field(default_factory=list, description="what could not be compared, and why")
    notes: list[str] = Field(default_factory=list, description="a reboot, an edited site file, phases never applied")
    boot_id: str = Field("", description="random id of the boot in which it was asked; empty for a switch")
