"""The log of a command that is no campaign: every connection and command, in a file and, with -v, on the terminal."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rackready.campaign.log_file import logged, on_terminal
from rackready.cli.output import progress
from rackready.paths import EnvPaths

_log = logging.getLogger("rackready.cli")


def new_run(kind: str) -> str:
    """Return the id of a run; it sorts by time."""
    return f"{kind}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"


@contextmanager
def run_log(paths: EnvPaths, run: str, command: str, *, verbose: bool) -> Iterator[Path]:
    """Write the log of a run while the context lasts, and return its path. Raises OSError."""
    with logged(paths, run, tell if verbose else None) as path:
        _log.info("%s: begins", command)
        yield path


@contextmanager
def terminal_log(command: str, *, verbose: bool) -> Iterator[None]:
    """Show what a command does with -v while the context lasts. It writes no file: the command only reads here."""
    if not verbose:
        yield
        return
    with on_terminal(tell):
        _log.info("%s: begins", command)
        yield


def tell(text: str) -> None:
    """Print a message of the log beside the progress."""
    progress.print(text, style="dim")
