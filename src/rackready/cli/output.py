"""What every command shares: how it takes ``--env`` and ``--output``, and how it prints one document."""

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
from rackready.model.printable import readable, visible
from rackready.model.problems import RackreadyError
from rackready.paths import EnvPaths, project_root

Env = Annotated[
    str,
    typer.Option(
        "--env", envvar="ENV", help="Environment: reads inventories/ENV/site.yml.", autocompletion=complete.environments
    ),
]


class Format(StrEnum):
    """How a command prints its result."""

    TEXT = "text"
    JSON = "json"


Output = Annotated[
    Format, typer.Option("--output", help="text for people, json for one JSON document on standard output.")
]


class _Terminal(Console):
    """A console that prints values as they are, and ends nothing by itself: rich would leave with 1, which means that a node is bad.

    Markup and emoji codes are off: `[/x]` in a reason would raise an error, `[error 52]` in one would vanish, and `:a:`
    in an IPv6 address would become a picture. Colour is given as ``style``.
    """

    def __init__(self, *, stderr: bool = False, width: int | None = None) -> None:
        super().__init__(stderr=stderr, width=width, highlight=False, soft_wrap=True, markup=False, emoji=False)

    def render_str(self, text: str, **kwargs: Any) -> Text:
        """Render a text: what it quotes of tools and files must not reach the terminal as commands."""
        return super().render_str(visible(text), **kwargs)

    def on_broken_pipe(self) -> None:
        """Let whoever writes see that nobody reads any more."""
        raise BrokenPipeError


progress = _Terminal(stderr=True)
"""Progress goes to standard error: standard output holds the result alone."""

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

    A terminal wraps the columns in ``words`` alone; where the others do not fit, it wraps whole lines. What is not a
    terminal has no width: there the table is as wide as its texts. ``style``: colour of a cell, from its header and its
    text.
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
    """Print a line for each node that has a reason: in a table a long one would be folded to a few letters a line."""
    for node, reason in reasons:
        if reason:
            console.print(f"{node}: {reason}")


def env_paths(env: str) -> EnvPaths:
    """Return the paths of an environment of the checkout that we are in. Raises RackreadyError outside one."""
    try:
        return EnvPaths(project_root(), env)
    except FileNotFoundError as error:
        raise RackreadyError(str(error)) from error


def said(reason: str) -> str:
    """Return a reason on one line. Raises RackreadyError when nothing is said: it is what the next one on call reads."""
    words = " ".join(reason.split())
    if not words:
        message = "--reason - Expected: words that say why Actual: nothing. Give them: they are kept in the record."
        raise RackreadyError(message)
    try:
        return readable(words)
    except ValueError as error:
        raise RackreadyError(f"--reason - {error} Actual: {words!r}. They are kept in the record.") from error


def print_json(document: Any) -> None:  # noqa: ANN401 - anything that JSON can hold
    """Print one JSON document on standard output, sorted keys kept as given."""
    sys.stdout.write(json.dumps(document, indent=2, default=_plain) + "\n")


def _plain(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(type(value).__name__)
