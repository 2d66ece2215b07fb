"""Expected values of a measurement (ceiling, reference, floor) and the judgement of a number. Pure functions.

All bandwidths of collectives are nccl-tests' busbw in GB/s. n is the number of ranks, g the GPUs of one NVLink domain,
N the number of domains, P the NVLink rate of one GPU and direction, b the network rate of one GPU, B = g b that of one
domain. References take b as far as the GPU's PCIe link carries it: NICs reach GPU memory over it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import NormalDist, median
from typing import Literal

from rackready.model.outcome import Criterion, Op, Outcome

Collective = Literal["all_reduce", "all_gather", "reduce_scatter", "alltoall"]
Algorithm = Literal["default", "ring", "sharp"]

IMPLAUSIBLE = 1.02
"""A result above this factor times the ceiling cannot be a measurement of this hardware."""
_NEAR = 0.95
_DERIVED = 0.85
_LARGE = 0.75
_LARGE_DOMAINS = 32


@dataclass(frozen=True, slots=True)
class Domain:
    """Hardware that a collective runs on. ``nvls``: the switches of the domain reduce (Hopper and later)."""

    gpus: int
    count: int
    nvlink: float
    """GB/s per GPU and direction, 0 without NVLink."""
    nic: float = 0.0
    """GB/s per GPU."""
    gpu_link: float | None = None
    """Payload rate of a GPU's PCIe link, GB/s per direction; None: not published."""
    nvls: bool = False
    link_ring: float = 0.0
    """Rate of one GPU's links in a ring, GB/s: links x NCCL's per-link figure."""
    boards: int = 1
    """Nodes that one domain spans. A domain of several reaches less than its links (published GB200 and GB300 runs)."""

    @property
    def ranks(self) -> int:
        """Return the number of ranks, one per GPU."""
        return self.gpus * self.count

    @property
    def network(self) -> float:
        """Return B: the rate of one domain's NICs, GB/s."""
        return self.gpus * self.nic

    @property
    def reached(self) -> float:
        """Return b as far as the GPU's PCIe link carries it, GB/s."""
        return self.nic if self.gpu_link is None else min(self.nic, self.gpu_link)

    @property
    def limit(self) -> str:
        """Return words for the source of a reference that the GPU's PCIe link limits."""
        return "; b is the payload rate of the GPU's PCIe link, below its NICs'" if self.reached < self.nic else ""


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound: its value, its source, and whether it is derived."""

    value: float
    source: str
    derived: bool = True
    inputs: dict[str, float | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Share of the NICs' rate that a collective reaches. ``measured``: it was measured on this kind of fabric."""

    value: float
    source: str
    measured: bool


def ceiling(domain: Domain, collective: Collective, algorithm: Algorithm = "default") -> Bound | None:
    """Return the busbw that this hardware cannot exceed; None if there is no physical limit (GPUs without NVLink)."""
    if domain.nvlink <= 0:
        return None
    inputs: dict[str, float | str] = {
        "P": domain.nvlink,
        "g": domain.gpus,
        "N": domain.count,
        "n": domain.ranks,
        "B": domain.network,
        "b": domain.nic,
    }
    if domain.count == 1:
        value, formula = _one_domain(domain.nvlink, domain.ranks, collective, algorithm, nvls=domain.nvls)
        return Bound(value, f"derived: one NVLink domain, {formula}", inputs=inputs)
    value, formula = _several(domain, collective, algorithm)
    return Bound(value, f"derived: several NVLink domains, {formula}", inputs=inputs)


def _one_domain(
    rate: float, ranks: int, collective: Collective, algorithm: Algorithm, *, nvls: bool
) -> tuple[float, str]:
    if collective == "all_reduce" and algorithm == "default" and nvls:
        return max(
            rate, 2 * rate * (ranks - 1) / (ranks + 1)
        ), "all_reduce reduced in the switch: max(P, 2 P (n-1)/(n+1))"
    return rate, f"{collective}: P"


