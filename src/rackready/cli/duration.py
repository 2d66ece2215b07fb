"""A duration on the command line, such as 90m or 6h."""

from __future__ import annotations

import re

from rackready.model.problems import RackreadyError

_UNITS = {"m": 60, "h": 3600}
_LONGEST_S = 7 * 24 * 3600
_DURATION = re.compile(r"([1-9]\d{0,4})([mh])")


def seconds(option: str, text: str) -> float:
    """Return the seconds of a duration. Raises RackreadyError for another text, and for more than a week."""
    match = _DURATION.fullmatch(text)
    found = int(match[1]) * _UNITS[match[2]] if match else 0
    if not 0 < found <= _LONGEST_S:
        raise RackreadyError(
            f"{option} {text}",
            expected="minutes or hours such as 90m or 6h, at most 168h",
            actual=text or "nothing",
            next_step="Correct it.",
        )
    return float(found)
