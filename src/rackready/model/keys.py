"""Keys of the site file in words: type, default, bounds and meaning, read from the JSON schema.

The reference and `rackready help` print them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rackready.model.site import Site
from rackready.model.site_file import json_schema

Schema = dict[str, Any]

REQUIRED = "required"
SERIES = "series"
"""Path of the section that describes a series."""

_FORMATS = {"ipv4": "IPv4 address", "ipv4network": "IPv4 network", "path": "path", "date": "day", "date-time": "time"}
_TYPES = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "object": "mapping",
    "array": "list",
}
_MANY = {
    "text": "texts",
    "whole number": "whole numbers",
    "number": "numbers",
    "mapping": "mappings",
    "path": "paths",
    "day": "days",
}


@dataclass(frozen=True, slots=True)
class Key:
    """One key with its path in the file, e.g. ``racks[].nodes[].name``.

    ``inside``: sections with the keys of its mapping.
    """

    path: str
    kind: str
    default: str
    bounds: str
    text: str
    inside: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Last part of the path."""
        return self.path.rpartition(".")[2].removesuffix("[]")


@dataclass(frozen=True, slots=True)
class Section:
    """The keys of one mapping, at its first allowed place. ``also``: further places."""

    title: str
    text: str
    keys: tuple[Key, ...]
    also: tuple[str, ...] = ()


def kind_of(schema: Schema) -> str:
    """Return the type of a value in words. Null is omitted, because the default shows it."""
    if choices := [*schema.get("anyOf", []), *schema.get("oneOf", [])]:
        return " or ".join(
            dict.fromkeys(kind_of(choice) for choice in choices if not _is_null(choice) and not _is_short_form(choice))
        )
    if "items" in schema:
        return f"list of {_many(kind_of(schema['items']))}"
    if values := _values(schema):
        return f"mapping of names to {_many(kind_of(values))}"
    return _plain_kind(schema)


def _plain_kind(schema: Schema) -> str:
    if "const" in schema:
        return f"always {_plain(schema['const'])}"
    if "enum" in schema:
        return "one of " + ", ".join(_plain(value) for value in schema["enum"])
    if "$ref" in schema:
        return "mapping"
    return _FORMATS.get(schema.get("format", ""), _TYPES.get(schema.get("type", ""), "any value"))


def _many(kind: str) -> str:
    return _MANY.get(kind, kind)


def bounds_of(schema: Schema) -> str:
    """Return the bounds of a value in words, empty when it has none."""
    said: list[str] = []
    for part in [schema, *schema.get("anyOf", [])]:
        if not _is_short_form(part):
            said += _bounds(part)
    return "; ".join(dict.fromkeys(said))


def default_of(schema: Schema, *, required: bool) -> str:
    """Return the default in words."""
    if required:
        return REQUIRED
    if "$ref" in schema:
        return "its own defaults"
    if "default" not in schema:
        return "empty" if schema.get("type") in {"array", "object"} else "none"
    return "none" if schema["default"] is None else _plain(schema["default"])


def site_sections() -> list[Section]:
    """Return every mapping of the site file with its keys, from the top down, and a series as the last one."""
    schema = json_schema()
    needed = {
        name: set(part.get("required", ())) for name, part in Site.model_json_schema(by_alias=True)["$defs"].items()
    }
    walk = _Walk(schema["$defs"], needed)
    first = walk.section("", "the file", schema, set(schema["required"]))
    rest = walk.below()
    series = walk.section(SERIES, SERIES, schema["$defs"]["Series"], set())
    return [first, *rest, series]


