"""Upper bounds of serving speed (roofline): compute for prefill, memory bandwidth for decode, links for both."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rackready.design.sizing import links, parameters
from rackready.design.sizing.parallel import Layout, stage_layers
from rackready.design.sizing.precision import computed_in, layer_bytes, outside_bytes, weight_bytes
from rackready.design.sizing.serving_memory import ServingJob, kv_bytes_per_token
from rackready.model.llm import Llm
from rackready.model.profile import GpuProfile, PlatformProfile

_ACTIVATION_BYTES = 2.0
_REDUCTIONS = 2
"""All-reduces of one layer's forward pass under tensor parallelism (Megatron-LM, arXiv 1909.08053).

One follows attention, one the feed-forward block.
"""


@dataclass(frozen=True, slots=True)
class SpeedBound:
    """Tokens a second of one replica at most, and the limits: seconds of one step by resource.

    ``limit`` is the slowest judged resource. ``not_judged``: needed resources without a published figure; one of them
    may be the real limit.
    """

    tokens_per_second: float
    per_sequence: float
    limit: str
    seconds: dict[str, float]
    not_judged: tuple[str, ...] = ()


def forward_flops(model: Llm, context: float) -> float:
    """Return the operations of one token's forward pass: 2 per active parameter, and attention over that many tokens.

    Attention: 2 L a (d_key + d_value) x context, one multiplication and one addition each for scores and for values.
    """
    latent = model.latent
    widths = latent.nope_dim + latent.rope_dim + latent.value_dim if latent else 2 * model.head_dim
    return 2 * parameters.active(model) + 2 * model.layers * model.heads * widths * context


def prefill(model: Llm, layout: Layout, job: ServingJob, gpu: GpuProfile, platform: PlatformProfile) -> SpeedBound:
    """Return the bound of reading prompts of the whole context; a causal prompt attends to half of it on average."""
    rate = gpu.compute[computed_in(gpu, model.weights)[0]].value * 1e12
    gpus = layout.tp * layout.pp
    seconds = {"compute": job.context * forward_flops(model, job.context / 2) / (gpus * rate)}
    if gpu.memory_bandwidth is not None:
        seconds["bandwidth"] = _weights_read(model, layout, job.context) / (gpu.memory_bandwidth.value * 1e9)
    link = _reductions(model, layout, gpu, platform, tokens=job.context)
    if link is not None:
        # Stages work on different prompts at the same time, so each exchanges only its own layers.
        seconds["interconnect"] = link / layout.pp
    return _bound(seconds, job.context, 1, _not_judged(layout, gpu, platform))


def decode(
    model: Llm, layout: Layout, job: ServingJob, gpu: GpuProfile, platform: PlatformProfile, sequences: int
) -> SpeedBound:
    """Return the bound of generating tokens for ``sequences`` at a time, each with a full context.

    Every step reads all weights that the batch needs and the cache of every sequence: tokens/s/sequence <= bandwidth /
    (weight + KV bytes). In a pipeline each stage works on its own part of the batch, and a token passes all stages
    before the next one begins.
    """
    rate = gpu.compute[computed_in(gpu, model.weights)[0]].value * 1e12
    batch = max(1.0, sequences / layout.pp)
    seconds = {"compute": batch * forward_flops(model, job.context) / (layout.tp * layout.pp * rate)}
    if gpu.memory_bandwidth is not None:
        read = _weights_read(model, layout, batch) + batch * job.context * kv_bytes_per_token(model, job.kv, layout)
        seconds["bandwidth"] = read / (gpu.memory_bandwidth.value * 1e9)
    link = _reductions(model, layout, gpu, platform, tokens=batch)
    if link is not None:
        seconds["interconnect"] = link / layout.pp
    bound = _bound(seconds, batch, layout.pp, _not_judged(layout, gpu, platform))
    # Fewer sequences than stages leave stages idle, so output is limited by the sequences.
    return replace(bound, tokens_per_second=min(bound.tokens_per_second, sequences * bound.per_sequence))


def _bound(seconds: dict[str, float], tokens: float, passes: int, not_judged: tuple[str, ...]) -> SpeedBound:
    limit = max(seconds, key=lambda name: seconds[name])
    step = seconds[limit]
    return SpeedBound(tokens / step, 1 / (step * passes), limit, seconds, not_judged)


def _not_judged(layout: Layout, gpu: GpuProfile, platform: PlatformProfile) -> tuple[str, ...]:
    """Return needed resources without a published rate: memory, and links within and between stages."""
    out = [] if gpu.memory_bandwidth is not None else ["bandwidth"]
    groups = {layout.tp, layout.tp * layout.pp} - {1}
    unknown = (
        link.carrier for link in (links.between(platform, gpu, size) for size in sorted(groups)) if link.rate is None
    )
    return tuple(out + [f"interconnect ({carrier})" for carrier in dict.fromkeys(unknown)])


def _weights_read(model: Llm, layout: Layout, tokens: float) -> float:
    """Return the weight bytes that one GPU of a stage reads for a batch.

    Routed experts count as far as the batch is expected to use them.

    With even routing an expert stays idle with probability (1 - k/E)^tokens. The output head is read once; of the input
    embedding only rows.
    """
    dense, routed = parameters.layer_average(model)
    dense, routed = dense * layer_bytes(model), routed * weight_bytes(model.weights, model.group)
    layers = stage_layers(model, layout)
    visited = 1 - (1 - model.experts.active / model.experts.count) ** tokens if model.experts else 0.0
    head = parameters.embedding(model) * outside_bytes(model) / layout.tp
    return layers * (dense / layout.tp + visited * routed / (layout.tp * layout.ep)) + head


def _reductions(
    model: Llm, layout: Layout, gpu: GpuProfile, platform: PlatformProfile, *, tokens: float
) -> float | None:
    """Return the seconds of all layers' all-reduces under tensor parallelism.

    None if there are none or the rate of the link is not published.
    """
    if layout.tp == 1:
        return None
    rate = links.between(platform, gpu, layout.tp).rate
    if rate is None:
        return None
    return _REDUCTIONS * model.layers * links.all_reduce(tokens * model.hidden * _ACTIVATION_BYTES, layout.tp, rate)
