"""Reads a tar archive of captured outputs to its very end: what was cut off or damaged on its way is refused, whatever part of it was hit."""

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
"""Bytes of a whole archive, unpacked: they are held in memory. Judgement: a node's capture has some MB."""
_BLOCK = 1 << 20
_PACKED: dict[bytes, Callable[[IO[bytes]], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}
"""First bytes -> what reads it, and holds its check sums at its end (RFC 1952; bzip2; the .xz file format)."""


class UnfitError(Exception):
    """A file or an archive cannot be taken; the text says why, in a few words."""


def members(file: IO[bytes]) -> dict[str, bytes]:
    """Return an archive's plain files by their names. One that is too large is there up to a byte more than its limit.

    Raises OSError when it cannot be read, and UnfitError when it is no tar archive, cut off, damaged, has a name twice,
    or is too large.
    """
    try:
        with _unpacked(file) as stream:
            return _whole(stream)
    except (
        EOFError,
        gzip.BadGzipFile,
        zlib.error,
        lzma.LZMAError,
        tarfile.TarError,
        RecursionError,
        ValueError,
    ) as error:
        raise UnfitError(f"no tar archive, or one that is cut off or damaged ({error})") from error


def _unpacked(file: IO[bytes]) -> Any:  # noqa: ANN401 - a binary file
    head = file.read(6)
    file.seek(0)
    readers = [reader for start, reader in _PACKED.items() if head.startswith(start)]
    return readers[0](file) if readers else file


def _whole(stream: IO[bytes]) -> dict[str, bytes]:
    """Read every member, and then what follows them to the end of the stream: only there are check sums held."""
    out: dict[str, bytes] = {}
    with tarfile.open(fileobj=stream, mode="r:") as archive:
        for member in _bounded(archive):
            name = str(PurePosixPath(member.name))
            if name in out:
                raise UnfitError(f"{name} is in the archive twice")
            content = archive.extractfile(member)
            out[name] = b"" if content is None else content.read(OUTPUT_LIMIT + 1)
        _closed(stream, archive.offset)
    return out


def _bounded(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the plain files, as long as all together are not too large."""
    total = 0
    for member in archive:
        total += member.size
        if member.size < 0 or total > _MOST:
            raise UnfitError(
                f"unpacked it is larger than {_MOST >> 20} MiB"
                if total > _MOST
                else f"{member.name} has a size below 0"
            )
        if member.isfile():
            yield member


def _closed(stream: IO[bytes], end: int) -> None:
    """See that nothing but zeros follows the last member, and at least one block of them: tarfile takes a header that is damaged or cut for the end."""
    stream.seek(end)
    total = 0
    while block := stream.read(_BLOCK):
        total += len(block)
        if block.strip(b"\0"):
            raise UnfitError(
                f"damaged, or more than one archive: there is more behind byte {end}, where its last file ends"
            )
        if total > _MOST:
            raise UnfitError(f"unpacked it is larger than {_MOST >> 20} MiB")
    if total < tarfile.BLOCKSIZE:
        raise UnfitError("cut off: it has no end")
