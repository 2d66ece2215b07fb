"""Non-volatile parameters of a network card: what it works with, and what its flash holds for the next reset or boot.

Names, kinds and factory values: Mellanox/mstflint @b9d9e844, mlxconfig/mlxconfig_dbs/mlxconfig_host.db; a VPI card
leaves the factory with IB. The hardware state has each card as delivered; what software wrote is in a file of the
machine that outlives its power. A fault that changes the card replaces what was written.
"""

from __future__ import annotations

import json
from typing import Any

from .. import paths, store

Nic = dict[str, Any]
_FLASH = "/var/lib/hw/nic-nv.json"
LINK_TYPE = "LINK_TYPE_P1"
IB, ETH = 1, 2
ADVANCED = "ADVANCED_PCI_SETTINGS"


class Kind:
    """One parameter: factory value, texts of an enumeration, and the parameter that must be on for it to show."""

    def __init__(self, factory: int, texts: tuple[tuple[int, str], ...] = (), behind: str = "") -> None:
        self.factory, self.texts, self.behind = factory, texts, behind

    def text(self, value: int) -> str:
        """Return a value as mlxconfig prints it."""
        name = dict(self.texts).get(value)
        return f"{name}({value})" if name else str(value)


_BOOL = ((0, "False"), (1, "True"))
KINDS = {
    "ADVANCED_PCI_SETTINGS": Kind(0, _BOOL),
    "ATS_ENABLED": Kind(0, _BOOL),
    "LINK_TYPE_P1": Kind(IB, ((IB, "IB"), (ETH, "ETH"))),
    "MAX_ACC_OUT_READ": Kind(0, behind=ADVANCED),
    "NUM_OF_VFS": Kind(0),
    "PCI_WR_ORDERING": Kind(0, ((0, "per_mkey"), (1, "force_relax"))),
    "ROCE_CONTROL": Kind(2, ((0, "DEVICE_DEFAULT"), (1, "ROCE_DISABLE"), (2, "ROCE_ENABLE"))),
    "SRIOV_EN": Kind(0, _BOOL),
}


def names(nic: Nic) -> list[str]:
    """Return the parameters that the card shows now, in the order of the tool."""
    lacks = nic.get("nv_lacks", [])
    return [
        name
        for name, kind in sorted(KINDS.items())
        if name not in lacks and (not kind.behind or following(nic, kind.behind))
    ]


def _delivered(nic: Nic, name: str) -> int:
    return int(nic.get("nv", {}).get(name, KINDS[name].factory))


def _flash() -> dict[str, dict[str, dict[str, int]]]:
    path = paths.at(_FLASH)
    found: dict[str, dict[str, dict[str, int]]] = json.loads(path.read_text()) if path.exists() else {}
    return found


def _of(entries: dict[str, Any], nic: Nic, name: str, key: str) -> int | None:
    entry = entries.get(nic["pci"], {}).get(name)
    return int(entry[key]) if entry and entry["delivered"] == _delivered(nic, name) else None


def following(nic: Nic, name: str) -> int:
    """Return the value of the next boot."""
    found = _of(_flash(), nic, name, "next")
    return _delivered(nic, name) if found is None else found


def current(nic: Nic, name: str) -> int:
    """Return the value that the card works with since its last reset or power-on."""
    found = _of(store.runtime().get("nv", {}), nic, name, "current")
    return following(nic, name) if found is None else found


def set_next(nic: Nic, values: dict[str, int]) -> None:
    """Write values for the next boot; the card goes on with those in force. A locked card keeps its own."""
    if nic.get("nv_locked"):
        return
    flash, place = _flash(), nic["pci"]
    with store.change() as runtime:
        for name, value in values.items():
            delivered = _delivered(nic, name)
            kept = runtime.setdefault("nv", {}).setdefault(place, {})
            if _of(runtime["nv"], nic, name, "current") is None:
                kept[name] = {"delivered": delivered, "current": following(nic, name)}
            flash.setdefault(place, {})[name] = {"delivered": delivered, "next": value}
    path = paths.at(_FLASH)
    path.parent.mkdir(parents=True, exist_ok=True)
    store.write(path, json.dumps(flash))


def load(nic: Nic) -> None:
    """Take the values of the flash over, as a reset does."""
    with store.change() as runtime:
        runtime.get("nv", {}).pop(nic["pci"], None)
        runtime["nic"].pop(nic["rdma_device"], None)


def is_infiniband(nic: Nic) -> bool:
    """Return whether the card's port works as InfiniBand."""
    return current(nic, LINK_TYPE) == IB if "nv" in nic else False
