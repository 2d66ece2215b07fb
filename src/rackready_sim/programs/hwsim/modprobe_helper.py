"""nvidia-modprobe: load the driver and create its device nodes."""

from __future__ import annotations

import sys

from . import kmod


def main(_argv: list[str]) -> int:
    """Load the nvidia module, and with -u nvidia-uvm and its devices (nvidia-modprobe(1))."""
    error = kmod.load("nvidia") or (kmod.load("nvidia_uvm") or kmod.control_nodes() if "-u" in sys.argv else "")
    return 1 if error else 0
