"""Finds the words in which a failed program says why.

mpirun and torchrun end with a ruler, torchrun with a traceback of its own before it; docker ends with a hint at its
help.
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
"""As long as a registry's address, its cause and what went before: they come after one another in one line."""
_RUNTIMES_OWN = frozenset({125, 126, 127})
"""Exit codes by which podman and docker say that they could not start the program (podman-run(1), docker run, Exit Status); 126 and 127 a shell's, too."""


def container(exit_code: int | None, stdout: str, stderr: str) -> str:
    """Return in what words podman or docker says why it did not start a program; a program's own last words where it was started."""
    said = list(_RUNTIME.finditer(stderr)) if exit_code in _RUNTIMES_OWN else []
    return said[-1]["text"].strip()[:_RUNTIMES_MOST].rstrip(".") if said else last_words(stdout, stderr)


def last_words(stdout: str, stderr: str) -> str:
    """Return the last line that has a word in it, of standard error if there is one, else of standard output."""
    for text in (stderr, stdout):
        lines = [line.strip() for line in text.splitlines() if any(letter.isalnum() for letter in line)]
        if lines:
            return lines[-1][:_MOST]
    return "nothing said"


def torchrun(exit_code: int | None, stdout: str, stderr: str) -> str:
    """Return the rank that torchrun (PyTorch 1.13 to 2.8) says failed first, its exit code, and the signal or the first exception of the ranks.

    Where torchrun says nothing of a rank: why its container was not started, or its last words.
    """
    cause = _CAUSE.search(stderr)
    if cause is None:
        return container(exit_code, stdout, stderr)
    said = None if cause["text"].startswith("Signal") else _EXCEPTION.search(stderr)
    why = said["text"] if said else cause["text"]
    return f"rank {cause['rank']} ended with {cause['code']}: {why.strip()[:_MOST]}"
