"""`rackready certificate`: verifies certificates against the nodes as they are now."""

from __future__ import annotations

import typer

from rackready.cli.deploy import Limit
from rackready.cli.output import Env, Format, Output, Verbose

app = typer.Typer(help="Verify certificates against the nodes as they are now.", no_args_is_help=True)


def register(parent: typer.Typer) -> None:
    """Add the command group to the application."""
    parent.add_typer(app, name="certificate")


@app.callback()
def _group() -> None:
    """Verify certificates."""


@app.command()
def verify(env: Env = "sim", limit: Limit = "", verbose: Verbose = False, output: Output = Format.TEXT) -> None:  # noqa: FBT002 - a flag
    """Check nodes and their list of parts, and report whether their certificates still count.

    Loads nothing. A node that fails a check is quarantined and drained. A node whose certificate no longer counts is
    drained until it is deployed again. There is no dry run: a look is what records and judges.

    Exit codes: 0 all count, 1 some do not, 2 refused.
    """
    from rackready.cli.campaign_run import run  # noqa: PLC0415

    run("certificate verify", ("verify",), env=env, limit=limit, check=False, output=output, verbose=verbose)
