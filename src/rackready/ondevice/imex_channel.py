"""The default IMEX channel, without which no process may share GPU memory with other nodes of an NVLink domain.

NVIDIA's IMEX guide (docs.nvidia.com/multi-node-nvlink-systems/imex-guide/imexchannels.html): nobody makes channels by
default, and none survives a reboot. Module option NVreg_CreateImexChannel0=1 makes this one when the driver is loaded;
in a driver that is loaded already, mknod does.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from .command import NodeProblem

CHANNEL = "dev/nvidia-caps-imex-channels/channel0"
_NAME = "nvidia-caps-imex-channels"
_MODE = 0o666
"""As the driver makes it (NVIDIA/open-gpu-kernel-modules, kernel-open/nvidia/nv-caps-imex.c)."""


def major(root: Path) -> int:
    """Return the device number of IMEX channels, which differs between nodes and boots. Raises NodeProblem."""
    try:
        rows = [line.split() for line in (root / "proc/devices").read_text(encoding="utf-8").splitlines()]
    except OSError:
        rows = []
    found = [int(row[0]) for row in rows if row[1:] == [_NAME] and row[0].isdigit()]
    if not found:
        raise NodeProblem(f"{_NAME} in /proc/devices", "not there", "Check that the NVIDIA driver is loaded: `lsmod`.")
    return found[0]


def ensure(root: Path, *, check: bool, mknod: Callable[[Path, int, int], None] = os.mknod) -> str:
    """Make the channel; return what was (in check mode: is to be) changed, "" for nothing. Raises NodeProblem.

    One that was made by hand keeps its number when the driver is loaded anew under another one: it is replaced.
    """
    path, wanted = root / CHANNEL, os.makedev(major(root), 0)
    try:
        found = path.lstat()
    except FileNotFoundError:
        actual = "absent"
    else:
        if stat.S_ISCHR(found.st_mode) and found.st_rdev == wanted and stat.S_IMODE(found.st_mode) == _MODE:
            return ""
        actual = "another device or mode"
    if not check:
        path.parent.mkdir(mode=0o755, exist_ok=True)
        path.unlink(missing_ok=True)
        mknod(path, stat.S_IFCHR | _MODE, wanted)
        path.chmod(_MODE)  # whatever the umask
    return f"/{CHANNEL}: {actual}"
