"""The contract of every gate class, ours and those of plug-ins."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from rackready.gates.base import Gate, Inputs
from rackready.gates.engine.single_node import LEVELS

PARTS = frozenset({"cable", "gpu", "nic", "node", "nvlink", "rail"})
"""Kinds of parts that coverage counts."""

_ID = re.compile(rf"(bmc|node|pair|group|rack|switch|cluster)/[a-z0-9-]+/({'|'.join(LEVELS)})/[a-z0-9-]+")
_UNITS = {
    "_gb_s": ("GB/s",),
    "_mib": ("MiB",),
    "_mhz": ("MHz",),
    "_percent": ("percent",),
    "_s": ("s", "seconds"),
    "_w": ("W",),
}
"""Suffix of an input's name -> the units its description may use; the first match counts."""


def breaches(kind: type[Gate]) -> list[str]:
    """Return the contract breaches of a gate class, each as `what - Expected: x Actual: y`."""
    return [*_identity(kind), *_inputs(kind.Inputs)]


def _identity(kind: type[Gate]) -> Iterator[str]:
    if not _ID.fullmatch(kind.id):
        yield f"id - Expected: SCOPE/TARGET/LEVEL/NAME, LEVEL one of {', '.join(LEVELS)} Actual: {kind.id}"
        return
    if not (kind.__doc__ or "").strip():
        yield "docstring - Expected: a first line for reports Actual: none"
    if kind.looks != (kind.id.split("/")[2] == "sanity"):
        yield (
            "looks - Expected: true for level sanity, which runs on nodes with jobs, else false "
            f"Actual: {str(kind.looks).lower()}"
        )
    if not kind.findings:
        yield "findings - Expected: the kinds of findings that it can make Actual: none"
    if unknown := sorted(kind.covers - PARTS):
        yield f"covers - Expected: some of {', '.join(sorted(PARTS))} Actual: {', '.join(unknown)}"


def _inputs(kind: type[BaseModel]) -> Iterator[str]:
    config = {name: kind.model_config.get(name) for name in Inputs.model_config}
    if not issubclass(kind, Inputs) or config != dict(Inputs.model_config):
        yield "Inputs - Expected: a class of gates.base.Inputs as strict as that Actual: another, or less strict"
    for name, schema in kind.model_json_schema().get("properties", {}).items():
        yield from _input(name, schema)


def _input(name: str, schema: dict[str, Any]) -> Iterator[str]:
    description = schema.get("description", "")
    if not description:
        yield f"input {name} - Expected: a description Actual: none"
        return
    numbers = [
        one
        for one in (schema, *schema.get("anyOf", ()), schema.get("additionalProperties"))
        if isinstance(one, dict) and _number(one)
    ]
    if any(not _bounded(one) for one in numbers):
        yield f"input {name} - Expected: bounds on both sides (ge or gt, le or lt) Actual: open"
    units = next((words for end, words in _UNITS.items() if name.endswith(end)), ()) if numbers else ()
    if units and not any(re.search(rf"(?<![\w/]){re.escape(unit)}(?![\w/])", description) for unit in units):
        yield f"input {name} - Expected: its unit {units[0]} in the description Actual: {description}"


def _number(schema: dict[str, Any]) -> bool:
    return schema.get("type") in {"integer", "number"}


def _bounded(schema: dict[str, Any]) -> bool:
    return bool({"minimum", "exclusiveMinimum"} & set(schema)) and bool({"maximum", "exclusiveMaximum"} & set(schema))
