"""`rackready rma`: gathers what a vendor needs of a faulty node, and takes the node up again when it is back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
from rackready.model.problems import RackreadyError

if TYPE_CHECKING:
    from rackready.campaign.rma.leave import Leave
    from rackready.model.phase import PhaseContext

_MINUTE_S = 60.0


def rma(  # noqa: PLR0913, PLR0917 - command line options
    node: Annotated[str, typer.Argument(help="Node to send to its vendor.", autocompletion=complete.nodes)],
    reason: Annotated[str, typer.Option("--reason", help="Fault, or what was done; recorded.")] = "",
    check: Annotated[bool, typer.Option("--check", help="Show what would be gathered; change nothing.")] = False,  # noqa: FBT002 - a command line flag
    returned: Annotated[bool, typer.Option("--returned", help="The node is back: compare its parts.")] = False,  # noqa: FBT002 - a command line flag
    without: Annotated[str, typer.Option("--without", help="Skip these, e.g. nvidia-bug-report,evidence.")] = "",
    ticket: Annotated[Path | None, typer.Option("--ticket", help="JSON file of a ticket for the summary.")] = None,
    env: Env = "sim",
    verbose: Verbose = False,  # noqa: FBT002 - a command line flag
    output: Output = Format.TEXT,
) -> None:
    """Drain a node, gather logs, serials and evidence in one archive for its vendor; take it back with --returned.

    If something cannot be gathered, the summary names it with the reason, and the run continues. To continue an
    interrupted run, repeat the command. You supply the field diagnostic and nvdebug: `rma` in the site file names them.
    --returned compares the parts, returns the node to reachable, and voids the measurements of its peers with it. A
    part that returns for the third time is retired.

    Exit codes: 0 packed, back or shown, 1 back with a retired part, 2 refused.
    """
    from rackready.model.phase import PhaseContext  # noqa: PLC0415

    paths = working_paths(env)
    ctx = PhaseContext(env, paths.root, new_run("rma"))
    names = [name.strip() for name in without.split(",") if name.strip()]
    if returned:
        _only_alone({"--check": check, "--without": bool(names), "--ticket": ticket is not None})
        _come_back(ctx, node, given_reason(reason), output, verbose=verbose)
        return
    from rackready.campaign.rma.leave import Leave  # noqa: PLC0415

    leave = Leave(ctx, node, names, ticket)
    leave.require_state()
    if check:
        _show(leave, output)
        return
    _gather(leave, given_reason(reason), output, verbose=verbose)


def _only_alone(given: dict[str, bool]) -> None:
    """Refuse options that gather, beside --returned."""
    for name, there in given.items():
        if there:
            raise RackreadyError(
                "rma --returned",
                expected="--reason alone: nothing is gathered",
                actual=name,
                next_step=f"Omit {name} or --returned.",
            )


def _show(leave: Leave, output: Format) -> None:
    rows = leave.plan()
    if output is Format.JSON:
        print_json({"name": leave.node, "done": False, "gather": rows})
        return
    for row in rows:
        state = "gathered before" if row["gathered_before"] else row["left_out"] or "would be gathered"
        limit = max(1, round(row["limit_s"] / _MINUTE_S))
        console.print(f"{row['name']}: {state}: {row['what']} (from the {row['by']}, at most {limit} min)")
    console.print(f"{leave.node} would be drained first. Nothing was changed. Omit --check to gather")


def _gather(leave: Leave, reason: str, output: Format, *, verbose: bool) -> None:
    from rackready.drivers.process import reap  # noqa: PLC0415
    from rackready.handover.offer import keep_off  # noqa: PLC0415
    from rackready.ledger.lock import ControllerLock  # noqa: PLC0415
    from rackready.ledger.store import Ledger  # noqa: PLC0415

    ctx, node, paths = leave.ctx, leave.node, leave.paths
    command = f"rackready rma {node} --env {ctx.env}"
    with (
        ControllerLock(paths.lock, command, paths.database),
        run_log(paths, ctx.campaign, command, verbose=verbose) as log,
    ):
        with Ledger.open(paths.database) as ledger:
            for line in reap(ledger):
                progress.print(line, style="yellow")
        for line in keep_off(ctx, but=node).lines:
            progress.print(line, style="yellow")
        progress.print(f"{node}: is drained, then everything is gathered; log: {log}")
        case, document = leave.gather(reason)
    if output is Format.JSON:
        print_json({"name": node, "done": True, "case": case.id, "archive": str(case.archive), "summary": document})
        return
    for item in document["gathered"]:
        if not item["gathered"]:
            console.print(f"{node}: not gathered: {item['name']}: {item['reason']}")
    for item in document["accused"]:
        console.print(
            f"{node}: accused: {item['kind']} {item['place']}, slot {item['slot'] or 'unknown'}, serial "
            f"{item['serial'] or 'unknown'}: {', '.join(item['by_finding'])}"
        )
    console.print(f"{node}: archive for the vendor: {case.archive}")
    console.print(f"When it is back: rackready rma {node} --returned --env {ctx.env} --reason '...'")


def _come_back(ctx: PhaseContext, node: str, reason: str, output: Format, *, verbose: bool) -> None:
    from rackready.campaign.rma.back import come_back  # noqa: PLC0415
    from rackready.ledger.lock import ControllerLock  # noqa: PLC0415

    paths = env_paths(ctx.env)
    command = f"rackready rma {node} --returned --env {ctx.env}"
    with (
        ControllerLock(paths.lock, command, paths.database),
        run_log(paths, ctx.campaign, command, verbose=verbose),
    ):
        found = come_back(ctx, node, reason, lambda line: progress.print(line, style="yellow"))
    lines = found.comparison.lines()
    if output is Format.JSON:
        print_json(
            {
                "name": node,
                "done": not found.refused,
                "case": found.case,
                "state": "repair" if found.refused else "reachable",
                "epoch": found.epoch,
                "comparison": _plain(found.comparison),
                "retired": [str(message) for message in found.refused],
                "peers": [
                    {
                        "name": peer.node,
                        "why": peer.why,
                        "gates": sorted(peer.gates),
                        "in_production": peer.node in found.in_production,
                    }
                    for peer in found.peers
                ],
            }
        )
        raise typer.Exit(1 if found.refused else 0)
    for line in lines:
        console.print(f"{node}: {line}")
    for message in found.refused:
        console.print(str(message))
    if found.refused:
        raise typer.Exit(1)
    for peer in found.peers:
        when = "measured again when it next leaves production" if peer.node in found.in_production else "measured next"
        console.print(f"{peer.node}: {'; '.join(peer.why)}: {len(peer.gates)} gates are void, {when}")
    console.print(f"{node}: reachable, epoch {found.epoch}. `rackready deploy --env {ctx.env}` continues with it.")


def _plain(comparison: Any) -> dict[str, Any]:  # noqa: ANN401 - a dataclass that is imported where it is needed
    from dataclasses import asdict  # noqa: PLC0415

    return asdict(comparison)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(rma)
