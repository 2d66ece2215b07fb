"""Load on the three poles of a circuit, as complex watts, so that loads between two lines add up as currents do."""

from __future__ import annotations

import cmath
import math

from rackready.model.facility import Phase

Poles = tuple[complex, complex, complex]
"""Per line: its current times the line-to-neutral voltage, in the frame of that line's own voltage.

The real parts sum to the load in W; three times the greatest magnitude is the balanced load with the same current in
the worst pole, which is what a breaker sees.
"""

NONE: Poles = (0j, 0j, 0j)
_AHEAD = cmath.rect(1 / math.sqrt(3), math.pi / 6)
"""A load between two lines draws W / V_LL, that is W / sqrt(3) in these units.

It is 30 degrees ahead of the first line's voltage ...
"""
_BEHIND = _AHEAD.conjugate()
"""... and 30 degrees behind the second's. Three equal loads sum to W per line, not 2 W / sqrt(3): add vectors."""
_UNIT: dict[Phase, Poles] = {
    "L1": (1 + 0j, 0j, 0j),
    "L2": (0j, 1 + 0j, 0j),
    "L3": (0j, 0j, 1 + 0j),
    "L1-L2": (_AHEAD, _BEHIND, 0j),
    "L2-L3": (0j, _AHEAD, _BEHIND),
    "L3-L1": (_BEHIND, 0j, _AHEAD),
}
IN_TURN: dict[bool, tuple[Phase, Phase, Phase]] = {True: ("L1", "L2", "L3"), False: ("L1-L2", "L2-L3", "L3-L1")}
"""Outlets of a three-phase PDU in their order: line to neutral (True) or line to line (False)."""


def even(watts: float) -> Poles:
    """Return a load that is the same on all three lines."""
    part = complex(watts / 3)
    return (part, part, part)


def on(phase: Phase, watts: float) -> Poles:
    """Return a single-phase load."""
    first, second, third = _UNIT[phase]
    return (first * watts, second * watts, third * watts)


def add(one: Poles, other: Poles) -> Poles:
    """Return the sum."""
    return (one[0] + other[0], one[1] + other[1], one[2] + other[2])


def scaled(load: Poles, factor: float) -> Poles:
    """Return the load times a factor."""
    return (load[0] * factor, load[1] * factor, load[2] * factor)


def watts(load: Poles) -> float:
    """Return the load in W."""
    return load[0].real + load[1].real + load[2].real


def worst(load: Poles) -> float:
    """Return the balanced load, W, that would draw as much as the worst pole does."""
    return 3 * max(abs(load[0]), abs(load[1]), abs(load[2]))
