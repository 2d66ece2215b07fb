"""Exact package versions with apt and dpkg: observed, installed under the node's fence, held, and observed again."""

from __future__ import annotations

import fcntl
import os
import struct
import time
from dataclasses import dataclass, field
from pathlib import Path

from . import apt_words
from .command import NodeProblem, Run, run
from .fence import FOLDER, fence

SOURCE = "sources.list.d/rackready.sources"
_HOLDS = "holds"
_LOCKS = ("var/lib/dpkg/lock-frontend", "var/lib/dpkg/lock", "var/lib/apt/lists/lock", "var/cache/apt/archives/lock")
"""Locks of apt and dpkg, below the root: the first two while packages change, the others while lists or packages are
fetched."""

_DPKG_OPTIONS = ("-o", "Dpkg::Options::=--force-confold", "-o", "Dpkg::Options::=--force-confdef")


@dataclass(frozen=True)
class Package:
    """A package as dpkg knows it. ``state``: dpkg's abbreviation, as ``ii`` (installed) or ``iF`` (half configured)."""

    version: str
    state: str

    @property
    def whole(self) -> bool:
        """Return whether it is unpacked and configured."""
        return self.state[1:2] == "i"

    @property
    def held(self) -> bool:
        """Return whether it is on hold."""
        return self.state[:1] == "h"


@dataclass
class Wish:
    """The wanted packages: name to exact version (empty: any version), names to hold, names that must be absent."""

    packages: dict[str, str]
    hold: bool = False
    absent: list[str] = field(default_factory=list)
    refresh: bool = False
    """Fetch the package lists first, even if they have the versions."""


