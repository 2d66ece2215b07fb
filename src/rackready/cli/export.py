"""`rackready export`: writes parts of the plan for other systems. Each command is a module with ``register(app)``."""

from __future__ import annotations

import importlib
import sys

import typer

from rackready.cli import complete

MODULES = {
    "netbox": "netbox",
    "kubernetes": "export_kubernetes",
    "pipeline": "export_pipeline",
    **dict.fromkeys(("prometheus", "grafana", "metrics"), "export_monitoring"),
}
"""Command -> module of this package; several may share one. Only the module of the called command is imported."""


def register(parent: typer.Typer) -> None:
    """Add the command group."""
    app = typer.Typer(help="Export the plan of a site.", no_args_is_help=True)
    app.callback()(_group)
    for module in _needed():
        importlib.import_module(f"rackready.cli.{module}").register(app)
    parent.add_typer(app, name="export")


def _group() -> None:
    """Keep the command's name as a word, also with one command."""


def _needed() -> list[str]:
    """Return the module of the called command, or every module when none is named."""
    typed = complete.typed()
    words = [word for word in (sys.argv[1:] if typed is None else typed) if not word.startswith("-")]
    called = words[1] if words[:1] == ["export"] and words[1:] else ""
    return [MODULES[called]] if called in MODULES else list(dict.fromkeys(MODULES.values()))
