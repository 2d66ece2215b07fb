"""`rackready schema`: the JSON schemas of what people write, for editors."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from rackready.cli.output import print_json
from rackready.design.own_profiles import KINDS
from rackready.model.base import Model
from rackready.model.database import Server
from rackready.model.site_file import json_schema


class Written(StrEnum):
    """A file that people write."""

    SITE = "site"
    DATABASE = "database"
    GPU = "gpu"
    PLATFORM = "platform"
    SWITCH = "switch"
    SOFTWARE = "software"
    PARTS = "parts"


def schema(
    of: Annotated[
        Written, typer.Option("--of", help="site.yml, database.yml, or one of profiles/<family>/<id>.yml.")
    ] = Written.SITE,
) -> None:
    """Print the JSON schema of the site file, compact forms included; or that of another file of the environment."""
    if of is Written.SITE:
        print_json(json_schema())
        return
    kinds: dict[str, type[Model]] = {str(family): kind for family, kind in KINDS.items()}
    kind = Server if of is Written.DATABASE else kinds[of]
    print_json(kind.model_json_schema(by_alias=True))


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(schema)
