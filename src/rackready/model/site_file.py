"""The compact form of a site, and its JSON schema. ``design/expand.py`` expands it to a ``Site``.

- A ``name`` may be a host list (``gpu[01-32]``): one item for each name.
- ``template: NAME`` takes the keys of ``templates.<list>.<NAME>``. The item's own keys take precedence; mappings are
  merged key by key.
- A value that differs between items is a series (``unit: {first: 1, step: 8}``) or text with a placeholder for a fact
  of the item (``{rack}-n[1-4]``).
- A rack may contain its ``devices``, ``switches`` and ``switch_slots`` beside its ``nodes``.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from rackready.model.base import Model
from rackready.model.site import Site

PLACES = ("name", "n", "rack", "hall", "row", "position", "su", "index")
"""Placeholders in text: facts of the item or of its rack. ``{n:02}`` is padded with zeros to two digits."""

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
"""Models whose lists are expanded, and the lists inside their items."""

PLAIN_LISTS = frozenset({"rows", "fed_by"})
"""Lists of plain names that may contain host lists."""


class Series(Model):
    """A value that increases from item to item. Item k gets ``first + step * ((k // every) % cycle)``.

    k follows the numbers in names, from ``start``: the last item of ``a[01-04,07]`` has k = 6, so filling a gap later
    moves no other item.
    """

    first: int | str | None = Field(
        None, description="value of the first item: a whole number, an IPv4 address, or a subnet"
    )
    offset: int | None = Field(
        None, description="instead of first: offset that is added to the number in the item's name"
    )
    of: Literal["item", "rack"] = Field("item", description="numbers to follow: the item's own, or its rack's")
    start: int | None = Field(None, description="number in a name that gives k = 0; default: the first of the range")
    step: int = Field(1, description="increment")
    every: int = Field(1, ge=1, description="number of consecutive items that share one value")
    cycle: int | None = Field(None, ge=1, description="number of values after which the series starts again")
    text: str | None = Field(None, description="text around the number, e.g. 'row{n:02}'")


SERIES_KEYS = frozenset(Series.model_fields)


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of the compact form: that of ``Site`` with shorter lists."""
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
    text = "keys that several items share, by list and name; an item takes them with template: NAME"
    schema["properties"]["templates"] = {
        "type": "object",
        "description": text,
        "properties": dict.fromkeys(families, shelf),
        "additionalProperties": False,
    }
    schema["title"] = "Site file"
    return schema


def _shorter(definition: dict[str, Any]) -> dict[str, Any]:
    """Allow a series or placeholders for every plain value, and require no key: a template may set it."""
    out = {key: value for key, value in definition.items() if key != "required"}
    properties = {
        name: _or_series(value) if name not in PLAIN_LISTS else _or_host_lists(value)
        for name, value in definition["properties"].items()
    }
    if "rail" in properties:
        properties["rail"]["anyOf"].append({"type": "string", "pattern": r"^\d+-\d+$"})
    if "name" in properties:
        what = definition["properties"]["name"].get("description", "name")
        properties["name"] = {"type": "string", "description": f"{what}; a host list makes one item per name"}
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
