"""Write into the file system of a machine."""

from __future__ import annotations

from pathlib import Path


def write(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file of a machine with exactly this mode, whatever the umask."""
    missing = [folder for folder in path.parents if not folder.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        folder.chmod(0o755)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
