"""What the next boot uses: the boot loader's menu and the initial RAM file systems, made again only when they are old.

Paths and formats: Debian's grub2 2.06 (update-grub, grub-mkconfig, 10_linux) and initramfs-tools 0.142
(update-initramfs); Ubuntu's packages are built from the same sources.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from .command import NodeProblem, Run, run
from .fence import FOLDER, fence

OPERATION = "install"
"""The lock of package installation: the scripts of kernel packages write the same files."""
MENU = "boot/grub/grub.cfg"
UPDATE_MENU = "update-grub"
UPDATE_INITRAMFS = ("update-initramfs", "-u", "-k", "all")


@dataclass(frozen=True)
class Sources:
    """Files that go into the menu (with the options that it must have) and into the initramfs: absolute paths."""

    menu: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    initramfs: tuple[str, ...] = ()


@dataclass
class BootFiles:
    """Boot menu and initramfs of one node. ``root`` is the start of its file system (tests)."""

    run: Run = run
    root: Path = Path("/")
    folder: Path = FOLDER
    lock_wait_s: float = 600.0
    notes: list[str] = field(default_factory=list)

    def stale(self, sources: Sources) -> list[str]:
        """Return what must be made again, as its path with the reason."""
        found = []
        menu = self.root / MENU
        if not menu.exists():
            found += [f"/{MENU}: absent"] if sources.options else []
        elif missing := self._missing(sources.options):
            found.append(f"/{MENU}: without {' '.join(missing)}")
        elif self._older(menu, sources.menu):
            found.append(f"/{MENU}: older than {', '.join(self._older(menu, sources.menu))}")
        for image in self._images():
            if older := self._older(image, sources.initramfs):
                found.append(f"/{image.relative_to(self.root)}: older than {', '.join(older)}")
        return found

    def ensure(self, sources: Sources, token: int, ledger: str, *, check: bool = False) -> list[str]:
        """Make again what is stale, and return it. Raises NodeProblem when a program fails, or changes nothing."""
        found = self.stale(sources)
        if check or not found:
            return found
        with fence(OPERATION, token, ledger, folder=self.folder, wait_s=self.lock_wait_s) as notes:
            try:
                found = self.stale(sources)
                if any(line.startswith(f"/{MENU}:") for line in found):
                    self._do([UPDATE_MENU], sources)
                if any(not line.startswith(f"/{MENU}:") for line in found):
                    self._do(list(UPDATE_INITRAMFS), sources)
            finally:
                self.notes += notes
        if left := self.stale(sources):
            step = "Run `update-grub` and `update-initramfs -u -k all` on the node and read their output."
            raise NodeProblem("boot menu and initramfs newer than their settings", "; ".join(left), step)
        return found

    def _do(self, argv: list[str], sources: Sources) -> None:
        done = self.run(argv)
        if done.returncode == 0:
            return
        said = (done.out.strip().splitlines() or ["no output"])[-1]
        if argv == [UPDATE_MENU] and done.returncode == 127:  # noqa: PLR2004 - the shell's "not found"
            step = (
                f"Give {' '.join(sources.options)} to the node's own boot loader, "
                "and set base_kernel_options: [] for the node; then run again."
            )
            raise NodeProblem("GRUB as the node's boot loader (program update-grub)", said, step)
        raise NodeProblem(f"`{' '.join(argv)}` succeeds", f"exit {done.returncode}: {said}", "Run it on the node.")

    def _missing(self, options: tuple[str, ...]) -> list[str]:
        """Return the options that an entry of a kernel lacks.

        A recovery entry counts as well: 10_linux gives it GRUB_CMDLINE_LINUX. Memory tests are no kernel.
        """
        text = (self.root / MENU).read_text(encoding="utf-8", errors="replace")
        lines = [set(line.split()) for line in re.findall(r"^\s*linux(?:efi)?\s+(\S*/vmlinuz-.*)$", text, re.MULTILINE)]
        return [option for option in options if not lines or any(option not in words for words in lines)]

    def _images(self) -> list[Path]:
        """Return the initramfs of every kernel, without update-initramfs's copies of older ones."""
        return sorted(
            path
            for path in (self.root / "boot").glob("initrd.img-*")
            if path.suffix not in {".bak", ".dpkg-bak", ".new"}
        )

    def _older(self, made: Path, names: tuple[str, ...]) -> list[str]:
        when = made.stat().st_mtime_ns
        paths = [(name, self.root / name.lstrip("/")) for name in names]
        return [name for name, path in paths if path.exists() and path.stat().st_mtime_ns > when]
