"""Recovery of the power that a killed run took from nodes: without power they do not answer."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from rackready.drivers.process import check_stop
from rackready.drivers.remote import Answer
from rackready.gates.bmc.cycle import OPERATION, Cycler
from rackready.model.site import Bmc as BmcSite
from rackready.model.site import Outlet

BOOT_S = 1800
"""How long a node may boot, s. Our choice: servers with 2 TB check their memory for many minutes."""
BOOTED = 'case "$(systemctl is-system-running)" in running|degraded) exit 0;; *) exit 1;; esac'
"""Exits with 0 on a node that has finished booting."""
_WORKERS = 16
_AGAIN_S = 3.0
_ASK_S = 30.0


class Hosts(Protocol):
    """Where commands are run."""

    def run(self, node: str, argv: Sequence[str], *, timeout_s: float) -> Answer:
        """Run a command to its end."""


def give_back(
    cycler: Cycler, hosts: Hosts, bmcs: Mapping[str, BmcSite], nodes: Sequence[str], *, boot_s: float = BOOT_S
) -> None:
    """Restore the power that interrupted power cycles took from these nodes, and wait until they have booted.

    A failure is logged and stays open in the ledger; later gates report that the node does not answer. Raises
    Interrupted.
    """
    interrupted = cycler.ledger.interrupted(OPERATION)
    left = [node for node in nodes if node in interrupted and node in bmcs]
    with ThreadPoolExecutor(max_workers=max(1, min(len(left), _WORKERS))) as pool:
        list(pool.map(lambda node: _restore(cycler, hosts, node, bmcs[node], boot_s), left))


def _warning(cycler: Cycler, node: str) -> str:
    """Return the warning about a cycle that was interrupted before ``rackready repair``.

    No later run switches its outlets.
    """
    open_ones = [
        entry for entry in cycler.ledger.entries(node) if entry.operation == OPERATION and entry.status == "intent"
    ]
    outlets = [
        Outlet.model_validate(item).called for entry in open_ones for item in entry.observed.get("outlets") or []
    ]
    what = f"{', '.join(dict.fromkeys(outlets))} may" if outlets else "it may"
    return (
        f"a power cycle was interrupted before {node} was repaired: rackready no longer switches its power, "
        f"and {what} still be off: switch it on by hand."
    )


def _restore(cycler: Cycler, hosts: Hosts, node: str, site: BmcSite, boot_s: float) -> None:
    def say(text: str) -> None:
        cycler.ledger.event(cycler.campaign, node, "validate", text, level="warn")

    try:
        if not cycler.give_back(node, site):
            say(_warning(cycler, node))
            return
    except Exception as error:  # noqa: BLE001 - one node's BMC must not end the others' run; the error is logged
        say(f"a power cycle was interrupted, and its power could not be restored: {error}")
        return
    say("a power cycle was interrupted: its power was restored")
    begun = time.monotonic()
    while hosts.run(node, ("sh", "-c", BOOTED), timeout_s=_ASK_S).exit_code != 0:
        check_stop()
        if time.monotonic() - begun > boot_s:
            say(f"it has not booted {boot_s:.0f} s after its power was restored")
            return
        time.sleep(_AGAIN_S)
