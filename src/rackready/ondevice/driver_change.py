"""Replacing one driver version by another with a way back: a journal on the node, and the rollback.

The journal is written before the first change. It keeps what ran before: module, packages, holds, pins, module
stream and services. It is removed when the new driver answers, or when the old one does again. A run that finds a
journal goes on with the change, or completes a rollback that was interrupted.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .command import NodeProblem
from .disk import Disks
from .driver import OPERATION, Driver
from .fence import FOLDER, fence
from .packages import Manager, Snapshot, Wish
from .whole_file import replace_file

JOURNAL = "driver-change.json"
PATTERNS = (
    "nvidia-*",
    "libnvidia-*",
    "libnvsdm*",
    "libcuda1",
    "cuda-drivers*",
    "firmware-nvidia-*",
    "kmod-nvidia*",
    "dnf-plugin-nvidia",
    "linux-modules-nvidia-*",
    "linux-objects-nvidia-*",
    "linux-signatures-nvidia-*",
)
"""Names of the packages that a driver consists of or that are of its version, on every system."""
MODULES = ("nvidia-driver",)
"""Modules of dnf that offer the driver as streams."""
_REPLACED = "but the module on disk is another one already"
_BOOT_MB = 100
"""Room for a new initramfs; role base asks for more before it changes kernels."""
_MB = 1_000_000
_PROBLEM = re.compile(r"Expected: (?P<expected>.*?) Actual: (?P<actual>.*)", re.DOTALL)


@dataclass
class Journal:
    """What ran before a change of the driver. ``files``: path to content, null where there was no file."""

    before: str
    wanted: str
    snapshot: Snapshot
    services: list[str]
    files: dict[str, str | None]
    failure: str = ""
    """The reason for the rollback; empty until one begins."""


@dataclass
class DriverChange:
    """A change of the driver on one node. ``notes``: findings about other runs, in words."""

    manager: Manager
    driver: Driver
    folder: Path = FOLDER
    notes: list[str] = field(default_factory=list)

    def begin(self, version: str, wish: Wish, files: list[str], token: int, ledger: str) -> bool:
        """Write the journal if this run replaces a driver; return whether a change is open.

        An interrupted change to the same version goes on. One to another version is undone first, and so is an
        interrupted rollback, which then fails with its reason. Raises NodeProblem before the first change if the
        driver is in use or held by a pod, a package is held by others or would go to a lower version, or /boot is full.
        """
        self.driver.refuse_if_held(version)
        if self.journal() is None and not self.manager.differences(wish) and self.driver.loaded() in {"", version}:
            return False
        with self._fence(token, ledger):
            found = self._begin(version, wish, files)
        if isinstance(found, NodeProblem):
            raise found
        return found

    def preview(self, version: str) -> bool:
        """Raise NodeProblem if the driver is in use; return whether a change is open. Changes nothing."""
        self.driver.refuse_if_used(version)
        return self.journal() is not None

    def end(self, token: int, ledger: str) -> None:
        """Start the services that ran before, and forget the way back: the new driver answers.

        Packages restart services while the old module is still loaded, which fails. A service that needs a package of
        the new version, such as the fabric manager, starts with its own role.
        """
        with self._fence(token, ledger):
            change = self.journal()
            stopped = self.driver.start(change.services) if change else []
            if stopped:
                self.notes.append(f"{', '.join(stopped)} not running with the new driver yet: their roles follow")
            (self.folder / JOURNAL).unlink(missing_ok=True)

    def undo(self, version: str, failure: str, token: int, ledger: str) -> NodeProblem:
        """Bring back the driver that ran before; return the problem to report, which names the node's state."""
        with self._fence(token, ledger):
            change = self.journal()
            if change is None:
                return self._no_way_back(version, failure)
            change.failure = failure
            self._write(change)
            return self._undo(change)

    def journal(self) -> Journal | None:
        """Return the change that is open on this node."""
        try:
            found: dict[str, Any] = json.loads((self.folder / JOURNAL).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError as error:
            step = f"Remove {self.folder / JOURNAL} on the node, then run again: nothing can be rolled back."
            raise NodeProblem(f"a journal in {self.folder / JOURNAL}", f"unreadable: {error}", step) from error
        return Journal(**{**found, "snapshot": Snapshot(**found["snapshot"])})

    def _begin(self, version: str, wish: Wish, files: list[str]) -> bool | NodeProblem:
        """Return whether a change is open, or the problem: a refusal is an orderly end of what the fence guards."""
        try:
            change = self.journal()
            if change and change.failure:
                self.notes.append(f"an interrupted rollback to driver {change.before} is completed")
                return self._undo(change)
            if change and change.wanted == version:
                self.notes.append(f"an interrupted change from driver {change.before} to {version} continues")
                return True
            if change:
                words = f"from driver {change.before} to {change.wanted}"
                self._restore(change)
                self.notes.append(f"an interrupted change {words} was undone")
            return self._begin_new(version, wish, files)
        except NodeProblem as problem:
            return problem

    def _begin_new(self, version: str, wish: Wish, files: list[str]) -> bool:
        self.manager.refuse_downgrades(wish)
        self.manager.refuse_holds(wish)
        self._refuse_full_boot(wish)
        loaded = self.driver.loaded()
        if not loaded or loaded == version:
            return False
        if self.driver.on_disk() != loaded:
            self.notes.append(f"driver {loaded} is loaded, {_REPLACED}: a failure cannot be rolled back")
            return False
        snapshot = self.manager.snapshot(PATTERNS, MODULES)
        saved = {path: _text(self.driver.root / path.lstrip("/")) for path in files}
        self._write(Journal(loaded, version, snapshot, self.driver.active(), saved))
        return True

    def _refuse_full_boot(self, wish: Wish) -> None:
        """Refuse if packages would change while /boot is full: their triggers write an initramfs."""
        boot = self.driver.root / "boot"
        if not boot.is_dir() or not self.manager.differences(wish):
            return
        room = Disks(self.driver.root).room(boot)
        if room.free // _MB < _BOOT_MB:
            step = "Remove kernels that do not run from the node, then run again. No package was changed."
            raise NodeProblem(f"at least {_BOOT_MB} MB free in /boot", f"{room.free // _MB} MB free", step)

    def _undo(self, change: Journal) -> NodeProblem:
        """Restore, and return the problem that says what the node has now."""
        wanted, failed = f"driver {change.wanted}", _plain(change.failure)
        try:
            changed = self._restore(change)
        except NodeProblem as problem:
            has = f"loaded: {self.driver.loaded() or 'no driver'}, on disk: {self.driver.on_disk() or 'no module'}"
            return NodeProblem(
                wanted,
                f"the rollback to driver {change.before} failed as well: {has}. {change.wanted} failed: {failed}",
                f"The rollback failed: {_plain(str(problem))} The next run tries the rollback again first.",
            )
        again = "" if failed.endswith("again.") else " Correct that, then run again."
        actual = (
            f"rolled back to driver {change.before}, which is loaded; its packages, holds and services are as before"
            if changed
            else f"driver {change.before} is loaded as before; no package was changed"
        )
        if lost := self.driver.left_unloaded():
            actual = f"{actual}. Kernel modules that were loaded with it and do not load now: {', '.join(lost)}"
        return NodeProblem(wanted, actual, f"{change.wanted} failed: {failed}{again}")

    def _restore(self, change: Journal) -> bool:
        """Bring back files, packages, module and services; return whether a package or the module differed."""
        for path, text in change.files.items():
            _put(self.driver.root / path.lstrip("/"), text)
        changed = self.manager.restore(change.snapshot, PATTERNS, self.notes)
        changed = self.driver.bring(change.before, self.notes) or changed
        answers = self.driver.answers()
        if answers != {change.before}:
            actual = f"driver {', '.join(sorted(answers)) or 'none'}"
            raise NodeProblem(f"nvidia-smi answers with driver {change.before}", actual, "Check `dmesg` on the node.")
        stopped = self.driver.start(change.services)
        if stopped:
            step = f"Check `journalctl -u {stopped[0]}` on the node."
            raise NodeProblem(f"{', '.join(change.services)} run again", f"{', '.join(stopped)} stopped", step)
        (self.folder / JOURNAL).unlink(missing_ok=True)
        return changed

    def _no_way_back(self, version: str, failure: str) -> NodeProblem:
        loaded = self.driver.loaded()
        if not loaded:
            actual = (
                "no driver is loaded and none ran before: there is nothing to roll back to, packages stay as they are"
            )
        elif loaded == version:
            actual = f"driver {loaded} is loaded; this run was not replacing it, so nothing was rolled back"
        else:
            actual = f"driver {loaded} is loaded, {_REPLACED}: nothing was rolled back"
        failed = _plain(failure)
        again = "" if failed.endswith("again.") else " Correct that, then run again."
        return NodeProblem(f"driver {version}", actual, f"What failed: {failed}{again}")

    def _write(self, journal: Journal) -> None:
        replace_file(self.folder / JOURNAL, json.dumps(asdict(journal)))

    def _fence(self, token: int, ledger: str) -> Any:  # noqa: ANN401 - a context manager
        return fence(OPERATION, token, ledger, folder=self.folder, wait_s=self.driver.lock_wait_s)


def _plain(text: str) -> str:
    """Return a problem in words that can be part of another one."""
    text = " ".join(text.split())
    match = _PROBLEM.fullmatch(text)
    text = f"wanted {match['expected']}, found {match['actual']}" if match else text
    return text if text.endswith(".") else f"{text}."


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def _put(path: Path, text: str | None) -> None:
    """Write a file as a whole, or remove it."""
    if text is None:
        path.unlink(missing_ok=True)
    elif _text(path) != text:
        replace_file(path, text)
