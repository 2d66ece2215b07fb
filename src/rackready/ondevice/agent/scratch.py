"""Scratch disks that an earlier boot made: whether a file system is on them. Nothing is written here."""

from __future__ import annotations

from collections.abc import Sequence

from . import layout
from .contents import edges_are_zero, signatures
from .disks import Disk
from .errors import ImagingError
from .host import Host
from .plan import Plan

_NOTHING_FOUND = 2
_IN_PROGRESS = 126
"""Byte of an XFS superblock that is 1 until mkfs.xfs ends (util-linux/util-linux, libblkid/src/superblocks/xfs.c)."""


def lacks_file_system(host: Host, plan: Plan, disks: Sequence[Disk]) -> bool:
    """Whether the power went before mkfs ended, so that nothing was ever kept on these disks.

    True also for data of an unknown kind on them that the operator erases. Raises ImagingError for any other kind, and
    when they cannot be read.
    """
    if len(disks) == 1:
        return _lacks(host, plan, disks[0], disks)
    assemble(host, disks, read_only=True)
    try:
        sectors = int(host.read(f"/sys/block/{layout.SCRATCH_ARRAY.removeprefix('/dev/')}/size") or 0)
        return _lacks(host, plan, Disk(layout.SCRATCH_ARRAY.removeprefix("/dev/"), sectors * 512), disks)
    finally:
        layout.stop(host)


def assemble(host: Host, disks: Sequence[Disk], *, read_only: bool) -> None:
    """Assemble the array of several scratch disks. Raises ImagingError when it does not start."""
    members = [disk.path for disk in disks]
    if not layout.assemble(host, layout.SCRATCH_ARRAY, members, read_only=read_only):
        raise ImagingError("tool", f"scratch {', '.join(members)}", expected="the array starts", actual="it does not")


def _lacks(host: Host, plan: Plan, volume: Disk, disks: Sequence[Disk]) -> bool:
    done = host.call((*layout.TYPE, volume.path))
    if done.code not in {0, _NOTHING_FOUND}:
        said = " ".join(done.err.split()) or "nothing"
        raise ImagingError(
            "tool", f"`blkid` of {volume.path}", expected="one file system or none", actual=f"{done.code}: {said}"
        )
    if found := done.out.strip():  # none with code 0: a partition table
        return found == "xfs" and _in_progress(host, volume)
    # Also what blkid could not read, or whose checksum is wrong, is not found (util-linux, misc-utils/blkid.c).
    others = signatures(host, volume.path)
    if not others and (edges_are_zero(host, volume) or plan.erase):
        return True
    by_hand = f"If nobody needs it, run `wipefs --all` on {', '.join(disk.path for disk in disks)} by hand."
    raise ImagingError(
        "disk-has-data",
        f"scratch on {', '.join(disk.called for disk in disks)}",
        expected="a file system, or nothing",
        actual="; ".join(item.words for item in others) or "data without a known signature",
        next_step=by_hand if others else f"If nobody needs it, erase it: --erase {plan.node}.",
    )


def _in_progress(host: Host, volume: Disk) -> bool:
    with host.path(volume.path).open("rb") as device:
        return device.read(512)[_IN_PROGRESS : _IN_PROGRESS + 1] == b"\1"
