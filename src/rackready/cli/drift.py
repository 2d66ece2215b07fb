"""`rackready drift`: what differs on nodes and switches from their site, and since which run. It changes nothing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from rackready.cli.limit import Limit
from rackready.cli.output import Env, Format, Output, Verbose, console, print_json, print_table, progress, working_paths
from rackready.model.drift import DriftItem, DriftKind, DriftReport, WhenSeen

if TYPE_CHECKING:
    from rackready.campaign.drift.run import DriftRun


def drift(env: Env = "sim", limit: Limit = "", verbose: Verbose = False, output: Output = Format.TEXT) -> None:  # noqa: FBT002 - a flag
    """Show how nodes and switches differ from the site file, and since which run. Changes nothing and loads no node.

    It runs the roles in check mode, the switch drivers' comparison and gates that only read, also on nodes in
    production. It does not compare what was never applied. Exit: 0 no drift, 1 drift, 2 refused, or a node or switch
    could not be compared.
    """
    from rackready.campaign.drift.run import drift_run, new_run  # noqa: PLC0415
    from rackready.campaign.log_file import log_path  # noqa: PLC0415
    from rackready.cli.limit import choose  # noqa: PLC0415
    from rackready.design.site import load_site  # noqa: PLC0415
    from rackready.model.phase import PhaseContext  # noqa: PLC0415

    paths = working_paths(env)
    site = load_site(env, root=paths.root)
    nodes = choose(site, limit)
    ctx = PhaseContext(env, paths.root, new_run(), check=True)
    command = f"rackready drift --env {env}" + (f" --limit {limit}" if limit else "")
    found = drift_run(ctx, site, nodes, command, lambda text: progress.print(text, style="yellow"), verbose=verbose)
    if output is Format.JSON:
        print_json(_document(env, site.name, found) | {"log": log_path(paths, found.run)})
    else:
        _print(found)
        progress.print(f"log: {log_path(paths, found.run)}")
    raise typer.Exit(found.exit_code)


def _document(env: str, site: str, found: DriftRun) -> dict[str, Any]:
    """Return the JSON document."""
    return {
        "env": env,
        "site": site,
        "run": found.run,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(found.at)),
        "seconds": round(found.seconds, 1),
        "drift": found.drifted,
        "asked": found.asked,
        "left_out": list(found.left_out),
        "nodes": [_plain(report) for report in found.reports if report.target == "node"],
        "switches": [_plain(report) for report in found.reports if report.target == "switch"],
    }


def _plain(report: DriftReport) -> dict[str, Any]:
    return report.model_dump(mode="json", exclude={"target"})


def _print(found: DriftRun) -> None:
    """Print a table per node or switch with drift, then what could not be asked, then the summary."""
    for report in found.reports:
        if report.items:
            _table(report)
        for text in report.notes if report.items or report.not_asked else ():
            console.print(f"{report.name}: {text}")
        for text in report.not_asked:
            console.print(f"{report.name} not asked: {text}", style="yellow")
    for node in found.left_out:
        console.print(f"{node} is retired and was not asked")
    items = sum(len(report.items) for report in found.reports)
    drifted = [report.name for report in found.reports if report.items]
    unasked = [report.name for report in found.reports if not report.asked]
    if drifted:
        console.print(f"drift: {items} {'item' if items == 1 else 'items'} on {', '.join(drifted)}")
    if unasked:
        console.print(f"not compared, or only in part: {', '.join(unasked)}", style="yellow")
    if not drifted and not unasked:
        console.print("no drift: everything that was applied matches the site file")
    console.print(f"drift run {found.run}, {found.seconds:.1f} s; nothing was changed")


def _table(report: DriftReport) -> None:
    items = sorted(report.items, key=lambda item: (item.kind.value, item.name))
    rows = [
        (item.kind.value, item.name, item.expected, item.actual, _run(item.since), _run(item.first_seen))
        for item in items
    ]
    headers = ("kind", "item", "expected", "actual", "as wanted until", "first seen by")
    print_table(headers, rows, title=report.name, words=("item", "expected", "actual"))
    for step in _steps(items):
        console.print(f"{report.name}: {step}")


def _run(run: WhenSeen | None) -> str:
    return run.run if run else "unknown"


def _steps(items: Sequence[DriftItem]) -> list[str]:
    """Return the next steps, each once: first what a deploy puts right, then the others with their item."""
    own = [item for item in items if item.phase and item.kind is not DriftKind.CHECK]
    others = dict.fromkeys(f"{item.name}: {item.next_step}" for item in items if item not in own)
    return [*dict.fromkeys(item.next_step for item in own), *others]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(drift)
