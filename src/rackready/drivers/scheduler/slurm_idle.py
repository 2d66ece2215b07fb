"""Why nodes of a Slurm cluster are not idle: their state, their jobs, and reservations that have them soon."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from rackready.drivers.scheduler.base import Job, SchedulerError, SchedulerNode, jobs_words
from rackready.drivers.scheduler.slurm_text import expand_hosts, parse_node, state_words

CLOCK = "date +%Y-%m-%dT%H:%M:%S"
"""The controller's local time, in which `scontrol` prints times (scontrol(1), SLURM_TIME_FORMAT: standard)."""
RESERVATIONS = "scontrol show reservation --oneliner"
_FREE = frozenset({"IDLE", "CLOUD", "DYNAMIC_NORM", "DYNAMIC_FUTURE"})
"""Words of an idle node's state (scontrol(1), NODE STATE CODES).

Every other word means that somebody has plans with it: PLANNED is a node that the backfill scheduler keeps for a job,
RESERVED and MAINTENANCE are reservations, REBOOT_REQUESTED a reboot.
"""
_FIELD = re.compile(r"(?:^|\s)(ReservationName|StartTime|Nodes|State)=(\S+)")


@dataclass(frozen=True, slots=True)
class Booking:
    """A reservation: since or from when it has which nodes. ``starts`` is the controller's local time."""

    name: str
    nodes: frozenset[str]
    active: bool
    starts: datetime

    def words(self) -> str:
        """Return it in words."""
        return f"reservation {self.name}{'' if self.active else f' from {self.starts:%Y-%m-%dT%H:%M:%S}'}"


def parse_bookings(text: str) -> list[Booking]:
    """Return the reservations of `scontrol show reservation --oneliner`. Raises SchedulerError for another text."""
    return [_booking(line) for line in text.splitlines() if "ReservationName=" in line]


def _booking(line: str) -> Booking:
    found = dict(_FIELD.findall(line))
    try:
        starts = datetime.fromisoformat(found["StartTime"])
        return Booking(found["ReservationName"], expand_hosts(found["Nodes"]), found["State"] == "ACTIVE", starts)
    except (KeyError, ValueError) as error:
        raise SchedulerError(
            f"`{RESERVATIONS}`",
            expected="ReservationName=, StartTime=, Nodes= and State= on each line",
            actual=" ".join(line.split())[:200],
            next_step="Run it on the controller; its release may print another format.",
        ) from error


def booked(bookings: Sequence[Booking], now: datetime, within_s: float) -> dict[str, str]:
    """Return node -> the reservation that has it now, or within so many seconds."""
    soon = [one for one in bookings if one.active or (one.starts - now).total_seconds() < within_s]
    return {node: one.words() for one in soon for node in one.nodes}


def why_not(now: SchedulerNode, jobs: Sequence[Job], reserved: str) -> str:
    """Return why a node is not idle, "" when it is. Jobs say most, so they come first."""
    words = state_words(now.state)
    if jobs:
        return jobs_words(jobs)
    if reserved:
        return reserved
    if now.usable and "IDLE" in words and words <= _FREE:
        return ""
    return f"{now.state}{f': {now.reason}' if now.reason else ''}"


def shown(run: Callable[[str], tuple[int, str, str]], names: str) -> dict[str, SchedulerNode]:
    """Return node -> its state, from one command for many nodes; nodes that Slurm does not know are left out."""
    _, out, _ = run(f"scontrol show node {names} --oneliner")
    found = [parse_node(line) for line in out.splitlines() if line.strip()]
    return {node.name: node for node in found}


def merged(
    asked: Iterator[tuple[str, list[Job] | SchedulerError]],
    states: Mapping[str, SchedulerNode],
    reserved: Mapping[str, str],
) -> Iterator[tuple[str, str | SchedulerError]]:
    """Yield each node with why it is not idle, or with the error of its jobs."""
    for node, jobs in asked:
        if isinstance(jobs, SchedulerError):
            yield node, jobs
        elif node not in states:
            yield node, "unknown to Slurm"
        else:
            yield node, why_not(states[node], jobs, reserved.get(node, ""))
