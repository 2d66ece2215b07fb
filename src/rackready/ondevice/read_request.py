"""PCIe MaxReadReq of network cards: bits 14:12 of Device Control, read and written with setpci, kept by a unit.

Register: pciutils @0f5b941, lib/header.h (PCI_EXP_DEVCTL_READRQ); setpci writes under a mask, so that the other bits
stay. The same call: Mellanox/nic-configuration-operator, SetMaxReadRequestSize. The value does not outlive a boot.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .command import Done, NodeProblem, Run, run
from .difference import Difference, words
from .fence import FOLDER, fence
from .file_state import digest, state, text
from .lockdown import lockdown
from .whole_file import replace_file

UNIT = "rackready-nic-read-request.service"
UNIT_FILE = f"/etc/systemd/system/{UNIT}"
SIZES = (128, 256, 512, 1024, 2048, 4096)
"""Bytes by the number in the register."""
REGISTER = "CAP_EXP+8.w"
MASK = 0x7000
_WORD = re.compile(r"^[0-9a-f]{4}$")


@dataclass
class ReadRequest:
    """The cards of one node. ``root`` is the start of its file system (tests)."""

    run: Run = run
    root: Path = Path("/")
    folder: Path = FOLDER
    lock_wait_s: float = 600.0
    notes: list[str] = field(default_factory=list)

    def ensure(
        self, cards: Sequence[str], size: int, unit: str, token: int, ledger: str, *, check: bool = False
    ) -> list[Difference]:
        """Give the cards the size in bytes, now and at every boot; return what differed. Raises NodeProblem.

        ``size`` 0 removes the unit: the cards keep what they have until the next boot.
        """
        found = self.differences(cards, size, unit)
        if check or not found:
            return found
        self._refuse_locked(found)
        with fence("install", token, ledger, folder=self.folder, wait_s=self.lock_wait_s) as notes:
            found = self.differences(cards, size, unit)
            self._write(found, size, unit)
            self.notes += notes
        left = self.differences(cards, size, unit)
        if left:
            step = (
                "Run `lspci -vvv` on the node: a card or hypervisor may refuse the value. Choose another in site.yml."
            )
            raise NodeProblem(words(left, "expected"), words(left, "actual"), step)
        return found

    def differences(self, cards: Sequence[str], size: int, unit: str) -> list[Difference]:
        """Return what is not as wanted. Raises NodeProblem for a card that cannot be read."""
        place, wanted = self.root / UNIT_FILE.lstrip("/"), unit if size else None
        found: list[Difference] = []
        if text(place) != wanted:
            expected = f"{digest(unit.encode())}, mode 0644" if size else "absent"
            found.append(Difference("file", UNIT_FILE, expected, state(place)))
        elif size and self.run(["systemctl", "is-enabled", "--quiet", UNIT]).returncode != 0:
            found.append(Difference("unit", UNIT, "enabled", "disabled"))
        for pci in cards if size else ():
            actual = self.read(pci)
            if actual != size:
                found.append(Difference("nic", f"{pci} MaxReadReq", f"{size} bytes", f"{actual} bytes"))
        return found

    def read(self, pci: str) -> int:
        """Return a card's MaxReadReq in bytes. Raises NodeProblem if it has none: setpci ends with 0 without a card."""
        argv = ["setpci", "-s", pci, REGISTER]
        done = self.run(argv)
        lines = [line.strip() for line in done.out.splitlines()]
        number = (int(lines[0], 16) & MASK) >> 12 if lines and _WORD.match(lines[0]) else len(SIZES)
        if done.returncode != 0 or number >= len(SIZES):
            step = f"Run `{' '.join(argv)}` on the node; check `lspci` and the platform profile."
            raise NodeProblem(f"Device Control of {pci}, read by setpci", _first_line(done), step)
        return SIZES[number]

    def _refuse_locked(self, found: list[Difference]) -> None:
        """Refuse, before anything is written, registers that a locked kernel lets nobody write."""
        nics = [item for item in found if item.kind == "nic"]
        if nics and (mode := lockdown(self.root)):
            step = "Leave out software.nic_max_read_request, set the value in the BIOS, or turn Secure Boot off."
            actual = f"{words(nics, 'actual')}; a kernel in lockdown ({mode}) refuses setpci's writes"
            raise NodeProblem(words(nics, "expected"), actual, step)

    def _write(self, found: list[Difference], size: int, unit: str) -> None:
        place = self.root / UNIT_FILE.lstrip("/")
        if not size:
            self._do(["systemctl", "disable", UNIT])
            place.unlink(missing_ok=True)
            self._do(["systemctl", "daemon-reload"])
            return
        for pci in [item.name.split()[0] for item in found if item.kind == "nic"]:
            self._do(["setpci", "-s", pci, written(size)])
        place.parent.mkdir(parents=True, exist_ok=True)
        replace_file(place, unit)
        self._do(["systemctl", "daemon-reload"])
        self._do(["systemctl", "enable", UNIT])

    def _do(self, argv: list[str]) -> None:
        done = self.run(argv)
        if done.returncode != 0:
            step = f"Run `{' '.join(argv)}` on the node and read its output."
            raise NodeProblem(f"`{' '.join(argv)}` succeeds", _first_line(done), step)


def written(size: int) -> str:
    """Return setpci's words for a size: the number of the register's three bits, and their mask."""
    return f"{REGISTER}={SIZES.index(size):x}000:{MASK:x}"


def _first_line(done: Done) -> str:
    """Return exit code and first line: setpci's reason; its last line names the help."""
    first = next((line.strip() for line in done.out.splitlines() if line.strip()), "no output")
    return f"exit {done.returncode}: {first.rstrip('.')}"
