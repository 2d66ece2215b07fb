"""Secure Boot of one machine: set through its BMC before it is powered on, and read where it counts, on the system.

The variable is the UEFI specification's (2.10, 3.3): 1 while the firmware enforces signatures. efivarfs puts four bytes
of attributes before the value (Linux, Documentation/filesystems/efivarfs.rst).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from rackready.drivers import redfish_secure_boot
from rackready.drivers.redfish import Bmc, PowerAction
from rackready.drivers.redfish_boot import set_secure_boot
from rackready.drivers.redfish_errors import BmcError
from rackready.drivers.ssh.command import Shell
from rackready.drivers.ssh.errors import CHECK_HOST
from rackready.drivers.ssh.session import connect
from rackready.drivers.ssh.target import SshTarget
from rackready.ledger.rows import LedgerEntry
from rackready.ledger.store import Ledger
from rackready.model.problems import RackreadyError

SHOW = "od -An -tu1 -j4 -N1 /sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
"""Command that shows the state on a node: 1 or 0."""
SECURE_BOOT = "secure-boot"
"""Operation in the ledger: a restart that switches Secure Boot."""
_RESTARTS = 2
"""Restarts in one run: the first one may carry out another job of the BIOS, which waited already."""
_WORDS = {True: "on", False: "off"}


class SecureBootError(RackreadyError):
    """A node's Secure Boot is not as the site file wants it."""


def settle(bmc: Bmc, *, on: bool, say: Callable[[str], None]) -> None:
    """Have the BMC switch Secure Boot for the next boot, where it is otherwise. Raises BmcError."""
    if set_secure_boot(bmc, on=on):
        say(f"Secure Boot is turned {_WORDS[on]} for the next boot")


def cut_off(ledger: Ledger, node: str) -> bool:
    """Return whether a restart that switches Secure Boot was begun and did not end: the machine may be on for it."""
    return _begun(ledger, node) is not None


def unsettled(ledger: Ledger, node: str) -> bool:
    """Return whether such a restart did not end, or a job of the BIOS may wait for one."""
    last = ledger.latest(node, SECURE_BOOT, every_epoch=True)
    return last is not None and last.status != "done"


def is_off(ledger: Ledger, node: str) -> None:
    """Record, of a machine that is off, that such a restart has ended: one that is on from now on is not on for it."""
    if (begun := _begun(ledger, node)) is not None:
        ledger.failed(begun.token, "the machine is off")


def _begun(ledger: Ledger, node: str) -> LedgerEntry | None:
    """Return the restart that did not end, of any epoch: a repair does not make the machine somebody else's."""
    last = ledger.latest(node, SECURE_BOOT, every_epoch=True)
    return last if last is not None and last.status == "intent" else None


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
    if power == "Off":
        is_off(ledger, node)
        _carry_out(ledger, node, bmc, wanted, proceed=proceed, say=say)
    begun = _begun(ledger, node)  # only of a machine that is on
    if begun is None and (wanted is None or power != "Off" or not redfish_secure_boot.by_job(bmc)):
        return power
    on = bool(begun.observed["on"]) if begun is not None else bool(wanted)
    restarts = 0
    while power != "Off" or (shown := redfish_secure_boot.enabled(bmc)) is not on:
        if restarts == _RESTARTS:
            raise redfish_secure_boot.not_done(bmc, f"after {restarts} restarts", on=on, shown=shown)
        if power == "Off":
            proceed()
            _ordered(ledger, node, on=on)
            redfish_secure_boot.order(bmc, on=on, proceed=proceed)
            say(f"Secure Boot is to be turned {_WORDS[on]} by a restart of its own")
            begun = ledger.begin(node, SECURE_BOOT, _digest(on=on), {"on": on})
        if begun is not None:
            _restart(ledger, begun, bmc, on=on, proceed=proceed, say=say)
        power, restarts = "Off", restarts + 1
    if restarts:
        say(f"Secure Boot is turned {_WORDS[on]}, the node is powered off again")
    if wanted is not None and wanted is not on:
        return settle_by_restart(ledger, node, bmc, "Off", wanted, proceed=proceed, say=say)
    return "Off"


def _ordered(ledger: Ledger, node: str, *, on: bool) -> None:
    """Record, before it is ordered, that a job may wait: it is carried out at the next boot, whoever wants that one."""
    ledger.failed(ledger.begin(node, SECURE_BOOT, _digest(on=on), {"on": on}).token, "ordered, and not carried out yet")


def _carry_out(
    ledger: Ledger,
    node: str,
    bmc: Bmc,
    wanted: bool | None,  # noqa: FBT001 - of the site file; None: any
    *,
    proceed: Callable[[], None],
    say: Callable[[str], None],
) -> None:
    """Have an earlier run's job carried out where another state is wanted by now, on a machine that is off.

    Else the node's next boot would carry it out, and change Secure Boot under its image. Raises BmcError.
    """
    last = ledger.latest(node, SECURE_BOOT, every_epoch=True)
    if last is None or last.status != "failed" or bool(last.observed["on"]) is wanted:
        return
    if not redfish_secure_boot.by_job(bmc) or not redfish_secure_boot.waits(bmc, proceed):
        return
    proceed()
    on = bool(last.observed["on"])
    say(f"an earlier run's job waits, which turns Secure Boot {_WORDS[on]}: it is carried out first")
    begun = ledger.begin(node, SECURE_BOOT, _digest(on=on), {"on": on})
    _restart(ledger, begun, bmc, on=on, proceed=proceed, say=say)


def _digest(*, on: bool) -> str:
    return hashlib.sha256(f"{SECURE_BOOT} {on}".encode()).hexdigest()


def _restart(
    ledger: Ledger,
    begun: LedgerEntry,
    bmc: Bmc,
    *,
    on: bool,
    proceed: Callable[[], None],
    say: Callable[[str], None],
) -> None:
    """Power on until the BIOS has carried its job out, and power off, whether it was or not.

    A machine that is on was powered on for it by an earlier run. The record stays open while the machine may be on for
    it: after a kill, a stop by ``proceed``, or a power-off that fails. Raises BmcError.
    """
    try:
        bmc.power(PowerAction.ON)
        say(f"on, until its BIOS has turned Secure Boot {_WORDS[on]}")
        redfish_secure_boot.wait(bmc, on=on, proceed=proceed)
    except BmcError as error:
        try:
            bmc.power(PowerAction.OFF)
        except BmcError as refused:
            say(f"it may be on still, and the next run powers it off: {refused}")
        else:
            ledger.failed(begun.token, str(error))
        raise
    ledger.done(begun.token, {"power": bmc.power(PowerAction.OFF)})


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
