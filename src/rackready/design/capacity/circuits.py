"""Capacity of circuits, and the standard breaker for a load."""

from __future__ import annotations

import math

from rackready.design.capacity.limits import over
from rackready.model.facility import Rated

CONTINUOUS_SHARE = 0.8
"""A load of three hours or more may use 80 % of a breaker (NEC 210.19, 210.20, 215.3) if not listed for 100 %."""

NEC_SIZES = (
    *(
        15,
        20,
        25,
        30,
        35,
        40,
        45,
        50,
        60,
        70,
        80,
        90,
        100,
        110,
        125,
        150,
        175,
        200,
        225,
        250,
        300,
        350,
        400,
        450,
        500,
        600,
    ),
    *(700, 800, 1000, 1200, 1600, 2000, 2500, 3000, 4000, 5000, 6000),
)
"""Standard ampere ratings of breakers and fuses: NEC (2023) table 240.6(A)."""

IEC_SIZES = (
    *(6, 8, 10, 13, 16, 20, 25, 32, 40, 50, 63, 80, 100, 125),
    *(160, 200, 250, 315, 400, 500, 630, 800, 1000, 1250, 1600, 2000, 2500, 3150, 4000, 5000, 6300),
)
"""Preferred rated currents: IEC 60898-1 up to 125 A, IEC 60059 (R10 series) above."""

IEC_VOLTS = frozenset({230.0, 400.0, 690.0})
"""Nominal voltages of 50 Hz systems (IEC 60038).

A breaker at one of these, or rated for its whole current, counts as an IEC breaker.
"""

OUTLET_VOLTS = 200
"""Lowest voltage that server supplies of this size take (200-240 V: NVIDIA DGX H100 user guide).

Outlets of a three-phase PDU are wired line to neutral if that voltage is high enough (400 and 415 V), else line to line
(208 V)."""


def volt_factor(rated: Rated) -> float:
    """Return watts per ampere at power factor 1: sqrt(3) x V_LL for three phases, V for one; 0 without a voltage."""
    return (rated.volts or 0.0) * (math.sqrt(3) if rated.phases == 3 else 1.0)  # noqa: PLR2004 - three phases


def usable_w(rated: Rated) -> float | None:
    """Return the continuous load that may flow, W; None if the site gives no rating.

    P = sqrt(3) x V_LL x I x pf for three phases, V x I x pf for one; x 0.8 unless the breaker is rated for its whole
    current. Leaving out sqrt(3), as some public calculators do, gives 12.4 kW for 415 V and 30 A where 17.3 kW is
    right.
    """
    if rated.rating_kw is not None:
        return rated.rating_kw * 1000
    if rated.breaker_a is None:
        return None
    return volt_factor(rated) * rated.breaker_a * rated.power_factor * (1.0 if rated.continuous else CONTINUOUS_SHARE)


def line_to_neutral(rated: Rated) -> bool:
    """Return whether the outlets of a three-phase feed are wired line to neutral (else line to line)."""
    return rated.volts is None or rated.volts / math.sqrt(3) >= OUTLET_VOLTS


def standard_breaker(rated: Rated, need_w: float) -> int | None:
    """Return the smallest standard breaker, A, that carries ``need_w`` continuously on this circuit, or None."""
    per_ampere = volt_factor(rated) * rated.power_factor * (1.0 if rated.continuous else CONTINUOUS_SHARE)
    if per_ampere == 0:
        return None
    sizes = IEC_SIZES if rated.continuous or rated.volts in IEC_VOLTS else NEC_SIZES
    return next((size for size in sizes if not over(need_w, size * per_ampere)), None)


def rating_text(rated: Rated) -> str:
    """Return a rating in words, for example ``415 V 60 A, 80 %``."""
    if rated.rating_kw is not None:
        return f"{rated.rating_kw:g} kW"
    if rated.breaker_a is None:
        return "not rated"
    phases = "three-phase" if rated.phases == 3 else "single-phase"  # noqa: PLR2004 - three phases
    return f"{rated.volts:g} V {phases} {rated.breaker_a:g} A at {100 if rated.continuous else 80} %"
