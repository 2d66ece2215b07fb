"""Keys in words: every key of the site file once, with type, default and bounds as its model has them."""

from __future__ import annotations

from typing import Any

import pytest

from rackready.model.keys import bounds_of, default_of, kind_of, site_sections
from rackready.model.site_file import json_schema

KEYS = {key.path: key for section in site_sections() for key in section.keys}


@pytest.mark.parametrize(
    ("schema", "kind", "bounds"),
    [
        ({"type": "integer", "minimum": 1, "maximum": 9}, "whole number", "1 to 9"),
        ({"type": "number", "exclusiveMinimum": 0}, "number", "more than 0"),
        ({"type": "number", "minimum": 0}, "number", "at least 0"),
        ({"type": "string", "format": "ipv4"}, "IPv4 address", ""),
        ({"type": "string", "minLength": 3, "pattern": "^a$"}, "text", "length at least 3; matches ^a$"),
        ({"enum": [100, 200]}, "one of 100, 200", ""),
        ({"const": "slurm"}, "always slurm", ""),
        ({"type": "array", "items": {"type": "string"}, "minItems": 1}, "list of texts", "at least 1 items"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "mapping of names to whole numbers", ""),
        ({"type": "object", "patternProperties": {"^a": {"$ref": "#/$defs/X"}}}, "mapping of names to mappings", ""),
        ({"anyOf": [{"type": "integer", "maximum": 5}, {"type": "null"}]}, "whole number", "at most 5"),
        (
            {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/Series"}, {"type": "string", "pattern": r"[\[{]"}]},
            "whole number",
            "",
        ),
        ({}, "any value", ""),
    ],
)
def test_types_and_bounds_in_words(schema: dict[str, Any], kind: str, bounds: str) -> None:
    assert (kind_of(schema), bounds_of(schema)) == (kind, bounds)


@pytest.mark.parametrize(
    ("schema", "required", "said"),
    [
        ({"type": "string"}, True, "required"),
        ({"type": "string"}, False, "none"),
        ({"default": None}, False, "none"),
        ({"default": True}, False, "true"),
        ({"default": "root"}, False, "root"),
        ({"type": "array"}, False, "empty"),
        ({"$ref": "#/$defs/Qos"}, False, "its own defaults"),
    ],
)
def test_defaults_in_words(schema: dict[str, Any], required: bool, said: str) -> None:  # noqa: FBT001
    assert default_of(schema, required=required) == said


def test_every_mapping_of_the_schema_has_one_section() -> None:
    sections = site_sections()
    titles = [section.title for section in sections]
    mappings = [json_schema(), *(part for part in json_schema()["$defs"].values() if "properties" in part)]
    assert len(titles) == len(set(titles)) == len(mappings)
    assert sorted(len(section.keys) for section in sections) == sorted(len(part["properties"]) for part in mappings)


def test_sections_that_keys_name_exist() -> None:
    titles = {section.title for section in site_sections()}
    assert {title for key in KEYS.values() for title in key.inside} <= titles


def test_a_key_that_a_template_may_bring_is_required_all_the_same() -> None:
    assert KEYS["racks[].nodes[].platform"].default == "required"
    assert KEYS["racks[].nodes[].unit"].kind == "whole number or series"


def test_a_mapping_in_several_places_names_them() -> None:
    secret = next(section for section in site_sections() if "The place of a secret" in section.text)
    assert "racks[].nodes[].bmc.password" in secret.also


def test_a_choice_of_mappings_has_a_section_each() -> None:
    assert KEYS["handover"].inside == (
        "handover (slurm)",
        "handover (kubernetes)",
        "handover (file)",
        "handover (plugin)",
        "handover (several)",
    )
