"""Writes files into a folder that others use too: it replaces what it wrote itself, and nothing that was edited."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from rackready import files
from rackready.model.problems import Message, RackreadyError

MARK = ".rackready-export.json"
"""Name -> digests of what rackready wrote. A killed run leaves those of the old and of the new content."""
_SHARED = 0o644


def write_owned(folder: Path, wanted: Mapping[str, bytes]) -> list[str]:
    """Write files by their path below ``folder``, and return those that changed.

    Raises RackreadyError, with nothing written, when a file is not ours or was edited since.
    """
    try:
        known = _known(folder)
        _refuse(folder, wanted, known)
        folder.mkdir(parents=True, exist_ok=True)
        new = {name: [_digest(data)] for name, data in wanted.items()}
        _mark(folder, {name: [*dict.fromkeys([*known.get(name, []), *new[name]])] for name in new})
        changed = [name for name, data in wanted.items() if _settled(folder / name, data)]
        _mark(folder, new)
    except OSError as error:
        raise RackreadyError(
            error.filename or folder,
            expected="a folder that can be written",
            actual=error.strerror or str(error),
            next_step="Correct the folder's rights, or name another with --out.",
        ) from error
    return changed


def _settled(path: Path, data: bytes) -> bool:
    path.parent.mkdir(exist_ok=True)
    return files.settle(path, data, mode=_SHARED)


def _mark(folder: Path, digests: Mapping[str, list[str]]) -> None:
    text = json.dumps({"written_by": "rackready export", "files": digests}, indent=2, sort_keys=True) + "\n"
    files.settle(folder / MARK, text.encode(), mode=_SHARED)


def _known(folder: Path) -> dict[str, list[str]]:
    path = folder / MARK
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["files"]
        return {str(name): [str(digest) for digest in digests] for name, digests in found.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RackreadyError(
            path,
            expected="the list that an earlier export wrote",
            actual="another content",
            next_step="Move the folder away and export again.",
        ) from error


def _refuse(folder: Path, wanted: Mapping[str, bytes], known: Mapping[str, list[str]]) -> None:
    problems = []
    for name, data in wanted.items():
        path = folder / name
        if not (path.exists() or path.is_symlink()):
            continue
        digest = _digest(path.read_bytes())
        if digest not in {_digest(data), *known.get(name, [])}:
            actual = "it was changed since rackready wrote it" if name in known else "a file of somebody else"
            problems.append(
                Message(
                    str(path),
                    expected="no file, or what rackready wrote",
                    actual=actual,
                    next_step="Move it away, and put changes of your own into files of your own.",
                )
            )
    if problems:
        raise RackreadyError.of(problems, head=f"{folder}: nothing was written.")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
