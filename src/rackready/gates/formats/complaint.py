"""Finds the words in which a failed program says why: mpirun and torchrun end with a ruler, torchrun with a traceback of its own before it."""

from __future__ import annotations

import re

_MOST = 200
_CAUSE = re.compile(
    r"^Root Cause \(first observed failure\):\n.*?^\s*rank\s*: (?P<rank>\d+) .*?^\s*exitcode\s*: (?P<code>-?\d+) .*?^\s*traceback\s*: (?P<text>[^\n]*)",
    re.MULTILINE | re.DOTALL,
)
_EXCEPTION = re.compile(r"^(?:\[rank\d+\]:[ ]?)?(?P<text>(?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception): .+)$", re.MULTILINE)


def last_words(stdout: str, stderr: str) -> str:
    """Return the last line that has a word in it, of standard error if there is one, else of standard output."""
    for text in (stderr, stdout):
        lines = [line.strip() for line in text.splitlines() if any(letter.isalnum() for letter in line)]
        if lines:
            return lines[-1][:_MOST]
    return "nothing said"


def torchrun(stdout: str, stderr: str) -> str:
    """Return the rank that torchrun (PyTorch 1.13 to 2.8) says failed first, its exit code, and the signal or the first exception of the ranks."""
    cause = _CAUSE.search(stderr)
    if cause is None:
        return last_words(stdout, stderr)
    said = None if cause["text"].startswith("Signal") else _EXCEPTION.search(stderr)
    why = said["text"] if said else cause["text"]
    return f"rank {cause['rank']} ended with {cause['code']}: {why.strip()[:_MOST]}"
