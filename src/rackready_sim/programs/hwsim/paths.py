"""Paths of the machine's hardware state. Only unit tests change ROOT."""

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
    """Return the path of the built kernel module of that name."""
    return at(f"/lib/modules/{kernel()}/updates/dkms/{name.replace('_', '-')}.ko")


def sys_ready() -> bool:
    """Return whether the machine's device trees exist, so that they can be written to."""
    return at("/run/hw/sys-ready").exists()