@dataclass
class Change:
    """Changes that were made, or in check mode would be: package to (before, after)."""

    changed: dict[str, tuple[str, str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass
class Apt:
    """apt and dpkg of one node."""

    run: Run = run
    root: Path = Path("/")
    folder: Path = FOLDER
    lock_wait_s: float = 600.0

    def ensure(self, wish: Wish, operation: str, token: int, ledger: str, *, check: bool = False) -> Change:
        """Bring the packages to the wanted state. Raises NodeProblem with the obstacle."""
        found = self.differences(wish)
        if check or not (found or wish.refresh or self.interrupted()):
            return Change(found)
        with fence(operation, token, ledger, folder=self.folder, wait_s=self.lock_wait_s) as notes:
            self.settle(notes)
            if wish.refresh:
                self.update()
            found = self.differences(wish)
            self._change(wish, found)
            left = self.differences(wish)
        if left:
            wanted, seen = (
                _list({name: pair[1] for name, pair in left.items()}),
                _list({name: pair[0] for name, pair in left.items()}),
            )
            raise NodeProblem(wanted, seen, "See the end of /var/log/apt/term.log on the node.")
        return Change(found, notes)

    def differences(self, wish: Wish) -> dict[str, tuple[str, str]]:
        """Return package to (actual, wanted) for everything that is not as wanted."""
        seen = self.installed([*wish.packages, *wish.absent])
        out = {}
        for name, version in wish.packages.items():
            package = seen.get(name)
            wanted = f"{version or 'installed'}{' held' if wish.hold else ''}"
            if package is None or not package.whole:
                out[name] = (f"{package.version} (half installed)" if package else "absent", wanted)
            elif (version and package.version != version) or (wish.hold and not package.held):
                out[name] = (f"{package.version}{' held' if package.held else ''}", wanted)
        out |= {name: (seen[name].version, "absent") for name in wish.absent if name in seen}
        return out

    def installed(self, names: list[str]) -> dict[str, Package]:
        """Return those of the named packages that dpkg has unpacked."""
        done = self.run(["dpkg-query", "-W", "-f", "${Package}\\t${Version}\\t${db:Status-Abbrev}\\n", *names])
        rows = [line.split("\t") for line in done.out.splitlines() if line.count("\t") == 2]  # noqa: PLR2004 - the three columns asked for
        return {name: Package(version, state) for name, version, state in rows if state[1:2] not in {"n", "c"}}

    def interrupted(self) -> bool:
        """Return whether dpkg was interrupted and must be told to continue."""
        updates = self.root / "var/lib/dpkg/updates"
        journal = updates.is_dir() and any(entry.name.isdigit() for entry in updates.iterdir())
        return journal or bool(self.run(["dpkg", "--audit"]).out.strip())

    def settle(self, notes: list[str]) -> None:
        """Wait until dpkg's lock is free, then complete what an interrupted dpkg left; report both in ``notes``."""
        self._wait_for_lock(notes)
        if not self.interrupted():
            return
        notes.append("dpkg was interrupted: its configuration is completed")
        for argv in (
            ["dpkg", "--configure", "-a", "--force-confold", "--force-confdef"],
            self._apt("install", "--fix-broken"),
        ):
            done = self.run(argv)
            if done.returncode == 0 and not self.interrupted():
                return
        step = "Run `dpkg --configure -a` on the node and read its output."
        raise NodeProblem("dpkg completes the interrupted configuration", apt_words.last_error(done.out), step)

    def _wait_for_lock(self, notes: list[str]) -> None:
        deadline = time.monotonic() + self.lock_wait_s
        while held := self._held():
            lock, holder = held
            if time.monotonic() > deadline:
                expected = f"/{lock} is free within {self.lock_wait_s:.0f} s"
                step = "Wait until that process has ended, or end it on the node; then run again."
                raise NodeProblem(expected, f"held by process {holder} ({process_name(holder)})", step)
            note = f"waited for process {holder} ({process_name(holder)}), which held /{lock}"
            if note not in notes:
                notes.append(note)
            time.sleep(0.5)

    def _held(self) -> tuple[str, int] | None:
        """Return a lock that is held, and the process that holds it."""
        return next(((lock, holder) for lock in _LOCKS if (holder := lock_holder(self.root / lock))), None)

    def _change(self, wish: Wish, found: dict[str, tuple[str, str]]) -> None:
        seen = self.installed(list(wish.packages))
        names = [
            name for name in wish.packages if name in found and not _as_wanted(seen.get(name), wish.packages[name])
        ]
        self._respect_holds(names, seen)
        absent = [name for name in wish.absent if name in found]
        if absent:
            self._do(self._apt("purge", *absent))
        if names:
            if not self._known(names, wish.packages):
                self.update()
            options = ("--no-install-recommends", "--allow-downgrades", "--allow-change-held-packages")
            self._do(self._apt("install", *options, *_specs(names, wish.packages)))
        if wish.hold and found:
            self._do(["apt-mark", "hold", *wish.packages])
            self._write_holds(sorted(self._own_holds() | set(wish.packages)))

    def _respect_holds(self, names: list[str], seen: dict[str, Package]) -> None:
        foreign = sorted(name for name in names if name in seen and seen[name].held and name not in self._own_holds())
        if foreign:
            step = f"Ask who set the hold; then `apt-mark unhold {' '.join(foreign)}` on the node and run again."
            raise NodeProblem("no hold that others set", f"{', '.join(foreign)} held, not by rackready", step)

    def _own_holds(self) -> set[str]:
        try:
            return set((self.folder / _HOLDS).read_text(encoding="utf-8").split())
        except FileNotFoundError:
            return set()

    def _write_holds(self, names: list[str]) -> None:
        temporary = self.folder / f"{_HOLDS}.new"
        temporary.write_text("\n".join(names) + "\n", encoding="utf-8")
        temporary.replace(self.folder / _HOLDS)

    def _known(self, names: list[str], versions: dict[str, str]) -> bool:
        """Return whether the package lists on the node have every wanted version."""
        offered: dict[str, set[str]] = {}
        for line in self.run(["apt-cache", "madison", *names]).out.splitlines():
            name, _, rest = line.partition("|")
            version, more, _ = rest.partition("|")
            if more:
                offered.setdefault(name.strip(), set()).add(version.strip())
        return all(name in offered and (not versions[name] or versions[name] in offered[name]) for name in names)

    def update(self) -> None:
        """Fetch the package lists of rackready's own source only. Raises NodeProblem, also for a bad signature."""
        settings = (
            f"Dir::Etc::sourcelist={SOURCE}",
            "Dir::Etc::sourceparts=-",
            "APT::Get::List-Cleanup=0",
            "APT::Update::Error-Mode=any",
        )
        self._do(["apt-get", "update", "-q", *(word for setting in settings for word in ("-o", setting))])

    def _apt(self, verb: str, *words: str) -> list[str]:
        return [
            "apt-get",
            "-q",
            "-y",
            "-o",
            f"DPkg::Lock::Timeout={self.lock_wait_s:.0f}",
            *_DPKG_OPTIONS,
            verb,
            *words,
        ]

    def _do(self, argv: list[str]) -> None:
        done = self.run(argv)
        if done.returncode != 0:
            raise apt_words.explain(done.out, self.root)


def lock_holder(path: Path) -> int:
    """Return the process that holds a POSIX record lock on a file; 0 when none does."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0
    try:
        # struct flock of Linux on 64 bits: type, whence, start, length, pid.
        asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = struct.unpack("hhqqi4x", fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    finally:
        os.close(descriptor)
    return 0 if kind == fcntl.F_UNLCK else int(pid)


def process_name(pid: int) -> str:
    """Return a process's program, with the script that it runs.

    The rest of its command line is left out: it may hold a secret.
    """
    folder = Path(f"/proc/{pid}")
    try:
        name = (folder / "comm").read_text(encoding="utf-8", errors="replace").strip()
        words = (folder / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    except OSError:
        return "gone by now"
    return f"{name} {words[1]}" if len(words) > 1 and words[1].startswith("/") else name


def _as_wanted(package: Package | None, version: str) -> bool:
    return package is not None and package.whole and (not version or package.version == version)


def _specs(names: list[str], versions: dict[str, str]) -> list[str]:
    return [f"{name}={versions[name]}" if versions[name] else name for name in names]


def _list(items: dict[str, str]) -> str:
    return ", ".join(f"{name} {what}" for name, what in sorted(items.items()))
