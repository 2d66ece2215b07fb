"""grubby, dracut, and the command line of the default boot entry, of the RHEL family.

grubby: options, messages and effects of the program grubby-bls of grubby 8.40-63 (EL 9): entries newest first, words
of the same name replaced, and with ALL also /etc/default/grub and /etc/kernel/cmdline. dracut 057: --force,
--regenerate-all, one image, and the end of dracut.sh: an image that cp could not write is removed. Of the archive's
content only modprobe's configuration and nouveau are there, as modules.d/90kernel-modules puts them into an initramfs
of this host.
"""

from __future__ import annotations

import gzip
import os
import re
import sys
from pathlib import Path

from . import bootdisk, paths

_ENTRIES = "/boot/loader/entries"
_NOUVEAU = "kernel/drivers/gpu/drm/nouveau/nouveau.ko.xz"
_OMIT = re.compile(r'^\s*omit_drivers\+="([^"]*)"', re.MULTILINE)
_GRUB_OPTIONS = re.compile(r'^GRUB_CMDLINE_LINUX="?(.*?)"?$', re.MULTILINE)


def grubby(argv: list[str]) -> int:
    """Show or change the boot entries."""
    given = dict(word.removeprefix("--").partition("=")[::2] for word in argv)
    if "default-kernel" in given:
        entries = _entries()
        sys.stdout.write(f"{_value(entries[0], 'linux')}\n" if entries else "\n")
        return 0
    if "info" in given:
        return _info(given["info"])
    if not given or ("update-kernel" not in given and {"args", "remove-args"} & given.keys()):
        sys.stderr.write("no action specified\n")
        return 1
    if given.get("update-kernel") != "ALL":
        sys.stderr.write(f"The param {given.get('update-kernel', '')} is incorrect\n")
        return 1
    _update(given.get("remove-args", "").split(), given.get("args", "").split())
    return 0


def _info(wanted: str) -> int:
    if wanted != "ALL":
        sys.stderr.write(f"The param {wanted} is incorrect\n")
        return 1
    for index, entry in enumerate(_entries()):
        words = _value(entry, "options").split()
        root = next((word for word in words if word.startswith("root=")), "")
        args = " ".join(word for word in words if word != root)
        sys.stdout.write(f'index={index}\nkernel="{_value(entry, "linux")}"\nargs="{args}"\n')
        sys.stdout.write(f'root="{root.removeprefix("root=")}"\n' if root else "")
        sys.stdout.write(f'initrd="{_value(entry, "initrd")}"\ntitle="{_value(entry, "title")}"\nid="{entry.stem}"\n')
    return 0


def _update(remove: list[str], add: list[str]) -> None:
    settings, common = paths.at("/etc/default/grub"), paths.at("/etc/kernel/cmdline")
    text = settings.read_text(encoding="utf-8") if settings.exists() else ""
    if (found := _GRUB_OPTIONS.search(text)) and found[1]:
        new = f'GRUB_CMDLINE_LINUX="{changed(found[1], remove, add)}"'
        settings.write_text(text.replace(found[0], new), encoding="utf-8")
    entries = _entries()
    if not common.exists() and entries:
        common.parent.mkdir(parents=True, exist_ok=True)
        common.write_text(f"{_value(entries[-1], 'options')}\n", encoding="utf-8")
    for entry in entries:
        before = entry.read_text(encoding="utf-8")
        options = _value(entry, "options")
        entry.write_text(before.replace(options, changed(options, remove, add), 1), encoding="utf-8")
    if common.exists():
        common.write_text(f"{changed(common.read_text(encoding='utf-8'), remove, add)}\n", encoding="utf-8")


def changed(line: str, remove: list[str], add: list[str]) -> str:
    """Return a command line after update_args.

    A word to remove with a value removes the first equal one, without a value all of that name; a word to add removes
    all of its name first.
    """
    words = line.split()
    for word in remove:
        if "=" in word:
            words = [*words[: words.index(word)], *words[words.index(word) + 1 :]] if word in words else words
        else:
            words = [other for other in words if other.partition("=")[0] != word]
    names = {word.partition("=")[0] for word in add}
    return " ".join([*(word for word in words if word.partition("=")[0] not in names), *add])


def _entries() -> list[Path]:
    """Return the files of the boot entries, the newest kernel first."""
    found = paths.at(_ENTRIES).glob("*.conf")
    return sorted(found, key=lambda path: [int(word) for word in re.findall(r"\d+", path.stem[33:])], reverse=True)


def _value(entry: Path, key: str) -> str:
    found = re.search(rf"^{key}[ \t]+(.*)$", entry.read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else ""


def command_line() -> str:
    """Return the command line of the default entry, without variables that have no value; empty without entries."""
    entries = _entries()
    if not entries:
        return ""
    words = [word for word in _value(entries[0], "options").split() if not word.startswith("$")]
    return " ".join([f"BOOT_IMAGE=(hd0,gpt2){_value(entries[0], 'linux')}", *words])


def dracut(argv: list[str]) -> int:
    """Make one initramfs, `dracut --force IMAGE RELEASE`, or with --regenerate-all those of all kernels."""
    names = [word for word in argv if not word.startswith("-")]
    if "--regenerate-all" in argv:
        if names:
            sys.stderr.write("dracut[F]: --regenerate-all cannot be called with an image file.\n")
            return 1
        places = sorted(paths.at("/lib/modules").glob("*/modules.dep"))
        return sum(_generate(path.parent.name, "--force" in argv) for path in places)
    return _generate(names[1] if names[1:] else os.uname().release, "--force" in argv)


def _generate(release: str, force: bool) -> int:  # noqa: FBT001 - the option's presence
    image = paths.at(f"/boot/initramfs-{release}.img")
    if image.exists() and not force:
        sys.stderr.write(f"dracut[F]: Will not override existing initramfs ({image}) without --force\n")
        return 1
    try:
        image.write_bytes(gzip.compress(bootdisk.archive(_kept_modules(release)), mtime=0))
    except OSError as error:
        sys.stderr.write(f"cp: error writing '{image}': {error.strerror}\n")
        image.unlink(missing_ok=True)  # dracut.sh: `rm -f -- "$outfile"`
        sys.stderr.write(f"dracut[F]: dracut: creation of {image} failed\n")
        return 1
    return 0


def _kept_modules(release: str) -> list[str]:
    text = "\n".join(path.read_text() for path in sorted(paths.at("/etc/dracut.conf.d").glob("*.conf")))
    omitted = " ".join(_OMIT.findall(text)).split()
    return [] if "nouveau" in omitted else [f"usr/lib/modules/{release}/{_NOUVEAU}"]
