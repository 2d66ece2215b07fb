"""Write a node's file whole or not at all: a reader, and the boot after a power cut, finds the old or the new."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Replace a file atomically, after fsync of the new content. Raises OSError; no partial file remains.

    Surrogates of the error handler surrogateescape become the bytes that they stand for.
    """
    fresh = path.with_name(f".{path.name}.rackready-new")
    try:
        with fresh.open("w", encoding="utf-8", errors="surrogateescape") as stream:
            os.fchmod(stream.fileno(), mode)
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
