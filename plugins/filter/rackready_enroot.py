"""Folders in which each user's job makes a folder of its own, from the paths in enroot.conf."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

PATHS = ("ENROOT_RUNTIME_PATH", "ENROOT_DATA_PATH", "ENROOT_CACHE_PATH")
"""What enroot makes at every start, as the job's user and mode 0700 (NVIDIA/enroot v4.1.2, enroot.in)."""


def shared(settings: Mapping[str, str]) -> list[str]:
    """Return the parents of the users' own folders, where they are enroot's alone: they have enroot in their path.

    Others, as /raid of /raid/user-$(id -u), may serve more than enroot: their mode is not ours.
    """
    return sorted({str(parent) for parent in _parents(settings)})


def above(settings: Mapping[str, str]) -> list[str]:
    """Return the folders of enroot above those, which users only pass through.

    An enroot that started earlier made them with mode 0700.
    """
    found = {str(folder) for parent in _parents(settings) for folder in parent.parents if "enroot" in str(folder)}
    return sorted(found - set(shared(settings)))


def _parents(settings: Mapping[str, str]) -> Iterator[PurePosixPath]:
    for path in (PurePosixPath(str(settings[name])) for name in PATHS if name in settings):
        own, parent = path.name, path.parent
        if "$" in own and "$" not in str(parent) and "enroot" in str(parent) and path.is_absolute():
            yield parent


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, object]:
        """Return the filters by the names that templates use."""
        return {"rackready_enroot_shared": shared, "rackready_enroot_above": above}
