"""Kernel modules that the ramdisk keeps: network cards, disks, and what these need. The rest is most of its size."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from rackready.model.problems import RackreadyError

KEPT = (
    "kernel/drivers/net/ethernet/",
    "kernel/drivers/net/phy/",
    "kernel/drivers/net/mdio/",
    "kernel/drivers/net/virtio_net",
    "kernel/drivers/net/vmxnet3/",
    "kernel/drivers/net/hyperv/",
    "kernel/drivers/nvme/host/",
    "kernel/drivers/ata/",
    "kernel/drivers/block/virtio_blk",
    "kernel/drivers/scsi/sd_mod",
    "kernel/drivers/scsi/ses",
    "kernel/drivers/scsi/virtio_scsi",
    "kernel/drivers/scsi/megaraid/",
    "kernel/drivers/scsi/mpt3sas/",
    "kernel/drivers/scsi/mpi3mr/",
    "kernel/drivers/scsi/smartpqi/",
    "kernel/drivers/scsi/aacraid/",
    "kernel/drivers/scsi/hpsa",
    "kernel/drivers/scsi/isci/",
    "kernel/drivers/virtio/",
    "kernel/drivers/md/md-mod",
    "kernel/drivers/md/raid0",
    "kernel/drivers/md/raid1.ko",
    "kernel/drivers/pci/controller/vmd",
    "kernel/drivers/char/hw_random/virtio-rng",
    "kernel/drivers/firmware/dmi-sysfs",
    "kernel/fs/ext4/",
    "kernel/fs/xfs/",
    "kernel/fs/fat/",
    "kernel/fs/nls/nls_ascii",
    "kernel/fs/nls/nls_cp437",
    "kernel/fs/nls/nls_iso8859-1",
    "kernel/fs/nls/nls_utf8",
    "kernel/fs/efivarfs/",
    "kernel/crypto/crc32c",
    "kernel/arch/x86/crypto/crc32",
    "kernel/net/packet/",
)
"""Beginnings of the paths of modules. Raw sockets (packet) are the DHCP client's; crc32c is ext4's."""


def prune(modules: Path, kept: Iterable[str] = KEPT) -> int:
    """Remove every module but the kept ones and what they depend on; return how many remain.

    ``modules``: ``lib/modules/<release>`` with a ``modules.dep`` that depmod wrote. Raises RackreadyError when no
    module matches, which means another layout.
    """
    needs = _dependencies((modules / "modules.dep").read_text(encoding="ascii"))
    wanted = closure(needs, tuple(kept))
    if not wanted:
        raise RackreadyError(
            modules,
            expected="modules of disks and network cards below kernel/",
            actual="none of them",
            next_step="Report this kernel package: its modules are elsewhere.",
        )
    for path in sorted((modules / "kernel").rglob("*.ko*")):
        if str(path.relative_to(modules)) not in wanted:
            path.unlink()
    for folder in sorted((modules / "kernel").rglob("*"), reverse=True):
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
    for link in ("build", "source"):
        (modules / link).unlink(missing_ok=True)
    shutil.rmtree(modules / "vdso", ignore_errors=True)
    return len(wanted)


def _dependencies(text: str) -> dict[str, list[str]]:
    lines = (line.partition(":") for line in text.splitlines())
    return {name: after.split() for name, _, after in lines if name}


def closure(needs: dict[str, list[str]], kept: tuple[str, ...]) -> set[str]:
    """Return the modules whose path begins with one of ``kept``, and all that they depend on."""
    wanted: set[str] = set()
    waiting = [name for name in needs if name.startswith(kept)]
    while waiting:
        name = waiting.pop()
        if name not in wanted:
            wanted.add(name)
            waiting += needs.get(name, [])
    return wanted
