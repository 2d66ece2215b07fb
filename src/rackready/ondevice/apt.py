"""Exact package versions with apt and dpkg: observed, installed under the node's fence, held, and observed again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import ClassVar

from . import apt_words
from .apt_lists import SystemLists
from .apt_sources import SOURCE
from .command import NodeProblem
from .locks import lock_holder, wait_until_free
from .packages import Manager, Snapshot, Wish

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
class Apt(Manager):
    """apt and dpkg of one node."""

    log: ClassVar[str] = "/var/log/apt/term.log"

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
        """Return those of the named packages that dpkg has unpacked; dpkg-query without a name would list all."""
        if not names:
            return {}
        done = self.run(["dpkg-query", "-W", "-f", "${Package}\\t${Version}\\t${db:Status-Abbrev}\\n", *names])
        rows = [line.split("\t") for line in done.out.splitlines() if line.count("\t") == 2]  # noqa: PLR2004 - the three columns asked for
        return {name: Package(version, state) for name, version, state in rows if state[1:2] not in {"n", "c"}}

    def lower(self, wish: Wish) -> dict[str, tuple[str, str]]:
        """Return package to (installed, wanted) where the wanted version is lower, as dpkg compares them.

        None if one of them could not be configured: that is an upgrade that did not end, and other versions mend it.
        """
        seen = self.installed(list(wish.packages))
        if not all(package.whole for package in seen.values()):
            return {}
        pairs = {name: (seen[name].version, version) for name, version in wish.packages.items() if name in seen}
        return {name: pair for name, pair in pairs.items() if pair[1] and pair[0] != pair[1] and self._is_lower(*pair)}

    def _is_lower(self, installed: str, wanted: str) -> bool:
        return self.run(["dpkg", "--compare-versions", wanted, "lt", installed]).returncode == 0

    def interrupted(self, wish: Wish | None = None) -> bool:
        """Return whether dpkg was interrupted and must be told to continue."""
        del wish
        return self._journal() or bool(self.run(["dpkg", "--audit"]).out.strip())

    def _journal(self) -> bool:
        updates = self.root / "var/lib/dpkg/updates"
        return updates.is_dir() and any(entry.name.isdigit() for entry in updates.iterdir())

    def settle(self, wish: Wish, notes: list[str]) -> None:
        """Wait until dpkg's lock is free, then complete what an interrupted dpkg left; report both in ``notes``.

        A package that cannot be completed is no obstacle if another version of it is wanted, or if nothing is to
        change: its own role replaces it.
        """
        wait_until_free(self._busy_lock, self.lock_wait_s, notes)
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
        broken = {name: package for name, package in self.installed(["*"]).items() if not package.whole}
        left = all(_replaced(wish, *item) for item in broken.items()) or not self.differences(wish)
        if broken and not self._journal() and left:
            notes.append(f"dpkg cannot configure {', '.join(sorted(broken))}: another version must replace it")
            return
        step = (
            "Run `dpkg --configure -a` on the node and read its output; or choose a version set (software.set) with "
            "another version of the package."
        )
        raise NodeProblem("dpkg completes the interrupted configuration", apt_words.last_error(done.out), step)

    def _busy_lock(self) -> tuple[str, int] | None:
        """Return a lock that is held, and the process that holds it."""
        return next(((lock, holder) for lock in _LOCKS if (holder := lock_holder(self.root / lock))), None)

    def change(self, wish: Wish, found: dict[str, tuple[str, str]]) -> None:
        """Remove, install and hold what differs. Raises NodeProblem."""
        seen = self.installed(list(wish.packages))
        names = [
            name for name in wish.packages if name in found and not _as_wanted(seen.get(name), wish.packages[name])
        ]
        self._respect_holds(names, seen)
        absent = [name for name in wish.absent if name in found]
        if absent:
            self._purge(absent)
        if names:
            self._make_known(names, wish.packages)
            words = _install_words(names, wish, seen)
            self._respect_other_holds(words, wish)
            self._install(words, self._companions(names, seen))
        if wish.hold and found:
            self._do(["apt-mark", "hold", *wish.packages])
            self.remember_holds(wish.packages)

    def _purge(self, absent: list[str]) -> None:
        """Remove packages, our own holds first: apt removes no held package."""
        held = [name for name, package in self.installed(absent).items() if package.held]
        self._refuse_foreign(held)
        if held:
            self._do(["apt-mark", "unhold", *held])
        self._do(self._apt("purge", *absent))

    def refuse_holds(self, wish: Wish) -> None:
        """Raise NodeProblem if a package that would change is held by somebody else."""
        seen = self.installed(list(wish.packages))
        names = [name for name, version in wish.packages.items() if not _as_wanted(seen.get(name), version)]
        self._respect_holds(names, seen)
        if names and not self._unknown(names, wish.packages):
            self._respect_other_holds(_install_words(names, wish, seen), Wish({}, may_remove=["*"]))

    def _respect_holds(self, names: list[str], seen: dict[str, Package]) -> None:
        self._refuse_foreign(name for name in names if name in seen and seen[name].held)

    def _install(self, words: list[str], companions: list[str]) -> None:
        """Install with the holds of companions off; a killed run leaves them off until their own role runs."""
        if companions:
            self._do(["apt-mark", "unhold", *companions])
        try:
            self._do(self._apt("install", *words))
        finally:
            if companions:
                self._do(["apt-mark", "hold", *companions])

    def _companions(self, names: list[str], seen: dict[str, Package]) -> list[str]:
        """Return the packages on rackready's own hold that have the version of one that is about to change.

        Apt moves no held package that is not named: nvidia-persistenced, which another role holds, would keep the
        driver that it must equal.
        """
        old = {seen[name].version for name in names if name in seen}
        own = self.installed(sorted(self.own_holds() - set(names))) if old else {}
        return sorted(name for name, package in own.items() if package.held and package.version in old)

    def _respect_other_holds(self, words: list[str], wish: Wish) -> None:
        """Refuse if a held package that was not named would have to change: of others, or rackready's and removed.

        Apt itself reports dependencies that cannot be met. So it is asked what it would do if nothing was held.
        """
        held = set(self.run(["apt-mark", "showhold"]).out.split())
        status = self.root / "var/lib/dpkg/status"
        if not held or not status.exists():
            return
        free = self.folder / "status-without-holds"
        self.folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        text = status.read_text(encoding="utf-8", errors="surrogateescape")
        free.write_text(text.replace("\nStatus: hold ", "\nStatus: install "), "utf-8", "surrogateescape")
        done = self.run(self._apt("install", "--simulate", "-o", f"Dir::State::status={free}", *words))
        free.unlink()
        rows = [line.split() for line in done.out.splitlines()]
        self._refuse_foreign(row[1] for row in rows if row[:1] in (["Inst"], ["Remv"]) and row[1] in held)
        self._refuse_removal({row[1] for row in rows if row[:1] == ["Remv"]} & held, words, wish)

    def _refuse_removal(self, removed: set[str], words: list[str], wish: Wish) -> None:
        """Refuse to remove what another role installed: a version that does not fit the driver would remove it."""
        lost = sorted(name for name in removed if not any(fnmatchcase(name, item) for item in wish.may_remove))
        if lost:
            wanted = ", ".join(word for word in words if not word.startswith("-"))
            raise NodeProblem(
                f"{wanted} beside the packages that rackready installed",
                f"apt would remove {', '.join(lost)}",
                "Choose versions that fit each other (software.set), then run again. No package was changed.",
            )

    def _refuse_foreign(self, held: Iterable[str]) -> None:
        foreign = sorted(set(held) - self.own_holds())
        if foreign:
            step = f"Ask who set the hold; then `apt-mark unhold {' '.join(foreign)}` on the node and run again."
            raise NodeProblem("no hold that others set", f"{', '.join(foreign)} held, not by rackready", step)

    def snapshot(self, patterns: Iterable[str], modules: Iterable[str]) -> Snapshot:
        """Return the installed packages whose names match, and which of them are on hold."""
        del modules
        seen = {name: package for name, package in self.installed(list(patterns)).items() if package.whole}
        held = sorted(name for name, package in seen.items() if package.held)
        return Snapshot({name: package.version for name, package in seen.items()}, held, sorted(self.own_holds()))

    def restore(self, before: Snapshot, patterns: Iterable[str], notes: list[str]) -> bool:
        """Bring packages and holds back; return whether a package differed."""
        wait_until_free(self._busy_lock, self.lock_wait_s, notes)
        if self._journal():  # apt refuses to act before; a package that fails here is replaced below
            self.run(["dpkg", "--configure", "-a", "--force-confold", "--force-confdef"])
        seen = self.installed([*patterns, *before.packages])
        names = [name for name, version in before.packages.items() if not _as_wanted(seen.get(name), version)]
        added = sorted(seen.keys() - before.packages.keys())
        self._make_known(names, before.packages)
        if names or added:
            options = ["--no-install-recommends", "--allow-change-held-packages", "--allow-downgrades", "--purge"]
            words = [*_specs(names, before.packages), *(f"{name}-" for name in added)]
            self._do(self._apt("install", *options, *words))
        self._restore_holds(before)
        return bool(names or added)

    def _restore_holds(self, before: Snapshot) -> None:
        held = {name for name, package in self.installed(list(before.packages)).items() if package.held}
        for verb, names in (("unhold", held - set(before.held)), ("hold", set(before.held) - held)):
            if names:
                self._do(["apt-mark", verb, *sorted(names)])
        self.set_own_holds(before.own)

    def _unknown(self, names: list[str], versions: dict[str, str]) -> list[str]:
        """Return what the package lists on the node lack of the wanted packages, as ``name`` or ``name=version``."""
        offered: dict[str, set[str]] = {}
        for line in self.run(["apt-cache", "madison", *names]).out.splitlines() if names else ():
            name, _, rest = line.partition("|")
            version, more, _ = rest.partition("|")
            if more:
                offered.setdefault(name.strip(), set()).add(version.strip())
        lacking = [
            name for name in names if name not in offered or (versions[name] and versions[name] not in offered[name])
        ]
        return _specs(lacking, versions)

    def _make_known(self, names: list[str], versions: dict[str, str]) -> None:
        """Fetch rackready's package lists, then those of all sources, if the wanted packages are unknown until then.

        Packages of any version are always looked up: the node's lists may name one that the mirror has replaced since.
        Raises NodeProblem, also if they stay unknown while a source of others gives no list.
        """
        if all(versions[name] for name in names) and not self._unknown(names, versions):
            return
        self.update()
        lists = self._system_lists()
        if not lists.sources() or not self._unknown(names, versions):
            return
        silent = lists.fetch()
        unknown = self._unknown(names, versions) if silent else []
        if unknown:
            raise apt_words.no_answer(unknown, silent)

    def _system_lists(self) -> SystemLists:
        return SystemLists(self.run, self.root, self.folder)

    def system_lists_old(self) -> bool:
        """Return whether the package lists of the sources of others are absent or old."""
        return self._system_lists().old()

    def update_all(self, notes: list[str]) -> None:
        """Fetch the package lists of all sources; a source of others that gives none becomes a note."""
        silent = self._system_lists().fetch()
        notes += [f"package source {source}: the node keeps the lists that it has" for source in silent]

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


def _as_wanted(package: Package | None, version: str) -> bool:
    return package is not None and package.whole and (not version or package.version == version)


def _specs(names: list[str], versions: dict[str, str]) -> list[str]:
    return [f"{name}={versions[name]}" if versions[name] else name for name in names]


def _replaced(wish: Wish, name: str, package: Package) -> bool:
    """Return whether the wish has another version of a package, or none of it."""
    return wish.packages.get(name, "") not in {"", package.version} or name in wish.absent


def _install_words(names: list[str], wish: Wish, seen: dict[str, Package]) -> list[str]:
    """Return what is told to apt; a lower version than one that could not be configured needs no consent."""
    options = ["--no-install-recommends", "--allow-change-held-packages"]
    lower = wish.allow_downgrade or any(name in seen and not seen[name].whole for name in names)
    return [*options, *(["--allow-downgrades"] if lower else []), *_specs(names, wish.packages)]
