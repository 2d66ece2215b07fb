"""Checks of a mirror that is there: signature, every file, and whether its packages install from it alone."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

from rackready.drivers.mirror import apt, dnf, keys
from rackready.drivers.mirror.parts import Wanted, digest
from rackready.drivers.mirror.tools import MirrorError

MANIFEST, SUMS, KEY = "manifest.json", "SHA256SUMS", "mirror.asc"
SCHEMA = "rackready/mirror/v1"
_ROW = re.compile(r"^([0-9a-f]{64})  (\S.*)$", re.MULTILINE)
_SHOWN = 10


def kind_of(wanted: Wanted) -> ModuleType:
    """Return the module for the system's package format."""
    return dnf if wanted.is_rpm else apt


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a mirror. Raises MirrorError when the folder has none."""
    try:
        found = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        found = None
    except (ValueError, OSError) as error:
        raise MirrorError(
            f"{folder}/{MANIFEST}", expected="a manifest", actual=error, next_step="Build or copy the mirror again."
        ) from error
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        raise MirrorError(
            folder,
            expected="a mirror that `rackready mirror` made",
            actual=f"no {MANIFEST} of one",
            next_step="Correct --out.",
        )
    return found


def verify_files(folder: Path, wanted: Wanted, key: Path | None = None) -> int:
    """Return the number of files of a mirror after comparing all with its signed index. Raises MirrorError.

    ``key``: the key that must have signed; default: the one in the mirror.
    """
    trusted = key or folder / KEY
    module = kind_of(wanted)
    keys.signed_by(trusted, _existing(folder, f"{SUMS}.asc"), _existing(folder, SUMS))
    module.check_signatures(folder, trusted)
    sums = {name: value for value, name in _ROW.findall((folder / SUMS).read_text(encoding="utf-8"))}
    found = {
        path.relative_to(folder).as_posix(): digest(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in {SUMS, f"{SUMS}.asc"}
    }
    problems = _differences(sums, found)
    problems = problems or _differences({name: value for name, (value, _) in module.hashes(folder).items()}, found)
    if problems:
        shown = "; ".join(problems[:_SHOWN]) + (
            f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        )
        raise MirrorError(
            folder,
            expected="every file as the signed index describes",
            actual=shown,
            next_step="Do not use this mirror. Run `rackready mirror` where it was built (it fetches only what "
            "is damaged), or copy it again.",
        )
    return len(found)


def _existing(folder: Path, name: str) -> Path:
    path = folder / name
    if not path.is_file():
        raise MirrorError(path, expected="a file", actual="none", next_step="Build or copy the mirror again.")
    return path


def _differences(expected: dict[str, str], found: dict[str, str]) -> list[str]:
    missing = [f"{name} is missing" for name in sorted(expected.keys() - found.keys())]
    changed = [f"{name} differs" for name in sorted(expected.keys() & found.keys()) if expected[name] != found[name]]
    return changed + missing


def verify(folder: Path, wanted: Wanted, scratch: Path, key: Path | None = None) -> int:
    """Return the number of files of a mirror that is whole and installs. Raises MirrorError."""
    count = verify_files(folder, wanted, key)
    kind_of(wanted).check_installs(folder, wanted, scratch)
    return count
