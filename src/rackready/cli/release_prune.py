"""`rackready release prune`: removes builds, objects and reports that no node needs. Shows them first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rackready.cli.chosen_hosts import retired
from rackready.cli.output import Env, Format, Output, console, print_json, progress, working_paths
from rackready.model.problems import RackreadyError

if TYPE_CHECKING:
    from rackready.campaign.pull.prune import Prunable, Pruning

_KEEP = 3
"""Builds that stay. Our choice: the present one, the one before, and one to compare with."""


def prune(
    keep: Annotated[int, typer.Option("--keep", min=1, help="Newest builds to keep.")] = _KEEP,
    yes: Annotated[bool, typer.Option("--yes", help="Remove them; without --yes, only show what would go.")] = False,  # noqa: FBT002 - a command line flag
    env: Env = "sim",
    output: Output = Format.TEXT,
) -> None:
    """Remove builds, objects and reports of releases that no node needs. Evidence stays.

    Keeps the newest builds, and every release that a node's newest order of a phase names. It keeps the newest report
    of a play and of a check for each phase, and the reports that an interrupted run waits for. Changes no node.

    Exit codes: 0 done or shown, 2 refused.
    """
    from rackready.campaign.pull.prune import Pruning  # noqa: PLC0415 - `--help` loads no site
    from rackready.cli.limit import choose  # noqa: PLC0415
    from rackready.design.site import load_site  # noqa: PLC0415
    from rackready.handover.keys import keys_of  # noqa: PLC0415
    from rackready.ledger.store import Ledger  # noqa: PLC0415

    paths = working_paths(env)
    site = load_site(env, root=paths.root)
    gone = set(retired(paths))
    nodes = [node for node in choose(site, "") if node not in gone]
    pruning = Pruning(site, paths, nodes, keep, keys_of(site, paths).trusted())
    if yes:
        found = _done(pruning, f"rackready release prune --env {env}")
    elif Ledger.exists(paths.database):
        with Ledger.read_only(paths.database) as ledger:
            found = pruning.look(ledger)
    else:
        found = pruning.look(None)
    _show(found, env, output, done=yes)


def _done(pruning: Pruning, command: str) -> Prunable:
    """Remove under the lock: a run that orders or waits for reports holds it."""
    from rackready.ledger.lock import ControllerLock  # noqa: PLC0415
    from rackready.ledger.store import Ledger  # noqa: PLC0415

    paths = pruning.paths
    with ControllerLock(paths.lock, command, paths.database), Ledger.open(paths.database) as ledger:
        found = pruning.look(ledger)
        try:
            pruning.remove(ledger, found)
        except OSError as error:
            raise RackreadyError(
                f"{error.filename or paths.state}",
                expected="a file that can be removed",
                actual=error.strerror or error,
                next_step="Check owner and mode of its folder, then run again: it finds the rest.",
            ) from error
    return found


def _show(found: Prunable, env: str, output: Format, *, done: bool) -> None:
    counts = {"builds": len(found.indexes), "objects": len(found.objects), "reports": len(found.reports)}
    if output is Format.JSON:
        print_json({"env": env, "done": done, "kept_releases": found.kept, **counts, "bytes": found.size})
        return
    verb = "removed" if done else "would go"
    console.print(f"{verb}: {', '.join(f'{count} {name}' for name, count in counts.items())}, {_mib(found.size)}")
    console.print(f"kept: {found.kept} releases")
    if not done and any(counts.values()):
        progress.print("nothing was removed. Add --yes to remove it")


def _mib(count: int) -> str:
    return f"{count / 2**20:.1f} MiB"


def register(group: typer.Typer) -> None:
    """Add the command to the group `release`."""
    group.command()(prune)
