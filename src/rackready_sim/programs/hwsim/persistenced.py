"""nvidia-persistenced: keep the driver's state for every GPU while it runs.

Options: NVIDIA/nvidia-persistenced, option-table.h: persistence mode is on unless --no-persistence-mode is given.
"""

from __future__ import annotations

import os
import sys
import syslog

from . import daemon, machine, store

_PID_FILE = "/var/run/nvidia-persistenced/nvidia-persistenced.pid"


def main(argv: list[str], version: str) -> int:
    """Turn persistence on for all GPUs, go to the background, and turn it off again when stopped."""
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
