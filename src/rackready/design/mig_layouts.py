"""MIG layouts that an environment names in its variables: docs/howto/mig.md."""

from __future__ import annotations

import re
from pathlib import Path

_LAYOUT = re.compile(r"""^mig_layout:\s*["']?([^"'#\s]+)""", re.MULTILINE)
_FOLDERS = ("group_vars", "host_vars")


def mig_layouts(inventory: Path) -> dict[str, str]:
    """Return file below the folder of an environment -> layout that it names for nodes. An encrypted file has none."""
    files = [path for folder in _FOLDERS for path in sorted((inventory / folder).rglob("*.y*ml")) if path.is_file()]
    found = {path: _LAYOUT.search(path.read_text(encoding="utf-8", errors="replace")) for path in files}
    return {path.relative_to(inventory).as_posix(): match[1] for path, match in found.items() if match}
