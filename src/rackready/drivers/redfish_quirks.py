"""The quirks of one BMC: chosen from the profile by what the BMC says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rackready.model.bmc_quirk import BmcMake, BmcQuirk, QuirkKind
from rackready.profiles import loader


def make_of(root: Mapping[str, Any], system: Mapping[str, Any] | None = None, firmware: str = "") -> BmcMake:
    """Return what a BMC says of itself in its service root and, when it was read, in its system.

    Older services name the vendor only in Oem (NVIDIA/libredfish, src/model/service_root.rs).
    """
    oem = root.get("Oem")
    vendor = root.get("Vendor") or next(iter(oem), "") if isinstance(oem, Mapping) else root.get("Vendor")
    return BmcMake(
        vendor=str(vendor or ""),
        product=str(root.get("Product") or ""),
        model=str((system or {}).get("Model") or ""),
        firmware=firmware,
    )


@dataclass(frozen=True, slots=True)
class Quirks:
    """Quirks of one BMC."""

    found: tuple[BmcQuirk, ...] = ()

    @classmethod
    def of(cls, make: BmcMake, user: str = "") -> Quirks:
        """Return the quirks that apply to a BMC."""
        return cls(tuple(quirk for quirk in loader.bmc_quirks() if quirk.applies(make, user)))

    def has(self, kind: QuirkKind) -> bool:
        """Return whether the BMC has a quirk."""
        return any(quirk.quirk == kind for quirk in self.found)

    def all(self, kind: QuirkKind) -> list[BmcQuirk]:
        """Return every quirk of a kind."""
        return [quirk for quirk in self.found if quirk.quirk == kind]

    def of_value(self, kind: QuirkKind, value: str) -> BmcQuirk | None:
        """Return the quirk of a kind about a value, None where the BMC does not have it."""
        return next((quirk for quirk in self.all(kind) if quirk.value == value), None)

    def answer(self, kind: QuirkKind, value: str = "") -> str:
        """Return the answer to a quirk about a value, "" where the BMC does not have it."""
        found = self.of_value(kind, value)
        return found.answer if found is not None else ""
