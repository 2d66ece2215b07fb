"""The serial numbers that a Redfish service reports of its machine.

Vendors put the number on the label in different places. Dell reports the number of the board as ``SerialNumber`` of the
system, and the Service Tag as its ``SKU`` (OpenStack Ironic, ``idrac-inspect-sku``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rackready.model.serials import SerialKind, Serials

_DELL = "dell"


def of_system(document: dict[str, Any]) -> Serials:
    """Return the numbers of a ComputerSystem."""
    serial = document.get("SerialNumber")
    is_dell = str(document.get("Manufacturer") or "").lower().startswith(_DELL)
    boards = [*_boards(document), *([serial] if is_dell else [])]
    return Serials.of(("system", serial), ("sku", document.get("SKU"))).also(Serials.of(*map(_board, boards)))


def of_chassis(document: dict[str, Any]) -> Serials:
    """Return the numbers of a Chassis."""
    return Serials.of(
        ("chassis", document.get("SerialNumber")), ("sku", document.get("SKU")), *map(_board, _boards(document))
    )


def _board(serial: object) -> tuple[SerialKind, object]:
    return "board", serial


def _boards(document: dict[str, Any]) -> Iterator[object]:
    """Yield board serial numbers among the vendor's own properties, where DSP0266 has no property for them."""
    oem = document.get("Oem")
    for part in oem.values() if isinstance(oem, dict) else ():
        if isinstance(part, dict):
            yield part.get("BoardSerialNumber")
