"""Search for the reason that a failed program printed.

mpirun and torchrun end with a ruler, torchrun after a traceback of its own; docker ends with a hint at its help.
"""

from __future__ import annotations

import re

_MOST = 200
_CAUSE = re.compile(
    r"^Root Cause \(first observed failure\):\n.*?^\s*rank\s*: (?P<rank>\d+) .*?^\s*exitcode\s*: (?P<code>-?\d+) "
    r".*?^\s*traceback\s*: (?P<text>[^\n]*)",
    re.MULTILINE | re.DOTALL,
)
_EXCEPTION = re.compile(
    r"^(?:\[rank\d+\]:[ ]?)?(?P<text>(?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception): .+)$", re.MULTILINE
)
_RUNTIME = re.compile(r"^(?:Error: |docker: (?:Error response from daemon: )?)(?P<text>.*\w.*)$", re.MULTILINE)
_RUNTIMES_MOST = 400
"""Longest text of a runtime: one line holds a registry's address, the cause and earlier steps."""
_RUNTIMES_OWN = frozenset({125, 126, 127})
"""Exit codes of podman and docker if they could not start the program; 126 and 127 are also a shell's.

podman-run(1); docker run, Exit Status.
"""


def container(exit_code: int | None, stdout: str, stderr: str) -> str:
    """Return why podman or docker did not start a program or, if it was started, its last words."""
    reasons = list(_RUNTIME.finditer(stderr)) if exit_code in _RUNTIMES_OWN else []
    return reasons[-1]["text"].strip()[:_RUNTIMES_MOST].rstrip(".") if reasons else last_words(stdout, stderr)


def last_words(stdout: str, stderr: str) -> str:
    """Return the last line with a word in it, of standard error or else of standard output."""
    for text in (stderr, stdout):
        lines = [line.strip() for line in text.splitlines() if any(letter.isalnum() for letter in line)]
        if lines:
            return lines[-1][:_MOST]
    return "nothing said"


def torchrun(exit_code: int | None, stdout: str, stderr: str) -> str:
    """Return the rank that failed first according to torchrun, its exit code, and its signal or the first exception.

    For torchrun of PyTorch 1.13 to 2.8. If it names no rank: why its container was not started, or its last words.
    """
    cause = _CAUSE.search(stderr)
    if cause is None:
        return container(exit_code, stdout, stderr)
    exception = None if cause["text"].startswith("Signal") else _EXCEPTION.search(stderr)
    why = exception["text"] if exception else cause["text"]
    return f"rank {cause['rank']} ended with {cause['code']}: {why.strip()[:_MOST]}"
