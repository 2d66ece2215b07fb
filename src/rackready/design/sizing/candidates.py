"""Servers that can do a job: for each the cheapest layout, and the resource that limits it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from rackready.design.sizing import links
from rackready.design.sizing.parallel import Layout, check
from rackready.design.sizing.serving_memory import ServingJob, ServingMemory, serving_memory
from rackready.design.sizing.serving_speed import SpeedBound, decode, prefill
from rackready.design.sizing.training_memory import TrainingJob, TrainingMemory, training_memory
from rackready.design.sizing.training_speed import NOT_KNOWN, training_time
from rackready.model.llm import Llm
from rackready.model.near import among
from rackready.model.problems import Message, Problem, RackreadyError
from rackready.model.profile import GpuProfile, PlatformProfile
from rackready.profiles import loader

_T = TypeVar("_T")
Reasons = tuple[Message | Problem, ...]
"""Why a layout is not possible."""

MIB = 2**20
_STAGES = (1, 2, 4, 8, 16)
MOST_STEP_TOKENS = 16 * 2**20
"""Tokens of one step up to which larger steps train as well: the largest step of Llama 3 405B.

arXiv 2407.21783, 3.4.1: 4M, 8M, then 16M.
"""


@dataclass(frozen=True, slots=True)
class Load:
    """Load on a service at one time.

    ``sequences``: in all replicas, 0: as many as one holds; ``least_rate``: tokens a second of each, 0: any.
    """

    sequences: int = 0
    least_rate: float = 0.0


@dataclass(frozen=True, slots=True)
class Serving:
    """One server model. ``layout`` needs the least GPU time per token; if none fits, it is the largest that was tried.

    ``sequences`` and both bounds are of one replica. ``smallest``: the layout with the fewest GPUs that fits.
    ``best_rate``: tokens a second of one sequence alone on the fastest layout, if memory suffices but this is
    too slow (``limit`` is then "rate").
    """

    platform: str
    gpu: str
    layout: Layout
    memory: ServingMemory
    fits: bool
    sequences: int
    limit: str
    decode: SpeedBound | None = None
    prefill: SpeedBound | None = None
    replicas: int = 1
    smallest: Layout | None = None
    best_rate: float | None = None

    @property
    def rate(self) -> float:
        """Return tokens a second of one replica, at most."""
        return self.decode.tokens_per_second if self.decode else 0.0


@dataclass(frozen=True, slots=True)
class Training:
    """One server model for one run. ``job`` has the micro-batches of a step that the layout was chosen with."""

    platform: str
    gpu: str
    layout: Layout
    memory: TrainingMemory
    available: float
    fits: bool
    limit: str
    job: TrainingJob


def gpu_memory(gpu: GpuProfile) -> float:
    """Return a GPU's memory as NVML reports it, bytes; a GPU sold with 80 GB has another figure."""
    return gpu.memory.value * MIB


def servers(wanted: tuple[str, ...] = ()) -> list[tuple[PlatformProfile, GpuProfile]]:
    """Return server models with their GPUs: all, or those whose id or GPU id is wanted.

    Raises RackreadyError for an unknown id.
    """
    found = [(profile, loader.gpu(profile.gpu)) for profile in map(loader.platform, loader.known("platform"))]
    for name in wanted:
        if not any(name in {platform.id, gpu.id} for platform, gpu in found):
            known = among(sorted({platform.id for platform, _ in found} | {gpu.id for _, gpu in found}), name)
            raise RackreadyError(
                f"--on {name}",
                "no server or GPU profile has that id",
                expected=f"one of {known}",
                actual=name,
                next_step="Correct it.",
            )
    return [pair for pair in found if not wanted or {pair[0].id, pair[1].id} & set(wanted)]


