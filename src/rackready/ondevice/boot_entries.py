"""Boot entries and the initramfs of the RHEL family: what the next boot uses, changed by grubby and dracut.

GRUB reads one file per kernel below /boot/loader/entries (BootLoaderSpec). Forms and effects: grubby 8.40-63 of EL 9
(program grubby-bls: --info, --update-kernel, update_args) and dracut 057 (dracut.sh: --regenerate-all, and cp of the
new image over the old one at the end).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from .boot_files import BootFiles, Sources
from .command import NodeProblem
from .whole_file import replace_file

_OWN = "kernel-options"
"""Record of the options that rackready gave to the entries: only those are taken back."""
_REPLACED = "kernel-options-replaced"
"""Words of all entries that grubby replaced by ours: they come back when no option of their name is wanted."""
_UNFINISHED = "initramfs-unfinished"
"""Mark of a dracut that has not succeeded: it copies over the old image, so a killed one leaves half of a new image."""
_ARGS = re.compile(r'^args="(.*)"$', re.MULTILINE)
_NOT_FOUND = 127


@dataclass
class BootEntries(BootFiles):
    """Boot entries and initramfs of one node that has grubby and dracut."""

    menu: ClassVar[str] = "boot/loader/entries"
    update_initramfs: ClassVar[tuple[str, ...]] = ("dracut", "--force", "--regenerate-all")
    look: ClassVar[str] = (
        "Run `grubby --info=ALL` and `dracut --force --regenerate-all` on the node and read their output."
    )

    def stale_menu(self, sources: Sources) -> list[str]:
        """Return which options entries lack, and which they still have though they were taken back."""
        if not sources.options and (sources.options is None or not (self._own() or self._words(_REPLACED))):
            return []
        entries = self._entries()
        if not entries:
            return ["no entry of a kernel"] if sources.options else []
        missing = [option for option in self._wanted(sources) if any(option not in words for words in entries)]
        back = [option for option in self._taken_back(sources) if any(option in words for words in entries)]
        found = [f"without {' '.join(missing)}"] if missing else []
        return found + ([f"with {' '.join(back)}, which was taken back"] if back else [])

    def make_menu(self, sources: Sources) -> None:
        """Give all entries the options, in their order and in one call, and take back those that are not wanted.

        ``--args`` first removes every word with the name of an option that it adds: with one call per option, the
        second hugepagesz= would remove the first. With ALL, grubby also writes /etc/kernel/cmdline and
        GRUB_CMDLINE_LINUX, from which the entry of the next kernel is made.
        """
        entries, back, wanted = self._entries(), self._taken_back(sources), self._wanted(sources)
        had = [option for option in wanted if entries and all(option in words for words in entries)]
        argv = ["grubby", "--update-kernel=ALL"]
        argv += [f"--remove-args={' '.join(back)}"] if back else []
        argv += [f"--args={' '.join(wanted)}"] if len(had) < len(wanted) else []
        # Recorded before the change: an interrupted run must know what it gave and what it replaced.
        ours = self._own() - set(back) | (set(sources.options or ()) - set(had))
        replaced = self._words(_REPLACED)
        if len(had) < len(wanted):
            replaced += [word for word in self._replaced(entries, wanted) if word not in replaced]
        self._record(_OWN, sorted(ours | set(back)))
        self._record(_REPLACED, replaced)
        self.do(argv, sources)
        self._record(_OWN, sorted(ours))
        self._record(_REPLACED, [word for word in replaced if word not in wanted])

    def images(self) -> list[Path]:
        """Return the initramfs of each kernel that dracut makes again, those that are absent as well.

        Rescue and kdump images have no such folder. dracut removes an image that it could not copy.
        """
        releases = (path.parent.name for path in (self.root / "lib/modules").glob("*/modules.dep"))
        boot = self.root / "boot"
        pairs = [(boot / f"vmlinuz-{name}", boot / f"initramfs-{name}.img") for name in sorted(releases)]
        return [image for kernel, image in pairs if kernel.exists() or image.exists()]

    def stale_image(self, image: Path, sources: Sources) -> str:
        """Return why an initramfs must be made again, for each caller: without it, its kernel does not boot."""
        if not image.exists():
            return "absent"
        if (self.folder / _UNFINISHED).exists():
            return "perhaps incomplete, the last dracut did not succeed"
        return super().stale_image(image, sources)

    def make_images(self, sources: Sources) -> None:
        """Make all initramfs again, and leave a mark until dracut succeeds. Raises NodeProblem."""
        replace_file(self.folder / _UNFINISHED, "")
        super().make_images(sources)
        (self.folder / _UNFINISHED).unlink()

    def _entries(self) -> list[list[str]]:
        """Return the words of each entry's command line; none on a node without grubby."""
        done = self.run(["grubby", "--info=ALL"])
        if done.returncode not in {0, _NOT_FOUND}:
            said = (done.out.strip().splitlines() or ["no output"])[-1]
            raise NodeProblem("`grubby --info=ALL` succeeds", f"exit {done.returncode}: {said}", "Run it on the node.")
        return [line.split() for line in _ARGS.findall(done.out)] if done.returncode == 0 else []

    def _wanted(self, sources: Sources) -> list[str]:
        """Return the options, and replaced words that come back: those of whose name no option is wanted."""
        options = list(sources.options or ())
        names = _names(options)
        return options + [word for word in self._words(_REPLACED) if not _names([word]) & names]

    def _replaced(self, entries: list[list[str]], wanted: list[str]) -> list[str]:
        """Return the words of all entries, in their order, that wanted ones replace and that are not ours."""
        names, ours = _names(wanted), {*wanted, *self._own()}
        words = [word for word in (entries or [[]])[0] if _names([word]) & names and word not in ours]
        return [word for word in words if all(word in others for others in entries)]

    def _taken_back(self, sources: Sources) -> list[str]:
        return sorted(self._own() - set(sources.options or ()))

    def _own(self) -> set[str]:
        return set(self._words(_OWN))

    def _words(self, name: str) -> list[str]:
        try:
            return (self.folder / name).read_text(encoding="utf-8").split()
        except FileNotFoundError:
            return []

    def _record(self, name: str, words: list[str]) -> None:
        if words != self._words(name):
            replace_file(self.folder / name, "".join(f"{word}\n" for word in words))


def _names(words: list[str]) -> set[str]:
    return {word.partition("=")[0] for word in words}
