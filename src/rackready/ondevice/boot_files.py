"""What the next boot uses: the boot loader's menu and the initial RAM file systems, made again only when they are old.

Paths and formats: Debian's grub2 2.06 (update-grub, grub-mkconfig, 10_linux) and initramfs-tools 0.142
(update-initramfs); Ubuntu's packages are built from the same sources.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from .command import NodeProblem, Run, run
from .fence import FOLDER, fence
from .reboot_reasons import lacking

OPERATION = "install"
"""The lock of package installation: the scripts of kernel packages write the same files."""
MENU = "boot/grub/grub.cfg"
UPDATE_MENU = "update-grub"
_IMAGE = "initrd.img-"
_STATES = "var/lib/initramfs-tools"
"""Folder in which Ubuntu's update-initramfs has a file for each kernel with an initramfs, below the root."""
LOADERS = (UPDATE_MENU, "grubby")
"""Programs that come with GRUB, of all systems."""


@dataclass(frozen=True)
class Sources:
    """Files that go into the menu and into the initramfs: absolute paths."""

    menu: tuple[str, ...] = ()
    options: tuple[str, ...] | None = None
    """Kernel options that the menu must have; None if the caller is about the initramfs only."""
    initramfs: tuple[str, ...] = ()


@dataclass
class BootFiles:
    """Boot menu and initramfs of one node that has apt. ``root`` is the start of its file system (tests)."""

    run: Run = run
    root: Path = Path("/")
    folder: Path = FOLDER
    lock_wait_s: float = 600.0
    notes: list[str] = field(default_factory=list)

    menu: ClassVar[str] = MENU
    """Place of the menu, below the root: differences of the menu begin with it."""
    update_initramfs: ClassVar[tuple[str, ...]] = ("update-initramfs", "-u", "-k", "all")
    look: ClassVar[str] = "Run `update-grub` and `update-initramfs -u -k all` on the node and read their output."

    def stale(self, sources: Sources) -> list[str]:
        """Return what must be made again, as its path with the reason."""
        found = [f"/{self.menu}: {why}" for why in self.stale_menu(sources)]
        images = [(image.relative_to(self.root), self.stale_image(image, sources)) for image in self.images()]
        return found + [f"/{image}: {why}" for image, why in images if why]

    def stale_image(self, image: Path, sources: Sources) -> str:
        """Return why an initramfs must be made again; empty if it need not be."""
        older = self._older(image, sources.initramfs)
        return f"older than {', '.join(older)}" if older else ""

    def stale_menu(self, sources: Sources) -> list[str]:
        """Return why the menu must be made again."""
        menu = self.root / MENU
        if not menu.exists():
            return ["absent"] if sources.options else []
        if missing := self._missing(sources.options or ()):
            return [f"without {' '.join(missing)}"]
        older = self._older(menu, sources.menu)
        return [f"older than {', '.join(older)}"] if older else []

    def make_menu(self, sources: Sources) -> None:
        """Make the menu again. Raises NodeProblem."""
        self.do([UPDATE_MENU], sources)

    def make_images(self, sources: Sources) -> None:
        """Make all initramfs again. Raises NodeProblem."""
        self.do(list(self.update_initramfs), sources)

    def images(self) -> list[Path]:
        """Return the initramfs of every kernel that is there: update-initramfs makes no other one again.

        Debian's asks `linux-version list` for the kernels in /boot, Ubuntu's reads its own list. Copies that it
        (.bak), dkms 2.8 (.old-dkms) or a person made, and images of kernels that are gone, stay as they are.
        """
        images = (self.root / "boot").glob(f"{_IMAGE}*")
        return sorted(path for path in images if self._has_kernel(path.name.removeprefix(_IMAGE)))

    def ensure(self, sources: Sources, token: int, ledger: str, *, check: bool = False) -> list[str]:
        """Make again what is stale, and return it. Raises NodeProblem when a program fails, or changes nothing."""
        found = self.stale(sources)
        if check or not found:
            return found
        with fence(OPERATION, token, ledger, folder=self.folder, wait_s=self.lock_wait_s) as notes:
            try:
                found = self.stale(sources)
                if any(line.startswith(f"/{self.menu}:") for line in found):
                    self.make_menu(sources)
                if any(not line.startswith(f"/{self.menu}:") for line in found):
                    self.make_images(sources)
            finally:
                self.notes += notes
        if left := self.stale(sources):
            raise NodeProblem("boot menu and initramfs newer than their settings", "; ".join(left), self.look)
        return found

    def do(self, argv: list[str], sources: Sources) -> str:
        """Run a program of the boot loader or the initramfs, and return its output. Raises NodeProblem."""
        done = self.run(argv)
        if done.returncode == 0:
            return done.out
        said = (done.out.strip().splitlines() or ["no output"])[-1]
        if argv[0] in LOADERS and done.returncode == 127:  # noqa: PLR2004 - the shell's "not found"
            step = (
                f"Give {' '.join(sources.options or ())} to the node's own boot loader, "
                "and set base_kernel_options: [] for the node; then run again."
            )
            raise NodeProblem(f"GRUB as the node's boot loader (program {argv[0]})", said, step)
        raise NodeProblem(f"`{' '.join(argv)}` succeeds", f"exit {done.returncode}: {said}", "Run it on the node.")

    def _has_kernel(self, release: str) -> bool:
        return (self.root / f"boot/vmlinuz-{release}").exists() or (self.root / _STATES / release).exists()

    def _missing(self, options: tuple[str, ...]) -> list[str]:
        """Return the options that an entry of a kernel lacks, or takes back with a later word.

        A recovery entry counts as well: 10_linux gives it GRUB_CMDLINE_LINUX. Memory tests are no kernel.
        """
        text = (self.root / MENU).read_text(encoding="utf-8", errors="replace")
        lines = re.findall(r"^\s*linux(?:efi)?\s+(\S*/vmlinuz-.*)$", text, re.MULTILINE) or [""]
        found = {option: same for line in lines for option, same in lacking(line.split(), list(options))}
        return [
            f"{option} as the last of {', '.join(same)}" if option in same else option for option, same in found.items()
        ]

    def _older(self, made: Path, names: tuple[str, ...]) -> list[str]:
        when = made.stat().st_mtime_ns
        paths = [(name, self.root / name.lstrip("/")) for name in names]
        return [name for name, path in paths if path.exists() and path.stat().st_mtime_ns > when]
