"""Prices and costs of `rackready size`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import typer

from rackready.design.sizing.cost import Price, Virtual, gpu_hour, on_virtual, per_million, virtual
from rackready.model.problems import Message, RackreadyError
from rackready.profiles import loader

PriceHour = Annotated[
    list[str],
    typer.Option("--price-hour", help="Price per GPU hour, or ID=PRICE for a profile; repeatable."),
]
PriceGpu = Annotated[
    list[str],
    typer.Option(
        "--price-gpu",
        help="Purchase price per GPU, or ID=PRICE, instead of --price-hour; repeatable.",
    ),
]
Life = Annotated[float, typer.Option("--life-years", help="Depreciation of the purchase, years.")]
Kwh = Annotated[float, typer.Option("--price-kwh", min=0, help="Price per kWh.")]
Pue = Annotated[float, typer.Option("--pue", help="Power usage effectiveness: facility power / IT power.")]
Load = Annotated[float, typer.Option("--load", help="Average draw as a share of the highest, 0 to 1.")]
Used = Annotated[
    float,
    typer.Option("--used", help="Share of hours with useful work per GPU, 0 to 1."),
]
Overhead = Annotated[
    float,
    typer.Option(
        "--virtual-overhead",
        help="Measured slowdown of virtual machines, a share, e.g. 0.03.",
    ),
]
VirtualUsed = Annotated[float, typer.Option("--virtual-used", help="Like --used, for virtual machines; 0: as --used.")]
VirtualFee = Annotated[float, typer.Option("--virtual-fee", help="Licence cost of virtual machines per GPU hour.")]
Currency = Annotated[str, typer.Option("--currency", help="Currency of the prices; only printed.")]


LIFE = 4.0
"""Default years over which a purchase is spread."""

Prices = Mapping[str, float]
"""Server or GPU profile -> price; "": all others."""


def prices(option: str, given: Sequence[str]) -> Prices:
    """Return prices from PRICE and ID=PRICE. Raises RackreadyError with every problem."""
    servers_known = (
        {name: loader.platform(name).gpu for name in loader.known("platform")}
        if any("=" in item for item in given)
        else {}
    )
    known = {*servers_known, *servers_known.values()}
    out: dict[str, float] = {}
    wrong: list[Message] = []
    for item in given:
        name, _, text = item.rpartition("=")
        value = _number(text)
        if value is None:
            wrong.append(
                Message(
                    f"{option} {item}",
                    expected="a price, or ID=PRICE",
                    actual=text or "no price",
                    next_step="Correct it.",
                )
            )
        elif value < 0:
            wrong.append(
                Message(f"{option} {item}", expected="at least 0", actual=f"{value:g}", next_step="Correct it.")
            )
        elif name and name not in known:
            wrong.append(
                Message(
                    f"{option} {item}",
                    expected=f"one of {', '.join(sorted(known))}",
                    actual=name,
                    next_step="Correct it.",
                )
            )
        elif name in out:
            wrong.append(
                Message(
                    f"{option} {item}",
                    expected=f"one price for {name or 'all servers'}",
                    actual=f"{out[name]:g} before it",
                    next_step="Give it once.",
                )
            )
        else:
            out[name] = value
    if wrong:
        raise RackreadyError.of(wrong)
    return out


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _price(of: Prices, platform: str) -> float | None:
    """Return the price of a server model: its own, else its GPU's, else the general one; None without any."""
    key = _key(of, platform)
    return None if key is None else of[key]


def _key(of: Prices, platform: str) -> str | None:
    """Return the name under which a server model has its price, None without any."""
    return next((key for key in (platform, loader.platform(platform).gpu, "") if key in of), None)


