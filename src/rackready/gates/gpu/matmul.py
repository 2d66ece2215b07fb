"""Bounds on the rate of one GPU's matrix product: the model's peak (implausible above it) and a floor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rackready.gates.judging.expectation import IMPLAUSIBLE, Bound
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Criterion, Op
from rackready.model.place import Place
from rackready.model.profile import GpuProfile, Precision

_SHARE = 0.6
"""Share of the best published rate: 0.8 for its other shape (judgement), 0.75 as DCGM allows below its own figures."""
_ALONE = 2
"""With so few GPUs none has enough siblings to be compared with (siblings.compare)."""


RATE_IMPLAUSIBLE = ErrorKind(
    "gemm-rate-implausible",
    "{metric} is implausible",
    meaning="The rate is more than such a GPU can compute: the profile or the output is of another GPU.",
    next_step="Check the node's GPU profile.",
)

FINDINGS = (RATE_IMPLAUSIBLE,)


def floor(gpu: GpuProfile, kind: Precision) -> Bound | None:
    """Return the GFLOPS below which a GPU fails; None if nothing is published for its model.

    FP16 runs as fast as BF16 on tensor cores; TF32 relates to BF16 as their dense rates do.
    """
    if kind == "fp32":
        return Bound(gpu.fp32_min.value, gpu.fp32_min.source, derived=False) if gpu.fp32_min else None
    best, dense = gpu.matmul.get("fp8" if kind == "fp8" else "bf16"), gpu.compute
    if best is None:
        return None
    scale = dense["tf32"].value / dense["bf16"].value if kind == "tf32" else 1.0
    value = _SHARE * best.value * scale * 1000
    return Bound(
        value,
        f"derived: {_SHARE} x {best.value * scale:.4g} TFLOPS; {best.source}",
        inputs={"published": best.value, "scale": scale},
    )


def needs_fleet(gpu: GpuProfile, kinds: Iterable[Precision], gpus: int) -> bool:
    """Return whether only a fleet can show that a node is slow.

    That is so without a floor, since equally slow siblings look right, and with too few GPUs to compare.
    """
    return gpus <= _ALONE or any(floor(gpu, kind) is None for kind in kinds)


def judge_rates(
    judge: Judge, gpu: GpuProfile, node: str, kind: Precision, values: Mapping[int, float], fault: FailKind
) -> set[int]:
    """Compare the GFLOPS of each GPU with ceiling (the model's dense rate) and floor.

    Fails with ``fault`` every GPU below the floor, and returns those.
    """
    metric, dense, lower = f"gemm_{kind}", gpu.compute.get(kind), floor(gpu, kind)
    if dense is not None:
        bound = dense.value * 1000 * IMPLAUSIBLE
        text = f"{dense.source}; above {IMPLAUSIBLE} x it is implausible"
        judge.criterion(Criterion(metric=metric, op=Op.LE, bound=bound, unit="GFLOPS", label="ceiling", source=text))
        for place in (place for place, value in values.items() if value > bound):
            wanted = f"at most {dense.value * 1000:.4g} GFLOPS ({dense.source})"
            judge.error(
                Place(node, f"gpu{place}"), RATE_IMPLAUSIBLE, wanted, f"{values[place]:.4g} GFLOPS", metric=metric
            )
    if lower is None:
        return set()
    judge.criterion(
        Criterion(
            metric=metric,
            op=Op.GE,
            bound=lower.value,
            unit="GFLOPS",
            label="floor",
            source=lower.source,
            derived=lower.derived,
            inputs=lower.inputs,
        )
    )
    slow = {place for place, value in values.items() if value < lower.value}
    for place in sorted(slow):
        judge.fail(
            Place(node, f"gpu{place}"),
            fault,
            f"at least {lower.value:.4g} GFLOPS ({lower.source})",
            f"{values[place]:.4g} GFLOPS",
            metric=metric,
        )
    return slow
