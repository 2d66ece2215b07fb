"""The log of a campaign: what was run where, how it ended and how long it took, in one file for whoever looks into a night's run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from rackready.evidence.scrub import scrub
from rackready.paths import EnvPaths, private_dir

_LINE = "%(asctime)s %(levelname)-7s %(threadName)s %(name)s: %(message)s"
_LOGGER = logging.getLogger("rackready")


class _Scrubbed(logging.Formatter):
    """One line a message, in UTC, without secrets."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 - its name in logging
        del datefmt
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")

    def format(self, record: logging.LogRecord) -> str:
        return scrub(super().format(record)).replace("\n", "\n  ")


class _Told(logging.Handler):
    """Hands messages of level INFO and above to the terminal."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        self._tell(f"{record.name.removeprefix('rackready.')}: {scrub(record.getMessage())}")


def log_path(paths: EnvPaths, campaign: str) -> Path:
    """Return where the log of a campaign lies; asking does not make it."""
    return paths.logs / campaign / "rackready.log"


@contextmanager
def logged(paths: EnvPaths, campaign: str, tell: Callable[[str], None] | None = None) -> Iterator[Path]:
    """Write the log of a campaign, readable by its owner alone, for as long as the context lasts. A resumed campaign goes on in the same file.

    ``tell``: takes what happens between us and machines, beside the progress (`-v`). Raises OSError when the file
    cannot be made.
    """
    path = log_path(paths, campaign)
    private_dir(path.parent)
    path.touch(mode=0o600)
    handlers: list[logging.Handler] = [logging.FileHandler(path, encoding="utf-8")]
    handlers[0].setFormatter(_Scrubbed(_LINE))
    handlers += [] if tell is None else [_Told(tell)]
    before = _LOGGER.level, _LOGGER.propagate
    _LOGGER.setLevel(logging.DEBUG)
    _LOGGER.propagate = False
    for handler in handlers:
        _LOGGER.addHandler(handler)
    try:
        yield path
    finally:
        for handler in handlers:
            _LOGGER.removeHandler(handler)
            handler.close()
        _LOGGER.setLevel(before[0])
        _LOGGER.propagate = before[1]
