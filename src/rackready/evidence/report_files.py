"""Files of a report: replaced as a whole, private to their owner, joined from parts without loading them."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from rackready.evidence.parts import ReportError

_BLOCK = 1 << 20
_PART = ".part"


@contextmanager
def replaced(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file to write that replaces ``path`` once it is whole. Of several runs at once, the last one's stays.

    Raises ReportError when it cannot be written.
    """
    try:
        _sweep(path)
        number, part = _part(path)
        try:
            with os.fdopen(number, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
                part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise ReportError(
            path,
            "the report cannot be written",
            expected="a writable folder",
            actual=error.strerror,
            next_step="Free disk space, then run `rackready report`.",
        ) from error


def _part(path: Path) -> tuple[int, Path]:
    """Return descriptor and path of a private temporary file beside ``path``. It is locked until it is closed."""
    while True:
        number, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=_PART, dir=path.parent)
        fcntl.flock(number, fcntl.LOCK_EX)
        if os.fstat(number).st_nlink:  # no other run removed it as left over before it was locked
            return number, Path(name)
        os.close(number)


def _sweep(path: Path) -> None:
    """Remove temporary files of killed runs: those without a lock."""
    for left in path.parent.glob(f".{path.name}.*{_PART}"):
        with (
            suppress(OSError),
            left.open("rb") as file,
        ):  # an error: another run writes it, or has just ended
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            left.unlink()


@contextmanager
def scratch(folder: Path, name: str) -> Iterator[Path]:
    """Yield a folder for parts and remove it at the end. Folders of killed processes are removed first."""
    for left in folder.glob(f".{name}.*.parts"):
        if not Path("/proc", left.name.split(".")[-2]).exists():
            shutil.rmtree(left, ignore_errors=True)
    path = folder / f".{name}.{os.getpid()}.parts"
    path.mkdir(mode=0o700, exist_ok=True)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def blocks(path: Path) -> Iterator[bytes]:
    """Yield a file's content."""
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            yield block


def joined(paths: Iterable[Path], between: bytes = b",\n") -> Iterator[bytes]:
    """Yield the content of files, with ``between`` between two of them. Empty files are left out."""
    first = True
    for path in paths:
        if path.stat().st_size == 0:
            continue
        if not first:
            yield between
        first = False
        yield from blocks(path)


def lines(documents: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    """Yield the content of a JSON list, one document per line."""
    for place, found in enumerate(documents):
        yield ((",\n" if place else "") + line(found)).encode()


def line(found: Mapping[str, Any]) -> str:
    """Return a document as a line of a JSON list in an object."""
    return "    " + json.dumps(found)


def listed(file: IO[str]) -> Iterator[dict[str, Any]]:
    """Yield the documents of a JSON list, one per line, as ``lines`` and ``line`` write them."""
    for text in file:
        found: dict[str, Any] = json.loads(text.strip().removesuffix(","))
        yield found


def json_object(members: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield a JSON object. A member that is an iterator is the content of a list."""
    yield b"{"
    for place, (key, value) in enumerate(members.items()):
        yield f"{',' if place else ''}\n  {json.dumps(key)}: ".encode()
        if not isinstance(value, Iterator):
            yield json.dumps(value).encode()
            continue
        empty = True
        for block in value:
            yield b"[\n" + block if empty else block
            empty = False
        yield b"[]" if empty else b"\n  ]"
    yield b"\n}\n"
