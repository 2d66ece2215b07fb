"""`rackready release reports`: what nodes that apply releases themselves reported last, and what differs on them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from rackready.cli.deploy import Limit
from rackready.cli.output import Env, Format, Output, console, print_json, print_table, working_paths
from rackready.model.problems import RackreadyError

if TYPE_CHECKING:
    from rackready.campaign.pull.listing import NodeReports, ShownReport

_MINUTE_S, _HOUR_S = 60, 3600


def reports(env: Env = "sim", limit: Limit = "", output: Output = Format.TEXT) -> None:
    """Show what each node reported last: its play, and the check by its timer. Reads only; no node is asked.

    Exit codes: 0 every node is as released, 1 a node differs, failed, is late or never reported, 2 refused.
    """
    from rackready.campaign.pull.listing import SAME, listed  # noqa: PLC0415 - `--help` loads no site
    from rackready.cli.campaign_run import choose  # noqa: PLC0415
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
    age = None if one.age_s is None else round(one.age_s)
    return {**asdict(one), "age_s": age}


def _print(found: list[NodeReports]) -> None:
    rows = [(one.node, one.status, _when(one), _words(one.apply), _words(one.check)) for one in found]
    print_table(("node", "status", "last report", "last play", "last check"), rows, words=("last play", "last check"))
    for one in found:
        last = one.check or one.apply
        for text in last.changes if last and last.mode == "check" else ():
            console.print(f"{one.node}: {text}")
        for text in (*((last.message,) if last and last.message else ()), *one.unread):
            console.print(text, style="red")


def _when(one: NodeReports) -> str:
    if one.age_s is None:
        return "never"
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
