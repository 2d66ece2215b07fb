"""The machine: its programs, and its files below a root that tests replace."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .errors import ImagingError

_SAID = 400
_LIMIT_S = 900.0


@dataclass(frozen=True)
class Ended:
    """How a program ended."""

    code: int
    out: str
    err: str = ""


class Host:
    """Programs and files of this machine."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root

    def call(self, argv: Sequence[str], *, stdin: str = "") -> Ended:
        """Run a program to its end. Raises ImagingError if it is missing or takes 15 minutes."""
        try:
            done = subprocess.run(
                list(argv), input=stdin, capture_output=True, text=True, errors="replace", timeout=_LIMIT_S, check=False
            )
        except FileNotFoundError as error:
            raise ImagingError("tool", f"{argv[0]}", expected="in the ramdisk", actual="missing") from error
        except subprocess.TimeoutExpired as error:
            raise ImagingError(
                "tool", f"{argv[0]}", expected=f"an end within {_LIMIT_S:.0f} s", actual="none"
            ) from error
        return Ended(done.returncode, done.stdout, done.stderr)

    def must(self, *argv: str, stdin: str = "") -> str:
        """Run a program and return its output. Raises ImagingError with what it said unless it ends with 0."""
        done = self.call(argv, stdin=stdin)
        if done.code != 0:
            said = " ".join((done.err or done.out).split())[-_SAID:] or "nothing"
            raise ImagingError("tool", f"`{' '.join(argv)}`", expected="exit code 0", actual=f"{done.code}: {said}")
        return done.out

    def read(self, path: str) -> str:
        """Return the stripped text of a file below the root, empty if there is none: sysfs lacks what a part lacks."""
        try:
            return (self.root / path.lstrip("/")).read_text(encoding="utf-8", errors="replace").strip("\0 \n\t")
        except OSError:
            return ""

    def path(self, path: str) -> Path:
        """Return the path of a file below the root."""
        return self.root / path.lstrip("/")


def say(text: str) -> None:
    """Print a line on the console."""
    sys.stdout.write(f"rackready: {text}\n")
    sys.stdout.flush()
