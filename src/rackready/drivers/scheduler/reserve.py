"""Reservations of Slurm nodes for a measurement: only one user starts jobs on them; they are drained again after it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rackready.drivers.scheduler.base import NotOursError
from rackready.drivers.scheduler.slurm import SlurmAdapter

PREFIX, USER = "rackready", "root"
"""First part of the names, and the user, unless the site says otherwise."""


def reservation(head: str, prefix: str = PREFIX) -> str:
    """Return the name of the reservation of a run whose first node is this one."""
    return f"{prefix}-{head}"


@contextmanager
def reserved(slurm: SlurmAdapter, nodes: Sequence[str], prefix: str = PREFIX, user: str = USER) -> Iterator[str]:
    """Reserve nodes for a user, resume those that we drained inside the reservation, and drain them again at the end.

    The order matters: a node is resumed only inside the reservation, and the reservation ends only after the node is
    drained again. After a killed run only that user can use the nodes. Raises NotOursError when somebody else
    drained one, SchedulerError when Slurm refuses.
    """
    name = reservation(nodes[0], prefix)
    held = {node: now.reason for node in nodes if (now := slurm.show(node)).drained}
    theirs = [node for node, reason in held.items() if not slurm.show(node).ours]
    if theirs:
        raise NotOursError(
            ", ".join(theirs),
            "drained in Slurm by somebody else",
            expected="a reason that begins with 'rackready:'",
            actual=f"{held[theirs[0]]!r}",
            next_step="Nothing was started there: rackready never undoes somebody else's drain.",
        )
    slurm.reserve(name, list(nodes), user)
    try:
        for node in held:
            slurm.resume(node)
        yield name
    finally:
        for node, reason in held.items():
            slurm.drain(node, reason)
        slurm.unreserve(name)
