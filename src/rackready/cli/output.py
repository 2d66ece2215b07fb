"""What every command shares: how it takes ``--env`` and ``--output``, and how it prints one document."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from rackready.model.printable import readable, visible
from rackready.model.problems import RackreadyError
from rackready.paths import EnvPaths, project_root

Env = Annotated[str, typer.Option("--env", envvar="ENV", help="Environment: reads inventories/ENV/site.yml.")]


class Format(StrEnum):
    """How a command prints its result."""

    TEXT = "text"
    JSON = "json"


Output = Annotated[Format, typer.Option("--output", help="text for people, json for one JSON document on standard output.")]


class _Terminal(Console):
    """A console that ends nothing by itself: rich would leave with 1, which means that a node is bad."""

    def render_str(self, text: str, **kwargs: Any) -> Text:
        """Render a text: what it quotes of tools and files must not reach the terminal as commands."""
        return super().render_str(visible(text), **kwargs)

    def on_broken_pipe(self) -> None:
        """Let whoever writes see that nobody reads any more."""
        raise BrokenPipeError


progress = _Terminal(stderr=True, highlight=False, soft_wrap=True)
"""Progress goes to standard error: standard output holds the result alone."""

console = _Terminal(highlight=False, soft_wrap=True)


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
