"""Cost of a GPU hour and of a result, in the currency of the given prices."""

from __future__ import annotations

from dataclasses import dataclass, replace

HOURS_PER_YEAR = 8_760


@dataclass(frozen=True, slots=True)
class Price:
    """Either a price of one GPU hour, or the cost of owning one GPU (its share of server, network and building)."""

    hour: float | None = None
    purchase: float | None = None
    life_years: float = 4.0
    watts: float = 0.0
    """Draw of one GPU's share of its server, W."""
    load: float = 1.0
    """Share of that draw on average."""
    pue: float = 1.0
    """Facility power over IT power, including cooling and distribution."""
    kwh: float = 0.0
    """Price of one kWh."""
    used: float = 1.0
    """Share of its life, or of the paid hours, in which the GPU works on results."""
    fee: float = 0.0
    """Additional cost of each GPU in every hour of its life: licences of a hypervisor and its GPU software."""


@dataclass(frozen=True, slots=True)
class Virtual:
    """Differences of virtual machines from bare metal on the same servers; unset fields are as on metal."""

    overhead: float = 0.0
    """Share by which they are slower, 0 to below 1."""
    used: float = 0.0
    """Share of its life in which a GPU works on results; 0: as on metal."""
    fee: float = 0.0
    """As in Price."""

    @property
    def is_set(self) -> bool:
        """Return whether anything is set for virtual machines."""
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
    """Return the cost of a million tokens from ``gpus`` GPUs that together produce that many tokens a second."""
    return hourly * gpus / (tokens_per_second * 3600) * 1e6


def virtual(cost: float, overhead: float) -> float:
    """Return the cost of the same result on virtual machines that are slower by ``overhead`` (0.05: 5 %)."""
    return cost / (1 - overhead)
