"""Raw outputs of commands: scrubbed, compressed, and stored by hash in files, of this machine or shared."""

from __future__ import annotations

import hashlib
import re
import threading
import zlib
from pathlib import Path

from rackready import files
from rackready.evidence.aside import DamagedOutput, put_aside
from rackready.evidence.error import EvidenceError
from rackready.evidence.scrub import scrub
from rackready.ledger.store import Ledger

EMPTY = hashlib.sha256(b"").hexdigest()
"""Hash of an output of no bytes: its content is known without the store."""

_HASH = re.compile(r"[0-9a-f]{64}")
_MENDING = threading.Lock()
_AGAIN = "Run the gate again. Passes based on this output no longer count."


class _DamagedError(EvidenceError):
    """A stored output is not what was written. ``actual``: what was found."""

    def __init__(self, what: str, expected: str, actual: str) -> None:
        super().__init__(what, expected=expected, actual=actual, next_step=_AGAIN)
        self.actual = actual


class RawOutputs:
    """The folder of raw outputs: the one that all machines share, where the ledger's settings name it."""

    def __init__(self, ledger: Ledger, folder: Path) -> None:
        self._ledger = ledger
        self.folder = ledger.backend.raw_outputs or folder
        self.whole = ledger.alone or ledger.backend.raw_outputs is not None
        """Whether every output on record must be here: else it may be on the machine that measured."""

    def path(self, digest: str) -> str:
        """Return the path of an output's file. It is text: a report reads outputs by the hundred thousand."""
        return f"{self.folder}/{digest[:2]}/{digest}.z"

    def put(self, text: str) -> str:
        """Store a captured output, secrets scrubbed, and return its SHA-256 (of the scrubbed text).

        A damaged file in its place is replaced. Raises EvidenceError when it cannot be written; nothing of it is left
        then.
        """
        data = scrub(text).encode()
        digest = hashlib.sha256(data).hexdigest()
        path = Path(self.path(digest))
        if self.fault(digest):
            try:
                self._clear(digest, path)
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                files.replace(path, zlib.compress(data, 6))
            except OSError as error:
                raise EvidenceError(
                    path.parent,
                    "a raw output cannot be stored",
                    expected="a writable folder with room",
                    actual=error.strerror,
                    next_step="Free disk space or correct its owner, then run again.",
                ) from error
        return digest

    def _clear(self, digest: str, path: Path) -> None:
        """Set a damaged file aside. Another thread may store the same output meanwhile: a good file stays."""
        with _MENDING:
            try:
                self._content(digest)
            except _DamagedError as error:
                put_aside(self._ledger, [DamagedOutput(digest, path, error.actual)], "")

    def get(self, digest: str) -> str:
        """Return a stored output. Raises EvidenceError when it is gone or damaged."""
        if not _HASH.fullmatch(digest):
            raise EvidenceError(
                f"raw output {digest!r}", expected="64 hexadecimal digits", next_step="Take the hash from the report."
            )
        data = self._content(digest)
        if data is None:
            other = "Measure" if self.whole else "Copy it from the machine that measured, or measure"
            raise EvidenceError(
                f"raw output {digest} cannot be read",
                expected="a stored output",
                actual="none",
                next_step=f"{other} again.",
            )
        return data.decode()

    def fault(self, digest: str, *, elsewhere: bool = False) -> str:
        """Return why an output is not stored as it was written, "" when it is.

        ``elsewhere``: an output that is not here may be on another machine.
        """
        try:
            data = self._content(digest)
        except _DamagedError as error:
            return error.actual
        return "none" if data is None and not elsewhere else ""

    def _content(self, digest: str) -> bytes | None:
        """Return the output of a hash, None when there is none. Raises _DamagedError when it is damaged."""
        try:
            with open(self.path(digest), "rb", buffering=0) as file:  # noqa: PTH123 - faster, see path()
                data = zlib.decompress(file.read())
        except FileNotFoundError:
            return None
        except (OSError, zlib.error) as error:
            what = f"raw output {digest} cannot be read"
            raise _DamagedError(what, "a stored output", str(error).rstrip(".")) from error
        if hashlib.sha256(data).hexdigest() != digest:
            raise _DamagedError(f"raw output {digest}", "content of that hash", "another")
        return data
