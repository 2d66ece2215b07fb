"""Read the hardware state, and store what software changed since power-on."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import paths

State = dict[str, Any]
RENAMED = "/run/hw/rdma-names.json"


def hardware() -> State:
    """Return the hardware state. Raise OSError or ValueError if it cannot be read: the simulation is then broken."""
    state: State = json.loads(paths.at("/opt/hw/state.json").read_text())
    named = rdma_names()
    for nic in state.get("nics", []) if named else []:
        nic["rdma_device"] = named.get(nic["pci"], nic["rdma_device"])
    return state


def rdma_names() -> dict[str, str]:
    """Return PCI address to the name of its RDMA device, where the system renamed it since power-on."""
    path = paths.at(RENAMED)
    found: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
    return found


def runtime() -> State:
    """Return what software changed since power-on."""
    path = paths.at("/run/hw/runtime.json")
    if not path.exists():
        return fresh()
    found: State = json.loads(path.read_text())
    return found


def fresh() -> State:
    """Return the runtime state right after power-on."""
    return {
        "modules": {},
        "persistence": {},
        "gpu": {},
        "fabric": {"state": "Not Started"},
        "nic": {},
        "counters": {},
        "clients": {},
    }


@contextmanager
def change() -> Iterator[State]:
    """Yield the runtime state for a change; a lock queues writers, and readers never see a partial file."""
    folder = paths.at("/run/hw")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        state = runtime()
        yield state
        write(folder / "runtime.json", json.dumps(state))


def write(path: Path, text: str) -> None:
    """Replace a file atomically."""
    fresh_file = path.with_name(f".{path.name}.{os.getpid()}")
    fresh_file.write_text(text)
    fresh_file.replace(path)
