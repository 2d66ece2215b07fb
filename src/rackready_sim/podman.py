"""The podman commands that the simulated rack uses."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rackready_sim.errors import SimError
from rackready_sim.host import run

LABEL = "rackready.clone"
LIMITS = ("--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096")
_GONE = "retrieving label for image"
"""podman's words for an image that it listed and cannot read (4.3.1, seen)."""
_LISTINGS, _PAUSE_S = 6, 0.5
_HINT = "See `podman ps -a` and `podman info`, then run again."


@dataclass(frozen=True, slots=True)
class Container:
    """Podman's state of one container.

    ``pid`` is 0 unless its namespaces exist; ``exit_code`` is that of its last run.
    """

    name: str
    status: str
    pid: int
    exit_code: int
    image: str = ""

    @property
    def running(self) -> bool:
        """Whether its first process runs, also while it shuts down."""
        return self.status in ("running", "stopping")

    @property
    def lost(self) -> bool:
        """Whether its first process is gone while podman reports it as running.

        This lasts a moment after a container ended, and forever if its monitor was killed.
        """
        return self.running and self.pid > 0 and not Path(f"/proc/{self.pid}").exists()


def podman(*args: str, timeout_s: float = 60.0, stdin: bytes | None = None, check: bool = True) -> str:
    """Run podman and return its standard output. Raise SimError with podman's message."""
    return run(
        ["podman", *_runtime(), *args],
        timeout_s=timeout_s,
        stdin=stdin,
        check=check,
        hint=_HINT,
        shown=f"podman {args[0]} {args[-1]}",
    )


def _runtime() -> tuple[str, ...]:
    """Return runc if it is installed: crun rejects cgroups of version 1 beside an empty version 2 tree."""
    return ("--runtime", "runc") if shutil.which("runc") else ()


def inspect(name: str) -> Container | None:
    """Return one container, or None if there is none of that name."""
    out = podman("container", "inspect", name, check=False)
    found: list[dict[str, Any]] = json.loads(out) if out.strip() else []
    if not found:
        return None
    state = found[0]["State"]
    return Container(
        found[0]["Name"], state["Status"], int(state["Pid"]), int(state["ExitCode"]), found[0].get("ImageName", "")
    )


def containers(clone: str) -> list[Container]:
    """Return every container with this checkout's label."""
    out = podman("ps", "--all", "--filter", f"label={LABEL}={clone}", "--format", "json")
    found: list[dict[str, Any]] = json.loads(out or "[]") or []
    return [
        Container(
            item["Names"][0],
            item["State"],
            int(item.get("Pid") or 0),
            int(item.get("ExitCode") or 0),
            item.get("Image", ""),
        )
        for item in found
    ]


def create(
    name: str, image: str, clone: str, *, options: Sequence[str] = (), command: Sequence[str] = ("/sbin/init",)
) -> None:
    """Create a container without network and without starting it.

    Limits are explicit, because the defaults need CAP_SYS_RESOURCE. /etc/hosts stays a plain file, so that it can be
    replaced atomically.
    """
    fixed = ("--network", "none", "--privileged", "--no-hosts", *LIMITS, "--label", f"{LABEL}={clone}")
    podman("create", "--name", name, *fixed, *options, image, *command)


def init(name: str) -> int:
    """Create the container's namespaces without starting its first process; return the process id that holds them."""
    podman("init", name)
    found = inspect(name)
    return found.pid if found else 0


def start(name: str) -> None:
    """Start a container."""
    podman("start", name)


def stop(name: str, grace_s: int) -> None:
    """Shut a container's system down, and kill it after ``grace_s`` seconds. No error if it is already down."""
    podman("stop", "--ignore", "--time", str(grace_s), name, timeout_s=grace_s + 60.0)


def remove(name: str) -> None:
    """Remove a container with its file system, running or not. No error if there is none."""
    podman("rm", "--force", "--ignore", "--time", "0", "--volumes", name)


def images(prefix: str) -> list[str]:
    """Return the full names (with tag) of local images whose name starts with ``prefix``.

    podman lists images first, and then reads each: it fails if another checkout removes one meanwhile.
    """
    for attempt in range(1, _LISTINGS + 1):
        try:
            out = podman("images", "--format", "{{.Repository}}:{{.Tag}}")
            break
        except SimError as error:
            if _GONE not in str(error) or attempt == _LISTINGS:
                raise
            time.sleep(_PAUSE_S * attempt)
    return sorted({line for line in out.split() if line.startswith(prefix)})


def untag(name: str) -> bool:
    """Remove one name of an image, and the image with its last name; return False if a container still uses it."""
    podman("rmi", name, check=False)
    return name not in images(name)


@contextmanager
def mounted(name: str) -> Iterator[Path]:
    """Yield the file system of a stopped container as a folder of this machine."""
    path = Path(podman("mount", name).strip())
    try:
        yield path
    finally:
        podman("umount", name, check=False)
