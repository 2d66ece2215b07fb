"""`rackready retire`: takes a node out for good. Without --yes it only shows what would happen."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rackready.cli import complete
from rackready.cli.output import Env, Format, Output, console, env_paths, print_json, progress, said


def retire(
    node: Annotated[str, typer.Argument(help="Node that is to leave.", autocompletion=complete.nodes)],
    reason: Annotated[str, typer.Option("--reason", help="Why; kept in the record.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do it. Without it nothing is touched.")] = False,  # noqa: FBT002 - a command line flag
    env: Env = "sim",
    output: Output = Format.TEXT,
) -> None:
    """Hold a node, refuse while jobs run on it, power off what rackready powered on, and record it as retired. Exit: 0 done or shown, 1 failed, 2 refused."""
    from rackready.handover.retire import look, steps  # noqa: PLC0415
    from rackready.model.phase import PhaseContext  # noqa: PLC0415

    paths = env_paths(env)
    words = said(reason)
    if yes:
        _do(PhaseContext(env, paths.root, ""), node, words, output)
        return
    lines = steps(look(PhaseContext(env, paths.root, ""), node), words)
    if output is Format.JSON:
        print_json({"name": node, "done": False, "steps": lines})
        return
    for line in lines:
        console.print(line)
    console.print("nothing was touched: with --yes it is done")


def _do(ctx: Any, node: str, reason: str, output: Format) -> None:  # noqa: ANN401 - PhaseContext, imported where it is needed
    from rackready.drivers.process import reap  # noqa: PLC0415
    from rackready.handover.offer import keep_off  # noqa: PLC0415
    from rackready.handover.retire import look, retire  # noqa: PLC0415
    from rackready.ledger.lock import ControllerLock  # noqa: PLC0415
    from rackready.ledger.store import Ledger  # noqa: PLC0415
    from rackready.model.outcome import Outcome  # noqa: PLC0415

    paths = env_paths(ctx.env)
    look(ctx, node)  # a wrong name makes no ledger
    with ControllerLock(paths.lock, f"rackready retire {node}", paths.database):
        with Ledger.open(paths.database) as ledger:
            for line in reap(ledger):
                progress.print(f"ended what an earlier run left behind: {line}", style="yellow")
        for line in keep_off(ctx).lines:
            progress.print(line, style="yellow")
        result = retire(ctx, node, reason)
    good = result.outcome is Outcome.PASS
    if output is Format.JSON:
        print_json({"name": node, "done": good, "changed": result.changed, "message": result.message})
    else:
        console.print(result.message)
        if good:
            console.print(
                "`rackready deploy` leaves it out. Take it out of the site file: `rackready fabric --env "
                f"{ctx.env}` then clears its switch ports."
            )
    raise typer.Exit(0 if good else 1)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(retire)
