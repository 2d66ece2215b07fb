"""mlxfwreset: reset a card, so that it takes its parameters over.

Text and exit codes: Mellanox/mstflint @b9d9e844, small_utils/mstfwreset.py; levels: mlxfwresetlib/cmd_reg_mfrl.py.
Cards here support level 4, and level 3 unless they refuse it. With no level, the tool takes the lowest supported one.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from .. import kmsg, machine, rdmatree
from . import nv

_SEND = "Sending Reset Command To Fw"
_STEPS = (_SEND, "Stopping Driver", "Resetting PCI", "Starting Driver")
_PCI_RESET, _WARM_REBOOT = "3", "4"
_LEVELS = {_PCI_RESET: "Driver restart and PCI reset", _WARM_REBOOT: "Warm Reboot"}


def main(argv: list[str]) -> int:
    """Reset the card of a PCI address."""
    device = next((argv[at + 1] for at, word in enumerate(argv[:-1]) if word in {"-d", "--device"}), "")
    nic = next((item for item in machine.nics() if device and item["pci"].endswith(device)), None)
    if nic is None:
        return _fail(f"Failed to Identify Device: {device}")
    if not {"r", "reset"} & set(argv):
        return _fail("invalid command")
    sys.stdout.write("\n")
    supported = [_WARM_REBOOT] if nic.get("reset_refused") else [*_LEVELS]
    level = next((argv[at + 1] for at, word in enumerate(argv[:-1]) if word in {"-l", "--level"}), supported[0])
    if level not in supported:
        return _fail(f"Reset-level '{level}' is not supported in the current state of this device")
    sys.stdout.write(f"The reset level for device, {device} is:\n\n{level}: {_LEVELS[level]}\n")
    yes = bool({"-y", "--yes"} & set(argv))
    sys.stdout.write("Continue with reset?[y/N] " + ("y\n" if yes else ""))
    if not yes and sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        return _fail("Aborted by user")
    sys.stdout.write(f"Reset level: {level}, Reset type: 0, Reset sync: 0, Reset method: 0\n")
    if level == _WARM_REBOOT:
        return _reboot()
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


def _reboot() -> int:
    """Ask the machine for a reboot, as rebootMachine does; the boot brings the parameters."""
    done = subprocess.run(["reboot"], check=False, capture_output=True)
    steps = {_SEND: "Done", "Sending reboot command to machine": "Done" if done.returncode == 0 else "Failed"}
    sys.stdout.write("".join(f"-I- {step:<40}-{end}\n" for step, end in steps.items()))
    if done.returncode != 0:
        return _fail("Failed to reboot machine please reboot machine manually")
    sys.stdout.write("-I- FW was loaded successfully.\n")
    return 0


def _fail(text: str) -> int:
    sys.stdout.write(f"-E- {text}.\n")
    return 1
