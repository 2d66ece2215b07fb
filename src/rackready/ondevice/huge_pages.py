"""Huge pages of a node: the kernel's pools by size (Documentation/admin-guide/mm/hugetlbpage.rst).

A write to nr_hugepages spreads the pages over the NUMA nodes. The kernel takes what it finds contiguous: fewer pages
than asked for are no error of the write, so the number is read again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from .command import NodeProblem
from .difference import Difference
from .kernel_file import get, put

_POOLS = "sys/kernel/mm/hugepages"
_UNITS = {"K": 1, "M": 1024, "G": 1024 * 1024}
SPARE = 10
"""One part in so many of the memory stays for the system and its services: a judgement of ours, no source names one."""
_SIZE = re.compile(r"([1-9]\d*)([KMG])")


def kilobytes(size: str) -> int:
    """Return a page size such as 2M or 1G in kB. Raises ValueError."""
    match = _SIZE.fullmatch(size)
    if match is None:
        raise ValueError(size)
    return int(match[1]) * _UNITS[match[2]]


def pool(root: Path, size: str) -> Path:
    """Return the file with the number of pages of a size."""
    return root / _POOLS / f"hugepages-{kilobytes(size)}kB" / "nr_hugepages"


def differences(root: Path, wanted: Mapping[str, int]) -> list[Difference]:
    """Return the sizes with another number of pages. Raises NodeProblem for a size that the kernel does not offer."""
    found = []
    for size, count in sorted(wanted.items(), key=lambda item: kilobytes(item[0])):
        place = pool(root, size)
        if not place.exists():
            have = sorted(path.name[len("hugepages-") :] for path in (root / _POOLS).glob("hugepages-*kB"))
            step = "Correct base_huge_pages in the group_vars of the environment, then run again."
            raise NodeProblem(
                f"huge pages of {size}, which processor and kernel offer", ", ".join(have) or "none", step
            )
        actual = int(get(place))
        if actual != count:
            found.append(Difference("kernel", f"huge pages of {size}", f"{count} pages", f"{actual} pages"))
    return found


def refuse_too_many(root: Path, wanted: Mapping[str, int]) -> None:
    """Raise NodeProblem if the pages that are to be added leave less than SPARE of the memory available."""
    added = sum((count - int(get(pool(root, size)))) * kilobytes(size) for size, count in wanted.items())
    if added <= 0:
        return
    found = dict(re.findall(r"^(MemTotal|MemAvailable):\s+(\d+) kB$", get(root / "proc/meminfo"), re.MULTILINE))
    if len(found) < 2:  # noqa: PLR2004 - both lines
        return
    spare, available = int(found["MemTotal"]) // SPARE, int(found["MemAvailable"])
    if added > available - spare:
        step = "Lower base_huge_pages, or end what uses the memory; then run again. No page was reserved."
        expected = f"memory for the added huge pages, {added // 1024} MiB, and {spare // 1024} MiB to spare"
        raise NodeProblem(expected, f"{available // 1024} MiB available", step)


def write(root: Path, wanted: Mapping[str, int]) -> None:
    """Ask the kernel for the pages. Raises NodeProblem."""
    for size, count in wanted.items():
        put(pool(root, size), str(count))
