"""Formulas of power and heat against published tables, and loads between phases against a worked example."""

from __future__ import annotations

import math

import pytest

from rackready.design.capacity import circuits, cooling, poles
from rackready.design.capacity.cooling import Heat
from rackready.model.facility import Rated


@pytest.mark.parametrize(
    ("volts", "phases", "amps", "expected_w"),
    [
        # HP ProLiant DL360 "Power basics for IT professionals", table 4 (80 %, VA): North American branch circuits.
        (120, 1, 20, 1920),
        (120, 1, 30, 2880),
        (240, 1, 30, 5760),
        (208, 3, 20, 5764),
        (208, 3, 30, 8646),
        (208, 3, 60, 17292),
        # 415 V: sqrt(3) x 415 x I x 0.8; calculators that print 12.4 kW for 30 A forget sqrt(3).
        (415, 3, 30, 17251),
        (415, 3, 60, 34502),
        (415, 3, 100, 57504),
    ],
)
def test_usable_power_at_80_per_cent(volts: float, phases: int, amps: float, expected_w: float) -> None:
    rated = Rated.model_validate({"breaker_a": amps, "volts": volts, "phases": phases})
    assert circuits.usable_w(rated) == pytest.approx(expected_w, abs=1.5)


def test_iec_site_uses_the_whole_current() -> None:
    # The same paper, table 5: 230/400 V three-phase 32 A is 22,080 VA (3 x 230 V x 32 A); with 400 V between lines
    # 22,170 VA.
    rated = Rated(breaker_a=32, volts=400, continuous=True)
    assert circuits.usable_w(rated) == pytest.approx(22170, abs=1)


def test_rating_in_kw_is_taken_as_it_is_and_power_factor_counts() -> None:
    assert circuits.usable_w(Rated(rating_kw=33)) == 33000
    assert circuits.usable_w(Rated(breaker_a=60, volts=415, power_factor=0.9)) == pytest.approx(34502 * 0.9, abs=1)
    assert circuits.usable_w(Rated()) is None


@pytest.mark.parametrize(
    ("rated", "need_w", "expected"),
    [
        (Rated(breaker_a=30, volts=415), 40800, 80),
        (Rated(breaker_a=30, volts=208), 8647, 35),
        (Rated(breaker_a=16, volts=400, continuous=True), 22000, 32),
        (Rated(breaker_a=16, volts=400), 22000, 40),
        (Rated(breaker_a=6000, volts=208), 1e9, None),
        (Rated(rating_kw=5), 6000, None),
    ],
)
def test_next_standard_breaker(rated: Rated, need_w: float, expected: int | None) -> None:
    assert circuits.standard_breaker(rated, need_w) == expected


def test_breaker_table_has_every_size_of_the_code() -> None:
    assert len(circuits.NEC_SIZES) == 37
    assert sorted(circuits.NEC_SIZES) == list(circuits.NEC_SIZES)
    assert sorted(circuits.IEC_SIZES) == list(circuits.IEC_SIZES)


def test_two_banks_of_a_208_v_pdu_overload_the_shared_line() -> None:
    # datacentermd.com: 6,180 VA on a 208 V 30 A strip is well below 8,646 VA; on two of its three banks one pole is
    # beyond 24 A.
    uneven = poles.add(poles.on("L1-L2", 3090), poles.on("L2-L3", 3090))
    amps = [abs(pole) * math.sqrt(3) / 208 for pole in uneven]
    assert amps == pytest.approx([14.86, 25.73, 14.86], abs=0.01)
    assert poles.worst(uneven) > 8646 > poles.watts(uneven)


def test_even_load_between_lines_draws_as_three_phase_load_does() -> None:
    total = poles.NONE
    for phase in poles.IN_TURN[False]:
        total = poles.add(total, poles.on(phase, 2000))
    assert poles.worst(total) == pytest.approx(6000)
    assert poles.watts(total) == pytest.approx(6000)


def test_outlets_are_line_to_neutral_where_that_reaches_200_v() -> None:
    assert circuits.line_to_neutral(Rated(volts=415)) is True
    assert circuits.line_to_neutral(Rated(volts=400)) is True
    assert circuits.line_to_neutral(Rated(volts=208)) is False


def test_heat_of_a_server() -> None:
    # 10,200 W x 3.412 = 34,802 BTU/h; / 12,000 = 2.9 tons.
    heat = Heat(10200, 0)
    assert heat.btu_h == pytest.approx(34802, abs=1)
    assert heat.tons == pytest.approx(2.9, abs=0.01)
    assert Heat(1000, None).air_w is None


def test_flows_that_carry_heat_follow_from_the_properties_of_air_and_water() -> None:
    assert cooling.air_flow_m3_h(1000, 10) == pytest.approx(3600 * 1000 / (1.2 * 1005 * 10), rel=0.01)
    assert cooling.liquid_flow_l_min(100_000, 10) == pytest.approx(60 * 100 / (4.19 * 10), rel=0.01)
