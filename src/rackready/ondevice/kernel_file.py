"""One value in a file of the kernel (sysfs, procfs): what the kernel refuses is a problem of the node."""

from __future__ import annotations

from pathlib import Path

from .command import NodeProblem

_STEP = "Run `dmesg | tail` on the node: it may say why. Then run again."


def get(path: Path) -> str:
    """Return the value. Raises NodeProblem."""
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise NodeProblem(f"{path} can be read", str(error.strerror), _STEP) from error


def put(path: Path, value: str) -> None:
    """Write the value. Raises NodeProblem."""
    try:
        path.write_text(f"{value}\n", encoding="ascii")
    except OSError as error:
        raise NodeProblem(f"{path} takes {value}", str(error.strerror), _STEP) from error
