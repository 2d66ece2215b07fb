"""Run host programs (podman, ip, nsenter, mmdebstrap) with a time limit; errors carry the program's own message."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from rackready.drivers import contained
from rackready_sim.errors import SimError, describe

_PACKAGES = {
    "podman": "podman",
    "runc": "runc",
    "mmdebstrap": "mmdebstrap",
    "ip": "iproute2",
    "nsenter": "util-linux",
    **dict.fromkeys(contained.PROGRAMS, "util-linux"),
    "ssh-keygen": "openssh-client",
}
_FOR_RPM = {
    "rpm": "rpm",
    "rpmbuild": "rpm",
    "rpmsign": "rpm",
    "createrepo_c": "createrepo-c",
    "modifyrepo_c": "createrepo-c",
}
"""Programs that only nodes of the RHEL family need."""
_FOR_METAL = {"qemu-system-x86_64": "qemu-system-x86", "sfdisk": "fdisk", "mke2fs": "e2fsprogs"}
"""Programs that only bare-metal nodes need."""
_INOTIFY = Path("/proc/sys/fs/inotify/max_user_instances")
_INOTIFY_WANTED = 1024
_NOISE = ("level=warning", "WARN[")


def run(
    argv: Sequence[str],
    *,
    timeout_s: float = 60.0,
    stdin: bytes | None = None,
    check: bool = True,
    hint: str = "",
    shown: str = "",
) -> str:
    """Run a program and return its standard output.

    Raises SimError if it is not installed, fails (unless ``check`` is false) or does not end in time.
    """
    name = argv[0]
    shown = shown or " ".join(argv[:3])
    try:
        done = subprocess.run(argv, input=stdin, capture_output=True, timeout=timeout_s, check=False)
    except FileNotFoundError as error:
        raise missing(name) from error
    except subprocess.TimeoutExpired as error:
        hint = hint or "Check the machine's load, then run again."
        raise describe(
            f"`{shown}` on this machine", f"an end within {timeout_s:.0f} s", "still running, it was ended", hint
        ) from error
    if check and done.returncode != 0:
        actual = f"{done.returncode}: {words(done.stderr)}"
        raise describe(
            f"`{shown}` on this machine", "exit status 0", actual, hint or "Correct the reported cause, then run again."
        )
    return done.stdout.decode(errors="replace")


def succeeds(argv: Sequence[str]) -> bool:
    """Return whether a program exits with status 0."""
    return subprocess.run(argv, capture_output=True, timeout=60.0, check=False).returncode == 0


def words(stderr: bytes) -> str:
    """Return a program's standard error without irrelevant warnings, at most 600 characters."""
    lines = [
        line
        for line in stderr.decode(errors="replace").splitlines()
        if line.strip() and not any(mark in line for mark in _NOISE)
    ]
    return " | ".join(lines)[-600:]


def missing(name: str) -> SimError:
    """Return the error for a program that is not installed."""
    package = {**_PACKAGES, **_FOR_RPM, **_FOR_METAL}.get(name, name)
    return describe(
        f"program {name} on this machine", "installed", "not found", f"apt-get install {package}, or `make setup-sim`."
    )


def require_host() -> None:
    """Raise SimError unless the simulated rack can run here: root, and every program that it needs."""
    require_root()
    absent = [name for name in _PACKAGES if shutil.which(name) is None]
    if absent:
        packages = " ".join(sorted({_PACKAGES[name] for name in absent}))
        raise describe(
            "programs of the simulated rack",
            "installed",
            f"not found: {', '.join(absent)}",
            f"apt-get install {packages}, or `make setup-sim`.",
        )


def raise_inotify_limit(path: Path = _INOTIFY) -> str:
    """Raise the inotify limit for a rack's systemd instances: Debian's default of 128 for root is too low.

    Returns a description of the change, empty if none was needed. The limit stays raised until the machine reboots.
    """
    try:
        now = int(path.read_text(encoding="ascii"))
        if now >= _INOTIFY_WANTED:
            return ""
        path.write_text(f"{_INOTIFY_WANTED}\n", encoding="ascii")
    except (OSError, ValueError) as error:
        raise describe(
            str(path),
            f"{_INOTIFY_WANTED} or more",
            f"cannot be set ({error})",
            f"sysctl -w fs.inotify.max_user_instances={_INOTIFY_WANTED}",
        ) from error
    return (
        f"fs.inotify.max_user_instances raised from {now} to {_INOTIFY_WANTED} until the next boot: every node runs "
        "a systemd of its own"
    )


def require_root() -> None:
    """Raise SimError unless this process is root, which containers with their own network cards need."""
    if os.geteuid() != 0:
        raise describe(
            "the simulated rack",
            "root, because it creates containers, bridges and virtual cables",
            f"user id {os.geteuid()}",
            "Run it with sudo.",
        )