def _several(domain: Domain, collective: Collective, algorithm: Algorithm) -> tuple[float, str]:
    ranks, gpus, count = domain.ranks, domain.gpus, domain.count
    if collective == "alltoall":
        return domain.nic * (ranks - 1) / (ranks - gpus), "alltoall: b (n-1)/(n-g)"
    if algorithm == "ring":
        return min(domain.nvlink, domain.network), "forced ring: min(P, B)"
    share = (ranks - 1) / ranks
    if algorithm == "sharp" and collective == "all_reduce":
        return min(
            2 * domain.nvlink * gpus / (gpus + 1) * share, 2 * domain.network * share
        ), "SHARP all_reduce: min(2 P g/(g+1), 2 B) (n-1)/n"
    inner, _ = _one_domain(domain.nvlink, gpus, collective, algorithm, nvls=domain.nvls)
    return min(inner, domain.network * count / (count - 1) * share), "min(one domain's ceiling, B N/(N-1) (n-1)/n)"


def reference(  # noqa: PLR0911
    domain: Domain,
    collective: Collective,
    algorithm: Algorithm = "default",
    *,
    published: Bound | None = None,
    efficiency: Efficiency | None = None,
) -> Bound | None:
    """Return a healthy result: a published figure of this platform, else the rate of its links; None without either."""
    if published is not None:
        return published
    inputs: dict[str, float | str] = {
        "links": domain.link_ring,
        "B": domain.gpus * domain.reached,
        "b": domain.reached,
        "g": domain.gpus,
        "n": domain.ranks,
    }
    if domain.count == 1:
        if algorithm == "ring" and domain.link_ring > 0 and domain.boards == 1:
            return Bound(
                domain.link_ring, "links x NCCL's per-link figure (NCCL src/graph/topo.h)", derived=False, inputs=inputs
            )
        return None
    if efficiency is None or domain.link_ring <= 0:
        return None
    inputs |= {"e": efficiency.value}
    if collective == "alltoall":
        return Bound(
            efficiency.value * domain.reached * (domain.ranks - 1) / (domain.ranks - domain.gpus),
            f"e b (n-1)/(n-g), e: {efficiency.source}{domain.limit}",
            not efficiency.measured or bool(domain.limit),
            inputs,
        )
    if domain.boards > 1:  # the minimum below needs the NVLink rate across nodes, which is unknown
        return None
    if algorithm == "ring" or collective in {"all_gather", "reduce_scatter"}:
        return Bound(
            min(domain.link_ring, efficiency.value * (domain.gpus * domain.reached)),
            f"min(links x per-link, e B), e: {efficiency.source}{domain.limit}",
            not efficiency.measured or bool(domain.limit),
            inputs,
        )
    return None


def floor(
    expected: Bound | None,
    domain: Domain,
    collective: Collective = "all_reduce",
    *,
    published: Bound | None = None,
    single: bool = True,
) -> Bound | None:
    """Return the bound below which a result fails; None if only the fleet can judge.

    ``single``: the run is a node, a pair or one NVLink domain. A published floor counts only for its own platform.
    """
    derived = _from_reference(expected, domain, collective, single=single)
    if published is None:
        return derived
    return published if derived is None or published.value > derived.value else derived


