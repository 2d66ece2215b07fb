"""Systems that an earlier boot completed: a finished write is never repeated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from . import layout
from .configure import has_marker
from .contents import Contents
from .disks import Disk
from .errors import ImagingError
from .host import Host
from .mounts import mounted
from .plan import Plan

_WHERE = "/run/rackready/present"
_READ_ONLY = ("-o", "ro,noload,nodev,nosuid,noexec")
"""noload: not even the journal is replayed, so nothing is written before all is decided."""


def complete(host: Host, plan: Plan, system: Sequence[Disk], contents: Mapping[str, Contents]) -> frozenset[str]:
    """Return the names of system disks that carry this plan's complete system.

    Raises ImagingError for a disk of ours whose file system cannot be mounted: it may be a damaged complete one.
    """
    ours = [disk for disk in system if contents[disk.name].label == plan.label]
    names = frozenset(disk.name for disk in ours)
    if not ours or not _has_root(ours, contents):
        return frozenset()
    if len(system) == 1:
        return names if _marked(host, plan, ours[0].part(2)) else frozenset()
    if not layout.assemble(host, layout.ROOT_ARRAY, [disk.part(2) for disk in ours], read_only=True):
        return frozenset()  # the power went before the array was whole: nothing was ever in it
    try:
        return names if _marked(host, plan, layout.ROOT_ARRAY) else frozenset()
    finally:
        layout.stop(host)


def _has_root(ours: Sequence[Disk], contents: Mapping[str, Contents]) -> bool:
    kinds = {item.kind for disk in ours for item in contents[disk.name].signatures if item.device == disk.part(2)}
    return bool(kinds & {"ext4", "linux_raid_member"})


def _marked(host: Host, plan: Plan, device: str) -> bool:
    if host.call(("blkid", "--probe", "--match-types", "ext4", device)).code != 0:
        return False  # an array without a file system yet
    try:
        with mounted(host, device, _WHERE, *_READ_ONLY) as root:
            return has_marker(plan, root)
    except ImagingError as error:
        raise ImagingError(
            "disk-has-data",
            f"{device}",
            expected="a readable file system of this plan",
            actual=error.message.removesuffix("."),
            next_step=f"It may be a complete system with damage. If nobody needs it, erase it: --erase {plan.node}.",
        ) from error
