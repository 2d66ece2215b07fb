"""`rackready deploy`: every phase, from powered-off metal to production."""

from __future__ import annotations

from typing import Annotated

import typer

from rackready.cli import complete
from rackready.cli.limit import Limit
from rackready.cli.output import Env, Format, Output, Verbose, working_paths

Check = Annotated[bool, typer.Option("--check", help="Dry run: show what would change, and change nothing.")]
Erase = Annotated[
    list[str],
    typer.Option(
        "--erase",
        help="Nodes whose disks may be erased, to image them (again): names or host lists, repeatable.",
        autocompletion=complete.node_list,
    ),
]
Full = Annotated[
    bool,
    typer.Option("--full", help="Play every node in full, including nodes that prove to be as released."),
]


def deploy(  # noqa: PLR0913, PLR0917 - the options of the command
    env: Env = "sim",
    limit: Limit = "",
    check: Check = False,  # noqa: FBT002 - command line flags
    erase: Erase = [],  # noqa: B006 - typer copies it
    full: Full = False,  # noqa: FBT002 - as above
    failed_only: Annotated[  # noqa: FBT002
        bool, typer.Option("--failed-only", help="Only nodes that failed in the last deploy.")
    ] = False,
    pause: Annotated[bool, typer.Option("--pause", help="Let the running deploy pause after its phase.")] = False,  # noqa: FBT002
    resume: Annotated[bool, typer.Option("--resume", help="Continue the paused deploy.")] = False,  # noqa: FBT002
    abort: Annotated[  # noqa: FBT002
        bool, typer.Option("--abort", help="Let the running deploy end after its phase, or end the paused one.")
    ] = False,
    verbose: Verbose = False,  # noqa: FBT002 - as above
    output: Output = Format.TEXT,
) -> None:
    """Take the site's nodes through every phase to production.

    Each node continues from its current state. Nodes in quarantine, out for repair or retired are left alone.

    Exit codes: 0 all nodes ready, 1 some are not, or it was paused or ended early, 2 refused, 130 stopped.
    """
    from rackready.campaign.request import DEPLOY, DRY  # noqa: PLC0415
    from rackready.cli import deploy_control as control  # noqa: PLC0415
    from rackready.cli.campaign_run import run  # noqa: PLC0415

    given = [("--limit", limit), ("--failed-only", failed_only), ("--pause", pause), ("--resume", resume)]
    control.one_of([*given, ("--abort", abort)])
    if pause or abort:
        control.require_alone("--abort" if abort else "--pause", check=check, erase=erase, full=full)
        control.tell(working_paths(env), output, abort=abort)
        return
    if failed_only or resume:
        limit = control.limit_of(env, resume=resume)

    run(
        "deploy",
        DRY if check else DEPLOY,
        env=env,
        limit=limit,
        check=check,
        output=output,
        erase=erase,
        full=full,
        verbose=verbose,
        resume=resume,
    )


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(deploy)
