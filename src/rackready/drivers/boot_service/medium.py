"""The boot medium of one armed node: a CD with signed loaders, kernel, ramdisk and command line, for its BMC to mount.

A CD that UEFI boots has a FAT file system with ``EFI/BOOT/BOOTX64.EFI`` (UEFI specification 2.10, 13.3.2.1). Debian's
GRUB for CDs finds its own disc by ``/.disk/info`` and reads ``/boot/grub/grub.cfg`` there (grub2 2.06-13, package
source, debian/build-efi-images).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from rackready.drivers.boot_service.layout import Layout
from rackready.drivers.boot_service.loaders import CD_LOADERS, require
from rackready.drivers.boot_service.nodes import BootServiceError
from rackready.model.problems import Message
from rackready.model.provisioning import ProvisioningService
from rackready.paths import private_dir
from rackready.render.environment import render

_TOOLS = {"mformat": "mtools", "mmd": "mtools", "mcopy": "mtools", "xorriso": "xorriso"}
_LIMIT_S = 300
_SECTOR = 512
_SPARE = 1 << 20
"""Bytes of the FAT file system beside its files: tables, and a cluster per folder."""
_FILES = ("vmlinuz", "ramdisk.img")
_NAME_LENGTH = 32


def folder_url(settings: ProvisioningService, node: str) -> str:
    """Return the URL of the folder with a node's medium; no other image has a URL that begins so."""
    return f"http://{settings.media_address or settings.address}:{settings.http_port}/media/{node}/"


def build(layout: Layout, node: str, line: str) -> Path:
    """Build a node's medium, unless the one there is of the same parts, and return it. Raises BootServiceError.

    ``line``: the kernel's command line, which has the node's token. The file's name is a hash of all parts: nobody who
    was not told it can guess it, and a new ramdisk is not mistaken for an old one.
    """
    _require_tools()
    require(CD_LOADERS)
    target = layout.media(node) / f"{_key(layout, line)}.iso"
    if target.is_file():
        return target
    remove(layout, node)
    private_dir(target.parent)
    with tempfile.TemporaryDirectory(dir=layout.incoming) as name:
        made = _make(layout, node, line, Path(name))
        made.chmod(0o644)
        made.replace(target)
    return target


def remove(layout: Layout, node: str) -> None:
    """Remove a node's medium. Raises OSError."""
    if layout.media(node).is_dir():
        shutil.rmtree(layout.media(node))


def _key(layout: Layout, line: str) -> str:
    digest = hashlib.sha256(line.encode())
    for path in (*(layout.boot / name for name in _FILES), *(item.source for item in CD_LOADERS)):
        with path.open("rb") as source:
            digest.update(hashlib.file_digest(source, "sha256").digest())
    return digest.hexdigest()[:_NAME_LENGTH]


def _make(layout: Layout, node: str, line: str, work: Path) -> Path:
    menu, info, fat, disc = (work / name for name in ("grub.cfg", "info", "efi.img", "disc.iso"))
    menu.write_text(render("provisioning/grub-node.cfg.j2", node=node, line=line), encoding="utf-8")
    info.write_text("rackready boot medium\n", encoding="ascii")
    size = sum(item.source.stat().st_size for item in CD_LOADERS) + _SPARE
    _run("mformat", "-C", "-i", str(fat), "-T", str(size // _SECTOR), "::")
    _run("mmd", "-i", str(fat), "::EFI", "::EFI/BOOT")
    for item in CD_LOADERS:
        _run("mcopy", "-i", str(fat), str(item.source), f"::EFI/BOOT/{item.name}")
    parts = {".disk/info": info, "boot/grub/grub.cfg": menu, **{name: layout.boot / name for name in _FILES}}
    # A partition and not only a boot record: BMCs that show the image as a USB stick boot it, too.
    boot = ("-append_partition", "2", "0xef", str(fat), "-appended_part_as_gpt")
    record = ("-e", "--interval:appended_partition_2:all::", "-no-emul-boot")
    graft = [f"/{name}={path}" for name, path in parts.items()]
    _run(
        "xorriso", "-as", "mkisofs", "-quiet", "-r", "-V", "RACKREADY", "-o", str(disc), *boot, *record,
        "-graft-points", *graft,
    )  # fmt: skip
    return disc


def _require_tools() -> None:
    missing = [name for name in _TOOLS if shutil.which(name) is None]
    if missing:
        packages = ", ".join(dict.fromkeys(_TOOLS[name] for name in missing))
        step = f"Install the packages {packages} on this machine."
        raise BootServiceError.of(
            [Message("boot service", "virtual media", f"the programs {', '.join(missing)}", "not on the PATH", step)]
        )


def _run(*argv: str) -> None:
    done = subprocess.run(
        argv, capture_output=True, text=True, errors="replace", timeout=_LIMIT_S, check=False,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )  # fmt: skip
    if done.returncode != 0:
        said = " ".join((done.stderr or done.stdout).split())[-400:]
        step = "Free disk space, then run again."
        raise BootServiceError(
            "boot service", f"virtual media: {argv[0]}", expected="done", actual=said, next_step=step
        )
