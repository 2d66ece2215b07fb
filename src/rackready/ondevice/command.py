"""Running a program on a node, in an environment that makes its output comparable."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass


class NodeProblem(Exception):  # noqa: N818 - it is a finding about the node, not a programming error
    """Something on this node is not as it must be. The text reads: Expected, Actual, next step.

    ``check``: the same as data; a module returns it beside its message, as the action rackready_check does.
    """

    def __init__(self, expected: str, actual: str, next_step: str) -> None:
        self.check = {"expected": expected, "actual": actual.strip().rstrip("."), "next_step": next_step}
        super().__init__(f"Expected: {expected} Actual: {self.check['actual']}. {next_step}")

    def result(self) -> dict[str, object]:
        """Return what a module that stops here returns."""
        return {"msg": str(self), "check": self.check}


@dataclass(frozen=True)
class Done:
    """The end of a program; ``out`` holds its standard output and standard error in the order of writing."""

    returncode: int
    out: str


Run = Callable[[Sequence[str]], Done]
"""Runs a program to its end. Tests pass their own."""


def run(argv: Sequence[str], timeout_s: float = 3600.0) -> Done:
    """Run a program without a terminal, without questions and in the C locale.

    A program that cannot be started ends with 127, one that exceeds ``timeout_s`` with 124, as in a shell. needrestart
    lists the services that use replaced files: restarting them by itself could end a job (NEEDRESTART_MODE, program
    needrestart 3.6).
    """
    env = dict(
        os.environ, LC_ALL="C", DEBIAN_FRONTEND="noninteractive", NEEDRESTART_MODE="l", APT_LISTCHANGES_FRONTEND="none"
    )
    try:
        done = subprocess.run(
            list(argv),
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except OSError as error:
        return Done(127, f"{argv[0]}: {error.strerror}")
    except subprocess.TimeoutExpired:
        return Done(124, f"{argv[0]}: no answer within {timeout_s:.0f} s")
    return Done(done.returncode, done.stdout)