class _Walk:
    """Walks a schema breadth first. A mapping with several allowed places gets its section at the first."""

    def __init__(self, definitions: dict[str, Schema], needed: dict[str, set[str]]) -> None:
        self._definitions = definitions
        self._needed = needed
        self._titles: dict[str, str] = {}
        self._also: dict[str, list[str]] = {}
        self._waiting: list[tuple[str, str]] = []

    def section(self, path: str, title: str, schema: Schema, needed: set[str], model: str = "") -> Section:
        """Return the section of one mapping, and queue the mappings inside it."""
        keys = tuple(
            self._key(path, name, part, required=name in needed) for name, part in schema["properties"].items()
        )
        return Section(title, schema.get("description", ""), keys, tuple(self._also.setdefault(model, [])))

    def below(self) -> list[Section]:
        """Return the sections of the queued mappings, and of the mappings inside them."""
        found: list[tuple[str, Section]] = []
        while self._waiting:
            model, path = self._waiting.pop(0)
            made = self.section(
                path, self._titles[model], self._definitions[model], self._needed.get(model, set()), model
            )
            found.append((model, made))
        return [Section(made.title, made.text, made.keys, tuple(self._also[model])) for model, made in found]

    def _key(self, path: str, name: str, schema: Schema, *, required: bool) -> Key:
        full = f"{path}.{name}".removeprefix(".")
        inside, texts = [], []
        for model, suffix in _models(schema):
            if "properties" not in self._definitions[model]:  # any value at all
                continue
            inside.append(self._note(model, full + suffix, several="oneOf" in schema))
            texts.append(self._definitions[model].get("description", ""))
        kind = kind_of(schema) + (" or series" if _takes_series(schema) else "")
        text = schema.get("description") or " / ".join(texts)
        return Key(full, kind, default_of(schema, required=required), bounds_of(schema), text, tuple(inside))

    def _note(self, model: str, path: str, *, several: bool) -> str:
        """Return the title of a mapping's section, and record its place."""
        if model not in self._titles:
            const = self._definitions[model]["properties"].get("kind", {}).get("const")
            self._titles[model] = f"{path} ({const})" if several and const else path
            self._waiting.append((model, path))
        else:
            self._also.setdefault(model, []).append(path)
        return self._titles[model]


def _models(schema: Schema) -> Iterator[tuple[str, str]]:
    """Yield the models that a value may be, each with its suffix of the path: [] in a list, .NAME in a mapping."""
    if "$ref" in schema:
        model = schema["$ref"].rpartition("/")[2]
        if model != "Series":
            yield model, ""
    for choice in [*schema.get("anyOf", []), *schema.get("oneOf", [])]:
        yield from _models(choice)
    if "items" in schema:
        yield from ((model, f"[]{suffix}") for model, suffix in _models(schema["items"]))
    if values := _values(schema):
        yield from ((model, f".NAME{suffix}") for model, suffix in _models(values))


def _values(schema: Schema) -> Schema | None:
    """Return the schema of the values of a mapping with free names, None when it has none."""
    found = next(iter(schema.get("patternProperties", {}).values()), schema.get("additionalProperties"))
    return found if isinstance(found, dict) else None


def _takes_series(schema: Schema) -> bool:
    return any(choice.get("$ref", "").endswith("/Series") for choice in schema.get("anyOf", []))


def _is_short_form(schema: Schema) -> bool:
    """Return whether it is only another way to write a value: a series, text with placeholders, a range."""
    return schema.get("$ref", "").endswith("/Series") or schema.get("pattern") in {r"[\[{]", r"^\d+-\d+$"}


def _is_null(schema: Schema) -> bool:
    return schema.get("type") == "null"


def _bounds(schema: Schema) -> list[str]:
    least, most = schema.get("minimum"), schema.get("maximum")
    said = [f"{least} to {most}"] if least is not None and most is not None else []
    if not said:
        said = [f"{word} {value}" for word, value in (("at least", least), ("at most", most)) if value is not None]
    words = {
        "exclusiveMinimum": "more than {}",
        "exclusiveMaximum": "less than {}",
        "minLength": "length at least {}",
        "maxLength": "length at most {}",
        "minItems": "at least {} items",
        "maxItems": "at most {} items",
        "minProperties": "at least {} entries",
        "pattern": "matches {}",
    }
    return said + [text.format(schema[key]) for key, text in words.items() if key in schema]


def _plain(value: object) -> str:
    """Return a value as it is written in YAML."""
    return value if isinstance(value, str) else json.dumps(value)
