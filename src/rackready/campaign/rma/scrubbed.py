"""Removes secrets from gathered files of any size: text, plain or compressed with gzip. Other files stay as they are.

A piece of text ends at the end of a line, and never within a private key. nvidia-bug-report is a row of gzip members;
it becomes one.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from rackready.evidence.scrub import HIDDEN, scrub

PIECE = 1 << 20
_LONGEST = 8 << 20
"""Characters of a private key that never ends: then it is hidden as far as it was read."""
_KEY, _END = "PRIVATE KEY", "-----END"
_LOOK = 8192
"""Bytes at the beginning in which a zero byte shows that a file is no text, as grep and git take it."""
_TEXTS = (".log", ".out", ".txt", ".json", ".jsonl")
"""Ends of names that are texts, whatever bytes a broken log has in it."""
_GZIP = b"\x1f\x8b"
_SHORT = 5
"""Letters of a password that may be a word of any text: one so short is not searched for by itself."""


class NotWholeError(ValueError):
    """A compressed file is damaged, or its text too large; the argument gives the reason."""


def scrub_file(path: Path, secrets: Sequence[str], *, most: int) -> bool:
    """Remove secrets from a file in its place; return whether it is text. Raises NotWholeError and OSError.

    ``secrets``: passwords that are known; ``most``: bytes that the text of a compressed file may have.
    """
    packed = _starts(path) == _GZIP
    try:
        return _scrubbed(path, secrets, most, packed=packed)
    except (zlib.error, gzip.BadGzipFile) as error:
        message = f"its compressed data is damaged: {error}"
        raise NotWholeError(message) from error


def _scrubbed(path: Path, secrets: Sequence[str], most: int, *, packed: bool) -> bool:
    with _reader(path, packed=packed) as source:
        if not path.name.removesuffix(".gz").endswith(_TEXTS) and b"\0" in _block(source)[:_LOOK]:
            return False
    fresh = path.with_name(f"{path.name}.scrubbed")
    try:
        with _reader(path, packed=packed) as source, _writer(fresh, packed=packed) as out:
            size = 0
            for piece in _pieces(source):
                size += len(piece)
                if size > most:
                    message = f"its text is larger than {most >> 20} MiB"
                    raise NotWholeError(message)
                out.write(_hidden(piece, secrets).encode("utf-8", "surrogateescape"))
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
    return True


def _hidden(piece: str, secrets: Sequence[str]) -> str:
    for secret in secrets:
        if len(secret) > _SHORT:
            piece = piece.replace(secret, HIDDEN)
    return scrub(piece)


def _pieces(source: IO[bytes]) -> Iterator[str]:
    """Yield the text in pieces of whole lines; a private key is in one piece."""
    rest = ""
    while block := _block(source):
        rest += block.decode("utf-8", "surrogateescape")  # letters cut in two come out as they went in
        if cut := _cut(rest):
            yield rest[:cut]
            rest = rest[cut:]
    if rest:
        yield rest


def _block(source: IO[bytes]) -> bytes:
    """Return the next bytes; none where a compressed file was cut: what was read before that is kept."""
    try:
        return source.read(PIECE)
    except EOFError:
        return b""


def _cut(text: str) -> int:
    """Return where a piece may end: after a line, and before a private key whose end was not read. 0: nowhere yet."""
    if len(text) > _LONGEST:
        return len(text)
    end = text.rfind("\n") + 1
    key = text.rfind("-----BEGIN", 0, end)
    if key >= 0 and _KEY in text[key : key + 64] and _END not in text[key:end]:
        end = key
    return end


def _starts(path: Path) -> bytes:
    with path.open("rb") as data:
        return data.read(len(_GZIP))


def _reader(path: Path, *, packed: bool) -> IO[bytes]:
    return cast("IO[bytes]", gzip.open(path, "rb")) if packed else path.open("rb")


@contextmanager
def _writer(path: Path, *, packed: bool) -> Iterator[IO[bytes]]:
    """Open a file for writing. No time and no name is in it: the same text gives the same bytes."""
    with path.open("wb") as out:
        if not packed:
            yield out
            return
        with gzip.GzipFile(filename="", mode="wb", fileobj=out, mtime=0) as zipped:
            yield cast("IO[bytes]", zipped)
