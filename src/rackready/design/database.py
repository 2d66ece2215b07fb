"""Reads which PostgreSQL database holds the records of an environment."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from rackready.design.shape_problems import no_document, shape_problem
from rackready.design.site import absolute
from rackready.design.yaml import read_yaml
from rackready.model.database import Server
from rackready.model.problems import SiteInvalidError
from rackready.model.wanted import path_text

_LISTS_KEYS = "docs/howto/postgresql.md"


def read_server(settings: Path) -> Server:
    """Return the settings in ``inventories/<env>/database.yml``; relative paths are taken from the project root.

    Raises SiteInvalidError with every problem. A value in the place of a secret's reference is not shown.
    """
    raw = read_yaml(settings)
    if not isinstance(raw, dict):
        raise SiteInvalidError(
            str(settings),
            [no_document(raw, f"Write it as in {_LISTS_KEYS}.")],
        )
    try:
        return Server.model_validate(absolute(raw, settings.parents[2]))
    except ValidationError as error:
        raise SiteInvalidError(
            str(settings), [shape_problem(item, path_text(item["loc"]), _LISTS_KEYS) for item in error.errors()]
        ) from error
