"""The files that make a site, and a key of all that decides what they say. Loads no model: `status` asks it first."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from rackready import __version__, entry_points
from rackready.paths import EnvPaths

FOLDER = "profiles"
"""Folder beside the site file with the site's own profiles."""

MACHINES = "machines.yml"
"""File beside the site file with the vendor manifest's data on each machine (``rackready import manifest``)."""

SETS_SCHEMA = "rackready/node-sets/v1"
"""Version of the file of the nodes' version sets (``node_sets``)."""

_CODE = ("model", "profiles", "design")
"""Packages of rackready that decide what a site file says."""
_PARTS = (entry_points.PROFILES, entry_points.GATES, entry_points.SWITCHES, entry_points.SCHEDULERS)
"""Groups of plug-ins whose code takes part in that."""


def profile_files(folder: Path) -> list[Path]:
    """Return every file and every link below a site's folder of profiles, sorted; none when there is no such folder."""
    found = (path for path in folder.rglob("*") if not path.name.startswith("."))
    return sorted(path for path in found if path.is_file() or path.is_symlink())


def overlay_files(paths: EnvPaths, *, with_machines: bool = False) -> list[Path]:
    """Return the files merged over the site file, in order: the manifest's, then the controller's own overlay.

    ``with_machines``: include the manifest's even if it does not exist yet.
    """
    machines = paths.inventory / MACHINES
    return [path for path in (machines, paths.overlay) if path.exists() or (with_machines and path == machines)]


def digest_of(path: Path) -> str:
    """Return the SHA-256 (hex) of a file, "" if it cannot be read: reading it as YAML reports the problem."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def site_key(paths: EnvPaths) -> str:
    """Return a digest of everything that decides what ``load_site`` returns; "" where that cannot be known.

    It counts the content of every file of the site, their absence, this code, the places that paths begin at, and the
    day (UTC), by which some checks judge. Code of plug-ins has no version to trust while somebody works on it.
    """
    if any(entry_points.plug_ins(group) for group in _PARTS):
        return ""
    made_of = (paths.site_file, paths.inventory / MACHINES, paths.overlay, paths.bmc_pins, paths.node_sets)
    counted = hashlib.sha256()
    try:
        for text in (__version__, str(paths.root), str(paths.base), datetime.now(UTC).date().isoformat(), *_code()):
            counted.update(f"{text}\0".encode())
        for path in (*made_of, *profile_files(paths.inventory / FOLDER)):
            counted.update(f"{path}\0{_content(path)}\0".encode())
    except OSError:
        return ""
    return counted.hexdigest()


def _content(path: Path) -> str:
    """Return the digest of a file, "absent" where there is none. Raises OSError for one that cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except (FileNotFoundError, NotADirectoryError):
        return "absent"


def _code() -> Iterator[str]:
    """Yield each file of the code with its size and time of change: reading a thousand files takes too long."""
    package = Path(__file__).resolve().parents[1]
    for name in _CODE:
        for folder, folders, names in os.walk(package / name):
            folders[:] = sorted(one for one in folders if one != "__pycache__")
            for file in sorted(names):
                found = os.stat(os.path.join(folder, file))  # noqa: PTH116, PTH118 - three times as fast as pathlib
                yield f"{folder}/{file} {found.st_size} {found.st_mtime_ns}"
