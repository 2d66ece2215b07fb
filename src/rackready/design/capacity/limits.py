"""Compares a figure with a limit, and writes both so that a reader sees why the one is above the other."""

from __future__ import annotations

SLACK_W = 0.5
"""Load up to so much above a rating is at the rating, W: sums of shares of many racks differ in their last digits. Judgement: no rating is given finer."""
SLACK_KG = 0.05
"""The same for weights, kg."""
_MOST_DIGITS = 6


def over(actual: float, limit: float, slack: float = SLACK_W) -> bool:
    """Say whether a figure is above a limit by more than the slack (both in W, or both in the unit of ``slack``)."""
    return actual > limit + slack


def written(actual: float, limit: float, unit: str, *, digits: int = 1) -> tuple[str, str]:
    """Return limit and actual as text with their unit, with as many digits behind the point (``digits`` at least) as tell them apart."""
    for count in range(digits, _MOST_DIGITS):
        expected, found = f"{limit:.{count}f}", f"{actual:.{count}f}"
        if expected != found:
            return f"{expected} {unit}", f"{found} {unit}"
    return f"{limit!r} {unit}", f"{actual!r} {unit}"


def as_given(actual: float, limit: float, unit: str) -> tuple[str, str]:
    """Return the same for a limit that the site gives: it stands as it is written there."""
    return f"{limit:.12g} {unit}", written(actual, limit, unit)[1]


def kilowatts(actual_w: float, limit_w: float) -> tuple[str, str]:
    """Return limit and actual, both given in W, in kW."""
    return written(actual_w / 1000, limit_w / 1000, "kW")