def layouts(
    model: Llm,
    platform: PlatformProfile,
    gpu: GpuProfile,
    fixed: Layout,
    gpus: int = 0,
    refused: list[Reasons] | None = None,
) -> Iterator[Layout]:
    """Yield layouts from the smallest on: tensor parallelism within the NVLink domain or server, then pipeline stages.

    A degree of ``fixed`` that is not 0 is taken as it is; ``ep`` and ``zero`` always are. With ``gpus`` the rest of
    them is data parallelism. Raises RackreadyError if both tp and pp are fixed and impossible. Reasons against other
    layouts are added to ``refused``.
    """
    most = max(platform.gpus, links.domain(platform, gpu))
    widths = [fixed.tp] if fixed.tp else [2**power for power in range(most.bit_length()) if 2**power <= most]
    depths = [fixed.pp] if fixed.pp else [depth for depth in _STAGES if depth <= model.layers]
    for depth in depths:
        for width in widths:
            layout = replace(fixed, tp=width, pp=depth, dp=gpus // (width * depth) if gpus else fixed.dp)
            try:
                _even(layout, gpus)
                check(model, layout)
            except RackreadyError as error:
                if fixed.tp and fixed.pp:
                    raise
                if refused is not None:
                    refused.append(error.messages)
                continue
            yield layout


def _even(layout: Layout, gpus: int) -> None:
    """Raise RackreadyError if tp x pp does not divide the GPUs."""
    if gpus and (layout.dp == 0 or gpus % (layout.tp * layout.pp)):
        size = layout.tp * layout.pp
        raise RackreadyError(
            f"--gpus {gpus}",
            expected=f"a multiple of tp x pp = {layout.tp} x {layout.pp} = {size}",
            actual=gpus,
            next_step=f"Use {max(1, gpus // size) * size}, or other degrees.",
        )


def serve_on(
    platform: PlatformProfile, gpu: GpuProfile, model: Llm, job: ServingJob, fixed: Layout, wanted: Load
) -> Serving:
    """Return the tensor parallelism and number of replicas with the least GPU time, and so the least cost, per token.

    Pipeline stages are as few as fit: they add a wait to every token. Layouts in which a needed link has no published
    rate are used only if no other fits: their bound is incomplete.
    """
    tried: tuple[Layout, ServingMemory] | None = None
    refused: list[Reasons] = []
    fitting: list[Serving] = []
    slow: list[Serving] = []
    for layout in layouts(model, platform, gpu, fixed, refused=refused):
        if fitting and layout.pp > fitting[0].layout.pp:
            break
        memory = serving_memory(model, layout, job, gpu_memory(gpu))
        tried = (layout, memory)
        batch = _batch(
            platform,
            gpu,
            model,
            job,
            layout,
            min(memory.sequences, wanted.sequences or memory.sequences),
            wanted.least_rate,
        )
        if batch == 0:
            slow += _too_slow(platform, gpu, model, job, layout, memory)
            continue
        replicas = -(-wanted.sequences // batch) if wanted.sequences else 1
        batch = -(-wanted.sequences // replicas) if wanted.sequences else batch
        steps = decode(model, layout, job, gpu, platform, batch)
        ahead = prefill(model, layout, job, gpu, platform)
        fitting.append(Serving(platform.id, gpu.id, layout, memory, True, batch, steps.limit, steps, ahead, replicas))  # noqa: FBT003 - a field
    if not fitting and slow:
        return max(slow, key=lambda item: item.best_rate or 0.0)
    if not fitting:
        return Serving(platform.id, gpu.id, *_some(tried, model, platform, refused), False, 0, "memory")  # noqa: FBT003 - a field
    best = min(
        fitting, key=lambda item: (bool(item.decode and item.decode.not_judged), _gpu_seconds(item), item.layout.gpus)
    )
    return replace(best, smallest=min((item.layout for item in fitting), key=lambda layout: layout.gpus))


def _too_slow(
    platform: PlatformProfile, gpu: GpuProfile, model: Llm, job: ServingJob, layout: Layout, memory: ServingMemory
) -> Iterator[Serving]:
    """Yield the result for one sequence alone of a layout without a fast enough sequence; none if memory holds none."""
    if memory.sequences:
        rate = decode(model, layout, job, gpu, platform, 1).per_sequence
        yield Serving(platform.id, gpu.id, layout, memory, False, 0, "rate", best_rate=rate)  # noqa: FBT003 - a field


def _gpu_seconds(found: Serving) -> float:
    """Return the GPU time of one token, to six digits, so that layouts that differ only by rounding are equal."""
    return float(f"{found.layout.gpus / found.rate:.6g}")


def _batch(  # noqa: PLR0913, PLR0917 - as train_on
    platform: PlatformProfile,
    gpu: GpuProfile,
    model: Llm,
    job: ServingJob,
    layout: Layout,
    most: int,
    least_rate: float,
) -> int:
    """Return the most sequences, up to ``most``, that each get at least ``least_rate`` tokens a second; 0 if none does.

    More sequences never make one of them faster, so bisection finds the number.
    """

    def enough(sequences: int) -> bool:
        return decode(model, layout, job, gpu, platform, sequences).per_sequence >= least_rate

    if not most or enough(most):
        return most
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if enough(middle) else (low, middle)
    return low


def train_on(  # noqa: PLR0913, PLR0917 - a run is its hardware, model, job, what is fixed of its layout, GPUs and efficiency
    platform: PlatformProfile, gpu: GpuProfile, model: Llm, job: TrainingJob, fixed: Layout, gpus: int, mfu: float
) -> Training:
    """Return the fastest layout for training on ``gpus`` GPUs, with the micro-batches of a step if left open.

    With 0 GPUs: one replica, on as few as possible. Layouts in which a needed link has no published rate are used only
    if no other fits.
    """
    tried: tuple[Layout, TrainingMemory] | None = None
    available = gpu_memory(gpu)
    refused: list[Reasons] = []
    fitting: list[tuple[tuple[float, ...], Training]] = []
    for layout in layouts(model, platform, gpu, fixed, gpus, refused):
        memory = training_memory(model, layout, job)
        tried = (layout, memory)
        if memory.total > available:
            continue
        for way in _ways(job, layout):
            time = training_time(model, layout, way, gpu, platform, 1.0, mfu)
            order = (
                0 if gpus else layout.gpus,
                time.limit == NOT_KNOWN,
                float(f"{time.gpu_hours:.3g}"),
                layout.pp,
                layout.tp,
                time.step_tokens,
            )
            fitting.append((order, Training(platform.id, gpu.id, layout, memory, available, True, "", way)))  # noqa: FBT003 - a field
    if fitting:
        return min(fitting, key=lambda item: item[0])[1]
    return Training(platform.id, gpu.id, *_some(tried, model, platform, refused), available, False, "memory", job)  # noqa: FBT003 - a field


def _ways(job: TrainingJob, layout: Layout) -> Iterator[TrainingJob]:
    """Yield the job with the micro-batches of a step.

    The number is as given, else from one per stage on, doubled up to ``MOST_STEP_TOKENS``.
    """
    if job.micro_batches is not None:
        yield job
        return
    count = layout.pp
    yield replace(job, micro_batches=count)
    while job.sequence * job.micro_batch * layout.dp * count * 2 <= MOST_STEP_TOKENS:
        count *= 2
        yield replace(job, micro_batches=count)


def _some(
    tried: tuple[Layout, _T] | None, model: Llm, platform: PlatformProfile, refused: list[Reasons]
) -> tuple[Layout, _T]:
    """Return the last layout tried. Raises RackreadyError with the reasons if no layout was possible."""
    if tried is None:
        everywhere = (
            [reason for reason in refused[0] if all(reason in reasons for reasons in refused)] if refused else []
        )
        if everywhere:
            raise RackreadyError.of(everywhere)
        raise RackreadyError(
            platform.id,
            f"no layout of {model.name} is possible on it",
            expected=f"degrees that divide {model.heads} heads and the GPUs",
            actual="none",
            next_step="Set --tp and --pp, or another --gpus.",
        )
    return tried
