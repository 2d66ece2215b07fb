"""What a killed test run leaves on this machine, and its end: each run notes what it makes, and the next one cleans."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from rackready.drivers.process import start_ticks
from tests.integration import worker_nets

NOTES = Path("/run/rackready-tests")
"""Kept until the machine restarts, as namespaces are."""


class Note:
    """What one run has made. Remove it when that is gone."""

    def __init__(self, prefix: str, notes: Path = NOTES) -> None:
        notes.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = notes / f"{prefix}.json"
        pid = os.getpid()
        self._said = {"pid": pid, "ticks": start_ticks(pid), "prefix": prefix, "folders": [], "root": "", "env": ""}
        self.add()

    def add(self, *folders: Path, root: Path | None = None, env: str = "") -> None:
        """Note folders, or a root with a simulated rack."""
        self._said["folders"] = [*self._said["folders"], *map(str, folders)]  # type: ignore[misc]
        if root is not None:
            self._said |= {"root": str(root), "env": env}
        self._path.write_text(json.dumps(self._said), encoding="utf-8")

    def done(self) -> None:
        """Forget it."""
        self._path.unlink(missing_ok=True)


def sweep(notes: Path = NOTES) -> list[str]:
    """Remove what killed runs left, and return what that was."""
    removed = []
    for path in sorted(notes.glob("*.json")):
        try:
            note = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:  # it was killed while it wrote, before it made anything more
            path.unlink()
            continue
        if start_ticks(note["pid"]) == note["ticks"]:
            continue
        removed += worker_nets.remove(note["prefix"])
        if note["root"] and Path(note["root"]).exists():
            removed += _end_rack(Path(note["root"]), note["env"])
        for folder in filter(os.path.exists, note["folders"]):
            shutil.rmtree(folder, ignore_errors=True)
            removed.append(folder)
        path.unlink()
    return removed


def _end_rack(root: Path, env: str) -> list[str]:
    ours = f"RACKREADY_ROOT={root}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                if ours in (entry / "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)
    command = [sys.executable, "-m", "rackready", "sim", "down"]
    subprocess.run(
        command, cwd=root, env=os.environ | {"RACKREADY_ROOT": str(root), "ENV": env}, capture_output=True, check=False
    )
    return [f"rack of {root}"]
