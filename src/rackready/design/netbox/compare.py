"""Steps that make NetBox match a plan. Nothing is ever deleted: objects outside the plan stay as they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rackready.design.netbox.items import Item, Key
from rackready.model.problems import Message

Known = dict[str, dict[Key, dict[str, Any]]]
"""Kind -> key -> the object as the API returned it."""


_AT_CREATION: Mapping[str, frozenset[str]] = {
    "dcim.sites": frozenset({"name", "status"}),
    "dcim.manufacturers": frozenset({"name"}),
    "dcim.device-roles": frozenset({"name"}),
    "dcim.cables": frozenset({"status"}),
    "dcim.device-types": frozenset({"manufacturer", "model", "u_height"}),
    "dcim.interfaces": frozenset({"type"}),
}
"""Fields that a new object gets and an existing one keeps: the plan does not know them, or only a placeholder.

Sites, makers and roles are found by slug, and shared with others: their names are for people to choose.
"""
_MAKERS = "dcim.manufacturers"


@dataclass(frozen=True, slots=True)
class NetboxStep:
    """One object to create or change; ``changes``: field -> (before, after), in words."""

    item: Item
    create: bool
    changes: Mapping[str, tuple[object, object]] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Return the step in one line."""
        name = " ".join(self.item.key)
        kind = self.item.kind.partition(".")[2]
        if self.create:
            return f"create {kind} {name}"
        told = (
            f"{what}: {'-' if before in ('', None) else before} -> {after}"
            for what, (before, after) in self.changes.items()
        )
        return f"change {kind} {name}: {', '.join(told)}"


def index(found: Mapping[str, Iterable[Mapping[str, Any]]]) -> Known:
    """Return objects by kind and key; of cables those that connect one interface to another."""
    out: Known = {}
    for kind, objects in found.items():
        rows = out.setdefault(kind, {})
        for item in objects:
            for key in _keys(kind, item):
                rows[key] = dict(item)
    return out


def _keys(kind: str, item: Mapping[str, Any]) -> list[Key]:
    if kind in {"dcim.racks", "dcim.devices"}:
        return [(str(item["name"]),)]
    if kind == "dcim.interfaces":
        return [(item["device"]["name"], item["name"])]
    if kind == "ipam.ip-addresses":
        # An address is one object whatever its mask. NetBox separates addresses by VRF; those of the plan are in none.
        return [(host(item["address"]),)] if item.get("vrf") is None else []
    if kind == "dcim.cables":
        both = ends(item)
        return [(*both[0], *both[1]), (*both[1], *both[0])] if both else []
    return [(item["slug"],)]


def ends(cable: Mapping[str, Any]) -> tuple[Key, Key] | None:
    """Return (device, interface) of both ends of a cable; None if it does not connect exactly two interfaces."""
    sides = [cable["a_terminations"], cable["b_terminations"]]
    if any(len(side) != 1 or side[0]["object_type"] != "dcim.interface" for side in sides):
        return None
    near, far = (side[0]["object"] for side in sides)
    return (near["device"]["name"], near["name"]), (far["device"]["name"], far["name"])


def host(address: str) -> str:
    """Return an address without its mask, because masks in NetBox vary."""
    return address.partition("/")[0]


def taken(wanted: Sequence[Item], known: Known) -> list[Message]:
    """Return problems for addresses that NetBox assigns to a device outside the plan.

    Taking such an address away would delete data of others.
    """
    planned = {item.key for item in wanted if item.kind == "dcim.devices"}
    out = []
    for item in wanted:
        held = (
            known.get(item.kind, {}).get(item.key, {}).get("assigned_object")
            if item.kind == "ipam.ip-addresses"
            else None
        )
        owner = held["device"]["name"] if held is not None and "device" in held else None
        if held is not None and (owner,) not in planned:
            whose = (
                f"{owner} {held['name']}"
                if owner is not None
                else held.get("display", "an object that is not a device")
            )
            ours = " ".join(item.refs["assigned_object_id"][1])
            out.append(
                Message(
                    f"address {item.key[0]}",
                    expected=f"free, or assigned to {ours}",
                    actual=f"assigned to {whose}",
                    next_step="Release it in NetBox, or plan another address.",
                )
            )
    return out


def steps(wanted: Sequence[Item], known: Known) -> list[NetboxStep]:
    """Return the required steps, in the order of the items."""
    out: list[NetboxStep] = []
    made: set[tuple[str, Key]] = set()
    for item in wanted:
        present = known.get(item.kind, {}).get(item.key)
        if present is None and (item.kind, item.key) not in made:
            out.append(NetboxStep(item, create=True))
            made.add((item.kind, item.key))
            continue
        changes = _changes(item, present or {})
        if changes:
            out.append(NetboxStep(item, create=False, changes=changes))
    needed = {step.item.refs["manufacturer"] for step in out if step.create and "manufacturer" in step.item.refs}
    return [step for step in out if step.item.kind != _MAKERS or (_MAKERS, step.item.key) in needed]


def _changes(item: Item, present: Mapping[str, Any]) -> dict[str, tuple[object, object]]:
    out: dict[str, tuple[object, object]] = {}
    keeps = _AT_CREATION.get(item.kind, frozenset())
    for name, value in item.fields.items():
        if name == "address" and host(str(present.get(name))) == host(str(value)):
            continue  # keep the mask that is set in NetBox
        if name not in keeps and plain(present.get(name)) != value:
            out[name] = (plain(present.get(name)), value)
    for name, (kind, key) in item.refs.items():
        if name not in keeps and not _same(present, name, kind, key):
            out[name] = (_shown(present, name), " ".join(key))
    return out


def plain(value: Any) -> Any:  # noqa: ANN401 - whatever JSON holds
    """Return a plain value: the API returns choices as {value, label}, and numbers with decimals."""
    if isinstance(value, Mapping) and "value" in value:
        return value["value"]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _same(present: Mapping[str, Any], name: str, kind: str, key: Key) -> bool:
    if name == "assigned_object_id":
        held = present.get("assigned_object")
        return held is not None and "device" in held and (held["device"]["name"], held["name"]) == key
    held = present.get(name)
    return held is not None and key in _keys(kind, held)


def _shown(present: Mapping[str, Any], name: str) -> object:
    held = present.get("assigned_object" if name == "assigned_object_id" else name)
    if isinstance(held, Mapping) and name == "assigned_object_id" and "device" in held:
        return f"{held['device']['name']} {held['name']}"
    return held.get("display", held.get("name", "")) if isinstance(held, Mapping) else held
