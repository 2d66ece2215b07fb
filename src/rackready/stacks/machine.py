"""One machine without Pulumi: power it on once, wait for it, observe it, power it off."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rackready.drivers.bmc_password import needs_rotation, rotate
from rackready.drivers.hostkey_accept import HOST_KEY
from rackready.drivers.redfish import Bmc, BootTarget
from rackready.drivers.ssh.first_contact import wait_and_pin
from rackready.drivers.ssh.pins import fingerprint
from rackready.drivers.ssh.target import KeyLogin, SshTarget, jump_at
from rackready.ledger.store import Ledger
from rackready.model.problems import RackreadyError
from rackready.stacks import secure_boot
from rackready.stacks.args import NodeArgs
from rackready.stacks.imaging import Imaging
from rackready.stacks.installations import disarm, give_up
from rackready.stacks.power import POWER_OFF, POWER_ON, Power, made_by_us

__all__ = ["POWER_OFF", "POWER_ON", "MachineIncompleteError", "MachineState", "StackMachine", "made_by_us"]

_INSTALL = "install"
"""Key in a pin's ledger entry: the power-on that installed the machine with this host key."""


@dataclass(frozen=True, slots=True)
class MachineState:
    """State of a machine. ``made``: we powered it on, so we may power it off. ``boot_id``: of the provisioned boot."""

    power: str
    made: bool
    host_key: str = ""
    boot_id: str = ""
    problem: str = ""


class MachineIncompleteError(RackreadyError):
    """The machine was changed and is not usable; ``state`` is its last known state."""

    def __init__(self, state: MachineState, error: RackreadyError) -> None:
        super().__init__(error)
        self.messages = error.messages
        self.state = state


def _target(args: NodeArgs, known_hosts: Path) -> SshTarget:
    ssh, hop = args.ssh, args.ssh.jump
    jump = jump_at(hop.host, hop.port, hop.user, hop.private_key, known_hosts) if hop is not None else None
    login = KeyLogin(ssh.private_key)
    return SshTarget(args.node, str(ssh.address), ssh.port, ssh.user, login, known_hosts, jump=jump)


class StackMachine:
    """One machine. ``proceed`` is called while waiting and may raise to stop; ``say`` gets progress messages.

    ``state``: the environment's state, which has its known hosts and what imaging left.
    """

    def __init__(
        self,
        args: NodeArgs,
        ledger: Ledger,
        state: Path,
        *,
        proceed: Callable[[], None],
        say: Callable[[str], None],
        imaging: Imaging | None = None,
    ) -> None:
        self._args = args
        self._ledger = ledger
        self._state = state
        self._target = _target(args, state / "known_hosts")
        self._power = Power(args, ledger, proceed=proceed, say=say)
        self._imaging = imaging
        self._proceed = proceed
        self._say = say

    def ensure(self, *, made: bool) -> MachineState:
        """Bring the machine up, never with a second power-on; a running machine is adopted unchanged.

        Where its operating system is due, it is written first. Raises RackreadyError (nothing was done), or
        MachineIncompleteError (it is powered on, and SSH is not usable).
        """
        if needs_rotation(self._args.bmc):
            rotate(self._ledger, self._args.node, self._args.bmc, self._say)
        imaged = self._imaged(made=made)
        with Bmc(self._args.node, self._args.bmc) as bmc:
            found = bmc.require(self._args.serial, self._args.serial_kind or "any")
            powered = self._power.on(bmc, found.power, self._args.boot)
        ours = powered or imaged
        state = MachineState(power="On", made=made or ours)
        self._say("powered on, waiting for SSH" if ours else "was on already, left as it is; waiting for SSH")
        installs = self._installs() if powered else 0
        try:
            facts = wait_and_pin(
                self._target, timeout_s=self._args.timeout_s, reinstalled=bool(installs), proceed=self._proceed
            )
            if self._imaging is not None:
                self._imaging.confirm(self._target)
            if self._args.secure_boot is not None:
                secure_boot.verify(self._target, on=self._args.secure_boot)
        except RackreadyError as error:
            raise MachineIncompleteError(state, error) from error
        if installs:
            pin = self._ledger.begin(
                self._args.node, HOST_KEY, hashlib.sha256(facts.host_key.encode()).hexdigest(), {_INSTALL: installs}
            )
            self._ledger.done(pin.token, {"pinned": fingerprint(facts.host_key)})
        self._say("SSH answers, host key pinned")
        return MachineState("On", state.made, facts.host_key, facts.boot_id)

    def _imaged(self, *, made: bool) -> bool:
        """Have the operating system written where that is due; return whether we booted the machine for an image."""
        if self._imaging is None:
            return False
        try:
            return self._imaging.write(self._target, made=made)
        except RackreadyError as error:
            if not self._imaging.powered:
                raise
            raise MachineIncompleteError(MachineState(power="On", made=True), error) from error

    def _installs(self) -> int:
        """Return the token of our power-on that reinstalls the machine and whose host key is not pinned yet, else 0.

        An installation allows one new key: when a later run finds the same power-on done, it allows no other.
        """
        on = self._ledger.latest(self._args.node, POWER_ON)
        if on is None or self._args.boot is BootTarget.HDD:
            return 0
        pins = [
            entry
            for entry in self._ledger.entries(self._args.node)
            if entry.operation == HOST_KEY and entry.status == "done"
        ]
        return 0 if any(entry.observed.get(_INSTALL) == on.token for entry in pins) else on.token

    def observe(self) -> tuple[str, str]:
        """Return (power state, ""), or ("Unknown", why) when the BMC fails: refresh must not stop at one bad BMC."""
        try:
            with Bmc(self._args.node, self._args.bmc) as bmc:
                return bmc.require(self._args.serial, self._args.serial_kind or "any").power, ""
        except RackreadyError as error:
            return "Unknown", str(error)

    def remove(self, *, made: bool) -> None:
        """Power the machine off if we powered it on; one that ran before us keeps running. Raises RackreadyError.

        A begun installation ends, whatever the arguments say of imaging. The boot service comes first, since a BMC that
        fails must not leave a plan to be fetched; the record comes last, so that a repetition does all of it again.
        """
        disarm(self._ledger, self._state, self._args.node)
        if made or secure_boot.cut_off(self._ledger, self._args.node):
            self._off()
        else:
            self._say("was not powered on by us, its power stays as it is")
        give_up(self._args, self._ledger, self._state, proceed=self._proceed, say=self._say)

    def _off(self) -> None:
        with Bmc(self._args.node, self._args.bmc) as bmc:
            bmc.require(self._args.serial, self._args.serial_kind or "any")
            outcome = self._power.off(bmc)
        self._say(f"powered off ({outcome})")
