"""What a second terminal asks of a running deploy or upgrade: a small file, read where the work can stop."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from rackready import files
from rackready.paths import private_dir


class Request(StrEnum):
    """What a second terminal asks for."""

    NOTHING = ""
    PAUSE = "pause"
    ABORT = "abort"


def put(path: Path, request: Request) -> None:
    """Ask the running work to pause or to end. Raises OSError."""
    private_dir(path.parent)
    files.replace(path, f"{request.value}\n".encode())


def look(path: Path) -> Request:
    """Return what is asked. An unreadable file pauses: it was written to stop something."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace").strip()
    except FileNotFoundError:
        return Request.NOTHING
    return Request(text) if text in {item.value for item in Request if item} else Request.PAUSE


def take(path: Path) -> Request:
    """Return what was asked; it counts once."""
    found = look(path)
    path.unlink(missing_ok=True)
    return found
