"""Timers that upgrade packages or ask the Internet: off, and those that rackready turned off on again on request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .command import NodeProblem, Run, run
from .difference import Difference
from .fence import FOLDER
from .whole_file import replace_file

_UNITS = "usr/lib/systemd/system"
_RECORD = "upgrade-timers"
"""Timers that were enabled before rackready turned them off."""


@dataclass
class UpgradeTimers:
    """Timers of one node. ``root`` is the start of its file system (tests)."""

    run: Run = run
    root: Path = Path("/")
    folder: Path = FOLDER

    def ensure(self, timers: Sequence[str], *, off: bool, check: bool = False) -> list[Difference]:
        """Turn the timers off, or on again those that were on; return what differed. Raises NodeProblem.

        Timers that are not installed do not count.
        """
        there = [name for name in timers if (self.root / _UNITS / name).exists()]
        if off:
            return self._off(there, check=check)
        found = [name for name in there if name in self._record() and not self._is("enabled", name)]
        if not check:
            for name in found:
                self._do("enable", "--now", name)
            self._write([])
        return [Difference("unit", name, "enabled", "disabled") for name in found]

    def _off(self, there: Sequence[str], *, check: bool) -> list[Difference]:
        enabled = [name for name in there if self._is("enabled", name)]
        found = [name for name in there if name in enabled or self._is("active", name)]
        if found and not check:
            self._write(sorted({*self._record(), *enabled}))  # before the change: a killed run must know what was on
            for name in found:
                self._do("disable", "--now", name)
        was = [Difference("unit", name, "disabled", "enabled" if name in enabled else "active") for name in found]
        return was + self._forget_failures(there, check=check)

    def _forget_failures(self, there: Sequence[str], *, check: bool) -> list[Difference]:
        """Reset the services of timers that are off: nothing would run them again, so they would stay failed."""
        failed = [service for service in map(_service, there) if self._is("failed", service)]
        for service in () if check else failed:
            self._do("reset-failed", service)
        return [Difference("unit", service, "not failed", "failed") for service in failed]

    def _is(self, state: str, name: str) -> bool:
        return self.run(["systemctl", f"is-{state}", "--quiet", name]).returncode == 0

    def _do(self, *words: str) -> None:
        argv, name = ["systemctl", *words], words[-1]
        done = self.run(argv)
        if done.returncode != 0:
            said = (done.out.strip().splitlines() or ["no output"])[-1]
            step = f"Run `systemctl status {name}` on the node: it shows why."
            raise NodeProblem(f"`{' '.join(argv)}` succeeds", f"exit {done.returncode}: {said}", step)

    def _record(self) -> list[str]:
        place = self.folder / _RECORD
        return place.read_text(encoding="utf-8").split() if place.exists() else []

    def _write(self, names: Sequence[str]) -> None:
        if list(names) != self._record():
            self.folder.mkdir(parents=True, exist_ok=True)
            replace_file(self.folder / _RECORD, "".join(f"{name}\n" for name in names))


def _service(timer: str) -> str:
    """Return what a timer starts (systemd.timer(5), Unit=: the service of its name)."""
    return timer.removesuffix(".timer") + ".service"
