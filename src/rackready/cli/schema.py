"""`rackready schema`: JSON schemas of the files that people write, for editors, and of refusals."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from rackready.cli.output import print_json
from rackready.design.own_profiles import KINDS
from rackready.model.base import Model
from rackready.model.database import Server
from rackready.model.refusal import Refusal
from rackready.model.site_file import json_schema
from rackready.model.ticket import Ticket


class Written(StrEnum):
    """A file or document with a schema."""

    SITE = "site"
    DATABASE = "database"
    GPU = "gpu"
    PLATFORM = "platform"
    SWITCH = "switch"
    SOFTWARE = "software"
    PARTS = "parts"
    REFUSAL = "refusal"
    TICKET = "ticket"


def schema(
    of: Annotated[
        Written,
        typer.Option(
            "--of",
            help="File: site (site.yml), database (database.yml), or the family of a profile; "
            "refusal: what --output json prints for an error; ticket: a repair ticket of watch.",
        ),
    ] = Written.SITE,
) -> None:
    """Print the JSON schema of the site file, of database.yml, of a profile, of a refusal or of a repair ticket."""
    if of is Written.SITE:
        print_json(json_schema())
        return
    kinds: dict[str, type[Model]] = {str(family): kind for family, kind in KINDS.items()}
    kinds |= {Written.DATABASE: Server, Written.REFUSAL: Refusal, Written.TICKET: Ticket}
    kind = kinds[of]
    print_json(kind.model_json_schema(by_alias=True))


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(schema)
