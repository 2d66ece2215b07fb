"""`rackready upgrade`: moves nodes to another version set in waves, with a way back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rackready.cli.limit import Limit
from rackready.cli.output import Env, Format, Output, Verbose, console, print_json, working_paths
from rackready.model.problems import RackreadyError

if TYPE_CHECKING:
    from rackready.cli.upgrade_run import UpgradeOptions
    from rackready.model.upgrade import UpgradeRecord
    from rackready.paths import EnvPaths


def upgrade(  # noqa: PLR0913, PLR0917 - the options of the command
    env: Env = "sim",
    to: Annotated[str, typer.Option("--to", metavar="SET", help="Version set to move to.")] = "",
    branch: Annotated[
        int | None, typer.Option("--branch", help="Driver branch of the set; default: the site's, else the set's own.")
    ] = None,
    limit: Limit = "",
    check: Annotated[bool, typer.Option("--check", help="Show the plan; change nothing.")] = False,  # noqa: FBT002
    failed_only: Annotated[  # noqa: FBT002
        bool, typer.Option("--failed-only", help="Only nodes that the last upgrade to this set did not bring up.")
    ] = False,
    resume: Annotated[  # noqa: FBT002
        bool, typer.Option("--resume", help="Continue an upgrade that was paused or stopped by its rule.")
    ] = False,
    pause: Annotated[  # noqa: FBT002
        bool, typer.Option("--pause", help="Let the running upgrade pause after its wave.")
    ] = False,
    abort: Annotated[  # noqa: FBT002
        bool, typer.Option("--abort", help="Let the upgrade end after its wave; the other nodes stay as they are.")
    ] = False,
    firmware: Annotated[  # noqa: FBT002
        bool, typer.Option("--firmware", help="Also bring firmware and BIOS settings to the site's baseline.")
    ] = False,
    switches: Annotated[  # noqa: FBT002
        bool, typer.Option("--switches", help="Show the order in which switches get another system.")
    ] = False,
    switch: Annotated[
        str, typer.Option("--switch", metavar="NAME", help="Empty the nodes behind a switch, for its upgrade by hand.")
    ] = "",
    done: Annotated[  # noqa: FBT002
        bool, typer.Option("--done", help="With --switch: prove the rails of its nodes, and hand them over.")
    ] = False,
    expect_minutes: Annotated[
        int | None,
        typer.Option(
            "--expect-minutes",
            min=1,
            help="Longest expected time of a wave and its way back, without the wait for jobs, min.",
        ),
    ] = None,
    drain_minutes: Annotated[
        int | None,
        typer.Option("--drain-minutes", min=0, help="Longest wait for jobs; default: handover.drain_wait_s."),
    ] = None,
    outside_windows: Annotated[  # noqa: FBT002
        bool, typer.Option("--outside-windows", help="Also begin waves outside the site's maintenance windows.")
    ] = False,
    verbose: Verbose = False,  # noqa: FBT002
    output: Output = Format.TEXT,
) -> None:
    """Move nodes to another version set: a canary, then waves. Without options, show the last upgrade.

    A wave drains its nodes and waits for their jobs, installs, reboots where needed, validates, and hands over. A node
    that does not come up goes back to its former set; one that fails validation stays drained. To continue a killed
    run, repeat the command.

    Exit codes: 0 all nodes are on the set, 1 some are not or it waits, 2 refused, 130 stopped.
    """
    from rackready.cli.upgrade_run import UpgradeOptions, carry_on, show_plan, start  # noqa: PLC0415

    paths = working_paths(env)
    given = [("--resume", resume), ("--pause", pause), ("--abort", abort), ("--to", to)]
    _one_way([*given, ("--switches", switches), ("--switch", switch)])
    _needs([("--check", check), ("--failed-only", failed_only), ("--limit", bool(limit))], "--to SET", to)
    _needs([("--branch", branch is not None), ("--firmware", firmware)], "--to SET", to)
    _needs([("--done", done)], "--switch NAME", switch)
    if switches or switch:
        _switch(paths, switch, output, done=done, verbose=verbose)
        return
    asked = UpgradeOptions(
        env=env,
        to=to,
        branch=branch,
        limit=limit,
        failed_only=failed_only,
        firmware=firmware,
        expect_s=None if expect_minutes is None else expect_minutes * 60.0,
        drain_s=None if drain_minutes is None else drain_minutes * 60,
        outside_windows=outside_windows,
        verbose=verbose,
        json=output is Format.JSON,
    )
    if pause or abort:
        _ask(paths, asked, abort=abort)
    elif check:
        show_plan(paths, asked)
    elif resume:
        carry_on(paths, asked)
    elif to:
        start(paths, asked)
    else:
        _last(paths, asked)


def _one_way(options: list[tuple[str, object]]) -> None:
    given = [name for name, value in options if value]
    if len(given) > 1:
        known = ", ".join(name for name, _ in options)
        raise RackreadyError("upgrade", expected=f"one of {known}", actual=", ".join(given), next_step="Give one.")


def _needs(options: list[tuple[str, bool]], needed: str, given: str) -> None:
    for name, on in options:
        if on and not given:
            raise RackreadyError(f"upgrade {name}", expected=needed, actual="none", next_step=f"Give {needed}.")


def _switch(paths: EnvPaths, name: str, output: Format, *, done: bool, verbose: bool) -> None:
    from rackready.cli.upgrade_switch import begin, end, show_order  # noqa: PLC0415

    if not name:
        show_order(paths, output)
    elif done:
        end(paths, name, output, verbose=verbose)
    else:
        begin(paths, name, output)


def _ask(paths: EnvPaths, asked: UpgradeOptions, *, abort: bool) -> None:
    from rackready.cli.upgrade_run import ask  # noqa: PLC0415

    text = ask(paths, abort=abort)
    if asked.json:
        print_json({"env": asked.env, "asked": "abort" if abort else "pause", "what": text})
    else:
        console.print(text)


def _last(paths: EnvPaths, asked: UpgradeOptions) -> None:
    from rackready.cli.upgrade_run import last_record  # noqa: PLC0415
    from rackready.cli.upgrade_text import document, show  # noqa: PLC0415

    record: UpgradeRecord | None = last_record(paths)
    if asked.json:
        print_json({"env": asked.env, "upgrade": None if record is None else document(record)})
    elif record is None:
        console.print("no upgrade was begun. `rackready upgrade --to SET --check` shows a plan")
    else:
        show(record)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(upgrade)
