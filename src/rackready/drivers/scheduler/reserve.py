"""Reservations of Slurm nodes for a measurement: only one user starts jobs on them; they are drained again after it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from rackready.drivers.scheduler.base import PREFIX as OURS
from rackready.drivers.scheduler.base import NotOursError, SchedulerAdapter, SchedulerNode
from rackready.drivers.scheduler.slurm import SlurmAdapter
from rackready.model.base import Model
from rackready.model.operations import SlurmHandover

PREFIX, USER = "rackready", "root"
"""First part of the names, and the user, unless the site says otherwise."""
LEFT = "a killed measurement left it reserved. `rackready handover --limit {node}` offers it when it is certified"
"""Why a node of a leftover is drained, and how it returns: a killed run may have resumed it before it was certified."""
REPLACED = (
    "slurmctld writes this over any reason, also over a person's: if nobody holds it back, "
    f"`scontrol update NodeName={{node}} State=DRAIN Reason='{OURS} registered in full'`, then run again."
)
"""How a node whose reason slurmctld replaced is measured. It stays drained: nobody has certified it yet."""
_ONE_AT_A_TIME = threading.Lock()
"""Runs on disjoint nodes go side by side, and may find the same leftover: one ends it, the others find it gone."""


def reservation(head: str, prefix: str = PREFIX) -> str:
    """Return the name of the reservation of a run whose first node is this one."""
    return f"{prefix}-{head}"


def end_leftovers(
    adapter: SchedulerAdapter, handover: Model, nodes: Sequence[str], reasons: Mapping[str, str] | None = None
) -> None:
    """End the reservations that a killed run left on any of these nodes; nothing outside Slurm. Raises SchedulerError.

    The caller's campaign must hold the nodes, so that nobody measures them now. ``reasons``: those of the drains.
    """
    if isinstance(adapter, SlurmAdapter) and isinstance(handover, SlurmHandover):
        with _ONE_AT_A_TIME:
            _end(adapter, nodes, handover.validation_reservation, handover.validation_user, reasons or {})


def _end(slurm: SlurmAdapter, nodes: Sequence[str], prefix: str, user: str, reasons: Mapping[str, str]) -> None:
    """Drain what is not drained first: a job may start as soon as the reservation is gone.

    A worker on another machine may have ended the leftover since, and have made one of the same name for its nodes.
    """
    for name, held in slurm.leftovers(nodes, prefix, user).items():
        for node in sorted(held):
            # In another reservation of ours no job starts on it; in none, another worker has handed it over.
            if not slurm.show(node).drained and slurm.leftovers([node], prefix, user) == {name: held}:
                slurm.drain(node, reasons.get(node, LEFT.format(node=node)))
        if slurm.leftovers(sorted(held), prefix, user).get(name) == held:
            slurm.unreserve(name)


@contextmanager
def reserved(slurm: SlurmAdapter, nodes: Sequence[str], prefix: str = PREFIX, user: str = USER) -> Iterator[str]:
    """Reserve nodes for a user, resume those that we drained inside the reservation, and drain them again at the end.

    The order matters: a node is resumed only inside the reservation, and the reservation ends only after the node is
    drained again. After a killed run only that user can use the nodes, until the next one ends its reservations. Raises
    NotOursError when somebody else drained a node, SchedulerError when Slurm refuses.
    """
    name = reservation(nodes[0], prefix)
    with _ONE_AT_A_TIME:
        _end(slurm, nodes, prefix, user, {})
        held = _held(slurm, nodes)
        slurm.reserve(name, list(nodes), user)
    try:
        for node in held:
            slurm.resume(node)
        yield name
    finally:
        for node, before in held.items():
            slurm.drain(node, before.reason)
        slurm.unreserve(name)


def _held(slurm: SlurmAdapter, nodes: Sequence[str]) -> dict[str, SchedulerNode]:
    """Return the nodes that we drained, with their state. Raises NotOursError when somebody else drained one."""
    held = {node: now for node in nodes if (now := slurm.show(node)).drained}
    theirs = [node for node, now in held.items() if not now.ours]
    if theirs:
        first = held[theirs[0]]
        step = "Nothing was started there: rackready never undoes somebody else's drain."
        if slurm.wrote(first):
            step = f"Nothing was started there. {REPLACED.format(node=first.name)}"
        raise NotOursError(
            ", ".join(theirs),
            "drained in Slurm by somebody else",
            expected=f"a reason that begins with '{OURS}'",
            actual=f"{first.reason!r}",
            next_step=step,
        )
    return held
