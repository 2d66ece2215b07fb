"""Whether a node's return from a tenant is open: until it has ended, nothing certifies the node."""

from __future__ import annotations

import time

from rackready.ledger.store import Ledger
from rackready.model.problems import Message

HAND_BACK = "hand-back"
"""The ledger's operation: begun before the node is drained, done when the gates of its set have passed."""


def open_return(ledger: Ledger, node: str) -> Message | None:
    """Return why a node is not certified: a tenant's traces may be on it. None when no return is open.

    A new epoch ends no return: a repair removes no trace.
    """
    last = ledger.latest(node, HAND_BACK, every_epoch=True)
    if last is None or last.status == "done":
        return None
    begun = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(last.begun))
    return Message(
        node,
        "return from its tenant",
        expected="ended: scrubbed, rebooted, and its gates passed",
        actual=f"begun {begun} and not ended",
        next_step=f"Run `rackready hand-back {node} --reason ... --yes`.",
    )
