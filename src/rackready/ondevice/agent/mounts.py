"""The target system while it is made: its file systems, and commands inside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import ImagingError
from .host import Host

TARGET = "/mnt"
_INSIDE = ("dev", "proc", "sys", "run")
"""Without /run, tools that ask udev hang (ironic-python-agent)."""


@contextmanager
def mounted(host: Host, device: str, where: str, *options: str) -> Iterator[Path]:
    """Mount a device while in the context. Raises ImagingError with what mount said."""
    path = host.path(where)
    path.mkdir(parents=True, exist_ok=True)
    host.must("mount", *options, device, str(path))
    try:
        yield path
    finally:
        host.must("umount", str(path))


@contextmanager
def inside(host: Host, target: Path) -> Iterator[None]:
    """Bind the running system's devices below the target, for commands in it."""
    bound = []
    try:
        for name in _INSIDE:
            (target / name).mkdir(exist_ok=True)
            host.must("mount", "--rbind", "--make-rslave", f"/{name}", str(target / name))
            bound.append(name)
        yield
    finally:
        for name in reversed(bound):
            host.must("umount", "--recursive", "--lazy", str(target / name))


def within(host: Host, target: Path, *argv: str) -> str:
    """Run a program of the target system. Raises ImagingError with what it said."""
    environment = ("/usr/bin/env", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8")
    return host.must("chroot", str(target), *environment, *argv)


def os_release(target: Path) -> dict[str, str]:
    """Return the fields of the target's os-release. Raises ImagingError if it has none."""
    for name in ("usr/lib/os-release", "etc/os-release"):
        path = target / name
        if path.is_file():
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            return {key: value.strip("\"'") for key, _, value in (line.partition("=") for line in lines) if value}
    raise ImagingError(
        "unknown-system", "image", expected="usr/lib/os-release", actual="none", next_step="Import another image."
    )


def is_el(release: dict[str, str]) -> bool:
    """Whether a system is of the RHEL family."""
    return bool({"rhel", "fedora", "centos"} & {release.get("ID", ""), *release.get("ID_LIKE", "").split()})
