"""Settings of the host that a boot forgets: in force now, and set again by one unit at every boot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from . import cpu_governor, huge_pages, pcie_acs
from .command import NodeProblem, Run, run
from .difference import Difference, words
from .fence import FOLDER, fence
from .file_state import digest, state, text
from .whole_file import replace_file

UNIT = "rackready-host-tuning.service"
UNIT_FILE = f"/etc/systemd/system/{UNIT}"
_STEPS = {
    "file": f"Find out on the node what changes {UNIT_FILE}.",
    "unit": f"Run `systemctl status {UNIT}` on the node.",
    "kernel": (
        "If huge pages are missing, memory is fragmented: reserve them with hugepagesz= and hugepages= in "
        "base_kernel_options and let the node reboot. If the governor was set back, find out by what (tuned)."
    ),
    "part": "The kernel refuses the write, as with Secure Boot: turn ACS off in the BIOS.",
}
"""Kind of what is still not as wanted to the next step."""


@dataclass(frozen=True)
class Wish:
    """Wanted settings; what is empty stays as it is. ``unit``: text of the unit that sets them at boot."""

    unit: str = ""
    governor: str = ""
    huge_pages: Mapping[str, int] = field(default_factory=dict)
    """Page size, such as 2M, to the number of pages."""
    acs_off: Sequence[str] = ()
    """PCI addresses of switch ports without access control; others that rackready changed get their value back."""


@dataclass
class HostTuning:
    """Settings of one node. ``root`` is the start of its file system (tests)."""

    run: Run = run
    root: Path = Path("/")
    folder: Path = FOLDER
    lock_wait_s: float = 600.0
    notes: list[str] = field(default_factory=list)

    def ensure(self, wish: Wish, token: int, ledger: str, *, check: bool = False) -> list[Difference]:
        """Bring the settings into force and keep them over a boot; return what differed. Raises NodeProblem.

        Governor and huge pages that are no longer wanted leave the unit, and stay in force until the next boot.
        """
        wish = self._possible(wish)
        found = self.differences(wish)
        huge_pages.refuse_too_many(self.root, wish.huge_pages)
        if check or not found:
            return found
        with fence("install", token, ledger, folder=self.folder, wait_s=self.lock_wait_s) as notes:
            found = self.differences(wish)
            huge_pages.refuse_too_many(self.root, wish.huge_pages)  # waiting for the lock takes time
            self._write(found, wish)
            self.notes += notes
        left = self.differences(wish)
        if left:
            step = " ".join(text for kind, text in _STEPS.items() if any(item.kind == kind for item in left))
            raise NodeProblem(words(left, "expected"), words(left, "actual"), step)
        return found

    def differences(self, wish: Wish) -> list[Difference]:
        """Return what is not as wanted: the unit, and the settings. Raises NodeProblem for what cannot be had."""
        place, wanted = self.root / UNIT_FILE.lstrip("/"), wish.unit or None
        found: list[Difference] = []
        if text(place) != wanted:
            expected = f"{digest(wish.unit.encode())}, mode 0644" if wanted else "absent"
            found.append(Difference("file", UNIT_FILE, expected, state(place)))
        elif wanted and self.run(["systemctl", "is-enabled", "--quiet", UNIT]).returncode != 0:
            found.append(Difference("unit", UNIT, "enabled", "disabled"))
        found += cpu_governor.differences(self.root, wish.governor) if wish.governor else []
        found += huge_pages.differences(self.root, wish.huge_pages)
        return found + pcie_acs.differences(self.root, self.folder, wish.acs_off)

    def _possible(self, wish: Wish) -> Wish:
        """Return the wish without a governor, and without a unit for it alone, where the kernel has no policy."""
        if not wish.governor or cpu_governor.policies(self.root):
            return wish
        self.notes.append(cpu_governor.NO_POLICY)
        return replace(wish, governor="", unit=wish.unit if wish.huge_pages or wish.acs_off else "")

    def _write(self, found: Sequence[Difference], wish: Wish) -> None:
        if wish.governor:
            cpu_governor.write(self.root, wish.governor)
        huge_pages.write(self.root, wish.huge_pages)
        pcie_acs.write(found, self.folder, wish.acs_off, self.run)
        if any(item.kind in {"file", "unit"} for item in found):
            self._keep(wish.unit)

    def _keep(self, unit: str) -> None:
        place = self.root / UNIT_FILE.lstrip("/")
        if not unit:
            self._do(["systemctl", "disable", UNIT])
            place.unlink(missing_ok=True)
            self._do(["systemctl", "daemon-reload"])
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        replace_file(place, unit)
        self._do(["systemctl", "daemon-reload"])
        self._do(["systemctl", "enable", UNIT])

    def _do(self, argv: list[str]) -> None:
        done = self.run(argv)
        if done.returncode != 0:
            said = next((line.strip() for line in done.out.splitlines() if line.strip()), "no output")
            step = f"Run `{' '.join(argv)}` on the node and read its output."
            raise NodeProblem(f"`{' '.join(argv)}` succeeds", f"exit {done.returncode}: {said}", step)
