"""Why a node is kept from production whatever was measured: a return from a tenant, or to a vendor, a retired part."""

from __future__ import annotations

import time
from collections.abc import Iterable

from rackready.ledger.part_history import ACCUSED, RETIRED, RETURNED, PartEvent, last_listed, retired_serials
from rackready.ledger.store import Ledger
from rackready.model.evidence import Fingerprint
from rackready.model.problems import Message

HAND_BACK = "hand-back"
"""The ledger's operation: begun before the node is drained, done when the gates of its set have passed."""
RMA = "rma"
"""The ledger's operation: begun before the node is drained, done when it is back from its vendor."""
_SHOWN = 8
_HISTORY = frozenset({ACCUSED, RETURNED, RETIRED})


def kept_out(ledger: Ledger, node: str, found: Fingerprint | None = None) -> Message | None:
    """Return why a node is neither certified nor offered, None when nothing keeps it out.

    ``found``: the node as it is now; without it, its parts are those of its last case.
    """
    return open_return(ledger, node) or open_case(ledger, node) or retired_part(ledger, node, found)


def open_return(ledger: Ledger, node: str) -> Message | None:
    """Return why a node is not certified: a tenant's traces may be on it. None when no return is open.

    A new epoch ends no return: a repair removes no trace.
    """
    last = ledger.latest(node, HAND_BACK, every_epoch=True)
    if last is None or last.status == "done":
        return None
    return Message(
        node,
        "return from its tenant",
        expected="ended: scrubbed, rebooted, and its gates passed",
        actual=f"begun {_dated(last.begun)} and not ended",
        next_step=f"Run `rackready hand-back {node} --reason ... --yes`.",
    )


def open_case(ledger: Ledger, node: str) -> Message | None:
    """Return why a node is not certified: it is at its vendor. None when no case is open."""
    last = ledger.latest(node, RMA, every_epoch=True)
    if last is None or last.status != "intent":
        return None
    return Message(
        node,
        f"case {last.desired}",
        expected="closed: back from its vendor",
        actual=f"begun {_dated(last.begun)} and open",
        next_step=f"Run `rackready rma {node} --returned --reason ...` once it is back.",
    )


def retired_part(ledger: Ledger, node: str, found: Fingerprint | None = None) -> Message | None:
    """Return why a node is not certified: one of its parts came back too often. None when it has no such part."""
    listed = last_listed(ledger, node)
    here = {event.serial for event in listed}
    if found is not None:  # its GPUs are read now, the other parts when its last case was closed
        here = {event.serial for event in listed if event.kind != "gpu"} | set(found.gpus)
    for serial, events in sorted(retired_serials(ledger, here).items()):
        return retired_message(node, serial, events)
    return None


def retired_message(node: str, serial: str, events: Iterable[PartEvent]) -> Message:
    """Return the refusal of a retired part, with its history."""
    events = [event for event in events if event.event in _HISTORY]
    words = [f"{_dated(event.at)} {event.event} at {event.node} {event.place} ({event.case})" for event in events]
    kind = next(event.kind for event in events if event.event == RETIRED)
    return Message(
        node,
        f"{kind} {serial}",
        expected="a part that did not return three times",
        actual="; ".join(words[-_SHOWN:]),
        next_step=f"Have it replaced by another one, then run `rackready rma {node} --returned --reason ...`.",
    )


def _dated(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at))
