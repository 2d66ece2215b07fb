"""Secure Boot of one machine: set through its BMC before it is powered on, and read where it counts, on the system.

The variable is the UEFI specification's (2.10, 3.3): 1 while the firmware enforces signatures. efivarfs puts four bytes
of attributes before the value (Linux, Documentation/filesystems/efivarfs.rst).
"""

from __future__ import annotations

from collections.abc import Callable

from rackready.drivers.redfish import Bmc
from rackready.drivers.redfish_boot import set_secure_boot
from rackready.drivers.ssh.command import Shell
from rackready.drivers.ssh.errors import CHECK_HOST
from rackready.drivers.ssh.session import connect
from rackready.drivers.ssh.target import SshTarget
from rackready.model.problems import RackreadyError

SHOW = "od -An -tu1 -j4 -N1 /sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
"""Command that shows the state on a node: 1 or 0."""
_WORDS = {True: "on", False: "off"}


class SecureBootError(RackreadyError):
    """A node's Secure Boot is not as the site file wants it."""


def settle(bmc: Bmc, *, on: bool, say: Callable[[str], None]) -> None:
    """Have the BMC switch Secure Boot for the next boot, where it is otherwise. Raises BmcError."""
    if set_secure_boot(bmc, on=on):
        say(f"Secure Boot is turned {_WORDS[on]} for the next boot")


def verify(target: SshTarget, *, on: bool) -> None:
    """Compare Secure Boot of the running system with the wanted state. Raises SecureBootError, SshError."""
    with connect(target, timeout_s=30.0) as client:
        done = Shell(client, target.where, CHECK_HOST).run(SHOW, timeout_s=30.0)
    shown = {"1": "on", "0": "off"}.get(done.stdout.strip(), "") if done.exit_code == 0 else ""
    if shown == _WORDS[on]:
        return
    raise SecureBootError(
        target.where,
        "Secure Boot",
        expected=f"{_WORDS[on]} (provisioning.secure_boot)",
        actual=shown or "unknown: the system shows no such variable of the firmware",
        next_step="Power the node off: the next `rackready provision` sets it, and powers it on. If it stays so, set "
        "it in the firmware setup.",
    )
