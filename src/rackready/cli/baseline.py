"""`rackready baseline`: firmware and BIOS settings of nodes beside their baseline, and on demand brought to it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rackready.cli import complete
from rackready.cli.limit import Limit
from rackready.cli.output import Env, Format, Output, Verbose, console, print_json, print_table, progress, working_paths
from rackready.cli.run_log import new_run, run_log
from rackready.model.problems import RackreadyError


def baseline(  # noqa: PLR0913, PLR0917 - the options of the command
    env: Env = "sim",
    limit: Limit = "",
    check: Annotated[bool, typer.Option("--check", help="Compare only; changes nothing.")] = False,  # noqa: FBT002
    apply: Annotated[  # noqa: FBT002
        bool, typer.Option("--apply", help="Update firmware and set BIOS settings that differ; restarts nodes.")
    ] = False,
    rollback: Annotated[
        list[str] | None,
        typer.Option(
            "--rollback",
            help="Bring the firmware of this node back to the versions before its last update; repeatable.",
            autocompletion=complete.nodes,
        ),
    ] = None,
    output: Output = Format.TEXT,
    verbose: Verbose = False,  # noqa: FBT002
) -> None:
    """Compare firmware and BIOS settings with the baseline, and bring nodes to it: one node first, then waves.

    Nodes in production are drained first. rackready waits for jobs and never interrupts them. A rollback uses the image
    that the BMC keeps; with `--check` it only says what it would do.

    Exit codes: 0 every node is at its baseline, 1 some differ or went wrong, 2 refused.
    """
    from rackready.campaign.baseline import run_baseline_drained  # noqa: PLC0415
    from rackready.campaign.rollback import run_rollback_drained  # noqa: PLC0415
    from rackready.cli.limit import choose  # noqa: PLC0415
    from rackready.design.site import load_site  # noqa: PLC0415
    from rackready.ledger.lock import ControllerLock  # noqa: PLC0415
    from rackready.model.phase import PhaseContext  # noqa: PLC0415

    _require_one_way(check=check, apply=apply, rollback=rollback, limit=limit)
    paths = working_paths(env)
    nodes = choose(load_site(env, root=paths.root), ",".join(rollback or []) or limit)
    run = new_run("baseline")
    way = "--rollback" if rollback else "--check" if check else "--apply"
    command = f"rackready baseline --env {env} {way}"
    with (
        run_log(paths, run, command, verbose=verbose) as log,
        ControllerLock(paths.lock, command, paths.database),
    ):
        ctx = PhaseContext(env, paths.root, run, check=check)
        found = run_rollback_drained(ctx, nodes) if rollback else run_baseline_drained(ctx, nodes)
    rows = [
        {"name": node, "outcome": result.outcome.value, "changed": result.changed, "message": result.message}
        for node, result in sorted(found.items())
    ]
    if output is Format.JSON:
        print_json({"env": env, "run": run, "check": check, "nodes": rows, "log": str(log)})
    else:
        _print(rows, check=check)
        progress.print(f"log: {log}")
    bad = any(row["outcome"] in {"error", "fail"} or (check and row["changed"]) for row in rows)
    raise typer.Exit(1 if bad else 0)


def _require_one_way(*, check: bool, apply: bool, rollback: list[str] | None, limit: str) -> None:
    if rollback and (apply or limit):
        raise RackreadyError(
            "baseline --rollback",
            expected="names of nodes only",
            actual="--apply" if apply else "--limit",
            next_step="Leave it out.",
        )
    if not rollback and check == apply:
        raise RackreadyError(
            "baseline", expected="--check or --apply", actual="both" if check else "neither", next_step="Give one."
        )


def _print(rows: list[dict[str, Any]], *, check: bool) -> None:
    word = "differs" if check else "changed"
    table = [
        (
            row["name"],
            row["outcome"] if row["outcome"] != "pass" else word if row["changed"] else "same",
            row["message"],
        )
        for row in rows
    ]
    print_table(("node", "baseline", "what"), table, words=("what",))
    if check:
        console.print("nothing was changed")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(baseline)
