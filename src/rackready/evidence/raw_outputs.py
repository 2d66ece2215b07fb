"""Raw outputs of commands: scrubbed, compressed, and stored by hash in files, of this machine or shared.

With an object store the files are a cache of this machine. An output that is in the cache was written or read by this
machine, and is verified by its hash like any other.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
import zlib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from rackready import files
from rackready.drivers.object_store import Bucket, bucket_of
from rackready.drivers.object_store_error import LOG, ObjectStoreError
from rackready.evidence.damaged_evidence import DamagedOutput, put_aside
from rackready.evidence.error import EvidenceError
from rackready.evidence.output_place import FilePlace, ObjectPlace, OutputPlace
from rackready.evidence.scrub import scrub
from rackready.ledger.store import Ledger
from rackready.model.problems import Message

EMPTY = hashlib.sha256(b"").hexdigest()
"""Hash of an output of no bytes: its content is known without the store."""

AT_ONCE = 16
"""Requests to an object store at once. Judgement: the delay of a request is hidden, and a gateway is not flooded."""

_PAUSES_S = (0.0, 0.2, 1.0)
"""Pauses after tries to make an object that is not there; the first follows on a damaged one that was moved away."""
_HASH = re.compile(r"[0-9a-f]{64}")
_MENDING = threading.Lock()
_AGAIN = "Run the gate again. Passes based on this output no longer count."


class _DamagedError(EvidenceError):
    """A stored output is not what was written. ``actual``: what was found; ``place``: where."""

    def __init__(self, place: OutputPlace, what: str, expected: str, actual: str) -> None:
        super().__init__(what, expected=expected, actual=actual, next_step=_AGAIN)
        self.place, self.actual = place, actual


class RawOutputs:
    """Raw outputs in the place that all machines share, where the ledger's settings name one, else in a folder."""

    def __init__(self, ledger: Ledger, folder: Path) -> None:
        self._ledger = ledger
        shared = ledger.backend.raw_outputs
        self.folder = folder if shared is None or shared.folder is None else shared.folder
        self._store = None if shared is None else shared.s3
        self.whole = ledger.alone or shared is not None
        """Whether every output on record must be here: else it may be on the machine that measured."""

    def path(self, digest: str) -> str:
        """Return the path of an output's file. It is text: a report reads outputs by the hundred thousand."""
        return f"{self.folder}/{digest[:2]}/{digest}.z"

    # writing -----------------------------------------------------------------------------------------------------

    def put(self, text: str) -> str:
        """Store a captured output, secrets scrubbed, and return its SHA-256 (of the scrubbed text).

        What is damaged in its place is replaced. Raises EvidenceError when it cannot be written; nothing of it is left
        then. An object store comes before the cache: what is in the cache was in the store.
        """
        data = scrub(text).encode()
        digest = hashlib.sha256(data).hexdigest()
        packed = b"" if self._store is None else zlib.compress(data, 6)
        if packed and digest != EMPTY:
            self._put_object(digest, packed)
        if self._damaged_file(digest):
            self._put_file(digest, packed or zlib.compress(data, 6))
        return digest

    def _put_file(self, digest: str, packed: bytes) -> None:
        path = Path(self.path(digest))
        try:
            self._clear(digest, path)
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            files.replace(path, packed)
        except OSError as error:
            raise EvidenceError(
                path.parent,
                "a raw output cannot be stored",
                expected="a writable folder with room",
                actual=error.strerror,
                next_step="Free disk space or correct its owner, then run again.",
            ) from error

    def _damaged_file(self, digest: str) -> bool:
        """Return whether an output is not in its file, as it was written."""
        try:
            return self._read_file(digest) is None
        except _DamagedError:
            return True

    def _clear(self, digest: str, path: Path) -> None:
        """Set a damaged file aside. Another thread may store the same output meanwhile: a good file stays."""
        with _MENDING:
            try:
                self._read_file(digest)
            except _DamagedError as error:
                put_aside(self._ledger, [DamagedOutput(digest, FilePlace(path), error.actual)], "")

    def _put_object(self, digest: str, packed: bytes) -> None:
        """Make the object. One that is there is verified; a damaged one is set aside and replaced.

        That a store would not make it does not say that it is there: S3 answers ConditionalRequestConflict while
        another machine makes the same object, which may yet fail.
        """
        try:
            if self._made(digest, packed):
                return
        except ObjectStoreError as error:
            raise stopped("a raw output cannot be stored", error) from error
        raise EvidenceError(
            self._bucket().settings,
            "a raw output cannot be stored",
            expected="an object once it is made",
            actual=f"no {key_of(digest)}",
            next_step=LOG,
        )

    def _made(self, digest: str, packed: bytes) -> bool:
        for pause_s in _PAUSES_S:
            if self._bucket().create(key_of(digest), packed) or self._sound_object(digest):
                return True
            time.sleep(pause_s)
        return False

    def _sound_object(self, digest: str) -> bool:
        """Return whether the object is there as it was written; a damaged one is set aside."""
        with _MENDING:
            try:
                return self._read_object(digest) is not None
            except _DamagedError as error:
                put_aside(self._ledger, [DamagedOutput(digest, error.place, error.actual)], "")
                return False

    # reading -----------------------------------------------------------------------------------------------------

    def get(self, digest: str) -> str:
        """Return a stored output. Raises EvidenceError when it is gone or damaged, or the store is away."""
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

    def damaged(self, digest: str, gate: str = "", target: str = "") -> DamagedOutput | None:
        """Return an output that is not stored as it was written, None when it is, or may be on another machine.

        Raises EvidenceError when that cannot be known: the object store is away. That is no damage, and no proof.
        """
        try:
            data = self._content(digest)
        except _DamagedError as error:
            return DamagedOutput(digest, error.place, error.actual, gate, target)
        if data is not None or not self.whole:
            return None
        return DamagedOutput(digest, FilePlace(Path(self.path(digest))), "none", gate, target)

    def prefetch(self, digests: Iterable[str]) -> None:
        """Bring outputs from an object store into the cache, several at once. Reading them reports what is wrong."""
        if self._store is None:
            return
        wanted = [one for one in dict.fromkeys(digests) if one != EMPTY and not Path(self.path(one)).exists()]
        if len(wanted) > 1:
            with suppress(EvidenceError, ObjectStoreError):
                self._bucket()
                with ThreadPoolExecutor(min(AT_ONCE, len(wanted))) as pool:
                    list(pool.map(self._fetched, wanted))

    def _fetched(self, digest: str) -> None:
        with suppress(_DamagedError):
            self._read_object(digest)

    def _content(self, digest: str) -> bytes | None:
        """Return the output of a hash, None when there is none. Raises _DamagedError when it is damaged.

        A damaged file of the cache is mended from the store.
        """
        damage: _DamagedError | None = None
        try:
            data = self._read_file(digest)
        except _DamagedError as error:
            data, damage = None, error
        if data is None and self._store is not None:
            try:
                data = b"" if digest == EMPTY else self._read_object(digest)
            except ObjectStoreError as error:
                raise stopped(f"raw output {digest} cannot be read", error) from error
        if data is None and damage is not None:
            raise damage
        return data

    def _read_file(self, digest: str) -> bytes | None:
        try:
            with open(self.path(digest), "rb", buffering=0) as file:  # noqa: PTH123 - faster, see path()
                packed = file.read()
            data = zlib.decompress(packed)
        except FileNotFoundError:
            return None
        except (OSError, zlib.error) as error:
            raise _unreadable(digest, FilePlace(Path(self.path(digest))), error) from error
        return _verified(digest, data, lambda: FilePlace(Path(self.path(digest))))

    def _read_object(self, digest: str) -> bytes | None:
        """Return an object's output, and keep it in the cache. Raises _DamagedError and ObjectStoreError."""
        bucket, key = self._bucket(), key_of(digest)
        packed = bucket.get(key)
        if packed is None:
            return None
        try:
            data = zlib.decompress(packed)
        except zlib.error as error:
            raise _unreadable(digest, ObjectPlace(bucket, key), error) from error
        found = _verified(digest, data, lambda: ObjectPlace(bucket, key))
        path = Path(self.path(digest))
        with suppress(OSError):  # a cache that cannot be written: the output is read again next time
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            files.replace(path, packed)
        return found

    def _bucket(self) -> Bucket:
        assert self._store is not None  # noqa: S101 - callers have asked
        return bucket_of(self._store)


def key_of(digest: str) -> str:
    """Return the key of an output's object, below the prefix."""
    return f"{digest[:2]}/{digest}.z"


def _verified(digest: str, data: bytes, place: Callable[[], OutputPlace]) -> bytes:
    if hashlib.sha256(data).hexdigest() != digest:
        raise _DamagedError(place(), f"raw output {digest}", "content of that hash", "another")
    return data


def _unreadable(digest: str, place: OutputPlace, error: Exception) -> _DamagedError:
    return _DamagedError(place, f"raw output {digest} cannot be read", "a stored output", str(error).rstrip("."))


def stopped(what: str, error: ObjectStoreError) -> EvidenceError:
    """Return the error of a store that cannot be used, with what could not be done."""
    return EvidenceError.of(replace(one, what=what) if isinstance(one, Message) else one for one in error.messages)
