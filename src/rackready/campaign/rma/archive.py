"""The archive of a case: the same files give the same bytes. It has its name only when it is whole."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from rackready.campaign.rma.case import Case, Gathered, digest
from rackready.model.problems import RackreadyError

MANIFEST = "MANIFEST.sha256"
"""As `sha256sum --check` reads it."""


class RmaArchiveError(RackreadyError):
    """The archive cannot be made."""


def pack(case: Case, results: Sequence[Gathered], pages: Mapping[str, str]) -> Path:
    """Write the archive and return it. ``pages``: name -> text. Raises RmaArchiveError and OSError.

    A gathered file that is not what was gathered is refused: the archive says what it is.
    """
    listed = {file.path: file.sha256 for result in results for file in result.files}
    for path, wanted in sorted(listed.items()):
        found = digest(case.folder / path) if (case.folder / path).is_file() else "none"
        if found != wanted:
            raise RmaArchiveError(
                case.folder / path,
                expected=f"sha256 {wanted}, as gathered",
                actual=found,
                next_step=f"Remove {case.folder / path.split('/')[0]}.json, then run again: it is gathered again.",
            )
    fresh = case.archive.with_name(f".{case.archive.name}.new")
    try:
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
            os.fchmod(out.fileno(), 0o600)
            _write(case, out, listed, {name: text.encode() for name, text in pages.items()})
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(case.archive)
    finally:
        fresh.unlink(missing_ok=True)
    return case.archive


def _write(case: Case, out: io.BufferedWriter, listed: Mapping[str, str], pages: Mapping[str, bytes]) -> None:

    sums = {**listed, **{name: hashlib.sha256(data).hexdigest() for name, data in pages.items()}}
    manifest = "".join(f"{found}  {name}\n" for name, found in sorted(sums.items())).encode()
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=out, mtime=0, compresslevel=6) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, data in sorted([*pages.items(), (MANIFEST, manifest)]):
            tar.addfile(_entry(case, name, len(data)), io.BytesIO(data))
        for path in sorted(listed):
            with (case.folder / path).open("rb") as content:
                tar.addfile(_entry(case, path, os.fstat(content.fileno()).st_size), content)


def _entry(case: Case, name: str, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(f"{case.id}/{name}")
    info.size, info.mode, info.mtime = size, 0o600, int(case.begun)
    return info
