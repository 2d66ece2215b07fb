"""`rackready schema`: JSON schemas of the site file and of database.yml, for editors."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from rackready.cli.output import print_json
from rackready.model.database import Server
from rackready.model.site_file import json_schema


class Written(StrEnum):
    """A file with a schema."""

    SITE = "site"
    DATABASE = "database"


def schema(
    of: Annotated[
        Written, typer.Option("--of", help="File: site (site.yml) or database (database.yml).")
    ] = Written.SITE,
) -> None:
    """Print the JSON schema of the site file or of database.yml."""
    print_json(json_schema() if of is Written.SITE else Server.model_json_schema(by_alias=True))


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(schema)
