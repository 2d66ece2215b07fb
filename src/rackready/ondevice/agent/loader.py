"""The boot loader, last of all: signed files into the EFI system partition, and entries in the firmware's memory.

`grub-install` is not used: on the RHEL family it writes a GRUB that Secure Boot refuses (curtin).
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from . import bls
from .disks import Disk
from .errors import ImagingError
from .host import Host
from .layout import Volumes, array_uuid, uuid
from .links import file_of
from .mounts import inside, is_el, os_release, within
from .plan import Plan

_SHIM = "usr/lib/shim/shimx64.efi.signed"
"""A file in Debian; in Ubuntu an absolute link of update-alternatives to ...signed.latest (shim-signed's postinst)."""
_MOK = ("usr/lib/shim/mmx64.efi.signed", "usr/lib/shim/mmx64.efi")
"""Debian (shim-helpers-amd64-signed) and Ubuntu (shim-signed) have it under these names."""
_GRUB = "usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed"
_OPTIONS = "etc/default/grub.d/90-rackready.cfg"
"""After 50-cloudimg-settings.cfg of cloud images, which sets the command line anew."""
_CONSOLE = re.compile(r"^console=ttyS(\d+)(?:,(\d+))?")
"""Port and speed (Linux, Documentation/admin-guide/serial-console.rst: console=ttyS1,115200n8)."""
_SPEED = "115200"
_EFIVARS = "/sys/firmware/efi/efivars"
_FIRST_PART = "1"


def prepare(host: Host, plan: Plan, target: Path, made: Volumes) -> None:
    """Set the kernel's options and make GRUB's menu in the root file system."""
    for word in plan.kernel_options:
        if re.search(r"[\"'`$\\]", word):
            raise ImagingError("plan", f"kernel option {word}", expected="no quote, $ or backslash", actual="one")
    if is_el(os_release(target)):
        arrays = [f"rd.md.uuid={array_uuid(host, made.root)}"] if made.pair else []
        bls.make_menu(host, target, uuid(host, made.root), plan.kernel_options, arrays)
        return
    _debian_options(plan, target)
    (target / "boot/grub").mkdir(parents=True, exist_ok=True)
    with inside(host, target):
        within(host, target, "grub-mkconfig", "-o", "/boot/grub/grub.cfg")


def _debian_options(plan: Plan, target: Path) -> None:
    path = target / _OPTIONS
    path.parent.mkdir(parents=True, exist_ok=True)
    words = " ".join(plan.kernel_options)
    lines = ["# Written by rackready.", "GRUB_DISABLE_OS_PROBER=true"]
    if words:
        lines.append(f'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX {words}"')
    lines += _serial(plan.kernel_options)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _serial(options: Sequence[str]) -> list[str]:
    """Return GRUB's settings for the last serial console of the kernel; none without one.

    Without a command, GRUB takes port 0 at 9600 baud (grub 2.06, util/grub.d/00_header.in; include/grub/serial.h,
    grub_serial_config_defaults).
    """
    found = [match for word in options if (match := _CONSOLE.match(word))]
    if not found:
        return []
    unit, speed = found[-1][1], found[-1][2] or _SPEED
    return ['GRUB_TERMINAL="console serial"', f'GRUB_SERIAL_COMMAND="serial --unit={unit} --speed={speed}"']


def install(host: Host, target: Path, esp: Path, root_uuid: str) -> str:
    """Put the loader into the mounted EFI system partition. Returns its folder's name below EFI.

    Raises ImagingError if the image lacks the signed files.
    """
    release = os_release(target)
    name = _install_el(target, esp, root_uuid) if is_el(release) else _install_debian(target, esp, release, root_uuid)
    host.must("sync", "-f", str(esp))
    return name


def _install_debian(target: Path, esp: Path, release: dict[str, str], root_uuid: str) -> str:
    name = release.get("ID", "debian")
    signed, grub = file_of(target, _SHIM), file_of(target, _GRUB)
    mok = next((found for path in _MOK if (found := file_of(target, path))), None)
    if signed is None or grub is None:
        missing = [path for path, found in ((_SHIM, signed), (_GRUB, grub)) if found is None]
        raise ImagingError(
            "boot-loader",
            "image",
            expected=f"{' and '.join(missing)}",
            actual="missing",
            next_step="Install the packages in the image.",
        )
    stub = f"search.fs_uuid {root_uuid} root\nset prefix=($root)'/boot/grub'\nconfigfile $prefix/grub.cfg\n"
    own, fallback = esp / "EFI" / name, esp / "EFI/BOOT"
    for folder, shim in ((own, "shimx64.efi"), (fallback, "BOOTX64.EFI")):
        folder.mkdir(parents=True, exist_ok=True)
        # GRUB before shim: with shim alone the firmware would find a loader that finds nothing.
        shutil.copyfile(grub, folder / "grubx64.efi")
        if mok is not None:
            shutil.copyfile(mok, folder / "mmx64.efi")
        (folder / "grub.cfg").write_text(stub, encoding="ascii")
        shutil.copyfile(signed, folder / shim)
    (own / "BOOTX64.CSV").write_bytes(f"shimx64.efi,{name},,This is the boot entry for {name}\n".encode("utf-16"))
    return name


def _install_el(target: Path, esp: Path, root_uuid: str) -> str:
    """Move the files that the packages put into boot/efi, and make the stub point to the new root."""
    source = target / "boot/efi/EFI"
    names = sorted(path.name for path in source.iterdir() if path.name != "BOOT") if source.is_dir() else []
    found = [name for name in names if (source / name / "shimx64.efi").is_file()]
    if len(found) != 1:
        raise ImagingError("boot-loader", "image", expected="one boot/efi/EFI/*/shimx64.efi", actual=f"{len(found)}")
    shutil.copytree(source, esp / "EFI", dirs_exist_ok=True)
    stub = (
        f"search --no-floppy --fs-uuid --set=dev {root_uuid}\n"
        "set prefix=($dev)/boot/grub2\nexport $prefix\nconfigfile $prefix/grub.cfg\n"
    )
    (esp / "EFI" / found[0] / "grub.cfg").write_text(stub, encoding="ascii")
    shutil.rmtree(source)
    return found[0]


def entries(host: Host, name: str, system: Sequence[Disk]) -> str:
    """Make one entry per disk in the firmware, first in its order, and return what is known of it.

    Older entries of the same label go first: some firmware fills up. A firmware that refuses is told, and boots
    EFI/BOOT/BOOTX64.EFI.
    """
    if not host.path(_EFIVARS).is_dir() or not any(host.path(_EFIVARS).iterdir()):
        return "the firmware shows no variables: it boots EFI/BOOT/BOOTX64.EFI"
    labels = [f"{name} (rackready {place})" for place, _ in enumerate(system, start=1)]
    try:
        for number, label in _known(host.must("efibootmgr")):
            if re.fullmatch(r".* \(rackready \d+\)", label):
                host.must("efibootmgr", "--quiet", "--bootnum", number, "--delete-bootnum")
        # Each new one becomes the first: the first disk's is made last.
        for label, disk in reversed(list(zip(labels, system, strict=True))):
            host.must(
                "efibootmgr", "--quiet", "--create", "--disk", disk.path, "--part", _FIRST_PART, "--label", label,
                "--loader", f"\\EFI\\{name}\\shimx64.efi",
            )  # fmt: skip
    except ImagingError as error:
        return f"no entry in the firmware ({error.message}): it boots EFI/BOOT/BOOTX64.EFI"
    return f"firmware entry {labels[0]}"


def _known(out: str) -> list[tuple[str, str]]:
    """Return number and label of every entry: ``Boot0001* debian`` with a tab before its path, if shown."""
    found = (re.match(r"^Boot([0-9A-F]{4})\*? ([^\t]*)", line) for line in out.splitlines())
    return [(match[1], match[2].strip()) for match in found if match]
