"""Programs that give secrets (sops, scripts of vault passwords): by pipes alone, in a session that ends in time."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

LIMIT_S = 60.0
"""Time limit of one program: a key service of a cloud answers within seconds."""


@dataclass(frozen=True, slots=True)
class Given:
    """What a program gave. ``exit_code`` is None where it did not end in time, and was ended."""

    exit_code: int | None
    stdout: bytes
    stderr: bytes


def run(argv: Sequence[str], *, stdin: bytes = b"", limit_s: float | None = None) -> Given:
    """Run a program without a terminal, and return what it gave. Raises OSError when it cannot be started.

    It and all that it started end at the time limit. What it prints is kept in memory only: nothing here logs it.
    """
    child = subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        out, err = child.communicate(stdin, timeout=LIMIT_S if limit_s is None else limit_s)
    except subprocess.TimeoutExpired:
        return Given(None, b"", b"")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        for pipe in (child.stdin, child.stdout, child.stderr):
            if pipe is not None and not pipe.closed:
                pipe.close()
    return Given(child.returncode, out, err)
