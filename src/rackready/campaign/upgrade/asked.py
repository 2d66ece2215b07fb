"""What a second terminal asks of an upgrade: a small file, read between waves."""

from __future__ import annotations

from rackready import files
from rackready.campaign.upgrade.engine import Request
from rackready.paths import EnvPaths, private_dir


def put(paths: EnvPaths, request: Request) -> None:
    """Ask the running upgrade to pause or to end after its wave. Raises OSError."""
    private_dir(paths.upgrade_request.parent)
    files.replace(paths.upgrade_request, f"{request.value}\n".encode())


def take(paths: EnvPaths) -> Request:
    """Return what was asked; it counts once. An unreadable file pauses: it was written to stop something."""
    try:
        text = paths.upgrade_request.read_text(encoding="utf-8", errors="replace").strip()
    except FileNotFoundError:
        return Request.NOTHING
    paths.upgrade_request.unlink(missing_ok=True)
    return Request(text) if text in {item.value for item in Request if item} else Request.PAUSE
