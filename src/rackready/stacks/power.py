"""Power of one machine through the ledger: on once, off once, whenever the controller dies."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from typing import Any

from rackready.drivers import redfish_media
from rackready.drivers.redfish import Bmc, BootTarget, PowerAction
from rackready.drivers.redfish_errors import BmcError
from rackready.ledger.effect import Observation, run_effect
from rackready.ledger.store import Ledger
from rackready.stacks import secure_boot
from rackready.stacks.args import NodeArgs

POWER_ON = "power-on"
POWER_OFF = "power-off"
_LAG_S = 20.0
"""Seconds for a BMC to show an accepted power-on. Our choice: slow controllers show it after some 10 s."""
_SETTLE_S = 120.0


def made_by_us(ledger: Ledger, node: str) -> bool:
    """Whether the ledger shows that we powered a node on (or were about to) and have not powered it off since.

    A restart that switches Secure Boot counts until it has ended.

    Entries of every epoch count: a repair does not make the machine somebody else's, and the engine's own record
    (``made``) stays as well.
    """
    ends = {entry.operation: entry for entry in ledger.entries(node) if entry.operation in {POWER_ON, POWER_OFF}}
    on, off = ends.get(POWER_ON), ends.get(POWER_OFF)
    ours = on is not None and on.status != "failed" and (off is None or off.token < on.token or off.status != "done")
    return ours or secure_boot.cut_off(ledger, node)


class Power:
    """Power of one machine. ``proceed`` is called while waiting and may raise to stop; ``say`` reports progress."""

    def __init__(
        self, args: NodeArgs, ledger: Ledger, *, proceed: Callable[[], None], say: Callable[[str], None]
    ) -> None:
        self._args = args
        self._ledger = ledger
        self._proceed = proceed
        self._say = say

    def on(self, bmc: Bmc, power: str, boot: BootTarget, *, image: str = "", medium: str = "") -> bool:
        """Power on once and return whether the machine is on because of us.

        ``image``: digest of what it is to write; ``medium``: URL of the virtual media that it boots from.

        The desired digest contains our last power-off, so that a power-on before it does not count after it. Raises
        BmcError.
        """
        node = self._args.node
        power = self._switched(bmc, power)
        off = self._ledger.latest(node, POWER_OFF)
        desired = self._digest(POWER_ON, off.token if off else 0, boot, image)
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
            act=lambda _token: self._act(bmc, boot, medium),
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

    def prepare(self) -> None:
        """Have Secure Boot switched where that takes a restart of its own, which must not boot what is armed.

        Raises BmcError.
        """
        if self._args.secure_boot is None and not secure_boot.unsettled(self._ledger, self._args.node):
            return
        with Bmc(self._args.node, self._args.bmc) as bmc:
            self._switched(bmc, bmc.require(self._args.serial, self._args.serial_kind or "any").power)

    def _switched(self, bmc: Bmc, power: str) -> str:
        """Return the power state after a switch of Secure Boot that takes a restart, where one is due."""
        return secure_boot.settle_by_restart(
            self._ledger,
            self._args.node,
            bmc,
            power,
            self._args.secure_boot,
            proceed=self._proceed,
            say=self._say,
        )

    def off(self, bmc: Bmc) -> str:
        """Power off once and return how: done, already or unknown. Raises BmcError."""
        on = self._ledger.latest(self._args.node, POWER_ON)
        desired = self._digest(POWER_OFF, on.token if on else 0, self._args.boot)
        result = run_effect(
            self._ledger,
            self._args.node,
            POWER_OFF,
            desired,
            before=lambda: {"power": bmc.observe()},
            observe=lambda _stored: Observation.HAPPENED if bmc.observe() == "Off" else Observation.NOT_HAPPENED,
            act=lambda _token: {"power": bmc.power(PowerAction.OFF)},
        )
        secure_boot.is_off(self._ledger, self._args.node)
        return result.outcome

    def _act(self, bmc: Bmc, boot: BootTarget, medium: str) -> dict[str, Any]:
        self._proceed()
        if self._args.secure_boot is not None:
            secure_boot.settle(bmc, on=self._args.secure_boot, say=self._say)
        if medium:
            self._say("virtual media inserted")
            redfish_media.insert(bmc, medium, ours=medium[: medium.rindex("/") + 1], proceed=self._proceed)
        self._say(f"boot override {boot.value} once, power on")
        bmc.set_boot_once(boot)
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

    def _digest(self, operation: str, after: int, boot: BootTarget, image: str = "") -> str:
        wanted: dict[str, object] = {
            "operation": operation,
            "serial": self._args.serial,
            "boot": boot.value,
            "after": after,
        }
        if image:
            wanted["image"] = image
        return hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()
