"""Package lists of the sources that are not rackready's, as those of the operating system: absent or old, and fetched.

Cloud images come with no lists, and the role base turns off the timer that fetches them.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path

from . import apt_sources, apt_words
from .apt_sources import SOURCE, in_file_name
from .apt_words import Silent
from .command import Run, run
from .fence import FOLDER

AGE_S = 24 * 3600
"""Seconds until lists are old: as often as the timer apt-daily fetches them on a system as it is installed.

Ubuntu's and Debian's 20auto-upgrades: APT::Periodic::Update-Package-Lists "1", in days (apt.systemd.daily of apt 2.6).
"""
_ASKED = "system-lists"
"""Its time is that of the last attempt, so that a mirror that does not answer delays no more than one run a day."""
_STAMPS = ("var/lib/apt/periodic/update-stamp", "var/lib/apt/periodic/update-success-stamp")
"""Files that apt.systemd.daily (apt 2.6) and Ubuntu's update-notifier-common touch after `apt-get update`."""
_RELEASE = re.compile(r"_(?:In)?Release$")


@dataclass
class SystemLists:
    """The lists of one node. ``root`` is the start of its file system (tests)."""

    run: Run = run
    root: Path = Path("/")
    folder: Path = FOLDER

    def sources(self) -> list[str]:
        """Return the addresses of the enabled sources that are not rackready's; installation media do not count."""
        own = self.root / "etc/apt" / SOURCE
        uris = [uri for path in apt_sources.files(self.root) if path != own for uri in _uris(path)]
        return [uri for uri in dict.fromkeys(uris) if not uri.startswith("cdrom:")]

    def own(self) -> list[str]:
        """Return the addresses of rackready's sources."""
        path = self.root / "etc/apt" / SOURCE
        return _uris(path) if path.is_file() else []

    def old(self) -> bool:
        """Return whether there are sources whose lists are absent, or were not fetched for ``AGE_S``.

        Without a stamp, the time of the newest list counts: apt gives it the time at which the mirror made it.
        """
        if not self.sources():
            return False
        asked = self._times(self.folder / _ASKED)
        lists = self._lists()
        if not lists:
            return not asked or _is_old(asked)
        stamps = [self.root / stamp for stamp in _STAMPS]
        return _is_old(asked + self._times(*stamps, *lists))

    def _lists(self) -> list[Path]:
        """Return the indexes that were fetched from sources that are not rackready's."""
        own = tuple(in_file_name(uri) for uri in self.own())
        paths = sorted((self.root / "var/lib/apt/lists").glob("*Release"))
        return [path for path in paths if _RELEASE.search(path.name) and not path.name.startswith(own)]

    def _times(self, *paths: Path) -> list[float]:
        return [path.stat().st_mtime for path in paths if path.exists()]

    def fetch(self) -> list[Silent]:
        """Fetch the lists of all sources; return those of others that gave none.

        Raises NodeProblem if one of rackready's sources gave none, or if the node cannot store lists.
        """
        done = self.run(["apt-get", "update", "-q", "-o", "APT::Update::Error-Mode=any"])
        self.folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        (self.folder / _ASKED).touch()
        if done.returncode == 0:
            return []
        silent, own = apt_words.silent(done.out), tuple(uri.rstrip("/") for uri in self.own())
        obstacle = apt_words.of_the_node(done.out, self.root)
        if obstacle or not silent or any(source.name.startswith(own) for source in silent):
            raise obstacle or apt_words.explain(done.out, self.root)
        return silent


def _is_old(times: list[float]) -> bool:
    return time.time() - max(times) > AGE_S


def _uris(path: Path) -> list[str]:
    """Return the addresses of a file's sources of packages, each once."""
    return list(dict.fromkeys(entry.uri for entry in apt_sources.entries(path) if entry.type == "deb"))
