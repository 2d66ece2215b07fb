"""Removes secrets from gathered files of any size: text, plain or compressed with gzip. Other files stay as they are.

A piece of text ends at the end of a line, and never within a private key. nvidia-bug-report is a row of gzip members;
it becomes one.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast
from urllib.parse import quote

from rackready.drivers.process import check_stop
from rackready.evidence.scrub import HIDDEN, scrub

PIECE = 1 << 20
_OF_GZIP = 31
"""zlib's word for data with a header and an end of gzip (zlib manual, inflateInit2: 16 + 15)."""
_AT_ONCE = 4 << 20
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
    except zlib.error as error:
        message = f"its compressed data is damaged: {error}"
        raise NotWholeError(message) from error


def _scrubbed(path: Path, secrets: Sequence[str], most: int, *, packed: bool) -> bool:
    with path.open("rb") as source:
        first = next(_blocks(source, packed=packed), b"")[:_LOOK]
        if not path.name.removesuffix(".gz").endswith(_TEXTS) and b"\0" in first:
            return False
    fresh = path.with_name(f"{path.name}.scrubbed")
    try:
        with path.open("rb") as source, _writer(fresh, packed=packed) as out:
            size = 0
            for piece in _pieces(_blocks(source, packed=packed)):
                check_stop()
                size += len(piece)
                if size > most:
                    message = f"its text is larger than {most >> 20} MiB"
                    raise NotWholeError(message)
                out.write(_hidden(piece, secrets).encode("utf-8", "surrogateescape"))
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
    return True


def hidden_in(document: Any, secrets: Sequence[str]) -> Any:  # noqa: ANN401 - JSON
    """Return a JSON document without secrets in its texts."""
    if isinstance(document, dict):
        return {name: hidden_in(value, secrets) for name, value in document.items()}
    if isinstance(document, list):
        return [hidden_in(value, secrets) for value in document]
    return _hidden(document, secrets) if isinstance(document, str) else document


def _hidden(piece: str, secrets: Sequence[str]) -> str:
    for secret in secrets:
        for form in forms(secret):
            piece = piece.replace(form, HIDDEN)
    return scrub(piece)


def forms(secret: str) -> list[str]:
    """Return a secret as texts have it: plain, within a JSON string, within a URL. The longest first.

    One that may be a word of any text has none.
    """
    if len(secret) <= _SHORT:
        return []
    found = {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], quote(secret, safe="")}
    return sorted(found, key=lambda form: (-len(form), form))


def _pieces(blocks: Iterable[bytes]) -> Iterator[str]:
    """Yield the text in pieces of whole lines; a private key is in one piece."""
    rest = ""
    for block in blocks:
        rest += block.decode("utf-8", "surrogateescape")  # letters cut in two come out as they went in
        if cut := _cut(rest):
            yield rest[:cut]
            rest = rest[cut:]
    if rest:
        yield rest


def _blocks(source: IO[bytes], *, packed: bool) -> Iterator[bytes]:
    """Yield the content of a file; of a compressed one that was cut, all that can be read."""
    unpack = zlib.decompressobj(_OF_GZIP)
    while data := source.read(PIECE):
        if not packed:
            yield data
        while packed and data:
            if out := unpack.decompress(data, _AT_ONCE):
                yield out
            data = unpack.unused_data.lstrip(b"\0") or unpack.unconsumed_tail  # tapes pad with zeros
            if unpack.eof:
                unpack = zlib.decompressobj(_OF_GZIP)


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


@contextmanager
def _writer(path: Path, *, packed: bool) -> Iterator[IO[bytes]]:
    """Open a file for writing. No time and no name is in it: the same text gives the same bytes."""
    with path.open("wb") as out:
        if not packed:
            yield out
            return
        with gzip.GzipFile(filename="", mode="wb", fileobj=out, mtime=0) as zipped:
            yield cast("IO[bytes]", zipped)
