"""The daemons as units of systemd, for a service that outlives a restart of the controller."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

from rackready import files
from rackready.drivers.boot_service.daemons import began_configured, pid_of
from rackready.drivers.boot_service.layout import Layout
from rackready.drivers.boot_service.nodes import BootServiceError
from rackready.drivers.boot_service.programs import both, unit_name

UNIT_FOLDER = Path("/etc/systemd/system")
RUNNING = Path("/run/systemd/system")
"""Exists exactly while systemd is the init (sd_booted(3))."""
_SYSTEMCTL_S = 120


def start(layout: Layout) -> None:
    """Install, enable and (re)start the units. Raises BootServiceError, which gives other users root's commands."""
    names = _names(layout)
    for name in names:
        _ours(UNIT_FOLDER / name, layout)
    _able(
        f"cp {shlex.quote(str(layout.units))}/*.service {UNIT_FOLDER}/ && systemctl daemon-reload && "
        f"systemctl enable {' '.join(names)} && systemctl restart {' '.join(names)}"
    )
    for name in names:
        files.replace(UNIT_FOLDER / name, (layout.units / name).read_bytes(), mode=0o644)
    _systemctl("daemon-reload")
    _systemctl("enable", *names)
    _systemctl("restart", *names)


def started_by_hand(layout: Layout) -> bool:
    """Whether root carried out the commands that ``start`` gives another user.

    The installed units are ours as they are now, and their processes began with the present configuration.
    """
    if os.geteuid() == 0 or not RUNNING.is_dir():
        return False
    for program in both(layout):
        name = unit_name(layout, program)
        installed = UNIT_FOLDER / name
        if not installed.exists() or installed.read_bytes() != (layout.units / name).read_bytes():
            return False
        if not began_configured(program, layout) or _main_pid(name) != pid_of(program):
            return False
    return True


def stop(layout: Layout) -> None:
    """Stop, disable and remove the units. Raises BootServiceError."""
    names = [name for name in _names(layout) if _installed(UNIT_FOLDER / name, layout)]
    if not names:
        return
    files_there = " ".join(shlex.quote(str(UNIT_FOLDER / name)) for name in names)
    _able(f"systemctl disable --now {' '.join(names)} && rm {files_there} && systemctl daemon-reload")
    _systemctl("disable", "--now", *names)
    for name in names:
        (UNIT_FOLDER / name).unlink(missing_ok=True)
    _systemctl("daemon-reload")


def _names(layout: Layout) -> list[str]:
    return [unit_name(layout, program) for program in both(layout)]


def _installed(unit: Path, layout: Layout) -> bool:
    """Whether a unit is there and is this folder's: another checkout may have an environment of the same name."""
    return unit.exists() and f"ReadWritePaths={layout.root}\n" in unit.read_text(encoding="utf-8", errors="replace")


def _ours(unit: Path, layout: Layout) -> None:
    if unit.exists() and not _installed(unit, layout):
        raise BootServiceError(
            unit,
            "unit of a boot service",
            expected=f"of {layout.root}",
            actual="another checkout's",
            next_step="Destroy that one first, or give this environment another name.",
        )


def _able(by_hand: str) -> None:
    if not RUNNING.is_dir():
        raise BootServiceError(
            "boot service",
            "supervised by systemd",
            expected="systemd as init of this machine",
            actual="another init",
            next_step="Set provisioning.service.supervise to rackready.",
        )
    if os.geteuid() != 0:
        raise BootServiceError(
            "boot service",
            "units of systemd",
            expected="root, who may install them",
            actual=f"user id {os.geteuid()}",
            next_step=f"Run as root `{by_hand}`, then run the same command again.",
        )


def _main_pid(unit: str) -> int:
    """Return the process id of a unit's daemon, 0 when systemd runs none. Raises BootServiceError."""
    return int(_systemctl("show", "--property=MainPID", "--value", unit).strip() or 0)


def _systemctl(*words: str) -> str:
    ended = subprocess.run(["systemctl", *words], capture_output=True, text=True, timeout=_SYSTEMCTL_S, check=False)
    if ended.returncode != 0:
        last = (ended.stderr.strip() or ended.stdout.strip() or f"exit status {ended.returncode}").splitlines()[-1]
        raise BootServiceError(
            "boot service",
            f"systemctl {' '.join(words)}",
            expected="done",
            actual=last,
            next_step=f"Look at `journalctl -u {words[-1]}`, then run again.",
        )
    return ended.stdout
