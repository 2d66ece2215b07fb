"""Where the machine keeps its hardware state. ROOT is changed by unit tests only."""

from __future__ import annotations

from pathlib import Path

ROOT = Path("/")


def at(path: str) -> Path:
    """Return an absolute path of the machine."""
    return ROOT / path.lstrip("/")


def kernel() -> str:
    """Return the release of the running kernel."""
    return Path("/proc/sys/kernel/osrelease").read_text().strip()


def module_file(name: str) -> Path:
    """Return where the built kernel module of that name lies."""
    return at(f"/lib/modules/{kernel()}/updates/dkms/{name.replace('_', '-')}.ko")


def sys_ready() -> bool:
    """Say whether the machine's device trees were laid out, so that they may be written to."""
    return at("/run/hw/sys-ready").exists()
