"""`rackready ticket`: repair tickets of `rackready watch`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rackready.cli.output import Env, Format, Output, console, given_reason, print_json, print_table, working_paths
from rackready.model.problems import RackreadyError

if TYPE_CHECKING:
    from rackready.watch.store import Fault
    from rackready.watch.tickets import TicketDesk

Id = Annotated[str, typer.Argument(metavar="TICKET", help="Id of the ticket, e.g. T00012-node03.")]


def list_tickets(
    env: Env = "sim",
    everything: Annotated[bool, typer.Option("--all", help="Closed tickets, too.")] = False,  # noqa: FBT002 - a flag
    output: Output = Format.TEXT,
) -> None:
    """List repair tickets: node, part, condition, and where the repair is. Reads only."""
    with _desk(env, writes=False) as desk:
        found = [desk.ticket(fault) for fault in _tickets(desk) if everything or fault.ticket != "closed"]
    if output is Format.JSON:
        print_json({"env": env, "tickets": [one.model_dump(mode="json", by_alias=True) for one in found]})
        return
    rows = [
        (one.id, one.status.value, one.node.name, one.part.name, one.part.serial, one.finding.condition)
        for one in found
    ]
    print_table(("ticket", "status", "node", "part", "serial", "condition"), rows)


def show(ticket: Id, env: Env = "sim", output: Output = Format.TEXT) -> None:
    """Show one ticket: finding, part with slot and serial number, drain, evidence, history. Reads only."""
    with _desk(env, writes=False) as desk:
        found = desk.ticket(_one(desk, ticket))
    document = found.model_dump(mode="json", by_alias=True)
    if output is Format.JSON:
        print_json(document)
        return
    for line in _lines("", document):
        console.print(line)


def close(
    ticket: Id,
    reason: Annotated[str, typer.Option("--reason", help="Why nothing is left to repair; recorded.")],
    env: Env = "sim",
    output: Output = Format.TEXT,
) -> None:
    """Close a ticket that needs no repair. Its node stays as it is; the same fault opens a new ticket.

    A ticket of a node that was repaired closes by itself: run `rackready repair NODE --reason '...'`, then
    `rackready deploy`.

    Exit codes: 0 closed, 2 refused.
    """
    words = given_reason(reason)
    with _desk(env, writes=True) as desk:
        fault = _one(desk, ticket)
        if fault.ticket == "closed":
            raise RackreadyError(
                ticket, expected="an open ticket", actual="closed", next_step=f"`rackready ticket show {ticket}`."
            )
        found = desk.close(fault, words, time.time())
    if output is Format.JSON:
        print_json(found.model_dump(mode="json", by_alias=True))
    else:
        console.print(f"{ticket}: closed: {words}")


@contextmanager
def _desk(env: str, *, writes: bool) -> Iterator[TicketDesk]:
    from rackready.design.site import load_site  # noqa: PLC0415 - `--help` loads no database
    from rackready.evidence.store import EvidenceStore  # noqa: PLC0415
    from rackready.ledger.store import Ledger  # noqa: PLC0415
    from rackready.watch.store import WatchStore  # noqa: PLC0415
    from rackready.watch.tickets import TicketDesk  # noqa: PLC0415

    paths = working_paths(env)
    site = load_site(env, root=paths.root)
    if not Ledger.exists(paths.database):
        raise _no_watch(env)
    with Ledger.open(paths.database) if writes else Ledger.read_only(paths.database) as ledger:
        if not WatchStore.exists(ledger):
            raise _no_watch(env)
        yield TicketDesk(site, paths, WatchStore(ledger), EvidenceStore.read_only(ledger, paths.raw))


def _no_watch(env: str) -> RackreadyError:
    return RackreadyError(
        env,
        "tickets",
        expected="those of a watch",
        actual="rackready watch never ran here",
        next_step=f"Run `rackready watch --env {env}`: docs/howto/watch.md.",
    )


def _tickets(desk: TicketDesk) -> list[Fault]:
    from rackready.ledger.watch_tables import faults  # noqa: PLC0415

    return desk.store.faults(faults.c.ticket != "")


def _one(desk: TicketDesk, wanted: str) -> Fault:
    from rackready.watch.tickets import ticket_id  # noqa: PLC0415

    found = next((fault for fault in _tickets(desk) if ticket_id(fault) == wanted), None)
    if found is None:
        raise RackreadyError(
            wanted, expected="the id of a ticket", actual="no such ticket", next_step="`rackready ticket list --all`."
        )
    return found


def _lines(before: str, value: Any) -> Iterator[str]:  # noqa: ANN401 - anything that JSON can hold
    """Yield a document as lines of `path: value`, without empty ones."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _lines(f"{before}.{key}".lstrip("."), item)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _lines(f"{before}[{number}]", item)
    elif value not in {None, ""}:
        yield f"{before}: {value}"


def register(app: typer.Typer) -> None:
    """Add the command."""
    group = typer.Typer(help="Repair tickets of `rackready watch`.", no_args_is_help=True)
    group.command("list")(list_tickets)
    group.command("show")(show)
    group.command("close")(close)
    app.add_typer(group, name="ticket")
