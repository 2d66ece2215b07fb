"""`rackready retire`: takes a node out of service permanently. Without --yes it only shows the steps."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rackready.cli import complete
from rackready.cli.output import (
    Env,
    Format,
    Output,
    Verbose,
    console,
    env_paths,
    given_reason,
    print_json,
    progress,
    working_paths,
)
from rackready.cli.run_log import new_run, run_log


def retire(
    node: Annotated[str, typer.Argument(help="Node to retire.", autocompletion=complete.nodes)],
    reason: Annotated[str, typer.Option("--reason", help="Reason; recorded.")],
    yes: Annotated[bool, typer.Option("--yes", help="Retire the node; without --yes, only show the steps.")] = False,  # noqa: FBT002 - a command line flag
    env: Env = "sim",
    verbose: Verbose = False,  # noqa: FBT002 - a command line flag
    output: Output = Format.TEXT,
) -> None:
    """Drain a node, power it off, and record it as retired.

    Refuses while jobs run on the node. Powers off only what rackready powered on.

    Exit codes: 0 done or shown, 1 failed, 2 refused.
    """
    from rackready.handover.retire import look, steps  # noqa: PLC0415
    from rackready.model.phase import PhaseContext  # noqa: PLC0415

    paths = working_paths(env)
    words = given_reason(reason)
    if yes:
        _do(PhaseContext(env, paths.root, ""), node, words, output, verbose=verbose)
        return
    lines = steps(look(PhaseContext(env, paths.root, ""), node), words)
    if output is Format.JSON:
        print_json({"name": node, "done": False, "steps": lines})
        return
    for line in lines:
        console.print(line)
    console.print("nothing was changed. Add --yes to retire the node")


def _do(ctx: Any, node: str, reason: str, output: Format, *, verbose: bool) -> None:  # noqa: ANN401 - PhaseContext, imported where it is needed
    from rackready.drivers.process import reap  # noqa: PLC0415
    from rackready.handover.offer import keep_off  # noqa: PLC0415
    from rackready.handover.retire import look, retire  # noqa: PLC0415
    from rackready.ledger.lock import ControllerLock  # noqa: PLC0415
    from rackready.ledger.store import Ledger  # noqa: PLC0415
    from rackready.model.outcome import Outcome  # noqa: PLC0415

    paths = env_paths(ctx.env)
    look(ctx, node)  # before the lock: a wrong name makes no ledger
    command, run = f"rackready retire {node} --env {ctx.env}", new_run("retire")
    with ControllerLock(paths.lock, command, paths.database), run_log(paths, run, command, verbose=verbose) as log:
        with Ledger.open(paths.database) as ledger:
            for line in reap(ledger):
                progress.print(line, style="yellow")
        for line in keep_off(ctx).lines:
            progress.print(line, style="yellow")
        result = retire(ctx, node, reason)
    good = result.outcome is Outcome.PASS
    if output is Format.JSON:
        print_json({"name": node, "done": good, "changed": result.changed, "message": result.message, "log": log})
    else:
        console.print(result.message)
        if good:
            console.print(
                "`rackready deploy` skips it. Remove it from the site file: `rackready fabric --env "
                f"{ctx.env}` then clears its switch ports."
            )
        progress.print(f"log: {log}")
    raise typer.Exit(0 if good else 1)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(retire)
