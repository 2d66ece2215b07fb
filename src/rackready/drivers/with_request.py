"""A program and its request on one standard input.

As an argument a request of some 700 nodes is longer than Linux allows (128 KiB: MAX_ARG_STRLEN, execve(2)), and `ps`
shows it to every user of the machine.
"""

from __future__ import annotations

ARGV = ("python3", "-")


def with_request(program: str, request: str) -> str:
    """Return what ``ARGV`` reads: the program, which finds its request in ``sys.argv[1]``."""
    return f"import sys\nsys.argv[1:] = [{request!r}]\n{program}"
