"""What a GPU hour and a result cost. Money has no unit here: it is that of the prices given."""

from __future__ import annotations

from dataclasses import dataclass

HOURS_PER_YEAR = 8_760


@dataclass(frozen=True, slots=True)
class Price:
    """Either a price of one GPU hour, or what owning one GPU costs (its share of server, network and building)."""

    hour: float | None = None
    purchase: float | None = None
    life_years: float = 4.0
    watts: float = 0.0
    """Draw of one GPU's share of its server, W."""
    load: float = 1.0
    """Share of that draw on average."""
    pue: float = 1.0
    """Facility power over IT power: cooling and distribution are in it."""
    kwh: float = 0.0
    """Price of one kWh."""
    used: float = 1.0
    """Share of its life in which the GPU works on results."""


def gpu_hour(price: Price) -> float | None:
    """Return the cost of one working GPU hour: the price, or purchase over life plus energy with cooling; None without any price.

    purchase / (years x 8,760 x used) + kW x load x PUE x price of a kWh.
    """
    if price.hour is not None:
        return price.hour
    if price.purchase is None:
        return None
    return price.purchase / (price.life_years * HOURS_PER_YEAR * price.used) + price.watts / 1000 * price.load * price.pue * price.kwh


def per_million(hourly: float, gpus: int, tokens_per_second: float) -> float:
    """Return the cost of a million tokens from ``gpus`` GPUs that make so many tokens a second together."""
    return hourly * gpus / (tokens_per_second * 3600) * 1e6


def virtual(cost: float, overhead: float) -> float:
    """Return what the same result costs on virtual machines that are slower by the share ``overhead`` (0.05: 5 %)."""
    return cost / (1 - overhead)
