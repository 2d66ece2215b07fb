"""nvidia-persistenced: keep the driver's state for every GPU while it runs.

Options: NVIDIA/nvidia-persistenced 595.71.05, option-table.h: persistence mode is on unless --no-persistence-mode is
given. options.c: a user that does not exist ends it. The simulated daemon stays root: its devices are root's alone.
"""

from __future__ import annotations

import os
import pwd
import sys
import syslog

from . import daemon, machine, store

_PID_FILE = "/var/run/nvidia-persistenced/nvidia-persistenced.pid"


def main(argv: list[str], version: str) -> int:
    """Turn persistence on for all GPUs, go to the background, and turn it off again when stopped."""
    user = _user(argv)
    if user and user not in {entry.pw_name for entry in pwd.getpwall()}:
        sys.stderr.write(f"\nERROR: Failed to find user ID of user '{user}': No such file or directory\n\n")
        return 1
    try:
        machine.open_driver()
    except (machine.DriverNotLoadedError, machine.LibraryMissingError):
        syslog.openlog("nvidia-persistenced", syslog.LOG_PID)
        syslog.syslog(
            syslog.LOG_ERR,
            "Failed to query NVIDIA devices. Please ensure that the NVIDIA device files (/dev/nvidia*) exist, and "
            "that user 0 has read and write permissions "
            "for those files.",
        )
        sys.stderr.write("nvidia-persistenced failed to initialize. Check syslog for more details.\n")
        return 1
    except machine.VersionMismatchError:
        sys.stderr.write("nvidia-persistenced failed to initialize. Check syslog for more details.\n")
        return 1
    return daemon.background(_PID_FILE, lambda: _hold(version, persist=_persist(argv)))


def _user(argv: list[str]) -> str:
    """Return the user that the daemon is to become, of ``--user NAME``, ``--user=NAME`` or ``-u NAME``; "": none."""
    found = ""
    for place, word in enumerate(argv):
        if word in ("--user", "-u"):
            found = "".join(argv[place + 1 : place + 2])
        elif word.startswith("--user="):
            found = word.removeprefix("--user=")
    return found


def _persist(argv: list[str]) -> bool:
    """Return whether persistence mode is turned on; of both options the last one counts."""
    given = [item for item in argv if item in ("--persistence-mode", "--no-persistence-mode", "-p")]
    return not given or given[-1] != "--no-persistence-mode"


def _hold(version: str, *, persist: bool) -> int:
    syslog.openlog("nvidia-persistenced", syslog.LOG_PID)
    syslog.syslog(f"Started ({os.getpid()}), version {version}")
    with store.change() as runtime:
        runtime["clients"]["nvidia-persistenced"] = os.getpid()
    for gpu in machine.gpus():
        if persist and not gpu.lost:
            machine.set_persistence(gpu, on=True)
            syslog.syslog(f"device {gpu.part['pci']} - persistence mode enabled.")
    daemon.wait_for_end()
    for gpu in machine.gpus():
        machine.set_persistence(gpu, on=False)
    with store.change() as runtime:
        runtime["clients"].pop("nvidia-persistenced", None)
    return 0