@dataclass(frozen=True, slots=True)
class Money:
    """Options about prices. 0 and empty: not given."""

    hour: Prices = field(default_factory=dict)
    purchase: Prices = field(default_factory=dict)
    life: float = LIFE
    kwh: float = 0.0
    pue: float = 0.0
    load: float = 1.0
    used: float = 1.0
    virtual: Virtual = field(default_factory=Virtual)
    currency: str = ""

    def check(self, looked_at: Sequence[str], *, result: bool = True) -> None:
        """Raise RackreadyError for impossible prices, and for prices without effect.

        ``looked_at``: the server models in question; ``result``: whether there is a result to price, e.g. a run with a
        number of tokens.
        """
        self._finite()
        self._needs_price((("--price-kwh", self.kwh), ("--pue", self.pue)), "energy and cooling")
        if self.hour and self.purchase:
            raise RackreadyError(
                "--price-hour, --price-gpu", expected="one of them", actual="both", next_step="Choose rent or purchase."
            )
        self._ranges()
        self._needs_price((("--life-years", self.life != LIFE), ("--load", self.load != 1)), "the purchase and energy")
        self._used_at_all(result=result)
        self._used_by(looked_at)

    def _needs_price(self, options: Sequence[tuple[str, float]], what: str) -> None:
        unused = [option for option, value in options if value and not self.purchase]
        if unused:
            raise RackreadyError(
                ", ".join(unused),
                expected="--price-gpu with it",
                actual="none",
                next_step=f"A price per hour includes {what}: omit it.",
            )

    def _ranges(self) -> None:
        for option, value in (
            ("--load", self.load),
            ("--used", self.used),
            ("--virtual-used", self.virtual.used or 1.0),
        ):
            if not 0 < value <= 1:
                raise RackreadyError(
                    f"{option} {value:g}",
                    expected="above 0 and at most 1",
                    actual=f"{value:g}",
                    next_step="Correct it.",
                )
        overhead = self.virtual.overhead
        if not 0 <= overhead < 1:
            raise RackreadyError(
                f"--virtual-overhead {overhead:g}",
                expected="at least 0 and below 1",
                actual=f"{overhead:g}",
                next_step="Give a share, e.g. 0.03 for 3 %.",
            )
        if self.virtual.fee < 0:
            raise RackreadyError(
                f"--virtual-fee {self.virtual.fee:g}",
                expected="at least 0",
                actual=f"{self.virtual.fee:g}",
                next_step="Correct it.",
            )
        if self.life <= 0:
            raise RackreadyError(
                f"--life-years {self.life:g}", expected="above 0", actual=f"{self.life:g}", next_step="Correct it."
            )
        if self.pue and self.pue < 1:
            raise RackreadyError(
                f"--pue {self.pue:g}",
                expected="at least 1, because IT power is part of it",
                actual=f"{self.pue:g}",
                next_step="Correct it.",
            )

    def _used_at_all(self, *, result: bool) -> None:
        terms = self.virtual
        options = (
            ("--used", self.used != 1),
            ("--virtual-overhead", terms.overhead),
            ("--virtual-used", terms.used),
            ("--virtual-fee", terms.fee),
        )
        unused = [option for option, value in options if value]
        if unused and not (self.hour or self.purchase):
            raise RackreadyError(
                ", ".join(unused),
                expected="--price-hour or --price-gpu with it",
                actual="none",
                next_step="Give a price, or omit it.",
            )
        if (self.hour or self.purchase) and not result:
            option = "--price-hour" if self.hour else "--price-gpu"
            raise RackreadyError(
                option,
                expected="--tokens with it, to price a run",
                actual="none",
                next_step="Give the tokens of the run, or omit the price.",
            )

    def _used_by(self, looked_at: Sequence[str]) -> None:
        """Raise RackreadyError for prices that apply to none of the servers in question."""
        option, of = ("--price-hour", self.hour) if self.hour else ("--price-gpu", self.purchase)
        used = {_key(of, platform) for platform in looked_at}
        names = [*sorted(looked_at), *sorted({loader.platform(platform).gpu for platform in looked_at})]
        wrong: list[Message] = []
        for name, value in of.items():
            if name and name not in names:
                known = f"one of {', '.join(names)} (--on)"
                wrong.append(
                    Message(
                        f"{option} {name}={value:g}",
                        expected=known,
                        actual=name,
                        next_step="Also name it with --on, or omit its price.",
                    )
                )
            elif name not in used:
                said = f"{name}={value:g}" if name else f"{value:g}"
                wrong.append(
                    Message(
                        f"{option} {said}",
                        expected="a server without a price of its own",
                        actual="all servers have one",
                        next_step="Omit it.",
                    )
                )
        if wrong:
            raise RackreadyError.of(wrong)

    def _finite(self) -> None:
        said = [("--price-hour", value) for value in self.hour.values()] + [
            ("--price-gpu", value) for value in self.purchase.values()
        ]
        options = [
            *said,
            ("--life-years", self.life),
            ("--price-kwh", self.kwh),
            ("--pue", self.pue),
            ("--virtual-fee", self.virtual.fee),
        ]
        wrong = [
            Message(f"{option} {value:g}", expected="a number", actual=f"{value:g}", next_step="Correct it.")
            for option, value in options
            if not math.isfinite(value)
        ]
        if wrong:
            raise RackreadyError.of(wrong)

    def assumed(self) -> list[str]:
        """Return the assumptions of the costs."""
        return [*self._owned(), *self._as_on_metal()]

    def _as_on_metal(self) -> list[str]:
        if not self.virtual.is_set or not (self.hour or self.purchase):
            return []
        terms = self.virtual
        out = [] if terms.overhead else ["virtual machines are as fast as metal (--virtual-overhead)"]
        out += [] if terms.used else [f"their GPUs work {self.used:.0%} of their life, as on metal (--virtual-used)"]
        return [*out, *([] if terms.fee else ["their licences cost nothing (--virtual-fee)"])]

    def _owned(self) -> list[str]:
        if not self.purchase:
            return []
        out = ["a GPU's power is its share of the server's highest draw (--load 1)"] if self.load == 1 else []
        out += [] if self.kwh else ["energy costs nothing (--price-kwh)"]
        out += [] if self.pue else ["PUE 1: no cooling (--pue)"]
        return [*out, f"GPUs work {self.used:.0%} of {self.life:g} years (--used, --life-years)"]

    def tokens(self, platform: str, gpus: int, rate: float) -> dict[str, float] | None:
        """Return costs of a GPU hour and a million tokens, on bare metal and, if described, on virtual machines."""
        return self._costs(platform, "per_million_tokens", lambda hourly: per_million(hourly, gpus, rate))

    def run(self, platform: str, gpu_hours: float) -> dict[str, float] | None:
        """Return costs of a GPU hour and a whole run, on bare metal and, if described, on virtual machines."""
        return self._costs(platform, "run", lambda hourly: hourly * gpu_hours)

    def _costs(self, platform: str, name: str, result: Callable[[float], float]) -> dict[str, float] | None:
        """Return costs by name, None without any price. ``result``: computes it from the cost of a GPU hour."""
        server = loader.platform(platform)
        watts = server.max_power.value / server.gpus
        price = Price(
            _price(self.hour, platform),
            _price(self.purchase, platform),
            self.life,
            watts,
            self.load,
            self.pue or 1.0,
            self.kwh,
            self.used,
        )
        metal, guest = gpu_hour(price), gpu_hour(on_virtual(price, self.virtual))
        if metal is None or guest is None:
            return None
        bare = {"gpu_hour": metal, name: result(metal)}
        if not self.virtual.is_set:
            return bare
        return {**bare, "gpu_hour_virtual": guest, f"{name}_virtual": virtual(result(guest), self.virtual.overhead)}
