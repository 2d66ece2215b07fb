"""Archives that Ansible makes of modules, kept for later runs of the same code (plugins/callback/rackready_modules).

Each run has a folder of its own, with links to the archives that are kept. What it packs is kept once it has ended, if
the code is still what it was: a file that was edited meanwhile must not be found under the digest of another.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError
from pathlib import Path

from rackready import files
from rackready.drivers.proof.release import sources_digest
from rackready.paths import private_dir, shipped

VARIABLE, CALLBACK = "RACKREADY_MODULES", "rackready_modules"
OTHERS = 3
"""Folders of other code that stay, the newest: a site goes back and forth between releases."""
RUN_S = 8 * 3600.0
"""Seconds after which the folder of a run is one that was killed: no run lasts longer than two hours."""
_RUN = "run-"
_UNREADABLE = (OSError, PackageNotFoundError, UnicodeEncodeError)
"""What a file of our code, its name or an installed package may give: such code is packed by each run."""
_LOG = logging.getLogger(__name__)


@contextmanager
def callbacks(state: Path, *others: str) -> Iterator[dict[str, str]]:
    """Yield the environment that makes a run use the archives below ``state``, with other callbacks of ours.

    Nothing depends on them: where they cannot be read or kept, the run packs all modules, and the log says why.
    """
    enabled = {
        "ANSIBLE_CALLBACK_PLUGINS": str(shipped() / "plugins/callback"),
        "ANSIBLE_CALLBACKS_ENABLED": ",".join([CALLBACK, *others]),
    }
    try:
        run = _Run(state / "modules")
    except _UNREADABLE as error:
        _LOG.info("Ansible packs all modules, their archives are not kept: %s", error)
        yield enabled
        return
    try:
        yield enabled | {VARIABLE: str(run.folder)}
    finally:
        run.end()


class _Run:
    """The folder of one run. Raises _UNREADABLE."""

    def __init__(self, place: Path) -> None:
        self._digest = sources_digest()
        self._kept = private_dir(place) / self._digest.hex()[:16]
        self.folder = Path(tempfile.mkdtemp(prefix=_RUN, dir=place))
        for archive in _archives(self._kept):
            with suppress(FileNotFoundError):  # another process removes this folder
                os.link(archive, self.folder / archive.name)

    def end(self) -> None:
        """Keep what it packed, and remove its folder and those that nobody needs."""
        try:
            new = [path for path in _archives(self.folder) if not (self._kept / path.name).exists()]
            if new and sources_digest() == self._digest:
                private_dir(self._kept)
                for archive in new:
                    files.create(self._kept / archive.name, archive.read_bytes())
            if self._kept.exists():
                os.utime(self._kept)
            self._tidy()
        except _UNREADABLE as error:
            _LOG.info("archives of modules are not kept: %s", error)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _tidy(self) -> None:
        """Remove what other processes may remove in the same moment: no run uses a folder but its own."""
        ages = {}
        for path in self._kept.parent.iterdir():
            if path != self._kept and path.exists():
                ages[path] = time.time() - path.stat().st_mtime
        other = sorted((path for path in ages if not path.name.startswith(_RUN)), key=ages.__getitem__)
        for path in [*other[OTHERS:], *(path for path in ages if path.name.startswith(_RUN) and ages[path] > RUN_S)]:
            shutil.rmtree(path, ignore_errors=True)


def _archives(folder: Path) -> list[Path]:
    """Return the archives of a folder, whole ones only: Ansible renames each into place."""
    if not folder.is_dir():
        return []
    return [path for path in folder.iterdir() if path.name[0] != "." and not path.name.endswith((".lock", "-part"))]
