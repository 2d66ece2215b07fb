"""Standard streams: one that the caller closed, or that takes nothing any more, hides no error and changes no exit code."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

OUT = "standard output"


class _StandardOutput(io.FileIO):
    """Descriptor 1. An error of it says where it happened, which the system leaves open."""

    def write(self, data: Any, /) -> int:  # noqa: ANN401 - bytes in any kind of buffer, for which Python 3.11 has no type
        """Write what the system takes. Raises OSError with ``OUT`` as the name of the file."""
        try:
            return super().write(data)
        except OSError as error:
            error.filename = OUT
            raise


def open_streams() -> bool:
    """Make the standard streams fit for use, and say whether there is a standard output: without one, no result can be told.

    Something stands in for those that the caller closed: the next file that is opened, a database too, would take their
    number, and get what programs print.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # noqa: FBT003 - it takes the lowest number that is free: this one
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - as long as the process
    if sys.stdout is None:
        return False
    lines = sys.stdout.isatty() or bool(getattr(sys.stdout, "write_through", False))
    raw = io.BufferedWriter(_StandardOutput(1, "wb", closefd=False))
    sys.stdout = io.TextIOWrapper(raw, encoding=sys.stdout.encoding, errors=sys.stdout.errors, line_buffering=lines)
    return True


@contextmanager
def tolerant(stream: TextIO) -> Iterator[None]:
    """Write to a stream, and let go of what it does not take: what is said there is told by the exit code, too."""
    try:
        yield
        stream.flush()
    except OSError:
        to_nowhere(stream)


def to_nowhere(stream: TextIO) -> None:
    """Let what is still kept of a stream go nowhere: written at the end of the process, it would fail again, and make another exit code."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
