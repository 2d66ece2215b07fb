"""Memory of one GPU in serving, in bytes: weights, cache of keys and values, and the sequences that fit."""

from __future__ import annotations

from dataclasses import dataclass

from rackready.design.sizing.parallel import Layout, stage_layers
from rackready.design.sizing.precision import KV_BYTES, layer_bytes, outside_bytes, weight_bytes
from rackready.design.sizing.stages import stages
from rackready.model.llm import Llm

BLOCK_TOKENS = 16
"""Tokens of one cache block (PagedAttention, vLLM's default): a sequence takes whole blocks."""


@dataclass(frozen=True, slots=True)
class ServingJob:
    """A serving job.

    Lengths in tokens, the cache's number format, the share of memory for the engine, and bytes set aside.
    """

    context: int
    kv: str = "bf16"
    utilization: float = 0.9
    reserve: float = 0.0


@dataclass(frozen=True, slots=True)
class ServingMemory:
    """Bytes on the fullest GPU, and the capacity of the rest of its memory."""

    weights: float
    reserve: float
    usable: float
    kv_per_token: float
    kv_tokens: int
    sequences: int


def kv_bytes_per_token(model: Llm, kv: str = "bf16", layout: Layout | None = None) -> float:
    """Return the cache of one token, bytes: of the whole model, or of one GPU of a layout.

    Keys AND values: 2 x L x n_kv x d x bytes. Tensor parallelism divides by min(t, n_kv): beyond that heads are copied.
    Latent attention caches L x (kv_rank + rope_dim) x bytes, no factor 2, and every tensor-parallel GPU keeps all of
    it.
    """
    size = KV_BYTES[kv]
    layers = stage_layers(model, layout) if layout else model.layers
    if model.latent is not None:
        return layers * (model.latent.kv_rank + model.latent.rope_dim) * size
    heads = model.kv_heads / min(layout.tp, model.kv_heads) if layout else model.kv_heads
    return 2 * layers * heads * model.head_dim * size


def weights_on_gpu(model: Llm, layout: Layout) -> float:
    """Return the weights of the fullest GPU, bytes. Quantization covers the layers; the rest stays in 16 bits."""
    dense, outside = layer_bytes(model), outside_bytes(model)
    routed = weight_bytes(model.weights, model.group)
    return max(stage.dense * dense + stage.routed * routed + stage.outside * outside for stage in stages(model, layout))


def serving_memory(model: Llm, layout: Layout, job: ServingJob, memory: float) -> ServingMemory:
    """Return what fits on GPUs of ``memory`` bytes.

    KV tokens = (memory x utilization - weights - reserve) / bytes a token, in whole blocks.
    """
    weights, usable = weights_on_gpu(model, layout), memory * job.utilization
    per_token = kv_bytes_per_token(model, job.kv, layout)
    free = usable - weights - job.reserve
    blocks = int(free // (per_token * BLOCK_TOKENS)) if free > 0 else 0
    return ServingMemory(
        weights, job.reserve, usable, per_token, blocks * BLOCK_TOKENS, blocks // (-(-job.context // BLOCK_TOKENS))
    )
