"""`rackready nightly`: measures idle nodes in production, a few at a time, and puts each back as it was."""

from __future__ import annotations

import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from rackready.cli import complete
from rackready.cli.deploy import Check
from rackready.cli.duration import seconds
from rackready.cli.limit import Limit
from rackready.cli.output import Env, Format, Output, Verbose, console, print_json, print_table, progress, working_paths
from rackready.cli.run_log import new_run, run_log
from rackready.model.problems import RackreadyError, StoppedError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rackready.campaign.nightly.night import Night, NightOrder
    from rackready.model.phase import PhaseContext
    from rackready.paths import EnvPaths

SHARE_PCT = 10
"""Judgement: one node of ten is free for a measurement at night, and a job that begins still finds nine."""
HOURS = "4h"


def nightly(  # noqa: PLR0913, PLR0917 - each is an option of the command
    env: Env = "sim",
    limit: Limit = "",
    max_share: Annotated[
        int,
        typer.Option(
            "--max-share",
            min=1,
            max=100,
            metavar="PERCENT",
            help="Most nodes at once of the fleet, rack, tenant and scheduler. One may always be taken.",
        ),
    ] = SHARE_PCT,
    time_for: Annotated[
        str, typer.Option("--for", metavar="DURATION", help="Time for the whole night, e.g. 90m or 6h.")
    ] = HOURS,
    gate_set: Annotated[
        str, typer.Option("--set", help="Gate set to run.", autocompletion=complete.gate_sets)
    ] = "nightly",
    again: Annotated[  # noqa: FBT002 - a command line flag
        bool, typer.Option("--again", help="Also measure nodes that were measured within 12 hours.")
    ] = False,
    put_back: Annotated[  # noqa: FBT002 - a command line flag
        bool, typer.Option("--put-back", help="Only put back what a killed run left; measure nothing.")
    ] = False,
    check: Check = False,  # noqa: FBT002 - a command line flag
    verbose: Verbose = False,  # noqa: FBT002 - as above
    output: Output = Format.TEXT,
) -> None:
    """Measure nodes in production that are idle now, oldest evidence first, and put each back as it was.

    No job is disturbed: rackready drains a node, and checks it again before it measures. A node that passes goes back
    into production; one that fails stays drained, in quarantine; one that could not be measured goes back, and the
    output names it. A run first cleans up after a killed one; with --put-back it does only that. --check changes
    nothing.

    Exit codes: 0 every measured node passed, or none was idle; 1 a node failed, could not be measured or put back, or
    its scheduler did not answer; 2 refused.
    """
    from rackready.campaign.nightly.night import NightOrder, preview, require_set  # noqa: PLC0415
    from rackready.cli.limit import choose  # noqa: PLC0415
    from rackready.design.deployable import require  # noqa: PLC0415
    from rackready.design.site import load_site  # noqa: PLC0415
    from rackready.gates.engine.site_check import require_gates  # noqa: PLC0415
    from rackready.model.phase import PhaseContext  # noqa: PLC0415

    limit_s = seconds("--for", time_for)
    paths = working_paths(env)
    site = load_site(env, root=paths.root)
    require_gates(site, str(paths.site_file))
    require_set(gate_set)
    nodes = choose(site, limit)
    require(site, nodes, "nightly")
    _require_jobs(site.handover.kind, str(paths.site_file))
    if put_back and check:
        step = "Nothing was done. Leave one of them out."
        raise RackreadyError("nightly", expected="--put-back or --check", actual="both", next_step=step)
    # Marks are of any node; without nodes to measure, they are all that is left to do.
    order = NightOrder([] if put_back else nodes, gate_set, max_share, limit_s, again)
    ctx = PhaseContext(env, paths.root, new_run("nightly"), check=check)
    if check:
        night = preview(ctx, order, time.time())
        _show(night, {"check": True, "log": ""}, output)
        raise typer.Exit(night.exit_code)
    night, log = _carried_out(ctx, paths, order, verbose=verbose)
    _show(night, {"check": False, "log": str(log)}, output)
    raise typer.Exit(night.exit_code)


def _require_jobs(kind: str, source: str) -> None:
    if kind == "file":
        raise RackreadyError(
            f"{source} handover.kind",
            "nightly",
            expected="a scheduler that knows the jobs of a node",
            actual="file",
            next_step="Nothing was done: drain nodes by hand, then run `rackready gate run --set nightly --node NODE`.",
        )


def _carried_out(ctx: PhaseContext, paths: EnvPaths, order: NightOrder, *, verbose: bool) -> tuple[Night, Path]:
    """Run the night under the controller lock. Ctrl-C and SIGTERM put back what was taken, then end it."""
    from rackready.campaign.controller import stop_signals  # noqa: PLC0415 - `--help` loads no engine
    from rackready.campaign.nightly.night import Shift  # noqa: PLC0415
    from rackready.drivers.process import Interrupted, reap  # noqa: PLC0415
    from rackready.handover.offer import keep_off  # noqa: PLC0415
    from rackready.ledger.lock import ControllerLock  # noqa: PLC0415
    from rackready.ledger.store import Ledger  # noqa: PLC0415
    from rackready.watch.drain_faulty import unrecorded_faults  # noqa: PLC0415

    command = f"rackready nightly --env {ctx.env}"
    with (
        ControllerLock(paths.lock, command, paths.database),
        run_log(paths, ctx.campaign, command, verbose=verbose) as log,
        Ledger.open(paths.database) as ledger,
        stop_signals(progress.print),
    ):
        for line in [*reap(ledger), *keep_off(ctx).lines]:
            progress.print(line, style="yellow")
        try:
            shift = Shift(ctx, order, progress.print, faulty=partial(unrecorded_faults, ledger))
            return shift.run(), log
        except Interrupted as error:
            raise StoppedError(
                command, "stopped", next_step="Every taken node is back, unless a line above says otherwise."
            ) from error


def _show(night: Night, more: Mapping[str, object], output: Format) -> None:
    if output is Format.JSON:
        print_json({**night.document(), **more})
        return
    for node, text in night.resolved.lines.items():
        console.print(f"{node}: {text}")
    told = [(node, outcome, why) for node, (outcome, why) in night.outcomes.items()]
    if told:
        print_table(("node", "outcome", "reason"), told, words=("reason",))
    counts = Counter(outcome for outcome, _ in night.outcomes.values())
    console.print(", ".join(f"{number} {outcome}" for outcome, number in counts.items()) or "no node")
    if more["log"]:
        progress.print(f"log: {more['log']}")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(nightly)
