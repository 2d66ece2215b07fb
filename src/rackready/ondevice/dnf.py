"""Exact package versions with dnf and rpm: observed, installed under the node's fence, locked, and observed again.

Observation reads the rpm database, the enabled module streams and the list of version locks, so it needs neither
metadata nor the mirror. `dnf install`, which runs without `-C`, itself fetches metadata of every enabled repository
that is absent or expired (dnf.conf(5), metadata_expire: 48 hours; seen with dnf 4.14). A repository of others that
gives none is left out and reported. Forms: dnf 4.14, rpm 4.16 and the plugin versionlock of dnf-plugins-core 4.3.
"""

from __future__ import annotations

import configparser
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import ClassVar

from . import dnf_words
from .command import NodeProblem
from .locks import lock_holder, pid_in, wait_until_free
from .packages import Manager, Snapshot, Wish
from .rpm_version import is_lower, parts

REPOSITORY = "rackready*"
"""Ids of rackready's own repositories, as a glob of dnf."""
QUERY = "%{NAME}\\t%{EPOCHNUM}:%{VERSION}-%{RELEASE}\\n"
"""Form of rpm's answers that ``Dnf.rows`` reads."""
OFFERED = "%{name}\\t%{epoch}:%{version}-%{release}"
"""The same form in dnf's own words, for `dnf repoquery`."""
_LOCK_CONFIG = "etc/dnf/plugins/versionlock.conf"
_LOCK_LIST = "etc/dnf/plugins/versionlock.list"
_RECORD_LOCKS = ("var/lib/rpm/.rpm.lock", "usr/lib/sysimage/rpm/.rpm.lock")
"""Locks of rpm, below the root."""
_PID_LOCKS = ("var/cache/dnf/metadata_lock.pid", "var/cache/dnf/download_lock.pid", "var/lib/dnf/rpmdb_lock.pid")
"""Locks of dnf, below the root: files with the process id of their holder (dnf/lock.py)."""
_MANY = ("kernel", "kernel-")
"""Names, and starts of names, of packages that are installed beside each other (dnf.conf, installonlypkgs)."""
SKIP = ("--setopt=*.skip_if_unavailable=1", f"--setopt={REPOSITORY}.skip_if_unavailable=0")
"""Options of every command that reads all repositories: dnf leaves out one of others that gives no metadata.

By default it ends with an error (dnf.conf(5), skip_if_unavailable: False; base.py, fill_sack). The later option counts:
without rackready's own repositories, dnf still ends.
"""
_INSTALL = (*SKIP, "--setopt=install_weak_deps=False", "--setopt=multilib_policy=best")


