"""Runs tools that mount things and start others, such as mmdebstrap: all of it ends with this process."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

PROGRAMS = ("setpriv", "unshare")
_CONTAINED = (
    *("setpriv", "--pdeathsig", "KILL", "--"),
    *("unshare", "--mount", "--pid", "--mount-proc", "--kill-child=KILL", "--"),
)
"""Processes and mounts of its own: the kernel ends all of them with the first one.

A signal alone is not enough: mmdebstrap 1.3 ignores SIGTERM while its child works.
"""


def run(
    argv: Sequence[str], *, log: Path, scratch: Path, timeout_s: float, env: Mapping[str, str] | None = None
) -> int | None:
    """Run a tool as root and return its exit code, or None if it was ended after ``timeout_s`` seconds.

    Its output is appended to ``log``. Its temporary files are in ``scratch``: a tool that is killed leaves them there.
    """
    with log.open("ab") as out:
        child = subprocess.Popen(
            [*_CONTAINED, *argv],
            env={**os.environ, "TMPDIR": str(scratch), **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        try:
            return child.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
