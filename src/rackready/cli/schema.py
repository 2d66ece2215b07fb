"""`rackready schema`: the site file's JSON schema, for editors."""

from __future__ import annotations

import typer

from rackready.cli.output import print_json
from rackready.model.site_file import json_schema


def schema() -> None:
    """Print the JSON schema of the site file, compact forms included."""
    print_json(json_schema())


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(schema)
