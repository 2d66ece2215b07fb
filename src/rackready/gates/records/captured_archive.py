"""Reader of a tar archive of captured outputs. It reads to the end, to detect any truncation or damage."""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import IO, Any

from rackready.drivers.process import OUTPUT_LIMIT

_MOST = 1 << 30
"""Largest archive, unpacked, bytes; it is held in memory. Judgement: a node's capture has some MB."""
_BLOCK = 1 << 20
_PACKED: dict[bytes, Callable[[IO[bytes]], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}
"""First bytes -> reader, which compares the checksums at the end (RFC 1952; bzip2; the .xz file format)."""


class UnfitError(Exception):
    """A file or archive is refused; the text gives the reason in a few words."""


def members(file: IO[bytes]) -> dict[str, bytes]:
    """Return an archive's regular files by name. A file that is too large is cut one byte after its limit.

    Raise OSError if the archive cannot be read; UnfitError if it is not a tar archive, is cut off, damaged or too
    large, or has a name twice.
    """
    try:
        with _unpacked(file) as stream:
            return _read_to_end(stream)
    except (
        EOFError,
        gzip.BadGzipFile,
        zlib.error,
        lzma.LZMAError,
        tarfile.TarError,
        RecursionError,
        ValueError,
    ) as error:
        raise UnfitError(f"not a tar archive, or cut off or damaged ({error})") from error


def _unpacked(file: IO[bytes]) -> Any:  # noqa: ANN401 - a binary file
    head = file.read(6)
    file.seek(0)
    readers = [reader for start, reader in _PACKED.items() if head.startswith(start)]
    return readers[0](file) if readers else file


def _read_to_end(stream: IO[bytes]) -> dict[str, bytes]:
    """Return every member, after reading to the end of the stream: checksums are compared only there."""
    out: dict[str, bytes] = {}
    with tarfile.open(fileobj=stream, mode="r:") as archive:
        for member in _bounded(archive):
            name = str(PurePosixPath(member.name))
            if name in out:
                raise UnfitError(f"{name} is in the archive twice")
            content = archive.extractfile(member)
            out[name] = b"" if content is None else content.read(OUTPUT_LIMIT + 1)
        _require_end(stream, archive.offset)
    return out


def _bounded(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the regular files. Raise UnfitError if all together are too large."""
    total = 0
    for member in archive:
        total += member.size
        if member.size < 0 or total > _MOST:
            raise UnfitError(
                f"larger than {_MOST >> 20} MiB when unpacked" if total > _MOST else f"{member.name} has a size below 0"
            )
        if member.isfile():
            yield member


def _require_end(stream: IO[bytes], end: int) -> None:
    """Raise UnfitError unless at least one block of zeros, and nothing else, follows the last member.

    tarfile takes a damaged or truncated header for the end.
    """
    stream.seek(end)
    total = 0
    while block := stream.read(_BLOCK):
        total += len(block)
        if block.strip(b"\0"):
            raise UnfitError(
                f"damaged, or more than one archive: there are data after byte {end}, where its last file ends"
            )
        if total > _MOST:
            raise UnfitError(f"larger than {_MOST >> 20} MiB when unpacked")
    if total < tarfile.BLOCKSIZE:
        raise UnfitError("cut off: it has no end")
