"""Services that run with older settings, or an older program, than the node has.

A run that was cut off wrote their files, and did not start them anew. Some packages replace a program and leave the
service as it is.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from .command import NodeProblem, Run
from .difference import Difference

STEP_S = 1.0
"""A step back of the clock while a service started is tolerated up to this, s."""


def started_before(run: Run, unit: str, place: Path, *, packaged: bool = False) -> bool:
    """Return whether a service started before a file or folder was written last.

    The start counts by the clock that steps do not touch. A file from the future was written while the clock was wrong:
    it tells nothing, and so does one that is not there. ``packaged``: a package brought the file. dpkg and rpm give it
    the time of its build, so the change of its inode counts.
    """
    said = run(["systemctl", "show", "--property=ActiveEnterTimestampMonotonic", "--value", unit]).out
    if not said.strip().isdigit() or not int(said) or not place.exists():
        return False
    now = time.time()
    started = now - (time.monotonic() - int(said) / 1e6)
    found = place.stat()
    return started + STEP_S < (found.st_ctime if packaged else found.st_mtime) <= now


def restart_older(run: Run, programs: dict[str, str], *, root: Path = Path("/"), check: bool) -> list[Difference]:
    """Restart the services that run an older program than the one installed; return them as differences.

    ``programs``: unit -> its program. ``root``: the start of the file system (tests). A service that does not run is
    left to others. Raises NodeProblem.
    """
    found = []
    for unit, program in programs.items():
        if run(["systemctl", "is-active", "--quiet", unit]).returncode != 0:
            continue
        if started_before(run, unit, root / program.lstrip("/"), packaged=True):
            found.append(Difference("unit", unit, f"started after {program} was installed", "started before"))
    for item in found if not check else ():
        for argv in (["systemctl", "daemon-reload"], ["systemctl", "restart", item.name]):
            done = run(argv)
            if done.returncode != 0:
                actual = " ".join(done.out.split()) or f"exit code {done.returncode}"
                step = f"Check `journalctl -u {item.name}` on the node."
                raise NodeProblem(f"`{' '.join(argv)}` succeeds", actual, step)
    return found


def with_older_settings(run: Run, files: dict[str, list[str]], root: Path = Path("/")) -> list[str]:
    """Return the units that started before one of their files was written, or that systemd read before a change.

    ``files``: unit -> the files that it reads when it starts. ``root``: the start of the file system (tests).
    """
    return [unit for unit, paths in files.items() if _older(run, unit, [root / path.lstrip("/") for path in paths])]


def _older(run: Run, unit: str, places: Iterable[Path]) -> bool:
    if any(started_before(run, unit, place) for place in places):
        return True
    return run(["systemctl", "show", "--property=NeedDaemonReload", "--value", unit]).out.strip() == "yes"


def not_running(run: Run, units: Iterable[str]) -> list[str]:
    """Return a text for each service that does not run, with its state. One that starts again and again is one."""
    found = []
    for unit in units:
        said = run(["systemctl", "show", "--property=ActiveState,SubState", unit]).out
        state = dict(line.split("=", 1) for line in said.split() if "=" in line)
        if (state.get("ActiveState"), state.get("SubState")) != ("active", "running"):
            words = f"{state.get('ActiveState', 'unknown')} ({state.get('SubState', 'unknown')})"
            found.append(f"{unit} is {words}, so no answer at its port is its own")
    return found
