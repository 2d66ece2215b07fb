"""`rackready watch`: faults of nodes in production are drained, proven and ticketed."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rackready.cli.output import Env, Format, Output, console, given_reason, print_json, progress, working_paths
from rackready.drivers.stop_flag import StopFlag
from rackready.model.problems import RackreadyError

if TYPE_CHECKING:
    from rackready.ledger.store import Ledger
    from rackready.model.site import Site
    from rackready.paths import EnvPaths
    from rackready.watch.drain_faulty import Tell
    from rackready.watch.engine import Engine
    from rackready.watch.follow_up import FollowUp

_COLOURS = {
    "drained": "red",
    "storm": "bold red",
    "not-watched": "yellow",
    "failed": "yellow",
    "waits": "yellow",
    "idle": "yellow",
}


def watch(
    context: typer.Context,
    once: Annotated[  # noqa: FBT002 - a command line flag
        bool, typer.Option("--once", help="Look at every node once, act on what is found, and end.")
    ] = False,
    env: Env = "sim",
    output: Output = Format.TEXT,
) -> None:
    """Watch every node in production: drain it at a fault, keep evidence, open a repair ticket.

    Runs until it is stopped (systemd: docs/howto/watch.md), beside every other command: it takes a lock of its own, and
    acts on no node that a campaign works on. With `--output json` each event is one JSON document on a line; with
    `--once` the result is one document. `--once` reads no BMC; what must hold for some time, such as a link that is
    down, is told as `unsettled`, and drains nothing.

    Exit codes: 0 stopped, or nothing found by --once; 1 --once found a fault, something unsettled, or a node that
    cannot be watched; 2 refused.
    """
    if context.invoked_subcommand is not None:
        return
    from rackready.design.site import load_site  # noqa: PLC0415 - `--help` loads no database
    from rackready.ledger.store import Ledger  # noqa: PLC0415
    from rackready.watch.lease import lease  # noqa: PLC0415

    paths = working_paths(env)
    site = load_site(env, root=paths.root)
    _require(paths, env)
    told: list[dict[str, Any]] = []
    tell = _teller(output, told, once=once)
    stop = StopFlag()
    with Ledger.open(paths.database) as ledger, lease(paths, ledger), _stopped_by_signal(stop):
        following: Site | None = site
        while following is not None:
            site = following
            engine, follow_up = _made(site, paths, ledger, tell, once=once)
            engine.stop, engine.reload = stop, _reload(paths, tell)
            engine.current = lambda: load_site(env, root=paths.root)
            _run(engine, follow_up)
            following = engine.successor
        if once:
            follow_up.work()
            raise typer.Exit(_result(told, ledger, site, paths, output))


def _run(engine: Engine, follow_up: FollowUp) -> None:
    """Watch, with the follow-up beside it, until the watch ends."""
    worker = threading.Thread(target=follow_up.run, name="watch follow-up", daemon=True)
    worker.start()
    try:
        engine.run()
    finally:
        follow_up.stop.set()
        worker.join(timeout=90)


def _reload(paths: EnvPaths, tell: Tell) -> Callable[[], Site | None]:
    """Return what loads the site when one of its files changed. One with problems is told, and the old one stays."""
    from rackready.design.site import load_site  # noqa: PLC0415
    from rackready.design.site_inputs import FOLDER, overlay_files, profile_files  # noqa: PLC0415
    from rackready.ledger.node_sets import refresh  # noqa: PLC0415

    def seen() -> list[tuple[str, int, int]]:
        """Return the files of the site. The version set of an upgraded node is read when the node is watched again."""
        own = profile_files(paths.inventory / FOLDER)
        files = (paths.site_file, *overlay_files(paths, with_machines=True), *own, paths.bmc_pins)
        found = [(str(path), path.stat()) for path in files if path.exists()]
        return [(name, one.st_mtime_ns, one.st_size) for name, one in found]

    before = seen()

    def changed() -> Site | None:
        nonlocal before
        now = seen()
        if now == before:
            return None
        before = now
        try:
            refresh(paths)
            site = load_site(paths.env, root=paths.root)
        except (RackreadyError, OSError) as error:
            tell("failed", "", f"the changed site file cannot be used; the watch keeps the previous one: {error}")
            return None
        tell("site", "", "the site file changed: the watch continues with the new one")
        return site

    return changed


def _require(paths: EnvPaths, env: str) -> None:
    from rackready.ledger.store import Ledger  # noqa: PLC0415

    if not Ledger.exists(paths.database):
        raise RackreadyError(
            env,
            "nothing to watch",
            expected="nodes that were handed over",
            actual="nothing deployed yet",
            next_step=f"Run `rackready deploy --env {env}` first.",
        )


def _made(site: Site, paths: EnvPaths, ledger: Ledger, tell: Tell, *, once: bool) -> tuple[Engine, FollowUp]:
    """Return the watch and its follow-up."""
    from rackready.drivers.ssh.target import node_target  # noqa: PLC0415
    from rackready.evidence.store import EvidenceStore  # noqa: PLC0415
    from rackready.watch.bmc_logs import BmcLogs  # noqa: PLC0415
    from rackready.watch.drain_faulty import Actor  # noqa: PLC0415
    from rackready.watch.engine import Engine  # noqa: PLC0415
    from rackready.watch.fault_evidence import Prover  # noqa: PLC0415
    from rackready.watch.follow_up import FollowUp  # noqa: PLC0415
    from rackready.watch.store import WatchStore  # noqa: PLC0415
    from rackready.watch.stream import SshLines  # noqa: PLC0415
    from rackready.watch.tickets import TicketDesk  # noqa: PLC0415
    from rackready.watch.webhook import Outbox  # noqa: PLC0415

    store, evidence = WatchStore.open(ledger), EvidenceStore.open(ledger, paths.raw)
    lines = SshLines(lambda node: node_target(site, node, paths.known_hosts), site.watch.silent_s)
    engine = Engine(site, paths, store, evidence, lines, Actor(site, paths, store, tell), tell, once=once)
    engine.bmcs = BmcLogs(site, store, engine.bmc) if site.watch.bmc else None
    tickets = TicketDesk(site, paths, store, evidence)
    outbox = Outbox(site.watch.webhook, store, tickets, tell)
    return engine, FollowUp(store, Prover(site, paths, evidence), tickets, outbox, tell)


@contextmanager
def _stopped_by_signal(stop: StopFlag) -> Iterator[None]:
    """End at SIGTERM (systemd) and Ctrl-C after the step that runs."""
    numbers = (signal.SIGTERM, signal.SIGINT) if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _teller(output: Format, told: list[dict[str, Any]], *, once: bool) -> Tell:
    """Return what tells an event: a line for people, or a JSON document on a line."""
    writing = threading.Lock()

    def tell(kind: str, node: str, text: str) -> None:
        event = {"at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "event": kind, "node": node, "text": text}
        with writing:
            if once:
                told.append(event)
            if output is Format.JSON and not once:
                sys.stdout.write(json.dumps(event) + "\n")
                sys.stdout.flush()
            elif output is Format.TEXT:
                progress.print(f"{event['at']} {kind}: {text}", style=_COLOURS.get(kind))

    return tell


def _result(told: list[dict[str, Any]], ledger: Ledger, site: Site, paths: EnvPaths, output: Format) -> int:
    """Print the result of `--once`, and return its exit code."""
    from rackready.watch.view import look  # noqa: PLC0415

    bad = [event for event in told if event["event"] in {"fault", "not-watched", "failed", "storm", "unsettled"}]
    found = look(ledger, {node.name for node in site.nodes()}, paths)
    if output is Format.JSON:
        print_json({"events": told, "waiting": found.document()["waiting"] if found else []})
    else:
        idle = any(event["event"] == "idle" for event in told)
        good = "no node was looked at" if idle else "no fault was found"
        console.print(f"{len(bad)} events need attention" if bad else good)
    return 1 if bad else 0


def status(env: Env = "sim", output: Output = Format.TEXT) -> None:
    """Show which nodes are watched, which are not and why, a storm, and faults on their way. Reads only.

    Exit codes: 0 every node in production is watched and no storm; 1 otherwise; 2 refused.
    """
    from rackready.design.site import load_site  # noqa: PLC0415
    from rackready.ledger.store import Ledger  # noqa: PLC0415
    from rackready.watch.view import look  # noqa: PLC0415

    paths = working_paths(env)
    site = load_site(env, root=paths.root)
    _require(paths, env)
    with Ledger.read_only(paths.database) as ledger:
        found = look(ledger, {node.name for node in site.nodes()}, paths)
    document = found.document() if found else {"running": False, "watched": [], "not_watched": {}, "storm": {}}
    if output is Format.JSON:
        print_json({"env": env, **document})
    else:
        _print(document)
    good = found is not None and found.running and not found.unwatched and not found.storm.get("active")
    raise typer.Exit(0 if good else 1)


def _print(document: dict[str, Any]) -> None:
    console.print(
        f"watch: {'runs' if document['running'] else 'does not run'}; {len(document['watched'])} nodes watched"
    )
    for node, why in document["not_watched"].items():
        console.print(f"{node}: not watched: {why}", style="yellow")
    storm = document["storm"]
    if storm.get("active"):
        text = f"storm: nothing more is drained (limit {storm['limit']} of {storm['fleet']} nodes)"
        console.print(text, style="bold red")
    for item in document.get("waiting", []):
        why = f": {item['why']}" if item["why"] else ""
        console.print(f"{item['node']}: {item['condition']} on {item['part']}: {item['step']}{why}")
    if document.get("open_tickets"):
        console.print(f"{document['open_tickets']} open tickets: `rackready ticket list`")


def clear_storm(
    reason: Annotated[str, typer.Option("--reason", help="What the common cause was; recorded.")],
    env: Env = "sim",
    output: Output = Format.TEXT,
) -> None:
    """End a storm: drain the nodes that were held, up to the limit, whose count starts again.

    Exit codes: 0 ended, 2 refused.
    """
    from rackready.ledger.store import Ledger  # noqa: PLC0415
    from rackready.watch.store import WatchStore  # noqa: PLC0415
    from rackready.watch.storm import clear  # noqa: PLC0415

    paths, words = working_paths(env), given_reason(reason)
    _require(paths, env)
    with Ledger.open(paths.database) as ledger:
        held = clear(WatchStore.open(ledger), words, time.time())
    if output is Format.JSON:
        print_json({"env": env, "reason": words, "nodes": held})
    else:
        console.print(f"storm ended; {len(held)} nodes that were held are drained next: {', '.join(held) or 'none'}")


def register(app: typer.Typer) -> None:
    """Add the command."""
    group = typer.Typer()
    group.callback(invoke_without_command=True)(watch)
    group.command("status")(status)
    group.command("clear-storm")(clear_storm)
    app.add_typer(group, name="watch")