def _from_reference(expected: Bound | None, domain: Domain, collective: Collective, *, single: bool) -> Bound | None:
    if domain.count > _LARGE_DOMAINS:
        if domain.link_ring <= 0:
            return None
        if collective == "alltoall":  # the NIC of one GPU limits it; the rates of links and B are above its ceiling
            value = _LARGE * domain.reached * (domain.ranks - 1) / (domain.ranks - domain.gpus)
            return Bound(
                value,
                f"{_LARGE} x b (n-1)/(n-g): above {_LARGE_DOMAINS} nodes, judgement{domain.limit}",
                inputs={"b": domain.reached, "n": domain.ranks},
            )
        value = _LARGE * min(domain.link_ring, domain.gpus * domain.reached)
        return Bound(
            value,
            f"{_LARGE} x min(links x per-link, B): above {_LARGE_DOMAINS} nodes, judgement{domain.limit}",
            inputs={"links": domain.link_ring, "B": domain.gpus * domain.reached},
        )
    if expected is None:
        return None
    factor = _NEAR if single and not expected.derived else _DERIVED
    why = (
        "reference has a source for this platform"
        if factor == _NEAR
        else "derived reference"
        if single
        else "3 to 32 nodes"
    )
    return Bound(
        factor * expected.value,
        f"{factor} x reference ({why}); reference: {expected.source}",
        factor != _NEAR,
        {"reference": expected.value, **expected.inputs},
    )


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on one number, with its bounds as criteria."""

    outcome: Outcome
    criteria: tuple[Criterion, ...]
    expected: str
    pending: bool = False
    """Passed without a bound: only the fleet can judge it."""


def judge(
    metric: str, value: float, unit: str, *, upper: Bound | None, expected: Bound | None, lower: Bound | None
) -> Judgement:
    """Judge a number: implausible is an error, below the floor a fail; without a floor it passes as fleet pending."""
    criteria = []
    if upper is not None:
        text = f"{upper.source}; above {IMPLAUSIBLE} x it is implausible"
        criteria.append(
            Criterion(
                metric=metric,
                op=Op.LE,
                bound=upper.value * IMPLAUSIBLE,
                unit=unit,
                label="ceiling",
                source=text,
                derived=upper.derived,
                inputs=upper.inputs,
            )
        )
    if expected is not None:
        criteria.append(
            Criterion(
                metric=metric,
                op=Op.GE,
                bound=expected.value,
                unit=unit,
                label="reference",
                source=expected.source,
                derived=expected.derived,
                inputs=expected.inputs,
            )
        )
    if lower is not None:
        criteria.append(
            Criterion(
                metric=metric,
                op=Op.GE,
                bound=lower.value,
                unit=unit,
                label="floor",
                source=lower.source,
                derived=lower.derived,
                inputs=lower.inputs,
            )
        )
    if not math.isfinite(value) or value <= 0:
        return Judgement(Outcome.ERROR, tuple(criteria), "a positive number")
    if upper is not None and value > upper.value * IMPLAUSIBLE:
        return Judgement(Outcome.ERROR, tuple(criteria), f"at most {upper.value:.1f} {unit} (ceiling)")
    if lower is not None and value < lower.value:
        return Judgement(Outcome.FAIL, tuple(criteria), f"at least {lower.value:.1f} {unit} (floor)")
    return Judgement(Outcome.PASS, tuple(criteria), "", pending=lower is None)


def launches(units: int, *, sigma: float = 0.01, effect: float = 0.03) -> int:
    """Return the number of launches per median that detects ``effect`` among ``units`` units with noise ``sigma``.

    r = ceil(1.57 ((z + 2.33) sigma / d)^2), z the normal quantile of 0.01 / units; 1.57 because a median is used.
    """
    if units < 1 or sigma <= 0 or effect <= 0:
        message = f"launches({units}, sigma={sigma}, effect={effect}): Expected: positive numbers"
        raise ValueError(message)
    z = NormalDist().inv_cdf(1 - 0.01 / units)
    return max(1, math.ceil(1.57 * ((z + 2.33) * sigma / effect) ** 2))


MIN_FLEET = 16
"""Smallest number of identical units that count as a fleet."""


def fleet_outliers(values: Sequence[float], *, standard_error: float, effect: float) -> list[int]:
    """Return the indices of units that fall behind their fleet; none for fewer than 16 units.

    A unit falls behind when (median - x) / max(1.4826 MAD, standard error) exceeds the normal quantile of 0.01 / M and
    the deficit exceeds half of the declared ``effect`` (a share of the median).
    """
    if len(values) < MIN_FLEET:
        return []
    centre = median(values)
    spread = max(1.4826 * median(abs(value - centre) for value in values), standard_error)
    if spread <= 0:
        return []
    limit = NormalDist().inv_cdf(1 - 0.01 / len(values))
    return [
        place
        for place, value in enumerate(values)
        if (centre - value) / spread > limit and (centre - value) / centre > effect / 2
    ]
