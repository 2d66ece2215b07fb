"""Files to and from a node over the connection of its commands, a piece at a time: no file is in memory as a whole.

The user of a connection need not be root, and its commands become root by sudo; so a copy is commands, not SFTP.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import time
from pathlib import Path

from rackready.drivers.remote import Answer, Runner
from rackready.model.problems import RackreadyError

PIECE = 8 << 20
"""Bytes of one command: in Base64 they are a third of the most that a command may print (process.OUTPUT_LIMIT)."""
_PIECE_S = 300.0
"""Longest transfer of a piece, s. Judgement: 30 kB/s."""
_READ = 'dd if="$1" bs=1048576 skip="$2" count="$3" status=none | base64 -w0'
_WRITE = 'umask 077; base64 -d >> "$1"'


class RemoteCopyError(RackreadyError):
    """A file could not be copied; the text gives the reason."""


def fetch(runner: Runner, node: str, path: str, target: Path, *, most: int, deadline: float) -> int:
    """Copy a file of a node to this machine and return its size. ``deadline``: by time.monotonic().

    Raises RemoteCopyError: the file is larger than ``most`` bytes, it changed meanwhile, or the node did not give it.
    """
    size = int(_said(runner, node, ["stat", "-c", "%s", path], path) or 0)
    if size > most:
        raise RemoteCopyError(node, path, expected=f"at most {most >> 20} MiB", actual=f"{size / 2**20:.0f} MiB")
    total = hashlib.sha256()
    with target.open("wb") as out:
        for piece in range(-(-size // PIECE)):
            _in_time(node, path, deadline)
            argv = ["sh", "-c", _READ, "sh", path, str(piece * (PIECE >> 20)), str(PIECE >> 20)]
            try:
                data = base64.b64decode(_said(runner, node, argv, path), validate=True)
            except binascii.Error as error:
                raise RemoteCopyError(node, path, expected="Base64", actual=str(error)) from error
            total.update(data)
            out.write(data)
    _same(runner, node, path, total.hexdigest())
    return size


def send(runner: Runner, node: str, source: Path, path: str, *, deadline: float) -> None:
    """Copy a file of this machine to a node. Raises RemoteCopyError and OSError."""
    total = hashlib.sha256()
    _said(runner, node, ["sh", "-c", 'umask 077; : > "$1"', "sh", path], path)
    with source.open("rb") as data:
        while piece := data.read(PIECE):
            _in_time(node, path, deadline)
            total.update(piece)
            _said(runner, node, ["sh", "-c", _WRITE, "sh", path], path, base64.b64encode(piece).decode())
    _same(runner, node, path, total.hexdigest())


def _same(runner: Runner, node: str, path: str, wanted: str) -> None:
    found = _said(runner, node, ["sha256sum", path], path).split(" ")[0].removeprefix("\\")
    if found != wanted:
        raise RemoteCopyError(node, path, expected=f"sha256 {wanted}", actual=f"{found}: it changed, or was damaged")


def _in_time(node: str, path: str, deadline: float) -> None:
    if time.monotonic() > deadline:
        raise RemoteCopyError(node, path, expected="copied within its time limit", actual="not whole by then")


def _said(runner: Runner, node: str, argv: list[str], path: str, stdin: str = "") -> str:
    answer = runner.run(node, argv, stdin=stdin, timeout_s=_PIECE_S)
    if answer.exit_code != 0:
        raise RemoteCopyError(node, path, expected="copied", actual=why(answer))
    return answer.stdout.strip()


def why(answer: Answer) -> str:
    """Return why a command did not give what it should."""
    if answer.failure:
        return answer.failure
    if answer.timed_out:
        return f"no end within {answer.seconds:.0f} s"
    said = answer.stderr.strip().splitlines() or answer.stdout.strip().splitlines()
    return f"exit code {answer.exit_code}{f': {said[-1][:200]}' if said else ''}"
