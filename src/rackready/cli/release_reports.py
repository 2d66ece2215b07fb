"""`rackready release reports`: what nodes that apply releases themselves reported last, and what differs on them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from rackready.cli.limit import Limit
from rackready.cli.output import Env, Format, Output, console, print_json, print_table, working_paths
from rackready.model.problems import RackreadyError

if TYPE_CHECKING:
    from rackready.campaign.pull.listing import NodeReports, PhaseReports, ShownReport

_MINUTE_S, _HOUR_S = 60, 3600


def reports(env: Env = "sim", limit: Limit = "", output: Output = Format.TEXT) -> None:
    """Show what each node reported last: the play and the timer's check of each phase. Reads only; contacts no node.

    Exit codes: 0 every node is as released, 1 a node differs, failed, is late or never reported, 2 refused.
    """
    from rackready.campaign.pull.listing import SAME, listed  # noqa: PLC0415 - `--help` loads no site
    from rackready.cli.limit import choose  # noqa: PLC0415
    from rackready.design.site import load_site  # noqa: PLC0415

    paths = working_paths(env)
    site = load_site(env, root=paths.root)
    if site.pull is None:
        raise RackreadyError(
            f"release reports --env {env}",
            expected="pull in the site file",
            actual="none",
            next_step="Without it, nodes report nothing: `rackready drift` asks them.",
        )
    found = listed(site, site.pull, paths, choose(site, limit))
    good = all(one.status == SAME for one in found)
    if output is Format.JSON:
        print_json({"env": env, "site": site.name, "same": good, "nodes": [_plain(one) for one in found]})
    else:
        _print(found)
    raise typer.Exit(0 if good else 1)


def _plain(one: NodeReports) -> dict[str, Any]:
    document = asdict(one)
    for phase in document["phases"]:
        phase["age_s"] = round(phase["age_s"])
    return document


def _print(found: list[NodeReports]) -> None:
    rows = [row for one in found for row in _rows(one)]
    heads = ("node", "phase", "status", "last report", "last play", "last check")
    print_table(heads, rows, words=("last play", "last check"))
    for one in found:
        for phase in one.phases:
            _print_phase(one.node, phase)
        for text in one.unread:
            console.print(text, style="red")


def _rows(one: NodeReports) -> list[tuple[str, ...]]:
    """Return a row for each phase, one for a node that never reported."""
    if not one.phases:
        return [(one.node, "none", one.status, "never", "none", "none")]
    return [
        (one.node, phase.phase or "unknown", phase.status, _when(phase), _words(phase.apply), _words(phase.check))
        for phase in one.phases
    ]


def _print_phase(node: str, phase: PhaseReports) -> None:
    last = phase.check or phase.apply
    if last is None:
        return
    for text in last.changes if last.mode == "check" else ():
        console.print(f"{node}: {phase.phase}: {text}")
    if last.message:
        console.print(last.message, style="red")


def _when(one: PhaseReports) -> str:
    if one.age_s >= _HOUR_S:
        return f"{one.age_s / _HOUR_S:.0f} h ago"
    return f"{one.age_s / _MINUTE_S:.0f} min ago"


def _words(shown: ShownReport | None) -> str:
    if shown is None:
        return "none"
    counted = f", {len(shown.changes)} changes" if shown.changes else ""
    return f"{shown.playbook or 'order'} {shown.sequence}: {shown.outcome}{counted}"


def register(group: typer.Typer) -> None:
    """Add the command to the group `release`."""
    group.command()(reports)
