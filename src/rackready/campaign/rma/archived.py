"""Looks for passwords in archives, and in archives within them, that must keep every byte."""

from __future__ import annotations

import bz2
import gzip
import lzma
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from rackready.campaign.rma.scrubbed import PIECE, NotWholeError, forms
from rackready.drivers.process import check_stop

_DEEPEST = 4
"""Archives within archives that are opened. nvdebug's own holds dumps of a BMC, which are archives of texts."""
_UNPACK: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"\xfd7zXZ\0": lzma.open, b"BZh": bz2.open}
_ZIP = b"PK\x03\x04"
_ERRORS = (zipfile.BadZipFile, tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, RuntimeError, OSError)
"""Damaged, encrypted (RuntimeError) or of an unknown method (NotImplementedError is a RuntimeError)."""


def secret_in(path: Path, secrets: Sequence[str], *, most: int) -> str:
    """Return the place of the first of these passwords in a file, "" where it has none of them.

    ``most``: bytes that are unpacked. Raises NotWholeError for an archive that cannot be looked through.
    """
    looker = _Looker([form.encode() for secret in secrets for form in forms(secret)], most)
    with path.open("rb") as source:
        return looker.find(source, path.name, 0)


class _Looker:
    def __init__(self, wanted: Sequence[bytes], most: int) -> None:
        self.wanted, self.left = wanted, most
        self.overlap = max((len(one) for one in wanted), default=1) - 1

    def find(self, source: IO[bytes], name: str, depth: int) -> str:
        """Return the place of a password in a file, as exact as it can be told."""
        damage: NotWholeError | None = None
        try:
            if found := self._inside(source, name, depth):
                return found
        except NotWholeError as error:
            damage = error
        except _ERRORS as error:
            damage = NotWholeError(f"{name}: {str(error) or type(error).__name__}")
        source.seek(0)
        if self._has(source):
            return name
        if damage is not None:
            raise damage
        return ""

    def _inside(self, source: IO[bytes], name: str, depth: int) -> str:
        for member, inside in _members(source):
            check_stop()
            place = f"{name}: {member}" if member else name
            if depth == _DEEPEST:
                message = f"{place}: more than {_DEEPEST} archives within each other"
                raise NotWholeError(message)
            with tempfile.TemporaryFile() as whole:
                shutil.copyfileobj(self._counted(inside), whole, PIECE)
                whole.seek(0)
                if found := self.find(whole, place, depth + 1):
                    return found
        return ""

    def _counted(self, source: IO[bytes]) -> IO[bytes]:
        return _Counted(source, self)  # type: ignore[return-value]

    def _has(self, source: IO[bytes]) -> bool:
        before = b""
        while piece := source.read(PIECE):
            text = before + piece
            if any(one in text for one in self.wanted):
                return True
            before = text[-self.overlap :] if self.overlap else b""
        return False


class _Counted:
    """Reads a member of an archive, and no more of all than may be unpacked."""

    def __init__(self, source: IO[bytes], looker: _Looker) -> None:
        self._source, self._looker = source, looker

    def read(self, size: int = -1) -> bytes:
        data = self._source.read(size)
        self._looker.left -= len(data)
        if self._looker.left < 0:
            message = "it unpacks to more than rma.limit_mib allows"
            raise NotWholeError(message)
        return data


def _members(source: IO[bytes]) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the files of an archive, with their names; one without a name of a compressed file; none of another."""
    head = source.read(6)
    source.seek(0)
    if head.startswith(_ZIP):
        with zipfile.ZipFile(source) as packed:
            for item in packed.infolist():
                if not item.is_dir():
                    with packed.open(item) as inside:
                        yield item.filename, inside
        return
    for magic, unpack in _UNPACK.items():
        if head.startswith(magic):
            with unpack(source) as inside:
                yield "", inside
            return
    if not tarfile.is_tarfile(source):
        return
    source.seek(0)
    with tarfile.open(fileobj=source, mode="r:") as packed:
        for entry in packed:
            if entry.isreg() and (content := packed.extractfile(entry)) is not None:
                yield entry.name, content
