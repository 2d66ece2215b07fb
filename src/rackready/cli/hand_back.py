"""`rackready hand-back`: scrubs a node that leaves its tenant, measures it, and returns it to the scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rackready.cli import complete
from rackready.cli.output import (
    Env,
    Format,
    Output,
    Verbose,
    console,
    given_reason,
    print_json,
    progress,
    working_paths,
)
from rackready.cli.run_log import new_run, run_log

if TYPE_CHECKING:
    from collections.abc import Callable

    from rackready.campaign.hand_back import Return
    from rackready.model.site import Site


def hand_back(
    node: Annotated[str, typer.Argument(help="Node that leaves its tenant.", autocompletion=complete.nodes)],
    reason: Annotated[str, typer.Option("--reason", help="Reason; recorded.")],
    yes: Annotated[  # noqa: FBT002 - a command line flag
        bool, typer.Option("--yes", help="Scrub the node; without --yes, only show what its tenant left.")
    ] = False,
    env: Env = "sim",
    verbose: Verbose = False,  # noqa: FBT002 - a command line flag
    output: Output = Format.TEXT,
) -> None:
    """Drain a node, remove what its tenant left, erase its scratch, reboot, pass the maintenance gates, hand over.

    `hand_back` in the site file says what is removed and what stays. To continue an interrupted run, repeat the
    command. Until it has ended, the node is not certified. A tenant who was root needs a new image instead: `deploy
    --erase`.

    Exit codes: 0 returned or shown, 1 a gate failed, 2 refused.
    """
    from rackready.campaign.hand_back import Return  # noqa: PLC0415
    from rackready.model.phase import PhaseContext  # noqa: PLC0415

    paths, words = working_paths(env), given_reason(reason)
    back = Return(PhaseContext(env, paths.root, new_run("hand-back")), node)
    back.require_state()
    if yes:
        _do(back, words, output, verbose=verbose)
        return
    found = back.look()
    lines = found.lines()
    if output is Format.JSON:
        print_json({"name": node, "done": False, "bmc": found.bmc, "found": lines})
        return
    for line in lines or ["nothing that a tenant left"]:
        console.print(f"{node}: {line}")
    console.print("nothing was changed. Add --yes to drain and scrub the node, and to return it")


def _do(back: Return, reason: str, output: Format, *, verbose: bool) -> None:
    from rackready.campaign.hand_back import alone, end, partners  # noqa: PLC0415
    from rackready.campaign.request import DEPLOY  # noqa: PLC0415
    from rackready.campaign.summary import exit_code  # noqa: PLC0415
    from rackready.cli.campaign_run import carried_out, show_result  # noqa: PLC0415
    from rackready.drivers.process import reap  # noqa: PLC0415
    from rackready.ledger.lock import ControllerLock  # noqa: PLC0415
    from rackready.ledger.store import Ledger  # noqa: PLC0415

    ctx, node, paths = back.ctx, back.node, back.paths
    command = f"rackready hand-back {node} --env {ctx.env}"
    with (
        ControllerLock(paths.lock, command, paths.database),
        run_log(paths, ctx.campaign, command, verbose=verbose) as log,
    ):
        with Ledger.open(paths.database) as ledger:
            for line in reap(ledger):
                progress.print(line, style="yellow")
        progress.print(f"{node}: is drained, then scrubbed and rebooted; log: {log}")
        token = back.scrub(reason)
    parts: list[dict[str, Any]] = []

    def campaign(kind: str, phases: tuple[str, ...], limit: str, seen_as: Callable[[Site], Site] | None = None) -> int:
        rows, result = carried_out(
            kind, phases, env=ctx.env, limit=limit, check=False, output=output, verbose=verbose, seen_as=seen_as
        )
        parts.append(result)
        if output is not Format.JSON:
            show_result(rows, result)
        return exit_code(rows)

    code = campaign("validate", ("validate",), node, lambda site: alone(site, node))
    if code == 0:
        end(ctx, node, token)
        with_it = partners(ctx, node)
        if with_it:
            progress.print(f"{node}: partners of its measurements: {', '.join(with_it)}")
        code = campaign("deploy", DEPLOY, ",".join([node, *with_it]))
    if output is Format.JSON:
        print_json({"name": node, "done": code == 0, "log": str(log), "campaigns": parts})
    elif code == 0:
        console.print(f"{node}: returned from its tenant")
    raise typer.Exit(code)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("hand-back")(hand_back)
