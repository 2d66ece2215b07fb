"""Compile the C sources with the host's compiler, once per version and content."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

from rackready.model.problems import RackreadyError

_HERE = Path(__file__).parent
_FLAGS = ("-std=c11", "-D_XOPEN_SOURCE=700", "-O1", "-Wall", "-Wextra", "-Werror", "-s")
"""Options for plain C11 without GNU extensions: newer compilers then need only symbols of Debian 12's C library."""


class CompilerError(RackreadyError):
    """The C compiler is missing or rejected the source."""


@functools.cache
def library(version: str, query: str = "/usr/lib/hw/nvml") -> bytes:
    """Return libnvidia-ml.so of one version; ``query`` is the program that it queries for the machine's state."""
    return _compile(
        "nvml.c",
        ["-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", f'-DVERSION="{version}"', f'-DQUERY="{query}"'],
        [],
    )


@functools.cache
def collective(name: str, version: str, query: str = "/usr/lib/hw/collective") -> bytes:
    """Return one of NCCL's test programs, e.g. ``all_reduce``; ``query`` is the program that knows the machine."""
    return _compile("collective.c", [f'-DNAME="{name}"', f'-DVERSION="{version}"', f'-DQUERY="{query}"'], ["-ldl"])


def _compile(source: str, flags: list[str], libraries: list[str]) -> bytes:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise CompilerError(
            "Simulated packages",
            expected="a C compiler",
            actual="neither gcc nor cc is on the PATH",
            next_step="Run `apt-get install gcc libc6-dev`.",
        )
    with tempfile.TemporaryDirectory(prefix="rr-cc-") as folder:
        out = Path(folder) / "out"
        argv = [compiler, *_FLAGS, *flags, "-o", str(out), str(_HERE / source), *libraries]
        done = subprocess.run(argv, check=False, capture_output=True, text=True)
        if done.returncode:
            raise CompilerError(
                source,
                expected="it compiles",
                actual=done.stderr.strip()[:2000],
                next_step="Check that libc6-dev is installed.",
            )
        return out.read_bytes()
