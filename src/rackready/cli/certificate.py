"""`rackready certificate`: whether nodes' certificates count for what the nodes are now."""

from __future__ import annotations

import typer

from rackready.cli.deploy import Limit
from rackready.cli.output import Env, Format, Output

app = typer.Typer(help="Certificates: verify them against the nodes as they are now.", no_args_is_help=True)


def register(parent: typer.Typer) -> None:
    """Add the command group to the application."""
    parent.add_typer(app, name="certificate")


@app.callback()
def _group() -> None:
    """Verify certificates."""


@app.command()
def verify(env: Env = "sim", limit: Limit = "", output: Output = Format.TEXT) -> None:
    """Look at nodes anew (checks and list of parts, nothing is loaded) and say whether their certificates count. Exit: 0 all do, 1 some do not, 2 refused.

    A node that fails a check is quarantined and drained; one whose certificate counts no longer is drained until it is
    deployed again.
    """
    from rackready.cli.campaign_run import run  # noqa: PLC0415

    run("certificate verify", ("verify",), env=env, limit=limit, check=False, output=output)
