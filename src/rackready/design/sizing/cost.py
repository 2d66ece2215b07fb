"""What a GPU hour and a result cost. Money has no unit here: it is that of the prices given."""

from __future__ import annotations

from dataclasses import dataclass, replace

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
    """Share of its life, or of the hours that are paid for, in which the GPU works on results."""
    fee: float = 0.0
    """What each GPU costs more in every hour of its life, working or not: licences of a hypervisor and its GPU software."""


@dataclass(frozen=True, slots=True)
class Virtual:
    """How virtual machines on the same servers differ from bare metal; what nobody said is as on metal."""

    overhead: float = 0.0
    """Share by which they are slower, 0 to below 1."""
    used: float = 0.0
    """Share of its life in which a GPU works on results; 0: as on metal."""
    fee: float = 0.0
    """As in Price."""

    @property
    def said(self) -> bool:
        """Return whether anything was said of virtual machines."""
        return bool(self.overhead or self.used or self.fee)


def gpu_hour(price: Price) -> float | None:
    """Return the cost of one working GPU hour, rented or owned; None without any price.

    Rented: (price + fee) / used. Owned: (purchase / (years x 8,760) + fee) / used + kW x load x PUE x price of a kWh.
    """
    if price.hour is not None:
        return (price.hour + price.fee) / price.used
    if price.purchase is None:
        return None
    owned = price.purchase / (price.life_years * HOURS_PER_YEAR)
    return (owned + price.fee) / price.used + price.watts / 1000 * price.load * price.pue * price.kwh


def on_virtual(price: Price, terms: Virtual) -> Price:
    """Return the price of the same GPU under virtual machines."""
    return replace(price, used=terms.used or price.used, fee=terms.fee)


def per_million(hourly: float, gpus: int, tokens_per_second: float) -> float:
    """Return the cost of a million tokens from ``gpus`` GPUs that make so many tokens a second together."""
    return hourly * gpus / (tokens_per_second * 3600) * 1e6


def virtual(cost: float, overhead: float) -> float:
    """Return what the same result costs on virtual machines that are slower by the share ``overhead`` (0.05: 5 %)."""
    return cost / (1 - overhead)
