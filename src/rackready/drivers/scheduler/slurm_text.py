"""What `scontrol show node -o` prints, read purely (Slurm 22.05 and later)."""

from __future__ import annotations

import re

from rackready.drivers.scheduler.base import SchedulerError, SchedulerNode

_AUTHOR = re.compile(r"\[(?P<by>[^\[\]@\s]+)@\d{4}-\d\d-\d\dT[\d:]+\]")
"""Who set a reason, and when: Slurm appends it to the text."""

_DOWN = frozenset({"DOWN", "FAIL", "NOT_RESPONDING", "UNKNOWN"})
_STOPS = _DOWN | {"DRAIN", "FUTURE", "INVAL", "POWERED_DOWN", "POWERING_DOWN", "REBOOT", "PLANNED_DOWN"}


def parse_node(line: str) -> SchedulerNode:
    """Return the node of one line. Raises SchedulerError when it is none."""
    name, state = _field(line, "NodeName"), _field(line, "State")
    if not name or not state:
        shown = " ".join(line.split())[:200] or "nothing"
        message = f"`scontrol show node` - Expected: NodeName=... State=... Actual: {shown}. Run it on the controller; its release may print another format."
        raise SchedulerError(message)
    words = state_words(state)
    reason, by = _reason(line)
    return SchedulerNode(name, state, not words & _STOPS, "DRAIN" in words, bool(words & _DOWN), reason, by)


def state_words(state: str) -> set[str]:
    """Return the base state and flags of a state: IDLE+DRAIN, DOWN*+DRAIN (the star: slurmd does not answer)."""
    return set(state.replace("*", "+NOT_RESPONDING").upper().split("+"))


def _field(line: str, key: str) -> str:
    match = re.search(rf"(?:^|\s){key}=(\S+)", line)
    return match[1] if match else ""


def _reason(line: str) -> tuple[str, str]:
    """Return reason and author. The reason is free text near the end of the line; its author and time close it."""
    match = re.search(r"\sReason=(.*)$", line, re.DOTALL)
    if match is None:
        return "", ""
    author = _AUTHOR.search(match[1])
    return (match[1].strip(), "") if author is None else (match[1][: author.start()].strip(), author["by"])
