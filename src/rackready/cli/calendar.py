"""`rackready calendar`: what is due, for which node, switch or file, and until when."""

from __future__ import annotations

import sys
import time
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rackready.cli.output import Env, console, print_json, print_table, working_paths
from rackready.cli.streams import tolerant
from rackready.model.problems import RackreadyError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rackready.campaign.calendar.rules import DueItem
    from rackready.render.ics import DayEvent

_AHEAD = 92
"""Days that are shown: the longest quarter."""
_LONGEST = 3650
_LINES = 50
"""Lines of an event: calendar programs show a description in a small window."""


class CalendarFormat(StrEnum):
    """Output format of the calendar."""

    TEXT = "text"
    JSON = "json"
    ICS = "ics"


def calendar(
    env: Env = "sim",
    until: Annotated[
        str, typer.Option("--until", metavar="DATE", help="Last day, e.g. 2027-03-31. Default: 92 days ahead.")
    ] = "",
    output: Annotated[
        CalendarFormat, typer.Option("--output", help="text, json (one document), or ics (iCalendar, for a calendar).")
    ] = CalendarFormat.TEXT,
) -> None:
    """Show what is due: gate sets, evidence, comparison with the plan, passwords, certificates, firmware.

    Dates come from the records, in UTC; no device is queried. Something that rackready never did or saw has no date: a
    password that it never set is not listed.

    Exit codes: 0 nothing overdue, 1 something overdue, 2 refused.
    """
    from rackready.campaign.calendar.due import Calendar  # noqa: PLC0415 - `--help` loads no database
    from rackready.design.site import load_site  # noqa: PLC0415
    from rackready.evidence.store import EvidenceStore  # noqa: PLC0415
    from rackready.ledger.store import Ledger  # noqa: PLC0415

    now = time.time()
    today = datetime.fromtimestamp(now, UTC).date()
    last = _until(until, today)
    paths = working_paths(env)
    site = load_site(env, root=paths.root)
    if not Ledger.exists(paths.database):
        raise RackreadyError(
            f"calendar of {env}",
            expected="a deployment record",
            actual="none",
            next_step=f"Run `rackready deploy --env {env}` first.",
        )
    with Ledger.read_only(paths.database) as ledger:
        items = Calendar(site, ledger, EvidenceStore.read_only(ledger, paths.raw), now).items(last)
    if output is CalendarFormat.JSON:
        print_json({"today": str(today), "until": str(last), "items": [_document(item, today) for item in items]})
    elif output is CalendarFormat.ICS:
        _print_ics(items, now, today, site.name)
    else:
        _show(items, today)
    raise typer.Exit(int(any(item.overdue(today) for item in items)))


def _until(text: str, today: date) -> date:
    try:
        last = date.fromisoformat(text) if text else today + timedelta(days=_AHEAD)
    except ValueError:
        last = None
    if last is None or not today <= last <= today + timedelta(days=_LONGEST):
        raise RackreadyError(
            f"--until {text}",
            expected=f"a day such as {today + timedelta(days=_AHEAD)}, from today on, at most ten years ahead",
            actual=text,
            next_step="Correct it.",
        )
    return last


def _document(item: DueItem, today: date) -> dict[str, Any]:
    return {
        "rule": item.rule.id,
        "title": item.rule.title,
        "name": item.name,
        "last": str(item.last) if item.last is not None else None,
        "due": str(item.due),
        "overdue": item.overdue(today),
        "why": item.why,
        "window": item.window,
        "do": item.does,
        "source": item.rule.source,
    }


def _show(items: Sequence[DueItem], today: date) -> None:
    from rackready.model.host_list import host_list  # noqa: PLC0415

    rows = []
    for same in _groups(items):
        first = same[0]
        status = "overdue" if first.overdue(today) else "due" if first.due == today else ""
        last = str(first.last) if first.last is not None else "never" if first.rule.days else ""
        names = host_list([item.name for item in same])
        rows.append((str(first.due), status, first.rule.id, names, last, first.window, first.why))
    if rows:
        print_table(("due", "status", "rule", "for", "last", "window", "why"), rows, words=("why", "for"))
    late = sum(item.overdue(today) for item in items)
    console.print(f"{len(items)} items, {late} overdue")


def _groups(items: Sequence[DueItem]) -> list[list[DueItem]]:
    """Return items that differ only in their name together, in their order."""

    def key(item: DueItem) -> tuple[object, ...]:
        return item.due, item.rule.id, item.last or date.min, item.window, item.why

    return [list(same) for _, same in groupby(sorted(items, key=key), key)]


def _print_ics(items: Sequence[DueItem], now: float, today: date, site: str) -> None:
    from rackready.render import ics  # noqa: PLC0415

    text = ics.calendar(_events(items, today, site), datetime.fromtimestamp(now, UTC), f"rackready {site}")
    with tolerant(sys.stdout):
        sys.stdout.write(text)


def _events(items: Sequence[DueItem], today: date, site: str) -> Iterator[DayEvent]:
    """Yield an event for each rule and day. What is overdue stands on today: a day in the past is not looked at."""
    from rackready.model.host_list import host_list  # noqa: PLC0415
    from rackready.render.ics import DayEvent  # noqa: PLC0415

    def key(item: DueItem) -> tuple[date, str]:
        return max(item.due, today), item.rule.id

    for (day, rule), group in groupby(sorted(items, key=key), key):
        same = list(group)
        late = sum(item.overdue(today) for item in same)
        names = host_list([item.name for item in same])
        lines = [
            f"{item.name}: {f'overdue since {item.due}' if item.overdue(today) else 'due'}"
            f"{f', {item.window}' if item.window else ''}{f': {item.why}' if item.why else ''}"
            for item in same[:_LINES]
        ]
        lines += [f"and {len(same) - _LINES} more"] if len(same) > _LINES else []
        yield DayEvent(
            uid=f"{rule}-{day:%Y%m%d}-{site}@rackready",
            day=day,
            summary=f"{same[0].rule.title}: {names}{f' ({late} overdue)' if late else ''}",
            description="\n".join([*lines, f"Do: {same[0].rule.does}", f"Source: {same[0].rule.source}"]),
            category=rule,
        )


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(calendar)
