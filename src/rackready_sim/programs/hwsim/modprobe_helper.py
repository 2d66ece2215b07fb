"""nvidia-modprobe: load the driver and create its device nodes."""

from __future__ import annotations

import sys

from . import kmod


def main(_argv: list[str]) -> int:
    """Load the nvidia module, and nvidia-uvm with -u."""
    error = kmod.load("nvidia") or (kmod.load("nvidia_uvm") if "-u" in sys.argv else "")
    return 1 if error else 0
