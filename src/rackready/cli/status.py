"""`rackready status`: the state of every node, at any time and also during a run."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rackready.cli import complete
from rackready.cli.output import (
    Env,
    Format,
    Output,
    console,
    print_json,
    print_lines,
    print_reasons,
    print_table,
    working_paths,
)
from rackready.cli.status_workers import print_workers, workers_of
from rackready.ledger.lock import is_held
from rackready.model.near import CORRECT, hosts_among
from rackready.model.problems import RackreadyError
from rackready.model.state import OUT, NodeState
from rackready.paths import EnvPaths

if TYPE_CHECKING:
    from rackready.design.outline import Outline
    from rackready.ledger.store import EventRow, Ledger, NodeRow

CUT_OFF = "cut off"
"""Status of a campaign whose controller was killed: its record still has `running`."""


def status(
    env: Env = "sim",
    scheduler: Annotated[  # noqa: FBT002
        bool,
        typer.Option(
            "--scheduler/--no-scheduler", help="Ask the scheduler about quarantined and retired nodes, at most 5 s."
        ),
    ] = True,
    node: Annotated[
        str,
        typer.Option(
            "--node", help="Show every state of this node, and what was compared for it.", autocompletion=complete.nodes
        ),
    ] = "",
    output: Output = Format.TEXT,
) -> None:
    """Show every node's state, the reason for it, and its current step.

    Reads only; needs no root and no lock. Asks the scheduler whether it offers quarantined or retired nodes to jobs,
    and shows an alarm for each. Neither states nor a scheduler that does not answer within 5 s change the exit code:
    `rackready report` exits with 1 for a node that is not good.

    Exit codes: 0 shown, whatever the states are, 2 refused or invalid.
    """
    from rackready.design.collector import without_gc  # noqa: PLC0415 - `--help` loads no site
    from rackready.design.outline import load_outline  # noqa: PLC0415

    paths = working_paths(env)
    with without_gc():  # it would look through thousands of nodes again and again
        site = load_outline(paths)
        if node:
            _history(site, paths, node, output)
        else:
            _show(env, site, paths, output, scheduler=scheduler)


def _show(env: str, site: Outline, paths: EnvPaths, output: Format, *, scheduler: bool) -> None:
    """Read the records and print all nodes. Each table of the database is read once."""
    from rackready.ledger.store import Ledger  # noqa: PLC0415 - `--help` loads no database
    from rackready.watch.view import look  # noqa: PLC0415

    seen_to = None
    rows: dict[str, NodeRow] = {}
    doing: dict[str, EventRow] = {}
    campaigns: list[dict[str, Any]] = []
    found = SchedulerView()
    workers: dict[str, Any] = {}
    if Ledger.exists(paths.database):
        with Ledger.read_only(paths.database) as ledger:
            rows = {row.name: row for row in ledger.states()}
            campaigns = working_campaigns(ledger, paths)
            if campaigns and campaigns[0]["status"] == "running":
                doing = ledger.newest_events(campaigns[0]["id"])
            found = _watched(rows, site.nodes, paths) if scheduler else found
            workers = workers_of(ledger, ledger.backend.workers)
            seen_to = look(ledger, site.nodes, paths, rows)
    nodes = list(_nodes(site, rows, doing, found.offered))
    latest = campaigns[0] if campaigns else None
    document: dict[str, Any] = {
        "env": env,
        "nodes": nodes,
        "states": _counts(nodes),
        "campaign": {key: latest[key] for key in ("id", "kind", "status")} if latest else None,
    }
    document |= {"alarms": found.alarms, "not_asked": found.not_asked}
    unwatched = seen_to.unwatched if seen_to else {}
    document |= {"not_watched": unwatched} if seen_to else {}
    document |= workers
    if output is Format.JSON:
        print_json(document)
        return
    _print(nodes, f"{env}: campaign {latest['id']} {latest['status']}" if latest else f"{env}: nothing deployed yet")
    print_workers(workers)
    for alarm in found.alarms:
        console.print(f"ALARM {alarm}", style="bold red")
    for text in (*found.not_asked, *(f"{name} is not watched: {why}" for name, why in unwatched.items())):
        console.print(text, style="yellow")
    if latest and latest["status"] in {CUT_OFF, "interrupted"}:
        console.print(
            f"campaign {latest['id']} was {latest['status']}: run the same command ({latest['kind']}) to continue "
            "where it stopped"
        )
    if latest and latest["status"] == "paused":
        console.print(f"campaign {latest['id']} is paused: `rackready deploy --resume` continues it, --abort ends it")


def _nodes(
    site: Outline, rows: Mapping[str, NodeRow], doing: Mapping[str, EventRow], offered: Mapping[str, bool]
) -> Iterator[dict[str, Any]]:
    """Yield a row for each node of the site."""
    for name, (scheduler, part) in site.nodes.items():
        row, now = rows.get(name), doing.get(name)
        yield {
            "name": name,
            "state": row.state.value if row else "declared",
            "reason": row.reason if row else "",
            "phase": row.phase if row else "",
            "since": _utc(row.since) if row else None,
            "scheduler": scheduler,
            "part": part,
            "offered": offered.get(name),
            "now": {"at": _utc(now.at), "phase": now.phase, "text": now.text} if now else None,
        }


def _history(site: Outline, paths: EnvPaths, node: str, output: Format) -> None:
    """Print the states that a node came to, oldest first. Raises RackreadyError for a node that the site has not."""
    from rackready.ledger.history import history  # noqa: PLC0415 - `--help` loads no database
    from rackready.ledger.store import Ledger  # noqa: PLC0415

    if node not in site.nodes:
        raise RackreadyError(
            "--node", expected=f"one of {hosts_among(site.nodes, node)}", actual=node, next_step=CORRECT
        )
    rows = []
    if Ledger.exists(paths.database):
        with Ledger.read_only(paths.database) as ledger:
            rows = history(ledger, node)
    listed = [
        {"at": _utc(row.at), "state": row.state.value, "reason": row.reason, "campaign": row.campaign} for row in rows
    ]
    if output is Format.JSON:
        print_json({"name": node, "history": listed})
        return
    if not listed:
        console.print(f"{node}: nothing deployed yet")
    for item in listed:
        console.print(f"{item['at']}  {item['state']:<12}  {item['reason']}".rstrip(), soft_wrap=True, highlight=False)


def _print(nodes: list[dict[str, Any]], title: str) -> None:
    """Print the table, then texts that are too long for it: reasons, and during a campaign each node's current step."""
    parts = any(item["part"] for item in nodes)
    headers = ("node", "state", "phase", "since", *(("scheduler",) if parts else ()))
    rows = []
    for item in nodes:
        scheduler = f"{item['part']} ({item['scheduler']})"
        row = (item["name"], item["state"], item["phase"], item["since"] or "")
        rows.append((*row, scheduler) if parts else row)
    print_table(headers, rows, title=title)
    counts = [f"{count:,} {state}" for state, count in _counts(nodes).items()]
    print_lines([f"{len(nodes):,} nodes: {', '.join(counts)}"] if len(nodes) > 1 else [])
    print_reasons((item["name"], item["reason"]) for item in nodes)
    print_lines(
        f"{item['name']} now ({now['at']}): {now['phase']}: {now['text']}" for item in nodes if (now := item["now"])
    )


