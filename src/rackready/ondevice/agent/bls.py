"""The menu of the RHEL family: entries of the boot loader specification, which GRUB's own file finds and shows.

GRUB looks for the entries on the device that its variable ``root`` names (grub2 of RHEL 9, blscfg.c), which grub.cfg
sets by a file system's UUID: with the grub.cfg of another machine, the menu is empty.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from .errors import ImagingError
from .host import Host
from .mounts import inside, within

_ENTRIES = "boot/loader/entries"
_DEFAULTS = "etc/default/grub"
_COMMAND_LINE = "etc/kernel/cmdline"
"""Options of kernels that are installed later (kernel-install(8))."""
_DISKS = re.compile(
    r"^(root|rootfstype|rootflags|resume|resume_offset|rd\.lvm\.lv|rd\.lvm\.vg|rd\.md|rd\.md\.uuid|rd\.luks\.\w+)="
)
"""Options that name disks of the machine from which the image came: dracut waits for them (modules.d/90lvm,
parse-lvm.sh, wait_for_dev), and gives up."""
_MODE = {"ro", "rw"}


def make_menu(host: Host, target: Path, root_uuid: str, own: Sequence[str], arrays: Sequence[str] = ()) -> None:
    """Make GRUB's menu for the new root, with our kernel options in place of the image's of the same name.

    ``arrays``: options that name the array of the root: without them dracut assembles none (dracut-rhel9,
    modules.d/90mdraid/parse-md.sh).

    The entries are written last: grub2-mkconfig of some releases puts its own options into them (10_linux,
    update_bls_cmdline). Raises ImagingError for an image without entries.
    """
    entries = sorted((target / _ENTRIES).glob("*.conf"))
    if not entries:
        raise ImagingError("unknown-system", "image", expected=f"{_ENTRIES}/*.conf", actual="none")
    root = (f"root=UUID={root_uuid}", "ro", *arrays)
    found = {entry: entry.read_text(encoding="utf-8") for entry in entries}
    newest = [word for word in _options(found[entries[-1]]) if not word.startswith("$")]
    _write(target / _COMMAND_LINE, " ".join((*root, *_kept(newest, own), *own)) + "\n")
    _write(target / _DEFAULTS, _defaults(target / _DEFAULTS, (*arrays, *own)))
    (target / "boot/grub2").mkdir(parents=True, exist_ok=True)
    with inside(host, target):
        within(host, target, "grub2-mkconfig", "-o", "/boot/grub2/grub.cfg")
    for entry, text in found.items():
        _write(entry, _entry(target, text, root, own))


def _entry(target: Path, text: str, root: Sequence[str], own: Sequence[str]) -> str:
    """Return an entry with paths on the root file system, and with our root and options."""
    lines = []
    for line in text.splitlines():
        key, *words = line.split() or [""]
        if key in {"linux", "initrd"}:
            lines.append(" ".join((key, *(_placed(target, word) for word in words))))
        elif key != "options":
            lines.append(line)
    return "\n".join((*lines, " ".join(("options", *root, *_kept(_options(text), own), *own)))) + "\n"


def _placed(target: Path, word: str) -> str:
    """Return where a file is on the root file system: an image with /boot of its own names it without /boot."""
    if (target / word.lstrip("/")).is_file() or not (target / "boot" / word.lstrip("/")).is_file():
        return word
    return f"/boot/{word.lstrip('/')}"


def _options(text: str) -> list[str]:
    """Return the kernel options of an entry."""
    return [word for line in text.splitlines() if line.split()[:1] == ["options"] for word in line.split()[1:]]


def _kept(words: Sequence[str], own: Sequence[str]) -> list[str]:
    """Return those options that stay beside ours."""
    names = {word.partition("=")[0] for word in own} | _MODE
    return [word for word in words if word.partition("=")[0] not in names and not _DISKS.match(word)]


def _defaults(path: Path, own: Sequence[str]) -> str:
    """Return the settings of grub2-mkconfig; a later line replaces an earlier one."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    found = re.findall(r"(?m)^GRUB_CMDLINE_LINUX=(.*)$", text)
    words = found[-1].strip(" \t\"'").split() if found else []
    ours = shlex.quote(" ".join((*_kept(words, own), *own)))
    before = f"{text.rstrip()}\n" if text.strip() else ""
    return f"{before}# Written by rackready.\nGRUB_DISABLE_OS_PROBER=true\nGRUB_CMDLINE_LINUX={ours}\n"


def _write(path: Path, text: str) -> None:
    """Write a file. A link in the image must not lead out of it, so an existing file is removed first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_text(text, encoding="utf-8")
