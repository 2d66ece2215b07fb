"""One machine without Pulumi: power it on once, wait for it, observe it, power it off."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rackready.drivers.hostkey_accept import HOST_KEY
from rackready.drivers.redfish import Bmc, BootTarget, PowerAction
from rackready.drivers.redfish_errors import BmcError
from rackready.drivers.ssh.first_contact import wait_and_pin
from rackready.drivers.ssh.pins import fingerprint
from rackready.drivers.ssh.target import KeyLogin, SshTarget, jump_at
from rackready.ledger.effect import Observation, run_effect
from rackready.ledger.store import Ledger
from rackready.model.problems import RackreadyError
from rackready.stacks.args import NodeArgs

POWER_ON = "power-on"
POWER_OFF = "power-off"
_LAG_S = 20.0
"""Seconds for a BMC to show an accepted power-on. Our choice: slow controllers show it after some 10 s."""
_SETTLE_S = 120.0
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


def made_by_us(ledger: Ledger, node: str) -> bool:
    """Whether the ledger shows that we powered a node on (or were about to) and have not powered it off since.

    Entries of every epoch count: a repair does not make the machine somebody else's, and the engine's own record
    (``made``) stays as well.
    """
    ends = {entry.operation: entry for entry in ledger.entries(node) if entry.operation in {POWER_ON, POWER_OFF}}
    on, off = ends.get(POWER_ON), ends.get(POWER_OFF)
    return on is not None and on.status != "failed" and (off is None or off.token < on.token or off.status != "done")


def _target(args: NodeArgs, known_hosts: Path) -> SshTarget:
    ssh, hop = args.ssh, args.ssh.jump
    jump = jump_at(hop.host, hop.port, hop.user, hop.private_key, known_hosts) if hop is not None else None
    login = KeyLogin(ssh.private_key)
    return SshTarget(args.node, str(ssh.address), ssh.port, ssh.user, login, known_hosts, jump=jump)


class StackMachine:
    """One machine. ``proceed`` is called while waiting and may raise to stop; ``say`` gets progress messages."""

    def __init__(
        self,
        args: NodeArgs,
        ledger: Ledger,
        known_hosts: Path,
        *,
        proceed: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        self._args = args
        self._ledger = ledger
        self._target = _target(args, known_hosts)
        self._proceed = proceed
        self._say = say

    def ensure(self, *, made: bool) -> MachineState:
        """Bring the machine up, never with a second power-on; a running machine is adopted unchanged.

        Raises RackreadyError (nothing was done), or MachineIncompleteError (it is powered on, and SSH is not usable).
        """
        with Bmc(self._args.node, self._args.bmc) as bmc:
            found = bmc.require(self._args.serial, self._args.serial_kind or "any")
            powered = self._power_on(bmc, found.power)
        state = MachineState(power="On", made=made or powered)
        self._say("powered on, waiting for SSH" if powered else "was on already, left as it is; waiting for SSH")
        installs = self._installs() if powered else 0
        try:
            facts = wait_and_pin(
                self._target, timeout_s=self._args.timeout_s, reinstalled=bool(installs), proceed=self._proceed
            )
        except RackreadyError as error:
            raise MachineIncompleteError(state, error) from error
        if installs:
            pin = self._ledger.begin(
                self._args.node, HOST_KEY, hashlib.sha256(facts.host_key.encode()).hexdigest(), {_INSTALL: installs}
            )
            self._ledger.done(pin.token, {"pinned": fingerprint(facts.host_key)})
        self._say("SSH answers, host key pinned")
        return MachineState("On", state.made, facts.host_key, facts.boot_id)

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
        """Power the machine off if we powered it on; one that ran before us keeps running. Raises RackreadyError."""
        if not made:
            self._say("was on before us, left on")
            return
        with Bmc(self._args.node, self._args.bmc) as bmc:
            bmc.require(self._args.serial, self._args.serial_kind or "any")
            on = self._ledger.latest(self._args.node, POWER_ON)
            desired = self._digest(POWER_OFF, on.token if on else 0)
            result = run_effect(
                self._ledger,
                self._args.node,
                POWER_OFF,
                desired,
                before=lambda: {"power": bmc.observe()},
                observe=lambda _stored: Observation.HAPPENED if bmc.observe() == "Off" else Observation.NOT_HAPPENED,
                act=lambda _token: {"power": bmc.power(PowerAction.OFF)},
            )
        self._say(f"powered off ({result.outcome})")

    def _power_on(self, bmc: Bmc, power: str) -> bool:
        """Power on once and return whether the machine is on because of us.

        The desired digest contains our last power-off, so that a power-on before it does not count after it.
        """
        node = self._args.node
        off = self._ledger.latest(node, POWER_OFF)
        desired = self._digest(POWER_ON, off.token if off else 0)
        last = self._ledger.latest(node, POWER_ON, desired)
        if power == "On" and (last is None or last.status == "failed"):
            return False
        result = run_effect(
            self._ledger,
            node,
            POWER_ON,
            desired,
            before=lambda: {"power": bmc.observe(), "at": time.time()},
            observe=lambda stored: self._seen(bmc, desired, stored),
            act=lambda _token: self._act(bmc),
            settle_s=_SETTLE_S,
        )
        if result.outcome == "unknown":
            raise BmcError(
                bmc.where,
                "an interrupted power-on",
                expected="On or Off",
                actual="another power state",
                next_step="Look at the BMC, bring the node to On or Off by hand, then run again.",
            )
        return True

    def _act(self, bmc: Bmc) -> dict[str, Any]:
        self._proceed()
        self._say(f"boot override {self._args.boot.value} once, power on")
        bmc.set_boot_once(self._args.boot)
        return {"power": bmc.power(PowerAction.ON)}

    def _seen(self, bmc: Bmc, desired: str, stored: dict[str, Any]) -> Observation:
        """Judge a power-on by what the BMC shows: right after an interrupted request, off may still turn into on."""
        self._proceed()
        power = bmc.observe()
        if power == "On":
            return Observation.HAPPENED
        if power != "Off":
            return Observation.UNKNOWN
        entry = self._ledger.latest(self._args.node, POWER_ON, desired)
        fresh = entry is not None and entry.status == "intent" and time.time() - float(stored.get("at", 0)) < _LAG_S
        return Observation.UNKNOWN if fresh else Observation.NOT_HAPPENED

    def _digest(self, operation: str, after: int) -> str:
        wanted = {"operation": operation, "serial": self._args.serial, "boot": self._args.boot.value, "after": after}
        return hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()
