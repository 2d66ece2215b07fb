"""Calls of the tools that a mirror is made with, and the error of a mirror."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rackready.model.problems import RackreadyError

Tell = Callable[[str], None]

_BROUGHT_BY = {
    "apt-get": "apt",
    "apt-ftparchive": "apt-utils",
    "gpg": "gnupg",
    "dnf": "dnf (Debian and Ubuntu: dnf and dnf-plugins-core)",
    "createrepo_c": "createrepo_c (Debian and Ubuntu: createrepo-c)",
    "modifyrepo_c": "createrepo_c (Debian and Ubuntu: createrepo-c)",
    "rpmkeys": "rpm",
}
_LAST_LINES = 6


class MirrorError(RackreadyError):
    """The mirror was not made or is not good: a tool is missing, an upstream is wrong, a file is damaged."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """How a tool ended, with its output and errors together."""

    returncode: int
    out: str


def require(names: Iterable[str]) -> None:
    """Raise MirrorError with the packages of all tools that the controller lacks."""
    missing = [name for name in names if shutil.which(name) is None]
    if missing:
        packages = ", ".join(dict.fromkeys(_BROUGHT_BY[name] for name in missing))
        raise MirrorError(
            "controller",
            expected=f"the programs {', '.join(missing)}",
            actual="not installed",
            next_step=f"Install the packages that bring them: {packages}.",
        )


def run(
    argv: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    on_line: Tell | None = None,
    out: Path | None = None,
) -> ToolResult:
    """Run a tool to its end, in English; ``out`` gets its standard output.

    The tool dies with this process: a download that goes on alone would hold the locks of the next run.
    """
    dies_with_us = ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "LANGUAGE": "", **(env or {})}
    sink = out.open("wb") if out is not None else None
    try:
        child = subprocess.Popen(
            [*dies_with_us, *argv],
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=sink or subprocess.PIPE,
            stderr=subprocess.PIPE if sink else subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        stream = child.stderr if sink else child.stdout
        lines = []
        with child:
            for line in stream or ():
                lines.append(line)
                if on_line is not None:
                    on_line(line.rstrip("\n"))
        return ToolResult(child.returncode, "".join(lines))
    finally:
        if sink is not None:
            sink.close()


def must(argv: Sequence[str], what: str, *, cwd: Path | None = None, out: Path | None = None) -> str:
    """Run a tool and return its output. Raises MirrorError when it fails; ``what`` completes "Expected:"."""
    done = run(argv, cwd=cwd, out=out)
    if done.returncode != 0:
        raise MirrorError(
            argv[0],
            expected=what,
            actual=f"exit code {done.returncode}: {last(done.out)}",
            next_step="Fix the cause that it names, then run again.",
        )
    return done.out


def last(out: str) -> str:
    """Return the last lines of an output on one line."""
    lines = [line.strip() for line in out.splitlines() if line.strip()]
    return "; ".join(lines[-_LAST_LINES:]).rstrip(".") or "no output"
