"""Counters of a switch's ports, as every driver reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rackready.format_error import FormatError


@dataclass(frozen=True, slots=True)
class PortCounters:
    """Counters of one port, in frames; lists are by priority (priority group, traffic class) 0 to 7.

    ``uncounted_in`` and ``uncounted_out``: priority groups and queues without counters; their drops are 0 here.
    """

    dropped_in: tuple[int, ...]
    dropped_out: tuple[int, ...]
    marked: int
    """Frames that it marked (ECN)."""
    pauses: tuple[int, ...]
    """Pause frames (PFC) that it sent and received."""
    errors: int
    uncounted_in: frozenset[int] = frozenset()
    uncounted_out: frozenset[int] = frozenset()

    def since(self, before: PortCounters) -> PortCounters:
        """Return the increase since earlier counters. Raise FormatError if a counter went back."""
        less = [one - other for one, other in zip(self._all(), before._all(), strict=True)]
        if min(less) < 0:
            message = "a counter that went back: the switch was booted or its counters cleared"
            raise FormatError(message)
        return PortCounters(
            _minus(self.dropped_in, before.dropped_in),
            _minus(self.dropped_out, before.dropped_out),
            self.marked - before.marked,
            _minus(self.pauses, before.pauses),
            self.errors - before.errors,
            self.uncounted_in | before.uncounted_in,
            self.uncounted_out | before.uncounted_out,
        )

    def _all(self) -> list[int]:
        return [*self.dropped_in, *self.dropped_out, self.marked, *self.pauses, self.errors]


def _minus(one: Sequence[int], other: Sequence[int]) -> tuple[int, ...]:
    return tuple(a - b for a, b in zip(one, other, strict=True))