@dataclass
class Dnf(Manager):
    """dnf and rpm of one node."""

    log: ClassVar[str] = "/var/log/dnf.log"
    left_out: dict[str, str] = field(default_factory=dict)
    """Repositories of others that gave no metadata, and why."""

    def remarks(self) -> list[str]:
        """Return a note for each repository of others that dnf left out."""
        return [
            f"package source {name} gives no metadata, so dnf left it out: {why}" for name, why in self.left_out.items()
        ]

    def differences(self, wish: Wish) -> dict[str, tuple[str, str]]:
        """Return package to (actual, wanted) for everything that is not as wanted."""
        seen, locks = self.installed([*wish.packages, *wish.absent]), self.locks()
        out = {
            f"module {name}": (self.stream(name) or "no stream", stream)
            for name, stream in _streams(wish).items()
            if self.stream(name) != stream
        }
        for name, version in wish.packages.items():
            wanted = f"{version or 'installed'}{' held' if wish.hold else ''}"
            there = seen.get(name, [])
            held = wish.hold and all(_is_locked(name, item, locks) for item in there)
            if not there:
                out[name] = ("absent", wanted)
            elif not _as_wanted(name, there, version) or held != wish.hold:
                out[name] = (f"{' and '.join(there)}{' held' if held else ''}", wanted)
        return out | {name: (" and ".join(seen[name]), "absent") for name in wish.absent if name in seen}

    def installed(self, names: list[str]) -> dict[str, list[str]]:
        """Return the installed versions of those of the named packages that the rpm database has.

        A name may also be a full one, such as kernel-devel-5.14.0-570.el9.x86_64, or what a package provides.
        """
        out: dict[str, list[str]] = {}
        for name, version in self.rows(["rpm", "-q", "--qf", QUERY, *names]) if names else []:
            if name in names:
                out.setdefault(name, []).append(version)
        for name in names:
            if name not in out:
                argv = ["rpm", "-q", "--qf", QUERY, name]  # a full name is no name that a package provides
                found = self.rows(argv) or self.rows(["rpm", "-q", "--whatprovides", "--qf", QUERY, name])
                if found:
                    out[name] = [version for _, version in found]
        return out

    def rows(self, argv: list[str]) -> list[tuple[str, str]]:
        """Return name and version of each line that a query prints; lines of other forms are messages."""
        rows = [line.split("\t") for line in self.run(argv).out.splitlines() if line.count("\t") == 1]
        return [(name, version.removeprefix("0:")) for name, version in rows]

    def _alone(self, patterns: Iterable[str]) -> list[tuple[str, str]]:
        """Return matching packages with their versions, without kernels and keys, of which a node has several."""
        rows = self.rows(["rpm", "-qa", "--qf", QUERY, *patterns])
        return [row for row in rows if not _is_many(row[0]) and row[0] != "gpg-pubkey"]

    def stream(self, module: str) -> str:
        """Return the enabled stream of a module; empty if none is."""
        found = configparser.ConfigParser(interpolation=None)
        try:
            found.read(self.root / "etc/dnf/modules.d" / f"{module}.module", encoding="utf-8")
            section = found[module]
        except (configparser.Error, KeyError):
            return ""
        return section.get("stream", "") if section.get("state") == "enabled" else ""

    def locks(self) -> list[str]:
        """Return the entries of the list of version locks, without those that exclude a version."""
        config = configparser.ConfigParser(interpolation=None)
        config.read(self.root / _LOCK_CONFIG, encoding="utf-8")
        place = config.get("main", "locklist", fallback=f"/{_LOCK_LIST}")
        try:
            lines = (self.root / place.lstrip("/")).read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        return [line.strip() for line in lines if line.strip() and not line.startswith(("#", "!"))]

    def lower(self, wish: Wish) -> dict[str, tuple[str, str]]:
        """Return package to (installed, wanted) where the wanted version is lower than every installed one."""
        seen = self.installed([name for name, version in wish.packages.items() if version])
        return {
            name: (there[-1], wish.packages[name])
            for name, there in seen.items()
            if not _is_many(name) and all(is_lower(wish.packages[name], item) for item in there)
        }

    def interrupted(self, wish: Wish) -> bool:
        """Return whether a package is there in two versions: rpm was ended between installing and removing."""
        return bool(self._doubled(wish))

    def _doubled(self, wish: Wish) -> list[str]:
        seen = self.installed([name for name in wish.packages if not _is_many(name)])
        return sorted(name for name, there in seen.items() if len(set(there)) > 1)

    def settle(self, wish: Wish, notes: list[str]) -> None:
        """Wait until the locks are free, then remove old versions that an interrupted rpm left; report both."""
        wait_until_free(self._busy_lock, self.lock_wait_s, notes)
        doubled = self._doubled(wish)
        if doubled:
            notes.append(f"rpm was interrupted: removed the older version of {', '.join(doubled)}")
            self._do(["dnf", "-q", "-y", "remove", *SKIP, "--duplicates", "--disableplugin=versionlock"])

    def _busy_lock(self) -> tuple[str, int] | None:
        """Return a lock that is held, and the process that holds it."""
        found = [(lock, pid_in(self.root / lock)) for lock in _PID_LOCKS]
        found += [(lock, lock_holder(self.root / lock)) for lock in _RECORD_LOCKS]
        return next(((lock, holder) for lock, holder in found if holder), None)

    def change(self, wish: Wish, found: dict[str, tuple[str, str]]) -> None:
        """Enable streams, then remove, install and lock what differs. Raises NodeProblem."""
        seen = self.installed(list(wish.packages))
        names = [
            name
            for name in wish.packages
            if name in found and not _as_wanted(name, seen.get(name, []), wish.packages[name])
        ]
        self._respect_locks(
            {
                name: version or seen.get(name, [""])[0]
                for name, version in wish.packages.items()
                if name in names or (wish.hold and name in found)
            }
        )
        self._enable({name: stream for name, stream in _streams(wish).items() if f"module {name}" in found})
        absent = [name for name in wish.absent if name in found]
        if absent:
            self._do(["dnf", "-q", "-y", "remove", "--noautoremove", *absent])
        companions = self._companions(names, seen)
        if names:
            self._unlock([*names, *companions])
            if not self._known(names, wish.packages):
                self.update()
            self._do(["dnf", "-y", "install", *_INSTALL, *_specs(names, wish.packages)])
        if (wish.hold and found) or companions:
            self._lock([*(wish.packages if wish.hold else []), *companions])

    def _companions(self, names: list[str], seen: dict[str, list[str]]) -> list[str]:
        """Return the packages that rackready locks in the version of one that is about to change.

        The lock of nvidia-persistenced, which another role sets, would hide the version that the driver needs.
        """
        old = {version for name in names for version in seen.get(name, [])}
        own = self.installed(sorted(self.own_holds() - set(names))) if old else {}
        return sorted(name for name, there in own.items() if old & set(there))

    def refuse_holds(self, wish: Wish) -> None:
        """Raise NodeProblem if a named package is locked at another version by somebody else."""
        self._respect_locks(wish.packages)

    def snapshot(self, patterns: Iterable[str], modules: Iterable[str]) -> Snapshot:
        """Return the installed packages whose names match, all version locks, and the streams of the modules."""
        packages = dict(self._alone(patterns))
        streams = {module: self.stream(module) for module in modules}
        return Snapshot(packages, self.locks(), sorted(self.own_holds()), streams)

    def restore(self, before: Snapshot, patterns: Iterable[str], notes: list[str]) -> bool:
        """Bring packages, streams and version locks back; return whether a package differed."""
        wait_until_free(self._busy_lock, self.lock_wait_s, notes)
        rows = self._alone(patterns)
        names = [
            name for name, version in before.packages.items() if {row[1] for row in rows if row[0] == name} != {version}
        ]
        added = sorted({row[0] for row in rows} - before.packages.keys())
        self._unlock([*names, *added])
        self._restore_streams(before.streams)
        if names and not self._known(names, before.packages):
            self.update()
        if names:
            self._do(["dnf", "-y", "install", *_INSTALL, "--allowerasing", *_specs(names, before.packages)])
        left = sorted(self.installed(added).keys() & set(added)) if added else []
        if left:
            self._do(["dnf", "-q", "-y", "remove", "--noautoremove", *left])
        self._restore_locks(before)
        return bool(names or added)

    def _restore_streams(self, streams: dict[str, str]) -> None:
        for name, stream in streams.items():
            if self.stream(name) != stream:
                self._do(["dnf", "-y", "module", "reset", *SKIP, name])
                if stream:
                    self._enable({name: stream})

    def _restore_locks(self, before: Snapshot) -> None:
        locks = self.locks()
        for verb, entries in (("delete", set(locks) - set(before.held)), ("add", set(before.held) - set(locks))):
            if entries:
                self._do([*_versionlock(verb), *(["--raw"] if verb == "add" else []), *sorted(entries)])
        self.set_own_holds(before.own)

    def _respect_locks(self, versions: dict[str, str]) -> None:
        """Refuse to go against a lock at another version that is not rackready's."""
        locks = self.locks()
        foreign = [
            lock
            for name in sorted(versions.keys() - self.own_holds())
            for lock in locks
            if versions[name] and lock_name(lock) == name and not _is_locked(name, versions[name], [lock])
        ]
        if foreign:
            words = " ".join(f"'{lock}'" for lock in foreign)
            step = f"Ask who set the lock; then `dnf versionlock delete {words}` on the node and run again."
            raise NodeProblem("no version lock that others set", f"{', '.join(foreign)}, not by rackready", step)

    def _enable(self, streams: dict[str, str]) -> None:
        """Enable module streams; dnf switches from one stream to another only after a reset."""
        if streams:
            self.update()
        for name, stream in streams.items():
            if self.stream(name):
                self._do(["dnf", "-y", "module", "reset", *SKIP, name])
            self._do(["dnf", "-y", "module", "enable", *SKIP, f"{name}:{stream}"])

    def _unlock(self, names: list[str]) -> None:
        """Remove rackready's locks of packages that are about to change."""
        stale = [lock for lock in self.locks() if lock_name(lock) in set(names) & self.own_holds()]
        if stale:
            self._do([*_versionlock("delete"), *stale])

    def _lock(self, names: list[str]) -> None:
        """Lock the installed versions, and read the locks back through dnf: a lock that dnf ignores holds nothing."""
        self.remember_holds(names)
        seen, locks = self.installed(names), self.locks()
        wanted = [_lock_of(name, version) for name, there in seen.items() for version in there]
        stale = [lock for lock in locks if lock_name(lock) in seen and lock not in wanted]
        if stale:
            self._do([*_versionlock("delete"), *stale])
        missing = [lock for lock in wanted if lock not in locks]
        if missing:
            self._do([*_versionlock("add"), "--raw", *missing])
        listed = self._do(_versionlock("list")).splitlines()
        lost = [lock for lock in wanted if lock not in listed]
        if lost:
            step = "See `dnf versionlock list` and /etc/dnf/plugins/versionlock.conf on the node, then run again."
            raise NodeProblem(f"version locks {', '.join(lost)}", "not listed by dnf", step)

    def _known(self, names: list[str], versions: dict[str, str]) -> bool:
        """Return whether the metadata on the node has every wanted version."""
        rows = self.rows(["dnf", "-q", "-C", "repoquery", "--qf", OFFERED, *names])
        return all(
            any(row[0] == name and (not versions[name] or _same(row[1], versions[name])) for row in rows)
            for name in names
        )

    def update(self) -> None:
        """Fetch the metadata of rackready's own repositories only. Raises NodeProblem."""
        self._do(["dnf", "-q", "-y", "makecache", "--refresh", "--repo", REPOSITORY])

    def _do(self, argv: list[str]) -> str:
        done = self.run(argv)
        self.left_out |= dnf_words.left_out(done.out)
        if done.returncode != 0:
            raise dnf_words.explain(done.out, self.root)
        return done.out


