"""Trays of superchips (GB200, GB300): one reference design, which each maker sells under a product name of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rackready.model.profile import GpuProfile, PlatformProfile
from rackready.profiles import loader

KEYS = ("fabric_manager", "nvlink_domain")
"""What a tray cannot report: its switches, and the fabric manager that runs on them, are in other trays."""


def is_superchip(gpu: GpuProfile | None) -> bool:
    """Return whether servers with this GPU are trays of one reference design, whoever makes them."""
    return gpu is not None and gpu.form == "superchip"


def trays(gpu: GpuProfile | None, names: Iterable[str]) -> tuple[PlatformProfile, ...]:
    """Return those of these platform profiles that are trays of a superchip; none for other GPUs."""
    if gpu is None or not is_superchip(gpu):
        return ()
    return tuple(one for one in map(loader.platform, names) if one.gpu == gpu.id)


def of_all(known: Sequence[PlatformProfile]) -> dict[str, Any]:
    """Return the values of ``KEYS`` on which all these profiles agree; those that say nothing are left out."""
    found: dict[str, Any] = {}
    for key in KEYS:
        values = {getattr(one, key) for one in known}
        if len(values) == 1 and None not in values:
            found[key] = values.pop()
    return found
