"""MIG layouts that an environment names in its variables: docs/howto/mig.md."""

from __future__ import annotations

import re
from pathlib import Path

from rackready.design.handover_of import served
from rackready.design.hostvars import groups
from rackready.model.site import Site

_LAYOUT = re.compile(r"""^mig_layout:\s*["']?([^"'#\s]+)""", re.MULTILINE)
_FOLDERS = ("group_vars", "host_vars")


def mig_layouts(inventory: Path) -> dict[str, str]:
    """Return file below the folder of an environment -> layout that it names for nodes. An encrypted file has none."""
    files = [path for folder in _FOLDERS for path in sorted((inventory / folder).rglob("*.y*ml")) if path.is_file()]
    found = {path: _LAYOUT.search(path.read_text(encoding="utf-8", errors="replace")) for path in files}
    return {path.relative_to(inventory).as_posix(): match[1] for path, match in found.items() if match}


def layouts_of(inventory: Path, whole: Site, seen: Site) -> dict[str, str]:
    """Return the layouts that nodes of one scheduler may have. ``seen``: the site as they see it.

    A file for a node or a group without any of them counts for others only.
    """
    ours = {node.name for node in served(seen)}
    members = {name: set(group["hosts"]) for name, group in groups(whole).items()}
    members |= {node.name: {node.name} for node in whole.nodes()}
    return {
        file: layout
        for file, layout in mig_layouts(inventory).items()
        if members.get(Path(file).parts[1].partition(".")[0], ours) & ours
    }
