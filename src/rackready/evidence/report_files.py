"""Files of a report: replaced as a whole, readable by their owner alone, put together from parts without holding them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from rackready.evidence.parts import ReportError

_BLOCK = 1 << 20


@contextmanager
def replaced(path: Path) -> Iterator[IO[bytes]]:
    """Give a file to write that takes the place of ``path`` once it is whole. Raises ReportError when the disk does not take it."""
    part = path.with_name(f"{path.name}.part")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            yield file
        part.replace(path)
    except OSError as error:
        raise ReportError(
            f"{path}: the report cannot be written - Expected: a writable folder Actual: {error.strerror}. Free disk space, then run `rackready report`."
        ) from error


@contextmanager
def scratch(folder: Path, name: str) -> Iterator[Path]:
    """Give a folder for parts that goes with its process; what processes that were killed left behind is removed first."""
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
    """Yield the content of files, with something between two of them; empty ones are left out."""
    first = True
    for path in paths:
        if path.stat().st_size == 0:
            continue
        if not first:
            yield between
        first = False
        yield from blocks(path)


def lines(documents: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    """Yield the content of a JSON list, a document a line."""
    for place, found in enumerate(documents):
        yield ((",\n" if place else "") + line(found)).encode()


def line(found: Mapping[str, Any]) -> str:
    """Return a document as a line of a JSON list in an object."""
    return "    " + json.dumps(found)


def json_object(members: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield a JSON object. A member that is an iterator gives the content of a list."""
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
