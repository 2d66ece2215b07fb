"""Bounds of RDMA latency: the published mark, the smallest plausible value, and the other rails."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from rackready.design.facts import NodeFacts
from rackready.gates.base import FleetMetric
from rackready.gates.fabric import latency_findings as kinds
from rackready.gates.judging.expectation import Bound
from rackready.gates.judging.fleet import part_bound
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Criterion, Op

_RESOLUTION = 0.01
"""The step of perftest's figures, microseconds: two decimals. No source publishes the spread of one reading."""
_FEW = 4
"""With fewer rails, a median of the others does not show a spread."""
MARKS = {"h100_sxm": 5.0, "h200_sxm": 5.0, "b200_sxm": 5.0, "gb200_nvl72": 9.0}
"""Largest average latency of ib_write_lat, microseconds: oci-hpc health checks, 5 on H100, H200 and B200 shapes, 9
on GB200. None for other GPUs."""
_SOURCE = "published pass mark of this GPU's shapes: oracle-quickstart/oci-hpc health checks, ib_write_lat"
_LOOSE = (
    "derived: the largest published pass mark of any GPU's shapes (oracle-quickstart/oci-hpc health "
    "checks, ib_write_lat), as none is published for this one"
)
LEAST_WRITE = Bound(
    0.3,
    "judgement: half of the smallest latency that a vendor claims for a NIC (0.6 us: NVIDIA ConnectX-6 user manual)",
)
"""Smallest plausible latency of a write, microseconds: half of the smallest that any vendor claims for a NIC.
Judgement."""


def judge_plausible(gathered: Judge, where: str, value: float, least: Bound) -> bool:
    """Return whether a rail's latency, us, is plausible for hardware; an implausible one is not a measurement."""
    bound = Criterion(
        metric="latency_average",
        op=Op.GE,
        bound=least.value,
        unit="us",
        label="floor",
        source=least.source,
        derived=True,
    )
    if bound not in gathered.criteria:
        gathered.criterion(bound)
    gathered.judged += 1
    if value < least.value:
        gathered.error(where, kinds.LATENCY_IMPLAUSIBLE, f"at least {least.value:.1f} us", f"{value:.2f} us")
    return value >= least.value


def judge_mark(gathered: Judge, where: str, value: float, mark: Bound) -> None:
    """Compare a rail's latency, us, with its mark."""
    gathered.judged += 1
    bound = Criterion(
        metric="latency_average",
        op=Op.LE,
        bound=mark.value,
        unit="us",
        label="ceiling",
        source=mark.source,
        derived=mark.derived,
        inputs=mark.inputs,
    )
    if bound not in gathered.criteria:
        gathered.criterion(bound)
    gathered.metric("latency_average", where, value, "us")
    if value > mark.value:
        gathered.fail(where, kinds.LATENCY_HIGH, f"at most {mark.value:.1f} us on average", f"{value:.2f} us")


def judge_siblings(
    gathered: Judge, where: str, values: tuple[float, Sequence[float]], effect: float, comparisons: int, *, known: bool
) -> None:
    """Compare a NIC with the median of the other rails. ``values``: the NIC's own, and those of the other rails.

    It fails when it is outside their spread and late by more than half of the effect. ``known``: there is a published
    mark for it.
    """
    value, others = values
    rails = len(others) + 1
    if rails < _FEW:
        if not known:
            gathered.error(
                where, kinds.LATENCY_NOT_JUDGED, f"a published mark or {_FEW} rails", f"{rails} rails and no mark"
            )
        return
    gathered.judged += 1
    found = part_bound(FleetMetric("latency_typical", effect, better="lower"), others, comparisons, error=_RESOLUTION)
    if not found.holds(value):
        gathered.criterion(found.criterion("us"))
        expected = f"at most {found.bound:.2f} us (median of the others {found.centre:.2f})"
        gathered.fail(where, kinds.LATENCY_BESIDE_RAILS, expected, f"{value:.2f} us")


def judge_tail(gathered: Judge, where: str, value: float, others: Sequence[float], times: float) -> None:
    """Compare a NIC's 99 % percentile with the median of the other rails'.

    If one message of a hundred is very late, it delays every collective. ``times``: how often the median it may be.
    """
    if len(others) + 1 < _FEW:
        return
    gathered.judged += 1
    centre = median(others)
    if value > times * centre:
        source = f"judgement: {times:g} x the median of the other rails"
        inputs: dict[str, float | str] = {"median": centre, "times": times}
        gathered.criterion(
            Criterion(
                metric="latency_p99",
                op=Op.LE,
                bound=times * centre,
                unit="us",
                label="siblings",
                source=source,
                inputs=inputs,
            )
        )
        expected = f"at most {times * centre:.2f} us (median of the others {centre:.2f})"
        gathered.fail(where, kinds.LATENCY_TAIL, expected, f"{value:.2f} us")


def write_mark(of_node: NodeFacts) -> Bound:
    """Return the published mark of writes of the node's GPU, or else the largest of any GPU.

    Rails that are all late cannot judge each other.
    """
    value = MARKS.get(of_node.gpu.id)
    inputs: dict[str, float | str] = {"gpu": of_node.gpu.id}
    return (
        Bound(max(MARKS.values()), _LOOSE, derived=True, inputs=inputs)
        if value is None
        else Bound(value, _SOURCE, derived=False, inputs=inputs)
    )
