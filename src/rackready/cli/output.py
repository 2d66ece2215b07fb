"""Shared by all commands: the options ``--env`` and ``--output``, tables, and JSON documents."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from enum import StrEnum
from itertools import chain, groupby
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from rackready.cli import complete
from rackready.cli.named_env import with_env
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
        return super().render_str(with_env(visible(text)), **kwargs)

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError, which the caller handles."""
        raise BrokenPipeError

    def put(self, text: str) -> None:
        """Write a text as it is, without rich, which needs a second for a thousand rows."""
        try:
            self.file.write(text)
            self.file.flush()
        except BrokenPipeError:
            self.on_broken_pipe()


progress = _Terminal(stderr=True)
"""For progress, on standard error: standard output contains only the result."""

console = _Terminal()

_ANY_WIDTH = 10_000
_quoted = json.encoder.encode_basestring_ascii


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
    lines = [[with_env(str(cell)) for cell in row] for row in rows]
    if not words and style is None and _even("".join(chain(headers, chain.from_iterable(lines)))):
        _print_even(headers, lines, title)
        return
    table = Table(title=title)
    for place, header in enumerate(headers):
        widest = max((len(line[place]) for line in lines), default=0)
        table.add_column(header, min_width=None if header in words else widest, overflow="fold")
    for line in lines:
        table.add_row(*(_cell(header, cell, style) for header, cell in zip(headers, line, strict=True)))
    _wide_enough(table).print(table)


def _wide_enough(table: Table) -> _Terminal:
    """Return a console on which no cell of a table wraps, except in columns that may."""
    unbound = _Terminal(width=_ANY_WIDTH)
    needed = Measurement.get(unbound, unbound.options, table)
    wide = max(console.width, needed.minimum) if console.is_terminal else needed.maximum
    return _Terminal(width=wide)


def _even(text: str) -> bool:
    """Return whether each character of a text is one column wide."""
    return text.isascii() and text.isprintable()


def _print_even(headers: Sequence[str], lines: Sequence[Sequence[str]], title: str | None) -> None:
    """Print a table of plain texts. Rich draws its frame and one row: it needs a second for each thousand rows."""
    widths = [max(map(len, column)) for column in zip(headers, *lines, strict=True)]
    table = Table(title=title)
    for header, width in zip(headers, widths, strict=True):
        table.add_column(header, min_width=width, overflow="fold")
    drawn = [f"│ {' │ '.join(map(str.ljust, line, widths))} │\n" for line in lines]
    if lines:
        table.add_row(*map(Text, lines[0]))
    terminal = _wide_enough(table)
    with terminal.capture() as captured:
        terminal.print(table)
    above, row, below = captured.get().rpartition(drawn[0]) if drawn else ("", "", "")
    if row:
        terminal.put(above + "".join(drawn) + below)
        return
    for line in lines[1:]:  # another frame: this terminal or locale cannot show the lines
        table.add_row(*map(Text, line))
    terminal.print(table)


def print_lines(lines: Iterable[str]) -> None:
    """Print lines as they are. Those with tabs, line ends or invisible characters go through rich one by one."""
    for plain, some in groupby(lines, key=str.isprintable):
        if plain:
            console.put("".join(f"{with_env(line)}\n" for line in some))
        else:
            for line in some:
                console.print(line)


def _cell(header: str, text: str, style: Callable[[str, str], str] | None) -> Text:
    return Text(visible(text), style=style(header, text) if style else "")


def print_reasons(reasons: Iterable[tuple[str, str]]) -> None:
    """Print a line per node with a reason: a table would fold long ones to a few letters per line."""
    print_lines(f"{node}: {reason}" for node, reason in reasons if reason)


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
    from rackready.ledger.set_copy import is_current  # noqa: PLC0415 - `--help` loads no database

    paths = env_paths(env)
    if not is_current(paths):
        from rackready.ledger.node_sets import refresh  # noqa: PLC0415 - it loads the models of a site

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
    sys.stdout.write(f"{_json(document)}\n")


def _json(value: Any, begin: str = "\n") -> str:  # noqa: ANN401 - anything that JSON can hold
    """Return what ``json.dumps`` with an indent of 2 returns, in half of the time: its fast encoder knows no indent.

    ``begin``: the start of a line at this depth.
    """
    if isinstance(value, str):
        return _quoted(value)
    inner = f"{begin}  "
    if value and isinstance(value, dict):
        lines = [f"{_key(key)}: {_json(item, inner)}" for key, item in value.items()]
        return f"{{{inner}{f',{inner}'.join(lines)}{begin}}}"
    if value and isinstance(value, (list, tuple)):
        return f"[{inner}{f',{inner}'.join([_json(item, inner) for item in value])}{begin}]"
    return "null" if value is None else json.dumps(value, default=_plain)


def _key(key: Any) -> str:  # noqa: ANN401 - the same
    """Return the key of a mapping: numbers and null become texts."""
    return _quoted(key) if isinstance(key, str) else json.dumps({key: 0})[1:-4]


def _plain(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(type(value).__name__)
