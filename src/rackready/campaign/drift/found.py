"""What a drift run found on one node or switch, while it is being collected."""

from __future__ import annotations

from dataclasses import dataclass, field

from rackready.model.drift import DriftItem


@dataclass(slots=True)
class DriftReading:
    """``not_asked``: what could not be compared, and why. ``notes``: what a reader should know beside the items."""

    items: list[DriftItem] = field(default_factory=list)
    not_asked: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    boot_id: str = ""
