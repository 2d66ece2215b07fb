"""Reader of `chronyc -n -c tracking`: one line of 14 fields separated by commas (chronyc(1))."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from rackready.format_error import FormatError

_FIELDS = 14
_LEAPS = frozenset({"Normal", "Insert second", "Delete second", "Not synchronised"})
_NUMBERS = range(3, 13)
"""Fields that hold a number: time of the last measurement, offsets, frequencies, delay, dispersion and interval."""
_REFERENCE = re.compile(r"[0-9A-F]{8}")
_NONE = "00000000"
_OWN = "7F7F0101"
"""Reference id of local mode: chronyd serves its own clock, without a source (chronyc(1), tracking, Reference ID)."""
_MOST = 15
"""Highest stratum of a synchronised clock: 0 is invalid, 16 means unsynchronised (RFC 5905, figure 11)."""


@dataclass(frozen=True, slots=True)
class Tracking:
    """Tracking of the clock's source. Times in seconds; ``offset``: of the system clock now, positive if it is slow."""

    reference: str
    """Reference id as a hexadecimal number."""
    source: str
    stratum: int
    offset: float
    root_delay: float
    root_dispersion: float
    leap: str

    @property
    def synchronised(self) -> bool:
        """Return whether the daemon follows a source. Leap status is not enough: local mode reports Normal too."""
        return (
            self.leap != "Not synchronised" and not self.local and self.reference != _NONE and 0 < self.stratum <= _MOST
        )

    @property
    def local(self) -> bool:
        """Return whether the daemon serves its own clock (chrony.conf(5), local)."""
        return self.reference == _OWN

    @property
    def max_error(self) -> float:
        """Return the largest error, s: offset + root dispersion + half the root delay (chronyc(1), tracking)."""
        return abs(self.offset) + self.root_dispersion + self.root_delay / 2


def parse(text: str) -> Tracking:
    """Return the tracking data. Raise FormatError."""
    lines = text.strip().splitlines()
    if len(lines) != 1:
        raise FormatError("empty output" if not lines else f"{len(lines)} lines instead of one")
    fields = lines[0].split(",")
    if len(fields) != _FIELDS:
        raise FormatError(f"{len(fields)} fields instead of {_FIELDS} (chronyc -c tracking)")
    leap = fields[13].strip()
    if leap not in _LEAPS:
        raise FormatError(f"leap status {leap!r} is unknown")
    _source(fields[0], fields[1])
    try:
        stratum, numbers = int(fields[2]), {place: float(fields[place]) for place in _NUMBERS}
    except ValueError as error:
        raise FormatError(f"not a number: {error}") from error
    offset, delay, dispersion = (numbers[place] for place in (4, 10, 11))
    if not all(map(math.isfinite, numbers.values())) or min(delay, dispersion) < 0:
        raise FormatError(
            f"offset {offset:g} s, root delay {delay:g} s and root dispersion {dispersion:g} s: "
            "not numbers, or the latter two below 0"
        )
    return Tracking(fields[0], fields[1] or fields[0], stratum, offset, delay, dispersion, leap)


def _source(reference: str, name: str) -> None:
    """Raise FormatError if a reference id has no source; only local mode and an unsynchronised clock have none."""
    if not _REFERENCE.fullmatch(reference):
        raise FormatError(f"reference id {reference[:40]!r} instead of eight hexadecimal digits")
    if not name.strip() and reference not in {_OWN, _NONE}:
        raise FormatError(f"reference id {reference} without a source: only {_OWN} and {_NONE} have none")
