"""Wanted packages, and what the package managers of all systems have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from .command import NodeProblem, Run, run
from .fence import FOLDER, fence
from .whole_file import replace_file

_ALL = ("*",)
"""Pattern of all packages."""
_HOLDS = "holds"
_DNF = "usr/bin/dnf"
_OS_RELEASE = "etc/os-release"


@dataclass
class Wish:
    """The wanted packages: name to exact version (empty: any version), names to hold, names that must be absent."""

    packages: dict[str, str]
    hold: bool = False
    absent: list[str] = field(default_factory=list)
    refresh: bool = False
    """Fetch the package lists first, even if they have the versions."""
    system_lists: bool = False
    """Fetch the package lists of all sources first if those of the operating system are absent or old."""
    streams: list[str] = field(default_factory=list)
    """Module streams of dnf to enable, as ``name:stream``."""
    allow_downgrade: bool = False
    """Replace an installed version with a lower one."""
    may_remove: list[str] = field(default_factory=list)
    """Patterns of packages on rackready's hold that the change may remove, such as the driver of another branch."""
    rollback: bool = True
    """Bring back the packages that were there before if the change fails."""


@dataclass
class Change:
    """Changes that were made, or in check mode would be: package to (before, after)."""

    changed: dict[str, tuple[str, str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    refreshed: bool = False
    """Whether the package lists of all sources were fetched because those of the system were absent or old."""

    def result(self) -> dict[str, Any]:
        """Return what a module reports: packages from and to, drift items, notes and a diff."""
        rows = [(name, before or "absent", after or "absent") for name, (before, after) in sorted(self.changed.items())]
        return {
            "changed": bool(rows),
            "packages": self.changed,
            "refreshed": self.refreshed,
            "differs": [f"{name} {before}, wanted {after}" for name, before, after in rows],
            "drift": [
                {"kind": "package", "name": name, "expected": after, "actual": before} for name, before, after in rows
            ],
            "notes": self.notes,
            "diff": {
                "before": "".join(f"{name} {before}\n" for name, before, _ in rows),
                "after": "".join(f"{name} {after}\n" for name, _, after in rows),
            },
        }


@dataclass
class Snapshot:
    """Packages as they were before a change, to go back to: name to version, and everything that keeps them there.

    ``held``: with apt the names on hold, with dnf the entries of the list of version locks. ``own``: names that
    rackready holds. ``streams``: enabled module streams of dnf.
    """

    packages: dict[str, str] = field(default_factory=dict)
    held: list[str] = field(default_factory=list)
    own: list[str] = field(default_factory=list)
    streams: dict[str, str] = field(default_factory=dict)


@dataclass
class Manager(ABC):
    """A package manager of one node. ``root`` is the start of the node's file system (tests)."""

    run: Run = run
    root: Path = Path("/")
    folder: Path = FOLDER
    lock_wait_s: float = 600.0

    log: ClassVar[str]
    """The log to read after a command that ended well and changed nothing."""

    def ensure(self, wish: Wish, operation: str, token: int, ledger: str, *, check: bool = False) -> Change:
        """Bring the packages to the wanted state. Raises NodeProblem with the obstacle."""
        found = self.differences(wish)
        all_lists = wish.system_lists and self.system_lists_old()
        if check or not (found or wish.refresh or all_lists or self.interrupted(wish)):
            return Change(found, self._refusals(wish) if found else [])
        with fence(operation, token, ledger, folder=self.folder, wait_s=self.lock_wait_s) as notes:
            self.settle(wish, notes)
            self.refuse_downgrades(wish)
            if wish.refresh:
                self.update()
            if all_lists:
                self.update_all(notes)
            found = self.differences(wish)
            failure = self._try(wish, found, notes)
            left = {} if failure else self.differences(wish)
        if failure:
            raise failure
        if left:
            wanted, seen = (
                _list({name: pair[1] for name, pair in left.items()}),
                _list({name: pair[0] for name, pair in left.items()}),
            )
            raise NodeProblem(wanted, seen, f"See the end of {self.log} on the node.")
        return Change(found, notes + self.remarks(), refreshed=all_lists)

    def _try(self, wish: Wish, found: dict[str, tuple[str, str]], notes: list[str]) -> NodeProblem | None:
        """Make the changes, or bring back what was there before; return the problem then.

        A change that was undone is an orderly end of what the fence guards. Raises NodeProblem if it was not undone.
        """
        if not (found and wish.rollback):
            self.change(wish, found)
            return None
        before = self.snapshot(_ALL, (stream.partition(":")[0] for stream in wish.streams))
        try:
            self.change(wish, found)
        except NodeProblem as problem:
            return self._back(problem, before, notes)
        return None

    def _back(self, problem: NodeProblem, before: Snapshot, notes: list[str]) -> NodeProblem:
        """Bring back what was there before; return the problem to report, which says what the node has now."""
        expected, actual, step = (problem.check[word] for word in ("expected", "actual", "next_step"))
        try:
            changed = self.restore(before, _ALL, notes)
        except NodeProblem as second:
            what = f"wanted {second.check['expected']}, found {second.check['actual']}"
            actual = f"{actual}; the rollback failed as well: {what}"
            raise NodeProblem(expected, actual, f"{step} For the rollback: {second.check['next_step']}") from problem
        if changed:
            actual = f"{actual}; rolled back: packages and holds are as before"
        return NodeProblem(expected, actual, step)

    def remarks(self) -> list[str]:
        """Return what a package manager did besides the changes, for the notes."""
        return []

    @abstractmethod
    def differences(self, wish: Wish) -> dict[str, tuple[str, str]]:
        """Return package to (actual, wanted) for everything that is not as wanted."""

    @abstractmethod
    def lower(self, wish: Wish) -> dict[str, tuple[str, str]]:
        """Return package to (installed, wanted) where the wanted version is lower."""

    @abstractmethod
    def interrupted(self, wish: Wish) -> bool:
        """Return whether the package manager was interrupted and must complete something."""

    @abstractmethod
    def settle(self, wish: Wish, notes: list[str]) -> None:
        """Wait until the locks are free, then complete what was interrupted; report both in ``notes``."""

    @abstractmethod
    def update(self) -> None:
        """Fetch the package lists of rackready's own source only. Raises NodeProblem, also for a bad signature."""

    def system_lists_old(self) -> bool:
        """Return whether the lists of the system's sources are absent or old, and nothing renews them.

        dnf fetches metadata that is absent or expired by itself, from every enabled repository, whenever it installs.
        """
        return False

    def update_all(self, notes: list[str]) -> None:
        """Fetch the package lists of all sources. Raises NodeProblem for rackready's; ``notes`` has the others."""
        raise NotImplementedError

    @abstractmethod
    def change(self, wish: Wish, found: dict[str, tuple[str, str]]) -> None:
        """Make the changes. Raises NodeProblem with the obstacle."""

    @abstractmethod
    def refuse_holds(self, wish: Wish) -> None:
        """Raise NodeProblem if a package that would change is held by somebody else."""

    @abstractmethod
    def snapshot(self, patterns: Iterable[str], modules: Iterable[str]) -> Snapshot:
        """Return the installed packages whose names match, their holds, and the streams of dnf's ``modules``."""

    @abstractmethod
    def restore(self, before: Snapshot, patterns: Iterable[str], notes: list[str]) -> bool:
        """Bring packages, holds and streams back; return whether a package differed. Needs no consent to a downgrade.

        The caller holds the fence. Raises NodeProblem with the obstacle.
        """

    def _refusals(self, wish: Wish) -> list[str]:
        """Return a note of what a run would refuse: a dry run still reports every difference."""
        try:
            self.refuse_downgrades(wish)
        except NodeProblem as problem:
            return [f"a run would refuse: {problem}"]
        return []

    def refuse_downgrades(self, wish: Wish) -> None:
        """Raise NodeProblem if a package would go to a lower version without consent."""
        lower = {} if wish.allow_downgrade else self.lower(wish)
        if not lower:
            return
        wanted = _list({name: f"{pair[0]} or newer" for name, pair in lower.items()})
        actual = _list({name: f"{pair[1]} wanted" for name, pair in lower.items()})
        step = "Choose a newer version set (software.set), or set software.allow_downgrade: true; then run again."
        raise NodeProblem(wanted, actual, f"{step} No package was changed.")

    def own_holds(self) -> set[str]:
        """Return the packages that rackready has put on hold."""
        try:
            return set((self.folder / _HOLDS).read_text(encoding="utf-8").split())
        except FileNotFoundError:
            return set()

    def remember_holds(self, names: Iterable[str]) -> None:
        """Add packages to those that rackready has put on hold."""
        self.set_own_holds(self.own_holds() | set(names))

    def set_own_holds(self, names: Collection[str]) -> None:
        """Record the packages that rackready has put on hold; a full disk stops no rollback that changes no hold."""
        if set(names) == self.own_holds():
            return
        replace_file(self.folder / _HOLDS, "\n".join(sorted(names)) + "\n")


def family(root: Path = Path("/")) -> str:
    """Return ``dnf`` or ``apt``: dnf where it is installed, except on Debian and what derives from it.

    A Debian node may have dnf as a tool for other systems' packages.
    """
    if not (root / _DNF).exists():
        return "apt"
    try:
        rows = (root / _OS_RELEASE).read_text(encoding="utf-8").splitlines()
    except OSError:
        return "dnf"
    words = [
        word.strip("\"'") for row in rows if row.startswith(("ID=", "ID_LIKE=")) for word in row.split("=")[1].split()
    ]
    return "apt" if "debian" in words else "dnf"


def _list(items: dict[str, str]) -> str:
    return ", ".join(f"{name} {what}" for name, what in sorted(items.items()))
