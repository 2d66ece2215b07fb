"""Which disks are written, and everything that forbids it. Nothing is written before all of this holds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from .contents import Contents
from .disks import Disk, find, gigabytes
from .errors import ImagingError
from .plan import Plan

ESP_BYTES = 550 << 20
"""Size of the EFI system partition: as ironic-python-agent makes it."""
_SLACK = 1.15
"""What a file system needs beside its files: tables, journal, reserve."""
_ALSO = 1 << 30
"""Free space that the first boot needs: logs, a new initramfs, packages."""


@dataclass(frozen=True)
class Chosen:
    """The disks of a plan. ``new_scratch``: whether scratch disks are made; else they are ours already.

    ``no_file_system``: whether they are ours, and the power went before their file system was made.
    """

    system: tuple[Disk, ...]
    scratch: tuple[Disk, ...]
    new_scratch: bool
    erased: tuple[Disk, ...]
    no_file_system: bool = False


def matched(plan: Plan, disks: Sequence[Disk]) -> tuple[tuple[Disk, ...], tuple[Disk, ...]]:
    """Return system and scratch disks of a plan. Raises ImagingError if one is missing, unclear, or meant twice."""
    system = tuple(find(disks, ref) for ref in plan.system)
    scratch = tuple(find(disks, ref) for ref in plan.scratch)
    every = [*system, *scratch]
    twice = sorted({disk.path for disk in every if every.count(disk) > 1})
    if twice:
        raise ImagingError(
            "disk-ambiguous",
            "disks",
            expected="each once",
            actual=f"two entries mean {', '.join(twice)}",
            next_step="Correct the site file.",
        )
    return system, scratch


def choose(
    plan: Plan, disks: Sequence[Disk], contents: Mapping[str, Contents], complete: Collection[str] = ()
) -> Chosen:
    """Return the disks to write. Raises ImagingError with every reason against it; the first one's code counts.

    ``contents``: by the disks' names. ``complete``: names of disks with this plan's complete system, whose data is the
    system's by now.
    """
    system, scratch = matched(plan, disks)
    against = [problem for disk in (*system, *scratch) for problem in _unfit(disk, contents[disk.name])]
    against += [problem for disk in system for problem in _too_small(plan, disk)]
    kept = bool(scratch) and all(contents[disk.name].is_scratch for disk in scratch)
    erased = []
    for disk in (*system, *(() if kept else scratch)):
        found = contents[disk.name]
        if not found.holds or _is_half_written(plan, disk, found, system, complete):
            continue
        if plan.erase:
            erased.append(disk)
        else:
            against.append(("disk-has-data", _has_data(plan, disk, found)))
    if against:
        raise ImagingError(against[0][0], " ".join(text for _, text in against))
    return Chosen(system, scratch, bool(scratch) and not kept, tuple(erased))


def _is_half_written(
    plan: Plan, disk: Disk, found: Contents, system: Sequence[Disk], complete: Collection[str]
) -> bool:
    """Whether the data is an unfinished write of this plan's image, which may be written again."""
    return disk in system and found.label == plan.label and disk.name not in complete


def _unfit(disk: Disk, found: Contents) -> list[tuple[str, str]]:
    problems = []
    if found.used:
        actual = ", ".join(found.used)
        problems.append(("disk-in-use", f"{disk.called} - Expected: not in use Actual: {actual}."))
    if disk.read_only:
        problems.append(("disk-read-only", f"{disk.called} - Expected: writable Actual: read-only."))
    return problems


def _too_small(plan: Plan, disk: Disk) -> list[tuple[str, str]]:
    needed = ESP_BYTES + int(plan.image.unpacked * _SLACK) + _ALSO
    if disk.size >= needed:
        return []
    text = f"{disk.called} - Expected: {gigabytes(needed)} for image {plan.image.name} Actual: {gigabytes(disk.size)}."
    return [("image-too-large", text)]


def _has_data(plan: Plan, disk: Disk, found: Contents) -> str:
    return (
        f"{disk.called} - Expected: empty, or half-written by this plan Actual: {'; '.join(found.holds)}. "
        f"If nobody needs it, erase it: --erase {plan.node}."
    )
