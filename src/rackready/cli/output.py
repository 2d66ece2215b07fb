"""Shared by all commands: the options ``--env`` and ``--output``, tables, and JSON documents."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from rackready.cli import complete
from rackready.model.printable import UnreadableError, readable, visible
from rackready.model.problems import RackreadyError
from rackready.paths import EnvPaths, project_root

Env = Annotated[
    str,
    typer.Option(
        "--env", envvar="ENV", help="Environment; reads inventories/ENV/site.yml.", autocompletion=complete.environments
    ),
]

Part = Annotated[
    str,
    typer.Option("--part", help="Part of the site (handover.parts), where several have this kind of scheduler."),
]


class Format(StrEnum):
    """Output format of a result."""

    TEXT = "text"
    JSON = "json"


Output = Annotated[Format, typer.Option("--output", help="text, or json: one JSON document on standard output.")]


Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Also print each step, connection and command.")]


class _Terminal(Console):
    """A console that prints values unchanged and never ends the process: rich's exit code 1 would mean a bad node.

    Markup and emoji codes are off: `[/x]` in a reason would raise an error, `[error 52]` would vanish, and `:a:` in an
    IPv6 address would become an emoji. Pass colours as ``style``.
    """

    def __init__(self, *, stderr: bool = False, width: int | None = None) -> None:
        super().__init__(stderr=stderr, width=width, highlight=False, soft_wrap=True, markup=False, emoji=False)

    def render_str(self, text: str, **kwargs: Any) -> Text:
        """Render a text. Control characters quoted from tools and files must not reach the terminal."""
        return super().render_str(visible(text), **kwargs)

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError, which the caller handles."""
        raise BrokenPipeError


progress = _Terminal(stderr=True)
"""For progress, on standard error: standard output contains only the result."""

console = _Terminal()

_ANY_WIDTH = 10_000


def print_table(
    headers: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str | None = None,
    words: Collection[str] = (),
    style: Callable[[str, str], str] | None = None,
) -> None:
    """Print a table on standard output.

    On a terminal, only the columns in ``words`` wrap; when the others do not fit, whole lines wrap. Elsewhere the table
    is as wide as its texts. ``style``: colour of a cell, from its header and its text.
    """
    table = Table(title=title)
    lines = [[str(cell) for cell in row] for row in rows]
    for place, header in enumerate(headers):
        widest = max((len(line[place]) for line in lines), default=0)
        table.add_column(header, min_width=None if header in words else widest, overflow="fold")
    for line in lines:
        table.add_row(*(_cell(header, cell, style) for header, cell in zip(headers, line, strict=True)))
    unbound = _Terminal(width=_ANY_WIDTH)
    needed = Measurement.get(unbound, unbound.options, table)
    wide = max(console.width, needed.minimum) if console.is_terminal else needed.maximum
    _Terminal(width=wide).print(table)


def _cell(header: str, text: str, style: Callable[[str, str], str] | None) -> Text:
    return Text(visible(text), style=style(header, text) if style else "")


def print_reasons(reasons: Iterable[tuple[str, str]]) -> None:
    """Print a line per node with a reason: a table would fold long ones to a few letters per line."""
    for node, reason in reasons:
        if reason:
            console.print(f"{node}: {reason}")


def env_paths(env: str) -> EnvPaths:
    """Return the paths of an environment of the current checkout. Raises RackreadyError outside one."""
    try:
        return EnvPaths(project_root(), env)
    except FileNotFoundError as error:
        raise RackreadyError(error) from error


def working_paths(env: str) -> EnvPaths:
    """Return the paths of an environment on whose nodes a command works, or which it judges.

    The nodes' version sets are as the ledger has them now: another controller may have moved nodes. Raises
    RackreadyError where the ledger cannot be asked.
    """
    from rackready.ledger.node_sets import refresh  # noqa: PLC0415 - `--help` loads no database

    paths = env_paths(env)
    refresh(paths)
    return paths


def given_reason(reason: str) -> str:
    """Return a reason on one line. Raises RackreadyError when it is empty: the next engineer on call reads it."""
    words = " ".join(reason.split())
    if not words:
        raise RackreadyError(
            "--reason", expected="a reason in words", actual="none", next_step="Give one: it is recorded."
        )
    try:
        return readable(words)
    except UnreadableError as error:
        raise RackreadyError(
            "--reason", expected=error.expected, actual=f"{words!r}", next_step="The reason is recorded."
        ) from error


def print_json(document: Any) -> None:  # noqa: ANN401 - anything that JSON can hold
    """Print one JSON document on standard output, keys in the given order."""
    sys.stdout.write(json.dumps(document, indent=2, default=_plain) + "\n")


def _plain(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(type(value).__name__)
