"""`rackready slurm`: shows and applies rackready's part of a Slurm cluster's files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from rackready.cli.limit import Limit
from rackready.cli.output import Env, Format, Output, Part, Verbose, console, print_json, progress, working_paths
from rackready.cli.run_log import terminal_log
from rackready.model.problems import RackreadyError

if TYPE_CHECKING:
    from rackready.handover.slurm_apply import Candidate
    from rackready.model.site import Site
    from rackready.paths import EnvPaths

app = typer.Typer(help="Show and apply rackready's part of Slurm's files.", no_args_is_help=True)


def register(parent: typer.Typer) -> None:
    """Add the command group to the application."""
    parent.add_typer(app, name="slurm")


@app.command("diff")
def diff(env: Env = "sim", limit: Limit = "", part: Part = "", output: Output = Format.TEXT) -> None:
    """Show what `handover` would change in Slurm's files for certified nodes. Nothing is changed.

    Exit codes: 0 no difference, 1 a difference, parts of a node are unknown or it lacks check or files, 2 refused.
    """
    from rackready.handover.slurm_apply import controller, wanted  # noqa: PLC0415
    from rackready.handover.slurm_checks import out_of_service  # noqa: PLC0415

    site, paths = _site(env, part)
    nodes = _certified(site, paths, limit)
    with controller(site, paths, nodes) as (cluster, remote):
        found = wanted(site, cluster, remote, nodes, out_of_service(paths))
    _show(site, found, nodes, output)
    raise typer.Exit(1 if found.files or found.failed or found.lacking or found.behind else 0)


@app.command("apply")
def apply_files(
    env: Env = "sim",
    limit: Limit = "",
    part: Part = "",
    verbose: Verbose = False,  # noqa: FBT002 - a flag
    output: Output = Format.TEXT,
) -> None:
    """Bring certified nodes into Slurm's files. They stay drained there until `handover` releases them.

    The files are first tried on a slurmctld of their own. When slurmctld does not come up with them, the old ones
    return. What a killed run left is ended first.

    Exit codes: 0 the files are as they must be, 1 a node's parts are unknown or it lacks the check, 2 refused.
    """
    from rackready.handover import slurm_apply as work  # noqa: PLC0415
    from rackready.handover.slurm_checks import out_of_service  # noqa: PLC0415
    from rackready.ledger.lock import ControllerLock  # noqa: PLC0415

    site, paths = _site(env, part)
    command = f"rackready slurm apply --env {env}"
    with terminal_log(command, verbose=verbose), ControllerLock(paths.lock, command, paths.database):
        nodes = _certified(site, paths, limit)
        with work.controller(site, paths, nodes) as (cluster, remote):
            if ended := work.recover(site, cluster, remote):
                progress.print(f"{cluster.where}: {ended}", style="yellow")
            found = work.wanted(site, cluster, remote, nodes, out_of_service(paths))
            changed = work.apply(cluster, found, work.nodes_of(site, remote))
    _show(site, found, nodes, output)
    if told := work.to_copy(site, found, changed):
        progress.print(told, style="yellow", markup=False)
    progress.print(f"changed: {', '.join(changed)}" if changed else "nothing to change")
    raise typer.Exit(1 if found.failed or found.lacking else 0)


def _site(env: str, part: str) -> tuple[Site, EnvPaths]:
    from rackready.design.handover_of import view_of_kind  # noqa: PLC0415
    from rackready.design.site import load_site  # noqa: PLC0415
    from rackready.model.operations import files_of  # noqa: PLC0415

    paths = working_paths(env)
    where = f"inventories/{env}/site.yml"
    site = view_of_kind(load_site(env, root=paths.root), "slurm", part, where)
    if files_of(site.handover) is None:
        actual = "none" if site.handover.kind == "slurm" else f"handover: {site.handover.kind}"
        raise RackreadyError(
            where,
            expected="handover.files, which says where Slurm's files lie",
            actual=actual,
            next_step="Add it (docs/howto/slurm.md), or go on writing the files yourself.",
        )
    return site, paths


def _certified(site: Site, paths: EnvPaths, limit: str) -> list[str]:
    """Return the chosen nodes of the cluster that are certified or ready."""
    from rackready.cli.limit import choose  # noqa: PLC0415
    from rackready.design.handover_of import part_of, served  # noqa: PLC0415
    from rackready.design.names import listed  # noqa: PLC0415
    from rackready.ledger.store import Ledger  # noqa: PLC0415
    from rackready.model.state import NodeState, at_least  # noqa: PLC0415

    ours = {node.name for node in served(site)}
    wanted = choose(site, limit)
    chosen = [node for node in wanted if node in ours]
    if limit and len(chosen) < len(wanted):
        raise RackreadyError(
            "--limit",
            expected=f"nodes of part {part_of(site)}",
            actual=listed([node for node in wanted if node not in ours]),
            next_step="Slurm's files name only its own nodes.",
        )
    if not Ledger.exists(paths.database):
        return []
    states = {row.name: row.state for row in Ledger.read_only(paths.database).states()}
    return [node for node in chosen if node in states and at_least(states[node], NodeState.CERTIFIED)]


def _show(site: Site, found: Candidate, nodes: list[str], output: Format) -> None:
    from rackready.handover.slurm_apply import waits  # noqa: PLC0415

    failed = {node: result.message for node, result in found.failed.items()}
    if output is Format.JSON:
        print_json(
            {
                "nodes": [node for node in nodes if node not in failed],
                "files": dict(sorted(found.files.items())),
                "reload": found.reload if found.files else "none",
                "failed": failed,
                "left": list(found.left),
                "lacking": list(found.lacking),
                "behind": list(found.behind),
            }
        )
        return
    if found.files:
        console.print(found.diff(), markup=False, highlight=False, end="")
        progress.print(f"slurmctld {found.cluster.release[0]}.{found.cluster.release[1]:02d}: {found.reload}")
    for message in failed.values():
        progress.print(message, style="red")
    if found.behind:
        progress.print(f"without the cluster's files, or with others: {', '.join(found.behind)}", style="yellow")
    if found.lacking:
        progress.print(waits(found), style="yellow", markup=False)
    if found.left:
        where = f"part {site.part.called} of the site" if site.part is not None else "the site"
        progress.print(
            f"{', '.join(found.left)}: in Slurm's files, and no longer in {where}. Delete the line there when no job "
            "runs on it.",
            style="yellow",
        )
