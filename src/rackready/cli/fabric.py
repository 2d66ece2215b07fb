"""`rackready fabric`: the fabric phase, and one switch's configuration without a change (``--show``)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from rackready.cli.deploy import Check
from rackready.cli.limit import Limit
from rackready.cli.output import Env, Format, Output, Verbose, console, env_paths, print_json, progress
from rackready.model.problems import RackreadyError

Show = Annotated[
    str,
    typer.Option(
        "--show",
        metavar="SWITCH",
        help="Print the configuration that the site file gives this switch, and what the switch lacks; then stop.",
    ),
]
Day0 = Annotated[
    str,
    typer.Option(
        "--day0",
        metavar="SWITCH",
        help="Print the file that this switch fetches at its first boot: name, management address, key; then stop.",
    ),
]
_MARKS = {"applied": " ", "missing": "+", "removes": "-"}


def fabric(  # noqa: PLR0913, PLR0917 - each is an option of the command
    env: Env = "sim",
    limit: Limit = "",
    check: Check = False,  # noqa: FBT002 - a command line flag
    show: Show = "",
    day0: Day0 = "",
    verbose: Verbose = False,  # noqa: FBT002
    output: Output = Format.TEXT,
) -> None:
    """Configure switches and the nodes' RoCE settings, and verify them."""
    if show or day0:
        option = "--show" if show else "--day0"
        if limit or check:
            raise RackreadyError(
                option, "prints one switch and changes nothing", expected="neither --limit nor --check"
            )
        if show and day0:
            raise RackreadyError("--show and --day0", expected="one of them")
        show_switch(env, show, output) if show else show_day0(env, day0, output)
        return
    from rackready.cli.campaign_run import run  # noqa: PLC0415

    run("fabric", ("fabric",), env=env, limit=limit, check=check, output=output, verbose=verbose)


def show_switch(env: str, name: str, output: Format) -> None:
    """Print a switch's configuration; a command that is missing there has +, one that removes has -."""
    from rackready.campaign.switch_candidate import switch_candidate  # noqa: PLC0415
    from rackready.design.site import load_site  # noqa: PLC0415

    paths = env_paths(env)
    lines, note = switch_candidate(load_site(env, root=paths.root), paths, name)
    differing = sum(line.state != "applied" for line in lines)
    if output is Format.JSON:
        print_json({"env": env, "switch": name, "differing": differing, "commands": [asdict(line) for line in lines]})
    else:
        for line in lines:
            console.print(f"{_MARKS[line.state]} {line.command}")
    if note:
        progress.print(note)
    progress.print(f"{name}: {differing} of {len(lines)} commands differ from the switch; nothing was changed")


def show_day0(env: str, name: str, output: Format) -> None:
    """Print the file that a new switch fetches at its first boot."""
    from rackready.campaign.switch_day0 import switch_day0  # noqa: PLC0415
    from rackready.design.site import load_site  # noqa: PLC0415

    text = switch_day0(load_site(env, root=env_paths(env).root), name)
    if output is Format.JSON:
        print_json({"env": env, "switch": name, "file": text})
    else:
        typer.echo(text, nl=False)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(fabric)
