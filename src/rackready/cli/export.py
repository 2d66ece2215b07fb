"""`rackready export`: writes parts of the plan for other systems. Each command is a module with ``add(app)``."""

from __future__ import annotations

import importlib

import typer

MODULES = ("netbox", "export_kubernetes")
"""Modules of this package, each with one command. All are imported: import what is slow inside the command."""

app = typer.Typer(help="Export the plan of a site.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keep the command's name as a word, also with one command."""


def register(parent: typer.Typer) -> None:
    """Add the command group."""
    for module in MODULES:
        importlib.import_module(f"rackready.cli.{module}").add(app)
    parent.add_typer(app, name="export")