def _versionlock(verb: str) -> list[str]:
    """Return the start of a command about locks; without repositories, so that it needs no mirror."""
    return ["dnf", "-q", "-y", "--disablerepo=*", "versionlock", verb]


def _streams(wish: Wish) -> dict[str, str]:
    return {name: stream for name, _, stream in (text.partition(":") for text in wish.streams)}


def _is_many(name: str) -> bool:
    return name == _MANY[0] or name.startswith(_MANY[1])


def _same(version: str, other: str) -> bool:
    return parts(version) == parts(other)


def _as_wanted(name: str, there: list[str], version: str) -> bool:
    """Return whether the wanted version is installed, and no other one that would be used in its place."""
    if not version or not there:
        return bool(there)
    return any(_same(item, version) for item in there) and (_is_many(name) or len(set(there)) == 1)


def _specs(names: list[str], versions: dict[str, str]) -> list[str]:
    return [f"{name}-{versions[name]}" if versions[name] else name for name in names]


def _lock_of(name: str, version: str) -> str:
    """Return the entry that the plugin writes for a package: always with an epoch, for every architecture."""
    epoch, upstream, release = parts(version)
    return f"{name}-{epoch}:{upstream}-{release}.*"


def lock_name(lock: str) -> str:
    """Return the name of the package that an entry locks: name-[epoch:]version-release.arch, or the name alone."""
    return lock.rsplit("-", 2)[0]


def _is_locked(name: str, version: str, locks: list[str]) -> bool:
    """Return whether an entry keeps a package at this version."""
    epoch, upstream, release = parts(version)
    forms = [f"{name}-{epoch}:{upstream}-{release}"] + ([f"{name}-{upstream}-{release}"] if not epoch else [])
    patterns = [*locks, *(lock.rpartition(".")[0] for lock in locks)]  # an entry may end with an architecture
    return any(fnmatchcase(form, pattern) for form in forms for pattern in patterns)
