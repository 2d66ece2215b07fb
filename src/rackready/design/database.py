"""Reads which PostgreSQL database an environment keeps its records in."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from rackready.design.origin import path_text
from rackready.design.site import absolute, shape_problem
from rackready.design.yaml import read_yaml
from rackready.model.database import Server
from rackready.model.problems import Problem, SiteInvalidError

_LISTS_KEYS = "docs/howto/postgresql.md"


def read_server(settings: Path) -> Server:
    """Return what ``inventories/<env>/database.yml`` says; relative paths in it are taken from the top of the checkout.

    Raises SiteInvalidError with every problem; what was given in the place of a secret's reference is not shown.
    """
    raw = read_yaml(settings)
    if not isinstance(raw, dict):
        raise SiteInvalidError(
            str(settings),
            [Problem("", "Expected: a mapping Actual: something else.", f"Write it as in {_LISTS_KEYS}.")],
        )
    try:
        return Server.model_validate(absolute(raw, settings.parents[2]))
    except ValidationError as error:
        raise SiteInvalidError(
            str(settings), [shape_problem(item, path_text(item["loc"]), _LISTS_KEYS) for item in error.errors()]
        ) from error
