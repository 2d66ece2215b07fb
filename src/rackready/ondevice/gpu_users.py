"""Processes that use the GPUs of a node: those that nvidia-smi lists, or those that hold the devices open."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from .command import NodeProblem, Run

_ARGV = ["nvidia-smi", "--query-compute-apps=pid,process_name", "--format=csv,noheader"]
_DEVICE = re.compile(r"/dev/nvidia(?:\d+|-uvm)(?: \(deleted\))?$")
"""A GPU, and unified memory, which CUDA opens. /dev/nvidiactl alone is no use of a GPU."""
_GONE = (FileNotFoundError, ProcessLookupError)
"""Errors of a process or a descriptor that ends while it is looked at."""


def gpu_users(run: Run) -> list[str]:
    """Return the processes as ``pid name``.

    Raises NodeProblem if nvidia-smi fails: a process that it does not list must not lose its GPU.
    """
    done = run(_ARGV)
    if done.returncode != 0:
        step = "Run `nvidia-smi` on the node and correct what it reports; then run again. Nothing was changed."
        actual = f"exit {done.returncode}: {' '.join(done.out.split()) or 'no output'}"
        raise NodeProblem("nvidia-smi lists what uses the GPUs", actual, step)
    return [" ".join(line.replace(",", " ").split()) for line in done.out.splitlines() if line[:1].isdigit()]


def device_users(root: Path, units: Collection[str]) -> list[str]:
    """Return the processes that hold a GPU open as ``pid name``, without those of the system's ``units``.

    It needs no nvidia-smi, which fails from the moment that a package replaces its library. Raises NodeProblem if a
    process cannot be looked at.
    """
    processes = sorted((root / "proc").glob("[0-9]*"), key=lambda path: int(path.name))
    try:
        found = [path for path in processes if any(_DEVICE.search(name) for name in _opened(path))]
        return [f"{path.name} {_read(path / 'comm').strip()}" for path in found if not _is_of(path, units)]
    except PermissionError as error:
        step = "Give the user of Ansible root's rights on the node (sudo), then run again. Nothing was changed."
        raise NodeProblem("access to the open files of all processes", str(error), step) from error


def _opened(process: Path) -> Iterator[str]:
    with suppress(*_GONE):
        for descriptor in (process / "fd").iterdir():
            with suppress(*_GONE):
                yield str(descriptor.readlink())


def _is_of(process: Path, units: Collection[str]) -> bool:
    """Return whether a process is of one of the units: a user's unit of the same name is below user.slice."""
    words = re.findall(r"/system\.slice/([^/\n]+)", _read(process / "cgroup"))
    return any(word in units for word in words)


def _read(path: Path) -> str:
    with suppress(*_GONE):
        return path.read_text(encoding="utf-8", errors="replace")
    return ""
