"""The written form of a site: what people may write shorter. ``design/expand.py`` writes it out to a ``Site``; this file says its JSON schema.

- A ``name`` may be a host list (``gpu[01-32]``): one item for each name.
- ``template: NAME`` takes what ``templates.<list>.<NAME>`` says; the item's own keys win, mappings are merged key by
  key.
- A value that differs from item to item is a series (``unit: {first: 1, step: 8}``) or text with a place for a fact of
  the item (``{rack}-n[1-4]``).
- A rack may hold its ``devices``, ``switches`` and ``switch_slots`` beside its ``nodes``.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from rackready.model.base import Model
from rackready.model.site import Site

PLACES = ("name", "n", "rack", "hall", "row", "position", "su", "index")
"""What may stand in braces inside text: facts of the item itself, or of the rack around it; ``{n:02}`` is padded with zeros to two places."""

WRITTEN_OUT = (
    "Rack",
    "Node",
    "NodeBmc",
    "Outlet",
    "Switch",
    "Device",
    "Feed",
    "RackCooling",
    "Hall",
    "PowerNode",
    "NvlinkDomain",
    "Rail",
    "SwitchSlot",
    "Link",
)
"""Models whose lists are written out, and what lies in their items."""

PLAIN_LISTS = frozenset({"rows", "fed_by"})
"""Lists of plain names in which a host list may stand."""


class Series(Model):
    """A value that goes up from item to item. Item k gets ``first + step * ((k // every) % cycle)``.

    k counts the numbers in names, from ``start``: in ``a[01-04,07]`` the last one has k = 6, so that a gap that is
    filled later moves nothing.
    """

    first: int | str | None = Field(
        None, description="value of the first item: a whole number, an IPv4 address, or a subnet"
    )
    offset: int | None = Field(
        None, description="instead of first: the value is the number in the item's name plus this"
    )
    of: Literal["item", "rack"] = Field(
        "item", description="whose numbers count: the item's own, or those of the rack that it is written in"
    )
    start: int | None = Field(
        None, description="number in a name that counts as k = 0; the first of the range when absent"
    )
    step: int = Field(1, description="how much it goes up")
    every: int = Field(1, ge=1, description="how many items in a row share one value")
    cycle: int | None = Field(None, ge=1, description="after so many values it begins again")
    text: str | None = Field(None, description="text around the number, e.g. 'row{n:02}'")


SERIES_KEYS = frozenset(Series.model_fields)


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of the written form: that of ``Site``, in which lists may be written shorter."""
    schema = Site.model_json_schema(by_alias=True)
    definitions = schema["$defs"]
    definitions["Series"] = Series.model_json_schema()
    for name in WRITTEN_OUT:
        definitions[name] = _shorter(definitions[name])
    for noun, model in (("devices", "Device"), ("switches", "Switch"), ("switch_slots", "SwitchSlot")):
        text = f"{noun.replace('_', ' ')} of this rack"
        definitions["Rack"]["properties"][noun] = {
            "type": "array",
            "items": {"$ref": f"#/$defs/{model}"},
            "description": text,
        }
    families = ("racks", "nodes", "switches", "devices", "feeds", "power", "nvlink_domains")
    shelf = {"type": "object", "additionalProperties": {"type": "object"}}
    text = "what several items share, by list and name; an item takes it with template: NAME"
    schema["properties"]["templates"] = {
        "type": "object",
        "description": text,
        "properties": dict.fromkeys(families, shelf),
        "additionalProperties": False,
    }
    schema["title"] = "Site file"
    return schema


def _shorter(definition: dict[str, Any]) -> dict[str, Any]:
    """Let every plain value be a series or text with places, and let nothing be required: a template may bring it."""
    out = {key: value for key, value in definition.items() if key != "required"}
    properties = {
        name: _or_series(value) if name not in PLAIN_LISTS else _or_host_lists(value)
        for name, value in definition["properties"].items()
    }
    if "rail" in properties:
        properties["rail"]["anyOf"].append({"type": "string", "pattern": r"^\d+-\d+$"})
    if "name" in properties:
        what = definition["properties"]["name"].get("description", "name")
        properties["name"] = {"type": "string", "description": f"{what}; a host list makes one item of each name"}
    properties["template"] = {"type": "string", "description": "template of this list"}
    return out | {"properties": properties}


def _or_host_lists(value: dict[str, Any]) -> dict[str, Any]:
    return value | {"items": {"type": "string"}}


def _or_series(value: dict[str, Any]) -> dict[str, Any]:
    kinds = [value, *value.get("anyOf", [])]
    if any(kind.get("type") in {"integer", "string", "number"} for kind in kinds):
        notes = {key: value[key] for key in ("description", "default", "title") if key in value}
        plain = {key: item for key, item in value.items() if key not in notes}
        alternatives = plain.get("anyOf", [plain])
        return notes | {"anyOf": [*alternatives, {"$ref": "#/$defs/Series"}, {"type": "string", "pattern": r"[\[{]"}]}
    return value
