"""Serial numbers of a machine, and which of them a site file means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

SerialKind = Literal["any", "system", "sku", "chassis", "board"]
"""Which number ``serial`` of a node is. ``sku``: the Service Tag of Dell."""
_KINDS: tuple[SerialKind, ...] = get_args(SerialKind)[1:]
_NAMES = {"system": "system", "sku": "SKU", "chassis": "chassis", "board": "board"}


@dataclass(frozen=True, slots=True)
class Serials:
    """The numbers that one machine reports, each with its kind."""

    found: tuple[tuple[SerialKind, str], ...] = ()

    @classmethod
    def of(cls, *found: tuple[SerialKind, object]) -> Serials:
        """Return these numbers without duplicates and without values that are not text."""
        texts = [(kind, value.strip()) for kind, value in found if isinstance(value, str) and value.strip()]
        return cls(tuple(dict.fromkeys(texts)))

    def also(self, other: Serials) -> Serials:
        """Return these numbers and those of another reading."""
        return Serials(tuple(dict.fromkeys((*self.found, *other.found))))

    def matches(self, wanted: str, kind: SerialKind = "any") -> bool:
        """Return whether one of the numbers of that kind is the wanted one."""
        return any(value == wanted and kind in {"any", own} for own, value in self.found)

    def __str__(self) -> str:
        """Return all numbers for messages: ``system MXFC4..., SKU 8XYZ123``."""
        parts = [f"{_NAMES[kind]} {value}" for kind in _KINDS for own, value in self.found if own == kind]
        return ", ".join(parts) or "none"


def wanted_text(serial: str, kind: SerialKind) -> str:
    """Return a site file's serial for messages: ``serial 8XYZ123 (SKU)``."""
    return f"serial {serial}" if kind == "any" else f"serial {serial} ({_NAMES[kind]})"
