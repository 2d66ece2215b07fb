"""What is at a path of this node, in a few words: content by hash, mode, and the owner when it is not root."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from .command import NodeProblem


def digest(content: bytes) -> str:
    """Return the start of a content's SHA-256: enough to tell two contents apart."""
    return f"sha256 {hashlib.sha256(content).hexdigest()[:16]}"


def state(path: Path) -> str:
    """Return what is at a path, and "absent" for nothing."""
    if path.is_symlink() and not path.is_dir():
        return f"link to {path.readlink()}"
    if not path.exists():
        return "absent"
    found = path.stat()
    owner = f", owner {found.st_uid}:{found.st_gid}" if found.st_uid or found.st_gid else ""
    return f"{'folder' if path.is_dir() else digest(path.read_bytes())}, mode {found.st_mode & 0o7777:04o}{owner}"


def text(path: Path) -> str | None:
    """Return the text of a file, None when there is no file."""
    return path.read_bytes().decode("utf-8", "replace") if path.exists() else None


def item(path: str, expected: str, actual: str) -> dict[str, str]:
    """Return the typed difference of a path."""
    return {"kind": "file", "name": path, "expected": expected, "actual": actual}


def swept(patterns: Iterable[str], files: Iterable[Mapping[str, str]], *, dry: bool) -> list[dict[str, str]]:
    """Remove what matches a pattern and is not the ``path`` of a file, unless ``dry``; return it as differences."""
    wanted = {str(wish["path"]) for wish in files}
    found = sorted(path for pattern in patterns for path in Path("/").glob(pattern.lstrip("/")))
    left = [item(str(path), "absent", state(path)) for path in found if str(path) not in wanted and path.is_file()]
    for one in left if not dry else ():
        Path(one["name"]).unlink()
    return left


def in_the_way(place: Path) -> NodeProblem:
    """Return the problem of a folder where a file belongs."""
    return NodeProblem(f"{place} is a file", "it is a folder", "Remove it on the node, then run again.")
