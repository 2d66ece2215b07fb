"""Errors of the operating system, also those that SQLite reports, as messages: Expected, Actual and the next step."""

from __future__ import annotations

import errno
import sqlite3

from rackready.cli.streams import OUT
from rackready.model.problems import RackreadyError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_FREE = "Free disk space there, then run again."

_EXPECTED = {
    errno.ENOENT: ("an existing path", "Correct the path."),
    errno.ENOTDIR: ("a path through folders", "Correct the path: a part of it is a file."),
    errno.ELOOP: ("a path without a loop of links", "Correct the link."),
    errno.ENAMETOOLONG: ("a shorter path", "Correct the path."),
    errno.EISDIR: ("a file", "Name a file in that folder."),
    errno.EEXIST: ("nothing there yet", "Name another, or remove it."),
    errno.EACCES: ("a path that this user may use", "Correct its permissions or its owner, or run as another user."),
    errno.EPERM: ("a path that this user may use", "Correct its permissions or its owner, or run as another user."),
    errno.EROFS: ("a writable file system", "Name a path on another, or mount it writable."),
    errno.EMFILE: ("one more open file", "Raise the limit of open files (ulimit -n), then run again."),
    **dict.fromkeys(_FULL, ("room on the file system", _FREE)),
}
_OTHER = ("a usable file system", "Check `dmesg` for errors of its disk, then run again.")


class SystemCallError(RackreadyError):
    """The operating system refused a call."""


def system_call_error(error: OSError) -> RackreadyError:
    """Return the message for an operating-system error."""
    why = error.strerror or str(error)
    if error.filename == OUT:
        step = _FREE if error.errno in _FULL else "Redirect it elsewhere, then run again."
        return SystemCallError(OUT, expected="an output that accepts data", actual=why, next_step=step)
    expected, step = _EXPECTED.get(error.errno or 0, _OTHER)
    return SystemCallError(error.filename or "the controller", expected=expected, actual=why, next_step=step)


_OF_SQLITE = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_IOERR: errno.EIO,
    sqlite3.SQLITE_READONLY: errno.EROFS,
}
"""Codes of SQLite for what the operating system refused. Only their low byte counts: the rest says where."""

_DATABASES = "the databases of rackready's state (.rackready, or $RACKREADY_STATE)"


def database_error(error: BaseException) -> RackreadyError | None:
    """Return the message for an error of SQLite that the disk caused, and None for every other error.

    Its packages wrap it: SQLAlchemy in ``orig``, the workflow engine as a cause.
    """
    seen: BaseException | None = error
    while seen is not None:
        cause = getattr(seen, "orig", None) or seen
        number = _OF_SQLITE.get(getattr(cause, "sqlite_errorcode", 0) & 0xFF)
        if isinstance(cause, sqlite3.Error) and number is not None:
            expected, step = _EXPECTED.get(number, _OTHER)
            return SystemCallError(_DATABASES, expected=expected, actual=str(cause), next_step=step)
        seen = seen.__cause__
    return None
