"""The log of a campaign: every command, where it ran, how it ended and how long it took, in one file."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from rackready.evidence.scrub import scrub
from rackready.model.problems import Message
from rackready.paths import EnvPaths, private_dir

_LINE = "%(asctime)s %(levelname)-7s %(threadName)s %(name)s: %(message)s"
_LOGGER = logging.getLogger("rackready")


class _Scrubbed(logging.Formatter):
    """Formats a message as one line, in UTC, without secrets."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 - its name in logging
        del datefmt
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")

    def format(self, record: logging.LogRecord) -> str:
        return scrub(super().format(record)).replace("\n", "\n  ")


class _File(logging.FileHandler):
    """Writes the log. A line that the disk does not take is told once, without a traceback: the work goes on."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, encoding="utf-8")
        self._told = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - its name in logging
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
        elif not self._told:
            self._told = True
            with suppress(OSError):
                sys.stderr.write(f"{_not_written(self.baseFilename, error)}\n")

    def close(self) -> None:
        """Close the file, also where the disk does not take its last lines."""
        with suppress(OSError):
            super().close()


def _not_written(path: str, error: OSError) -> Message:
    return Message(
        path,
        "the log has gaps",
        "room for every line",
        error.strerror or error,
        "Free disk space there; the run goes on.",
    )


class _Terminal(logging.Handler):
    """Hands messages of level INFO and above to the terminal."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        self._tell(f"{record.name.removeprefix('rackready.')}: {scrub(record.getMessage())}")


def log_path(paths: EnvPaths, campaign: str) -> Path:
    """Return the path of a campaign's log. The file need not exist."""
    return paths.logs / campaign / "rackready.log"


@contextmanager
def logged(paths: EnvPaths, campaign: str, tell: Callable[[str], None] | None = None) -> Iterator[Path]:
    """Write the log of a campaign while the context lasts. Only its owner can read it.

    A resumed campaign continues the same file. ``tell``: takes the messages that `-v` shows beside the progress. Raises
    OSError when the file cannot be made.
    """
    path = log_path(paths, campaign)
    private_dir(path.parent)
    path.touch(mode=0o600)
    file = _File(path)
    file.setFormatter(_Scrubbed(_LINE))
    with _handled([file, *([] if tell is None else [_Terminal(tell)])]):
        yield path


@contextmanager
def on_terminal(tell: Callable[[str], None]) -> Iterator[None]:
    """Hand the messages that `-v` shows to ``tell`` while the context lasts, for commands that write no log."""
    with _handled([_Terminal(tell)]):
        yield


@contextmanager
def _handled(handlers: Sequence[logging.Handler]) -> Iterator[None]:
    before = _LOGGER.level, _LOGGER.propagate
    _LOGGER.setLevel(min(handler.level for handler in handlers) or logging.DEBUG)
    _LOGGER.propagate = False
    for handler in handlers:
        _LOGGER.addHandler(handler)
    try:
        yield
    finally:
        for handler in handlers:
            _LOGGER.removeHandler(handler)
            handler.close()
        _LOGGER.setLevel(before[0])
        _LOGGER.propagate = before[1]
