"""Takes a node's power away and gives it back, through the ledger: killed in the middle, the next run finds what was begun.

A node that was left off by a kill is powered on again before anything else. A run that was killed begins anew: the inventories between
its cycles are lost with it, so its cycles measured nothing (docs/adr/0009). Right before the power goes, the scheduler is asked: a node
on which jobs run or may start is never touched.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rackready.drivers.redfish import Bmc, BmcError, PowerAction
from rackready.ledger.effect import Observation, run_effect
from rackready.ledger.store import Ledger
from rackready.model.problems import RackreadyError
from rackready.model.site import Bmc as BmcSite

FORMAT = "rackready/power-cycle/v1"
OPERATION = "power-cycle"
KINDS = ("auto", "ac", "cold", "warm")
_REST_S = 10.0
"""How long the power stays away: capacitors discharge, and a BMC notices. Our choice: vendors ask for 10 to 30 s by hand."""
_AC_S = 900.0
"""How long a BMC may be away that lost its own power. Our choice: such BMCs take 2 to 5 minutes to boot."""


@dataclass(frozen=True, slots=True)
class Cycler:
    """Cycles power. ``refuse`` returns why a node may not lose its power now, empty when it may; ``serial`` gives its chassis number."""

    ledger: Ledger
    campaign: str
    refuse: Callable[[str], str]
    serial: Callable[[str], str | None]
    rest_s: float = _REST_S

    def cycle(self, node: str, site: BmcSite, kind: str, number: str, *, proceed: Callable[[], None]) -> dict[str, Any]:
        """Do one cycle and return what was done. Raises RackreadyError; what was begun stays open in the ledger then."""
        if kind not in KINDS:
            raise RackreadyError(f"{node}: power cycle - Expected: one of {', '.join(KINDS)} Actual: {kind}.")
        self._allowed(node)
        begun = time.monotonic()
        with Bmc(node, site) as bmc:
            serial = self.serial(node)
            if serial is None:
                raise RackreadyError(
                    f"{node}: power cycle - Expected: its chassis serial in the site file Actual: none. Give it: nothing was done to the node."
                )
            bmc.require(serial)
            self._finish_interrupted(node, bmc)
            chosen = _chosen(bmc, kind, int(number))
            desired = f"{self.campaign}/{number}/{chosen}/{time.time_ns()}"
            result = run_effect(
                self.ledger,
                node,
                OPERATION,
                desired,
                before=lambda: {"power": bmc.observe(), "kind": chosen},
                observe=lambda _stored: Observation.NOT_HAPPENED,
                act=lambda _token: self._act(node, bmc, chosen, proceed),
            )
        return {
            "format": FORMAT,
            "kind": chosen,
            "number": int(number),
            "result": result.outcome,
            **result.result,
            "seconds": round(time.monotonic() - begun, 1),
            "complete": True,
        }

    def _allowed(self, node: str) -> None:
        why = self.refuse(node)
        if why:
            raise RackreadyError(
                f"{node}: power cycle - Expected: a node on which no jobs run or may start Actual: {why}. Nothing was done to it: drain it first."
            )

    def _finish_interrupted(self, node: str, bmc: Bmc) -> None:
        """Close what a killed run left open: power the node on if it was left off. The cycle itself is not repeated under its number."""
        last = self.ledger.latest(node, OPERATION)
        if last is None or last.status != "intent":
            return
        if bmc.observe() != "On":
            bmc.power(PowerAction.ON)
        self.ledger.done(last.token, {"interrupted": True, "power": bmc.observe()})

    def _act(self, node: str, bmc: Bmc, kind: str, proceed: Callable[[], None]) -> dict[str, Any]:
        proceed()
        self.ledger.event(self.campaign, node, "validate", f"power cycle ({kind}) begins", level="warn")
        if kind == "warm":
            return {"states": [bmc.power(PowerAction.RESET)]}
        if kind == "ac":
            bmc.full_power_cycle()
            return {"states": ["AC off and on", _on_again(bmc)]}
        off = bmc.power(PowerAction.OFF)
        time.sleep(self.rest_s)
        return {"states": [off, bmc.power(PowerAction.ON)]}


def _chosen(bmc: Bmc, kind: str, number: int) -> str:
    """Return the kind of a cycle. ``auto``: AC where the BMC can, else cold and warm in turn."""
    can = bmc.offers_full_power_cycle() if kind in {"auto", "ac"} else False
    if kind == "ac" and not can:
        raise BmcError(f"{bmc.where}: AC power cycle - Expected: reset type FullPowerCycle Actual: not offered. Choose the kind auto, cold or warm.")
    if kind != "auto":
        return kind
    return "ac" if can else "cold" if number % 2 else "warm"


def _on_again(bmc: Bmc) -> str:
    """Wait for a BMC that lost its own power, and power the machine on where its restore policy left it off."""
    deadline = time.monotonic() + _AC_S
    while True:
        try:
            time.sleep(5.0)
            bmc.forget()
            return bmc.power(PowerAction.ON)
        except BmcError:
            if time.monotonic() > deadline:
                raise
