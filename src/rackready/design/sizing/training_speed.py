"""Duration of a training run and its limit: compute at the stated MFU, or another resource at its peak."""

from __future__ import annotations

from dataclasses import dataclass

from rackready.design.sizing import links, parameters
from rackready.design.sizing.parallel import Layout, stage_layers
from rackready.design.sizing.stages import stages
from rackready.design.sizing.training_memory import WEIGHT_BYTES, TrainingJob
from rackready.model.llm import Llm
from rackready.model.profile import GpuProfile, PlatformProfile, Precision

SECONDS_PER_DAY = 86_400
NOT_KNOWN = "not known"
"""Limit, if a needed resource has no published figure."""
FLOPS_PER_PARAMETER = 6
"""Operations of forward and backward pass per parameter and token: 2 + 4 (Kaplan et al., arXiv 2001.08361)."""
_REDUCTIONS = 4
"""All-reduces of one layer under tensor parallelism: two forward, two backward (Megatron-LM, arXiv 1909.08053)."""
_PASSES = 3
"""Times that a micro-batch reads the weights: forward, gradients of inputs, gradients of weights."""

_SHARDED_GRADIENTS = 2
"""ZeRO stage from which a rank keeps only its part of the gradients."""


@dataclass(frozen=True, slots=True)
class TrainingTime:
    """Days of the whole run, and seconds of one step by resource: compute at the stated MFU, every other at its peak.

    ``limit`` is the slowest of them; "not known" if a needed resource has no published figure: days are then a lower
    bound.
    """

    days: float
    gpu_hours: float
    limit: str
    seconds: dict[str, float]
    step_tokens: int


def training_days(parameters_active: float, tokens: float, gpus: int, tflops: float, mfu: float) -> float:
    """Return the days of a run: 6 N D / (GPUs x dense TFLOPS x 1e12 x MFU x 86,400)."""
    return FLOPS_PER_PARAMETER * parameters_active * tokens / (gpus * tflops * 1e12 * mfu * SECONDS_PER_DAY)


def training_time(  # noqa: PLR0913, PLR0917 - a run is its model, layout, job, hardware, length and efficiency
    model: Llm,
    layout: Layout,
    job: TrainingJob,
    gpu: GpuProfile,
    platform: PlatformProfile,
    tokens: float,
    mfu: float,
    precision: Precision = "bf16",
) -> TrainingTime:
    """Return the duration of a run of ``tokens`` on the layout: a step lasts as long as its slowest resource."""
    rate = gpu.compute[precision].value
    batches = job.micro_batches or layout.pp
    step = job.sequence * job.micro_batch * batches * layout.dp
    seconds = {"compute": FLOPS_PER_PARAMETER * parameters.active(model) * step / (layout.gpus * rate * 1e12 * mfu)}
    held = max(stage.parameters for stage in stages(model, layout))
    if gpu.memory_bandwidth is not None:
        seconds["bandwidth"] = _PASSES * 2 * held * batches / (gpu.memory_bandwidth.value * 1e9)
    exchange = _exchange(model, layout, job, gpu, platform)
    if exchange:
        seconds["interconnect"] = exchange
    slowest = max(seconds, key=lambda name: seconds[name])
    days = (
        training_days(parameters.active(model), tokens, layout.gpus, rate, mfu) * seconds[slowest] / seconds["compute"]
    )
    limit = NOT_KNOWN if exchange is None or "bandwidth" not in seconds else slowest
    return TrainingTime(days, days * 24 * layout.gpus, limit, seconds, step)


def _exchange(model: Llm, layout: Layout, job: TrainingJob, gpu: GpuProfile, platform: PlatformProfile) -> float | None:
    """Return the seconds of one step's exchanges, none of them hidden; None: not published, 0: none.

    All-reduces of tensor parallelism occur per micro-batch; ``_sent`` says what data-parallel ranks exchange.
    """
    seconds = 0.0
    if layout.tp > 1:
        rate = links.between(platform, gpu, layout.tp).rate
        if rate is None:
            return None
        one = links.all_reduce(2.0 * job.sequence * job.micro_batch * model.hidden, layout.tp, rate)
        seconds += _REDUCTIONS * stage_layers(model, layout) * one * (job.micro_batches or layout.pp)
    if layout.dp > 1:
        rate = links.between(platform, gpu, layout.gpus).rate
        if rate is None:
            return None
        stage = max(stages(model, layout), key=lambda item: item.parameters)
        sent = _sent(layout, job)
        seconds += links.half(sent * (stage.dense + stage.outside), layout.dp, rate)
        # Each expert-parallel rank has its own experts: only dp / ep ranks hold the same ones.
        seconds += links.half(sent * stage.routed, layout.dp / layout.ep, rate)
    return seconds


def _sent(layout: Layout, job: TrainingJob) -> float:
    """Return the bytes per parameter that data-parallel ranks gather or scatter in one step.

    ZeRO stages 0 and 1 reduce gradients once a step: an all-reduce, which is both. From stage 2 on a rank keeps only
    its part of the gradients, so each micro-batch scatters all of them (deepspeedai/DeepSpeed, issue 2252 and pull
    request 338), and stage 2 gathers the updated weights once a step (arXiv 1910.02054, 7.2.1). Stage 3 gathers the
    weights in the forward and again in the backward pass of each micro-batch (the same, 7.2.2;
    deepspeedai/DeepSpeed/docs/code-docs/source/zero3.rst).
    """
    batches = job.micro_batches or layout.pp
    if layout.zero < _SHARDED_GRADIENTS:
        return 2 * job.gradient_bytes
    if layout.zero == _SHARDED_GRADIENTS:
        return batches * job.gradient_bytes + WEIGHT_BYTES
    return batches * (job.gradient_bytes + 2 * WEIGHT_BYTES)
