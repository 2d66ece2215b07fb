"""Writes files into a folder that others use too: it replaces what it wrote itself, and nothing that was edited."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rackready import files
from rackready.model.problems import Message, RackreadyError

MARK = ".rackready-export"
"""Name -> who wrote it, and digests of what was written. A killed run leaves those of the old and of the new content.

No suffix: Grafana reads every .json of a folder (pkg/services/provisioning/dashboards/file_reader.go)."""
_SHARED, _OPEN = 0o644, 0o755
"""Modes: other programs read these files, as users of their own."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What an export changed. ``removed``: files of an earlier export that this one lacks."""

    changed: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Known:
    """A file that an export wrote: its command, and the digests that its content may have."""

    by: str
    digests: tuple[str, ...]


def write_owned(folder: Path, wanted: Mapping[str, bytes], by: str) -> Settled:
    """Write files by their path below ``folder``; remove those of an earlier run of the same command that it lacks.

    ``by``: the command. Raises RackreadyError, with nothing changed, when a file is not of this command or was edited.
    """
    try:
        known = _known(folder)
        old = {name: item for name, item in known.items() if item.by == by and name not in wanted}
        _refuse(folder, wanted, known, old, by)
        _made(folder)
        new = {name: _Known(by, (_digest(data),)) for name, data in wanted.items()}
        others = {name: item for name, item in known.items() if name not in new}
        both = {name: _Known(by, (*_digests(known, name), *item.digests)) for name, item in new.items()}
        _mark(folder, others | both)
        changed = [name for name, data in wanted.items() if _settled(folder / name, data)]
        removed = [name for name in old if (folder / name).exists()]
        for name in removed:
            (folder / name).unlink()
        _mark(folder, {name: item for name, item in others.items() if name not in old} | new)
    except OSError as error:
        raise RackreadyError(
            error.filename or folder,
            expected="a folder that can be written",
            actual=error.strerror or str(error),
            next_step="Correct the folder's rights, or name another with --out.",
        ) from error
    return Settled(changed, removed)


def _digests(known: Mapping[str, _Known], name: str) -> tuple[str, ...]:
    return known[name].digests if name in known else ()


def _made(folder: Path) -> None:
    """Make a folder that others may read, whatever the umask; one that is there keeps its mode."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in missing:
        path.chmod(_OPEN)


def _settled(path: Path, data: bytes) -> bool:
    _made(path.parent)
    return files.settle(path, data, mode=_SHARED)


def _mark(folder: Path, known: Mapping[str, _Known]) -> None:
    rows = {name: {"by": item.by, "sha256": list(dict.fromkeys(item.digests))} for name, item in known.items()}
    text = json.dumps({"written_by": "rackready export", "files": rows}, indent=2, sort_keys=True) + "\n"
    files.settle(folder / MARK, text.encode(), mode=_SHARED)


def _known(folder: Path) -> dict[str, _Known]:
    path = folder / MARK
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["files"]
        return {str(name): _Known(str(row["by"]), tuple(map(str, row["sha256"]))) for name, row in found.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RackreadyError(
            path,
            expected="the list that an earlier export wrote",
            actual="another content",
            next_step="Move the folder away and export again.",
        ) from error


def _refuse(
    folder: Path, wanted: Mapping[str, bytes], known: Mapping[str, _Known], old: Mapping[str, _Known], by: str
) -> None:
    problems = []
    for name in [*wanted, *old]:
        path = folder / name
        if not (path.exists() or path.is_symlink()):
            continue
        item = known.get(name)
        if item is not None and item.by != by:
            actual = f"written by `{item.by}`"
        elif _digest(path.read_bytes()) in {
            *_digests(known, name),
            *([_digest(wanted[name])] if name in wanted else []),
        }:
            continue
        else:
            actual = "it was changed since rackready wrote it" if item is not None else "a file of somebody else"
        problems.append(
            Message(
                str(path),
                expected="no file, or what this command wrote",
                actual=actual,
                next_step="Move it away or name another folder; put changes of your own into files of your own.",
            )
        )
    if problems:
        raise RackreadyError.of(problems, head=f"{folder}: nothing was written.")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
