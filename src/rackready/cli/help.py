"""`rackready help`: explains terms, gates, site-file keys, exit codes and runbooks, without internet or site."""

from __future__ import annotations

import textwrap
from typing import Annotated

import typer

from rackready.cli import complete
from rackready.cli.output import Format, Output, console, print_json

Wanted = Annotated[
    str,
    typer.Argument(
        metavar="[TOPIC]",
        help="Term, gate id, key of the site file such as racks.nodes.bmc, runbook, concepts or exit-codes.",
        autocompletion=complete.topics,
    ),
]
_MOST = 5
"""Number of topics with one name that are explained; if there are more, only their names are listed."""
_WIDTH = 120
_INDENTED = (" ", "- ", "* ", "input ")
"""Beginnings of lines whose further lines are indented: items of lists."""


def explain_topic(topic: Wanted = "", output: Output = Format.TEXT) -> None:
    """Explain a topic. Without a topic, list all topics.

    For an unknown topic the error lists similar ones. Exit codes: 0 found, 2 no such topic.
    """
    if topic:
        _explain(topic, output)
    else:
        _list(output)


def _explain(wanted: str, output: Format) -> None:
    from rackready.cli.help_topics import find  # noqa: PLC0415 - completion of this command must not load the models

    found = find(wanted)
    if output is Format.JSON:
        print_json(
            {"topic": wanted, "found": [{"kind": item.kind, "name": item.name, "text": item.text()} for item in found]}
        )
        return
    if len(found) > _MOST:
        console.print(f"{wanted} matches {len(found)} topics; choose one of them:")
        for item in found:
            console.print(f"  {item.kind:8} {item.name}")
        return
    for place, item in enumerate(found):
        console.print(f"{chr(10) if place else ''}{item.name} ({item.kind})")
        for line in item.text().splitlines():
            indent = "  " if line.startswith(_INDENTED) else ""
            console.print(
                textwrap.fill(line, _WIDTH, subsequent_indent=indent, break_on_hyphens=False)
                if len(line) > _WIDTH
                else line
            )


def _list(output: Format) -> None:
    from rackready.cli.help_topics import topics  # noqa: PLC0415

    if output is Format.JSON:
        print_json({"topics": [{"kind": item.kind, "name": item.name} for item in topics()]})
        return
    kinds: dict[str, list[str]] = {}
    for item in topics():
        kinds.setdefault(item.kind, []).append(item.name)
    heads = {"page": "pages", "term": "terms", "runbook": "runbooks", "gate": "gates", "key": "keys of the site file"}
    codes = kinds.pop("finding", [])
    for kind, names in kinds.items():
        listed = [name for name in names if kind != "key" or "." not in name]
        more = (
            f" (and {len(names) - len(listed)} keys inside them, e.g. racks.nodes.bmc)"
            if len(listed) < len(names)
            else ""
        )
        console.print(f"{heads[kind]}:")
        console.print(
            textwrap.fill(
                ", ".join(listed), _WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
            )
            + more
        )
    console.print(f"findings: {len(codes)} codes, as reports show them, e.g. nvlink-inactive")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("help")(explain_topic)
