"""`rackready schema`: the site file's JSON schema, for editors."""

from __future__ import annotations

import typer

from rackready.cli.output import print_json
from rackready.model.site import Site


def schema() -> None:
    """Print the JSON schema of the site file."""
    print_json(Site.model_json_schema(by_alias=True))


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(schema)
