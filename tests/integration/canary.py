"""Canaries: secrets of every kind that a test plants, and a search for them wherever a run leaves traces.

A canary may be in the file that holds it and in the environment that the operator gave it to. It may be in no other
file below the test's folder (state, logs, reports, Pulumi's and Ansible's own files, home and temporary folders), in no
command line, and in no environment that we made.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

EVERY_S = 0.005


@dataclass
class Canaries:
    """``kinds``: name to value. ``given``: names of those that the operator gives by the environment."""

    kinds: dict[str, str] = field(default_factory=dict)
    given: set[str] = field(default_factory=set)
    seen: set[str] = field(default_factory=set)
    """Where a running process showed one."""
    processes: set[str] = field(default_factory=set)
    """Names of the programs that were looked at."""

    def plant(self, name: str, *, by_environment: bool = False) -> str:
        """Make a canary that no program's own text can contain."""
        value = self.kinds[name] = f"Canary-{secrets.token_hex(8)}"
        if by_environment:
            self.given.add(name)
        return value

    def needles(self, *, environment: bool = False) -> dict[bytes, str]:
        """Return each form in which a program may write a canary, and the canary's name."""
        chosen = {name: value for name, value in self.kinds.items() if not (environment and name in self.given)}
        return {form: name for name, value in chosen.items() for form in forms(value)}

    def in_files(self, folder: Path, allowed: set[Path]) -> list[str]:
        """Return the files below a folder that contain one, except those that may."""
        found = []
        for path in sorted(folder.rglob("*")):
            if path in allowed or path.is_symlink() or not path.is_file():
                continue
            data = path.read_bytes()
            if data[:2] == b"\x1f\x8b":
                with suppress(zlib.error):
                    data += zlib.decompress(data, wbits=31)
            found += [f"{path}: {name}" for form, name in self.needles().items() if form in data]
        return found

    @contextmanager
    def watched(self, folder: Path) -> Iterator[None]:
        """Look at the command lines and environments of all processes again and again.

        So too at what ansible-runner writes about its command below a folder, which is gone a moment later.
        """
        stop = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(stop, folder))
        watcher.start()
        try:
            yield
        finally:
            stop.set()
            watcher.join()

    def _watch(self, stop: threading.Event, folder: Path) -> None:
        words, environment = self.needles(), self.needles(environment=True)
        while not stop.wait(EVERY_S):
            for file in folder.glob("*/*/command"):
                with suppress(OSError):
                    self._look(b"ansible-runner\0" + file.read_bytes(), words, "file")
                    self.processes.add("ansible-runner")
            for process in Path("/proc").glob("[0-9]*"):
                with suppress(OSError):
                    line = (process / "cmdline").read_bytes()
                    self.processes |= {Path(os.fsdecode(word)).name for word in line.split(b"\0")[:2]}
                    self._look(line, words, "command line")
                    self._look((process / "environ").read_bytes(), environment, "environment")

    def _look(self, data: bytes, needles: dict[bytes, str], where: str) -> None:
        program = os.fsdecode(data.split(b"\0")[0])
        self.seen |= {f"{where} of {program}: {name}" for form, name in needles.items() if form in data}


def forms(value: str) -> set[bytes]:
    """Return a secret as programs write it: plain, in JSON, in a URL, as words of HTTP's basic access, in base64."""
    encoded = value.encode()
    basic = (base64.b64encode(user + encoded) for user in (b"admin:", b"root:", b""))
    return {encoded, json.dumps(value)[1:-1].encode(), quote(value, safe="").encode(), *(item[:-4] for item in basic)}