def _counts(nodes: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return state -> number of nodes in it, in the order of a node's life; only states that some node has."""
    found = Counter(item["state"] for item in nodes)
    return {state.value: found[state.value] for state in NodeState if found[state.value]}


def _utc(at: float) -> str:
    return _utc_of(int(at))


@cache
def _utc_of(second: int) -> str:
    """Cached: the nodes of a batch share a second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(second))


@dataclass(frozen=True, slots=True)
class SchedulerView:
    """The scheduler's answer about quarantined and retired nodes.

    ``offered``: node -> whether it is offered to jobs, for the queried nodes. ``not_asked``: reasons for the others.
    """

    offered: dict[str, bool] = field(default_factory=dict)
    alarms: list[str] = field(default_factory=list)
    not_asked: list[str] = field(default_factory=list)


def _watched(states: Mapping[str, NodeRow], names: Collection[str], paths: EnvPaths) -> SchedulerView:
    if not any(row.state in OUT and row.name in names for row in states.values()):
        return SchedulerView()
    from rackready.design.site import load_site  # noqa: PLC0415 - only a scheduler that is asked needs the whole site
    from rackready.handover.offer import STATUS_S, alarm, not_asked, offers, out_of_use  # noqa: PLC0415 - SSH is slow to load

    site = load_site(paths.env, root=paths.root)
    rows = out_of_use(states.values(), site)
    found = offers(site, paths, list(rows), limit_s=STATUS_S, reads=True)
    alarms = [alarm(rows[node], now) for node, now in found.offered.items()]
    return SchedulerView({node: node in found.offered for node in found.asked}, alarms, list(not_asked(found.unknown)))


def working_campaigns(ledger: Ledger, paths: EnvPaths) -> list[dict[str, Any]]:
    """Return the campaigns that work on nodes, newest first: an import must not hide that a deploy was cut off.

    A campaign recorded as running was cut off when no controller is alive. It may also end between two readings.
    """
    found = _working(ledger)
    if not found or found[0]["status"] != "running" or is_held(paths.lock, paths.database):
        return found
    found = _working(ledger)
    if found[0]["status"] == "running" and not is_held(paths.lock, paths.database):
        found[0]["status"] = CUT_OFF
    return found


def _working(ledger: Ledger) -> list[dict[str, Any]]:
    from rackready.ledger.rows import BESIDE  # noqa: PLC0415 - `--help` loads no database

    return [row for row in ledger.campaign_heads() if row["kind"] not in BESIDE]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(status)
