"""Memory of one GPU in training, in bytes, for mixed precision with a 16-bit model.

States as in ZeRO (arXiv 1910.02054), activations as in Korthikanti et al. (arXiv 2205.05198).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rackready.design.sizing.parallel import Layout
from rackready.design.sizing.stages import Stage, stages
from rackready.model.llm import Llm

Recompute = Literal["none", "selective", "full"]
Optimizer = Literal["adam", "adam_no_master", "adam8bit", "sgd"]

OPTIMIZER_BYTES: dict[str, float] = {"adam": 12, "adam_no_master": 8, "adam8bit": 6, "sgd": 8}
"""Bytes per parameter.

adam: fp32 master 4 + m 4 + v 4. adam_no_master: m and v only. adam8bit: master 4 + m 1 + v 1. sgd: master 4 + momentum
4.
"""

WEIGHT_BYTES = 2.0


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """A training job on one GPU: lengths in tokens, bytes per gradient, how activations are kept."""

    sequence: int
    micro_batch: int
    micro_batches: int | None = None
    """Micro-batches of one step and data-parallel rank; None: at least as many as there are stages."""
    gradient_bytes: float = 4.0
    optimizer: Optimizer = "adam"
    recompute: Recompute = "selective"
    sequence_parallel: bool = True
    reserve: float = 0.0
    """Bytes that the CUDA context, NCCL and fragmentation take."""


@dataclass(frozen=True, slots=True)
class TrainingMemory:
    """Bytes on the fullest GPU."""

    stage: str
    weights: float
    gradients: float
    optimizer: float
    activations: float
    recomputing: float
    logits: float
    reserve: float

    @property
    def total(self) -> float:
        """Return the sum."""
        return (
            self.weights
            + self.gradients
            + self.optimizer
            + self.activations
            + self.recomputing
            + self.logits
            + self.reserve
        )


def activation_bytes(model: Llm, job: TrainingJob, tp: int) -> float:
    """Return the activations that one layer keeps for one micro-batch, bytes per GPU.

    none: 34 s b h + 5 a s^2 b; selective (also FlashAttention, which never writes the attention matrix): 34 s b h;
    full: 2 s b h, the layer's input. With sequence parallelism all of it is divided by t; without it 10 of the 34
    (norms, dropout masks, residuals) stay whole on every GPU, and so does the layer's input.
    """
    tokens = job.sequence * job.micro_batch
    whole = tokens * model.hidden
    scores = 5 * model.heads * job.sequence * tokens if job.recompute == "none" else 0
    if job.recompute == "full":
        return 2 * whole / (tp if job.sequence_parallel else 1)
    if job.sequence_parallel:
        return (34 * whole + scores) / tp
    return 10 * whole + (24 * whole + scores) / tp


def in_flight(layout: Layout, job: TrainingJob, stage: str) -> int:
    """Return the micro-batches whose activations a stage holds at once under the 1F1B schedule.

    The first stage holds pp, the last one 1.
    """
    if stage == "last":
        return 1
    return layout.pp if job.micro_batches is None else min(layout.pp, job.micro_batches)


def training_memory(model: Llm, layout: Layout, job: TrainingJob) -> TrainingMemory:
    """Return the memory of the fullest GPU: the fuller one of the first and the last pipeline stage."""
    return max(
        (_stage_memory(model, layout, job, stage) for stage in stages(model, layout)), key=lambda memory: memory.total
    )


def _stage_memory(model: Llm, layout: Layout, job: TrainingJob, stage: Stage) -> TrainingMemory:
    kept = activation_bytes(model, job, layout.tp) * stage.layers * in_flight(layout, job, stage.name)
    full = TrainingJob(job.sequence, job.micro_batch, recompute="selective", sequence_parallel=job.sequence_parallel)
    recomputing = activation_bytes(model, full, layout.tp) if job.recompute == "full" else 0.0
    head = 0.0 if stage.name == "first" else 4.0 * job.sequence * job.micro_batch * model.vocabulary / layout.tp
    return TrainingMemory(
        stage.name,
        WEIGHT_BYTES * _sharded(stage, layout, at=3),
        job.gradient_bytes * _sharded(stage, layout, at=2),
        OPTIMIZER_BYTES[job.optimizer] * _sharded(stage, layout, at=1),
        kept,
        recomputing,
        head,
        job.reserve,
    )


def _sharded(stage: Stage, layout: Layout, *, at: int) -> float:
    """Return the parameters whose state this GPU keeps.

    From ZeRO stage ``at`` on this is its share among the data-parallel ranks that hold the same parameters.

    The stage's parameters are this GPU's already (divided by t and p once): ZeRO divides by d alone, and routed
    experts, of which each expert-parallel rank has its own, by d / ep.
    """
    if layout.zero < at:
        return stage.parameters
    return (stage.dense + stage.outside) / layout.dp + stage.routed * layout.ep / layout.dp
