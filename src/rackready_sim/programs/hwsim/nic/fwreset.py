"""mlxfwreset: reset a card, so that it takes its parameters over.

Text and exit codes: Mellanox/mstflint @b9d9e844, small_utils/mstfwreset.py.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from .. import kmsg, machine, rdmatree
from . import nv

_STEPS = ("Sending Reset Command To Fw", "Stopping Driver", "Resetting PCI", "Starting Driver")
_REFUSED = "Reset-level '3' is not supported in the current state of this device"


def main(argv: list[str]) -> int:
    """Reset the card of a PCI address."""
    device = next((argv[at + 1] for at, word in enumerate(argv[:-1]) if word in {"-d", "--device"}), "")
    nic = next((item for item in machine.nics() if device and item["pci"].endswith(device)), None)
    if nic is None:
        return _fail(f"Failed to Identify Device: {device}")
    if not {"r", "reset"} & set(argv):
        return _fail("invalid command")
    sys.stdout.write("\n")
    if nic.get("reset_refused"):
        return _fail(_REFUSED)
    sys.stdout.write(f"The reset level for device, {device} is:\n\n3: Driver restart and PCI reset\n")
    yes = bool({"-y", "--yes"} & set(argv))
    sys.stdout.write("Continue with reset?[y/N] " + ("y\n" if yes else ""))
    if not yes and sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        return _fail("Aborted by user")
    sys.stdout.write("Reset level: 3, Reset type: 0, Reset sync: 0, Reset method: 0\n")
    _reset(nic)
    sys.stdout.write("".join(f"-I- {step:<40}-Done\n" for step in _STEPS))
    sys.stdout.write("-I- FW was loaded successfully.\n")
    return 0


def _reset(nic: dict[str, Any]) -> None:
    """Take the parameters over; the interface comes back without address and with its default MTU."""
    nv.load(nic)
    for argv in (("address", "flush", "dev", nic["netdev"]), ("link", "set", "dev", nic["netdev"], "mtu", "1500")):
        subprocess.run(["ip", *argv], check=False, capture_output=True)
    kmsg.say(f"mlx5_core {nic['pci']}: firmware version: {nic['fw']}")
    rdmatree.write(nic)


def _fail(text: str) -> int:
    sys.stdout.write(f"-E- {text}.\n")
    return 1
