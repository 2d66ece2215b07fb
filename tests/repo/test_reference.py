"""The site file's schema and the site files that name it."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from rackready.model.site import Site
from rackready.model.site_file import json_schema

ROOT = Path(__file__).resolve().parents[2]


def test_site_files_name_the_schema_that_exists() -> None:
    for path in [*ROOT.glob("inventories/*/site.yml"), *ROOT.glob("inventories/examples/*.yml")]:
        first = path.read_text(encoding="utf-8").splitlines()[0]
        assert (path.parent / first.partition("$schema=")[2]).resolve().is_file(), path


@pytest.mark.parametrize(
    "path", [*ROOT.glob("inventories/*/site.yml"), *ROOT.glob("inventories/examples/*.yml")], ids=lambda path: path.stem
)
def test_editors_find_nothing_wrong_in_site_files_that_are_valid(path: Path) -> None:
    document = json.loads(json.dumps(yaml.safe_load(path.read_text(encoding="utf-8")), default=str))
    found = jsonschema.Draft202012Validator(json_schema()).iter_errors(document)
    assert [f"{list(error.absolute_path)}: {error.message}" for error in found] == []


def test_every_field_says_what_it_is() -> None:
    """Fields whose name says it all (name, bmc) may go without; numbers must name their unit or meaning."""
    schema = Site.model_json_schema(by_alias=True)
    silent = [
        f"{model}.{name}"
        for model, definition in schema["$defs"].items()
        for name, field in definition.get("properties", {}).items()
        if field.get("type") in {"integer", "number"} and "description" not in field and name != "rail"
    ]
    assert silent == []
