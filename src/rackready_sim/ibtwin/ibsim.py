"""Runs ibsim with a topology, and the real programs of InfiniBand against it."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rackready_sim.errors import SimError, describe
from rackready_sim.ibtwin.topology import Twin, limits, net_text

PACKAGES = {
    "ibsim": "ibsim-utils",
    "opensm": "opensm",
    "ibnetdiscover": "infiniband-diags",
    "ibdmchk": "ibutils",
}
"""Programs of the twin, each with its package in Debian and Ubuntu."""

_PRELOAD = "/usr/lib/*/umad2sim/libumad2sim.so"
"""Library that connects programs to ibsim instead of the kernel: Debian's ibsim-utils, as ibsim-run sets it."""
_PATH = "/usr/sbin:/sbin"
"""opensm and the diagnostics are programs of the administrator."""
_READY = "Network simulator ready."
_START_S = 60.0
_TOOL_S = 300.0
"""Time limits, s. 2,048 adapters take 1.6 s for opensm on two cores."""


def missing() -> list[str]:
    """Return the packages that the twin needs and this machine lacks, sorted."""
    lacking = {package for program, package in PACKAGES.items() if _which(program) is None}
    return sorted(lacking | ({"ibsim-utils"} if _preload() is None else set()))


def require() -> None:
    """Raise SimError with the packages to install if a program is missing."""
    if lacking := missing():
        raise describe(
            "fabric twin",
            "ibsim, opensm, ibnetdiscover and ibdmchk",
            f"missing: {', '.join(lacking)}",
            f"Install them as root: apt-get install {' '.join(lacking)}.",
        )


def _which(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ.get('PATH', os.defpath)}:{_PATH}")


def _preload() -> str | None:
    return next(iter(sorted(glob.glob(_PRELOAD))), None)  # noqa: PTH207 - an absolute pattern


@dataclass(slots=True)
class Ibsim:
    """A running ibsim: its folder, and the node to which programs attach."""

    folder: Path
    process: subprocess.Popen[str]
    host: str
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    def tell(self, *lines: str) -> None:
        """Give commands to its console and wait until it has read them. Raises SimError if it refuses one."""
        before = len(self._said())
        pipe = self.process.stdin
        assert pipe is not None  # noqa: S101 - opened as a pipe
        mark = f"no-such-command-{time.monotonic_ns()}"
        pipe.write("".join(f"{line}\n" for line in (*lines, mark)))
        pipe.flush()
        until = time.monotonic() + _START_S
        while mark not in (said := self._said()[before:]):
            if time.monotonic() > until or self.process.poll() is not None:
                raise describe("ibsim", "an answer of its console", said[-400:], "See its log.")
            time.sleep(0.01)
        answers = [line.removeprefix("sim> ") for line in said.splitlines() if mark not in line]
        if wrong := [line for line in answers if line.startswith("# ") or line.endswith("unknown - skipped")]:
            raise describe("ibsim", f"{'; '.join(lines)} done", wrong[0], "See its log.")

    def _said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def run(
        self, program: str, *arguments: str, host: str = "", codes: Sequence[int] = (0,)
    ) -> subprocess.CompletedProcess[str]:
        """Run a program attached to a node and return its result. Raises SimError for another exit code."""
        environment = {**self.environment, "SIM_HOST": host or self.host}
        argv = [_which(program) or program, *arguments]
        try:
            done = subprocess.run(
                argv,
                env=environment,
                cwd=self.folder,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=_TOOL_S,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired as error:
            raise describe(
                program, f"an end within {_TOOL_S:g} s", "none", "Use a smaller site, or a faster machine."
            ) from error
        if done.returncode not in codes:
            said = (done.stderr.strip() or done.stdout.strip())[-400:]
            raise describe(program, "exit code 0", f"{done.returncode}: {said}", "See its output.")
        return done


@contextmanager
def running(twin: Twin, folder: Path, host: str) -> Iterator[Ibsim]:
    """Run ibsim with the twin's topology in ``folder``. ``host``: node id to which programs attach.

    Raises SimError if ibsim does not start.
    """
    (folder / "net").write_text(net_text(twin, host), encoding="utf-8")
    log = folder / "ibsim.log"
    environment = {
        **os.environ,
        "IBSIM_SOCKNAME": f"rackready-{os.getpid()}-{time.monotonic_ns()}",
        "OSM_CACHE_DIR": str(folder),
        "OSM_TMP_DIR": str(folder),
        "LD_PRELOAD": _preload() or "",
    }
    own = {name: value for name, value in environment.items() if name != "LD_PRELOAD"}
    with log.open("w", encoding="utf-8") as out:
        process = subprocess.Popen(
            [_which("ibsim") or "ibsim", "-s", *limits(twin), "net"],
            env=own,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            _wait(process, log)
            yield Ibsim(folder, process, host, log, environment)
        finally:
            process.terminate()
            process.wait()


def _wait(process: subprocess.Popen[str], log: Path) -> None:
    until = time.monotonic() + _START_S
    while _READY not in (said := log.read_text(encoding="utf-8", errors="replace")):
        if process.poll() is not None or time.monotonic() > until:
            raise SimError(
                "ibsim",
                "start",
                expected=_READY,
                actual=said[-400:] or "nothing",
                next_step="Report the topology file with this output.",
            )
        time.sleep(0.02)
