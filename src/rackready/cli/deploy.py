"""`rackready deploy`: every phase, from powered-off metal to production."""

from __future__ import annotations

from typing import Annotated

import typer

from rackready.cli import complete
from rackready.cli.output import Env, Format, Output, Verbose

Limit = Annotated[
    str, typer.Option("--limit", help="Only these nodes, comma-separated.", autocompletion=complete.node_list)
]
Check = Annotated[bool, typer.Option("--check", help="Dry run: show what would change, and change nothing.")]
Erase = Annotated[
    list[str],
    typer.Option(
        "--erase",
        help="Nodes whose disks may be erased, to image them (again): names or host lists, repeatable.",
        autocompletion=complete.node_list,
    ),
]


def deploy(
    env: Env = "sim",
    limit: Limit = "",
    check: Check = False,  # noqa: FBT002 - command line flags
    erase: Erase = [],  # noqa: B006 - typer copies it
    verbose: Verbose = False,  # noqa: FBT002 - as above
    output: Output = Format.TEXT,
) -> None:
    """Take the site's nodes through every phase to production.

    Each node continues from its present state. Nodes in quarantine, out for repair or retired are left alone.

    Exit codes: 0 all nodes ready, 1 some are not, 2 refused, 130 stopped.
    """
    from rackready.campaign.request import DEPLOY, DRY  # noqa: PLC0415
    from rackready.cli.campaign_run import run  # noqa: PLC0415

    run(
        "deploy",
        DRY if check else DEPLOY,
        env=env,
        limit=limit,
        check=check,
        output=output,
        erase=erase,
        verbose=verbose,
    )


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(deploy)
