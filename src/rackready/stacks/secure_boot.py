"""Secure Boot of one machine: set through its BMC before it is powered on, and read where it counts, on the system.

The variable is the UEFI specification's (2.10, 3.3): 1 while the firmware enforces signatures. efivarfs puts four bytes
of attributes before the value (Linux, Documentation/filesystems/efivarfs.rst).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from rackready.drivers import redfish_secure_boot
from rackready.drivers.redfish import Bmc, PowerAction
from rackready.drivers.redfish_boot import set_secure_boot
from rackready.drivers.redfish_errors import BmcError
from rackready.drivers.ssh.command import Shell
from rackready.drivers.ssh.errors import CHECK_HOST
from rackready.drivers.ssh.session import connect
from rackready.drivers.ssh.target import SshTarget
from rackready.ledger.effect import Observation, run_effect
from rackready.ledger.store import Ledger
from rackready.model.problems import RackreadyError

SHOW = "od -An -tu1 -j4 -N1 /sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
"""Command that shows the state on a node: 1 or 0."""
SECURE_BOOT = "secure-boot"
"""Operation in the ledger: a restart that switches Secure Boot."""
_WORDS = {True: "on", False: "off"}


class SecureBootError(RackreadyError):
    """A node's Secure Boot is not as the site file wants it."""


def settle(bmc: Bmc, *, on: bool, say: Callable[[str], None]) -> None:
    """Have the BMC switch Secure Boot for the next boot, where it is otherwise. Raises BmcError."""
    if set_secure_boot(bmc, on=on):
        say(f"Secure Boot is turned {_WORDS[on]} for the next boot")


def cut_off(ledger: Ledger, node: str) -> bool:
    """Return whether a restart that switches Secure Boot was begun and did not end: the machine may be on for it."""
    last = ledger.latest(node, SECURE_BOOT)
    return last is not None and last.status == "intent"


def settle_by_restart(  # noqa: PLR0913 - a node, its records and its callbacks
    ledger: Ledger,
    node: str,
    bmc: Bmc,
    power: str,
    wanted: bool | None,  # noqa: FBT001 - of the site file; None: any
    *,
    proceed: Callable[[], None],
    say: Callable[[str], None],
) -> str:
    """Have Secure Boot switched by a restart of its own where the BMC wants one, and return the power state after it.

    It begins on a machine that is off, and leaves it off. One that was cut off is finished first: the machine is then
    on because of us. Raises BmcError.
    """
    last, cut = ledger.latest(node, SECURE_BOOT), cut_off(ledger, node)
    if not cut and (wanted is None or power != "Off" or not redfish_secure_boot.by_job(bmc)):
        return power
    on = bool(last.observed["on"]) if last is not None and cut else bool(wanted)
    if not cut and redfish_secure_boot.enabled(bmc) is on:
        return power
    run_effect(
        ledger,
        node,
        SECURE_BOOT,
        hashlib.sha256(f"{SECURE_BOOT} {on}".encode()).hexdigest(),
        before=lambda: {"on": on},
        observe=lambda _stored: _switched(bmc, on=on),
        act=lambda _token: _switch(bmc, on=on, proceed=proceed, say=say),
    )
    if wanted is not None and wanted is not on:
        return settle_by_restart(ledger, node, bmc, "Off", wanted, proceed=proceed, say=say)
    return "Off"


def _switched(bmc: Bmc, *, on: bool) -> Observation:
    done = redfish_secure_boot.enabled(bmc) is on and bmc.observe() == "Off"
    return Observation.HAPPENED if done else Observation.NOT_HAPPENED


def _switch(bmc: Bmc, *, on: bool, proceed: Callable[[], None], say: Callable[[str], None]) -> dict[str, Any]:
    """Have the job made, power on until it is carried out, and power off, whether it was or not.

    A machine that is on was powered on for it by an earlier run, after the job was made.
    """
    if redfish_secure_boot.enabled(bmc) is not on and bmc.observe() == "Off":
        proceed()
        redfish_secure_boot.order(bmc, on=on, proceed=proceed)
        say(f"Secure Boot is to be turned {_WORDS[on]} by a restart of its own")
    bmc.power(PowerAction.ON)
    say(f"on, until its BIOS has turned Secure Boot {_WORDS[on]}")
    try:
        redfish_secure_boot.wait(bmc, on=on, proceed=proceed)
    except BmcError:
        bmc.power(PowerAction.OFF)
        raise
    say(f"Secure Boot is turned {_WORDS[on]}, the node is powered off again")
    return {"power": bmc.power(PowerAction.OFF)}


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
