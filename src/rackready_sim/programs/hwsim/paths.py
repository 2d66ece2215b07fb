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
    folder = "extra" if is_rhel() else "updates/dkms"
    return at(f"/lib/modules/{kernel()}/{folder}/{name.replace('_', '-')}.ko")


def libraries() -> str:
    """Return the folder of 64-bit libraries."""
    return "/usr/lib64" if is_rhel() else "/usr/lib/x86_64-linux-gnu"


def is_rhel() -> bool:
    """Return whether the machine's system is of the RHEL family."""
    return at("/etc/redhat-release").exists()


def sys_ready() -> bool:
    """Return whether the machine's device trees exist, so that they can be written to."""
    return at("/run/hw/sys-ready").exists()
