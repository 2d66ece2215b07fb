"""The code of a release: what a play is made of, as an archive in the layout of a checkout."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

from rackready.paths import shipped

SOURCES = ("ansible.cfg", "playbooks", "plugins", "roles", "src/rackready")
"""What is packed, by its place in a checkout."""
_LEFT_OUT = frozenset({"__pycache__", "molecule", "tests", "shipped"})
_ENDINGS = (".pyc", ".pyo", "~", ".orig", ".rej", ".swp")
"""Files that editors and Python leave behind."""
_PACKAGE = Path(__file__).resolve().parents[2]


def archive() -> bytes:
    """Return the archive (tar, gzip): equal files give equal bytes, in whatever folder they are. Raises OSError."""
    out = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=out, mode="wb", filename="", mtime=0, compresslevel=6) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, file in sorted(_members()):
            data = file.read_bytes()
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o755 if file.stat().st_mode & 0o100 else 0o644
            tar.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def _members() -> Iterator[tuple[str, Path]]:
    """Yield name in the archive and file of everything that is packed."""
    for name in SOURCES:
        top = _PACKAGE if name == "src/rackready" else shipped() / name
        if top.is_file():
            yield name, top
        for folder, below, files in os.walk(top, followlinks=True):
            below[:] = [item for item in below if item not in _LEFT_OUT]
            for file in files:
                if not file.endswith(_ENDINGS):
                    path = Path(folder, file)
                    yield f"{name}/{path.relative_to(top).as_posix()}", path
