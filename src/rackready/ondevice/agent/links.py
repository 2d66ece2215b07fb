"""Links of a system that is not the running one: an absolute one begins at that system's root, and none leads out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

_MOST = 40
"""Links on the way to one file: as many as Linux follows (MAXSYMLINKS, include/linux/namei.h)."""


def followed(name: str, link: Callable[[str], str]) -> str:
    """Return the path below the root to which a path leads, without links; empty if they never end.

    ``link``: where the link of a path below the root leads, empty for what is no link.
    """
    rest, done, links = name.split("/")[::-1], list[str](), 0
    while rest:
        part = rest.pop()
        if part == "..":
            del done[-1:]
        elif part not in {"", "."}:
            done.append(part)
            if leads := link("/".join(done)):
                links += 1
                if links > _MOST:
                    return ""
                done = [] if leads.startswith("/") else done[:-1]
                rest += leads.split("/")[::-1]
    return "/".join(done)


def file_of(target: Path, name: str) -> Path | None:
    """Return the regular file below ``target`` to which a path of it leads, or nothing."""

    def link(path: str) -> str:
        place = target / path
        return str(place.readlink()) if place.is_symlink() else ""

    found = target / followed(name, link)
    return found if found.is_file() else None
