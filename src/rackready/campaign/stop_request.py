"""What a second terminal asks of a running deploy or upgrade: a small file, read where the work can stop."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from rackready import files
from rackready.paths import private_dir


class StopRequest(StrEnum):
    """What a second terminal asks for."""

    NOTHING = ""
    PAUSE = "pause"
    ABORT = "abort"


def put(path: Path, request: StopRequest) -> None:
    """Ask the running work to pause or to end. Raises OSError."""
    private_dir(path.parent)
    files.replace(path, f"{request.value}\n".encode())


def look(path: Path) -> StopRequest:
    """Return what is asked. An unreadable file pauses: it was written to stop something."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace").strip()
    except FileNotFoundError:
        return StopRequest.NOTHING
    return StopRequest(text) if text in {item.value for item in StopRequest if item} else StopRequest.PAUSE


def take(path: Path) -> StopRequest:
    """Return what was asked; it counts once."""
    found = look(path)
    path.unlink(missing_ok=True)
    return found
