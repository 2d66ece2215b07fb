"""Compares a figure with a limit, and formats both so that the difference is visible."""

from __future__ import annotations

SLACK_W = 0.5
"""Tolerance for loads, W: sums over many racks differ in their last digits. Judgement: no rating is finer."""
SLACK_KG = 0.05
"""Tolerance for weights, kg."""
_MOST_DIGITS = 6


def over(actual: float, limit: float, slack: float = SLACK_W) -> bool:
    """Return whether a figure exceeds a limit by more than the slack (both in W, or in the unit of ``slack``)."""
    return actual > limit + slack


def written(actual: float, limit: float, unit: str, *, digits: int = 1) -> tuple[str, str]:
    """Return limit and actual as text with unit, with enough decimals (at least ``digits``) to tell them apart."""
    for count in range(digits, _MOST_DIGITS):
        expected, found = f"{limit:.{count}f}", f"{actual:.{count}f}"
        if expected != found:
            return f"{expected} {unit}", f"{found} {unit}"
    return f"{limit!r} {unit}", f"{actual!r} {unit}"


def as_given(actual: float, limit: float, unit: str) -> tuple[str, str]:
    """Return limit and actual as text, the limit exactly as in the site file."""
    return f"{limit:.12g} {unit}", written(actual, limit, unit)[1]


def kilowatts(actual_w: float, limit_w: float) -> tuple[str, str]:
    """Return limit and actual, both given in W, in kW."""
    return written(actual_w / 1000, limit_w / 1000, "kW")
