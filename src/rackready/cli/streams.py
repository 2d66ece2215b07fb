"""Standard streams: a closed or broken one hides no error and changes no exit code."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

OUT = "standard output"


class _StandardOutput(io.FileIO):
    """Name of descriptor 1 in errors; the system gives none."""

    def write(self, data: Any, /) -> int:  # noqa: ANN401 - bytes in any kind of buffer, for which Python 3.11 has no type
        """Write to the system. Raises OSError with ``OUT`` as the file name."""
        try:
            return super().write(data)
        except OSError as error:
            error.filename = OUT
            raise


def open_streams() -> bool:
    """Prepare the standard streams, and return whether there is a standard output.

    Replace closed streams: otherwise the next opened file, even a database, would get their descriptor and receive
    printed text. An encoding that lacks a character (a reason with an arrow, in a legacy locale) prints it escaped: the
    exit code tells of the nodes, not of the terminal.
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
    encoding, errors = sys.stdout.encoding, sys.stdout.errors
    if errors == "strict" or (errors == "surrogateescape" and encoding.lower() not in {"utf-8", "utf8"}):
        errors = "backslashreplace"
    sys.stdout = io.TextIOWrapper(raw, encoding=encoding, errors=errors, line_buffering=lines)
    return True


@contextmanager
def tolerant(stream: TextIO) -> Iterator[None]:
    """Write to a stream and drop what it does not accept: the exit code reports the result, too."""
    try:
        yield
        stream.flush()
    except OSError:
        to_nowhere(stream)


def to_nowhere(stream: TextIO) -> None:
    """Discard a stream's buffer: writing it at exit would fail again and change the exit code."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
