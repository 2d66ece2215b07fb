"""The corpus's ways to damage an output, drawn by hypothesis."""

from __future__ import annotations

import random

from hypothesis import strategies as st

from tests.gates.mutators import MUTATORS

Damage = tuple[str, int]


@st.composite
def damages(draw: st.DrawFn) -> Damage:
    """Draw a way and the dice for it."""
    return draw(st.sampled_from(sorted(MUTATORS))), draw(st.integers(0, 2**32 - 1))


def apply(original: str, damage: Damage) -> str:
    """Return the text, damaged."""
    way, dice = damage
    return MUTATORS[way](original, random.Random(dice))  # noqa: S311 - repeatable, not secret
