"""Which servers of the profiles can do it: for each the smallest layout that fits, and what binds it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from rackready.design.sizing import links
from rackready.design.sizing.parallel import Layout, check
from rackready.design.sizing.serving_memory import ServingJob, ServingMemory, serving_memory
from rackready.design.sizing.serving_speed import Bound, decode, prefill
from rackready.design.sizing.training_memory import TrainingJob, TrainingMemory, training_memory
from rackready.model.llm import Llm
from rackready.model.problems import RackreadyError
from rackready.model.profile import GpuProfile, PlatformProfile
from rackready.profiles import loader

_T = TypeVar("_T")
MIB = 2**20
_STAGES = (1, 2, 4, 8, 16)


@dataclass(frozen=True, slots=True)
class Serving:
    """One server model for one replica. ``layout`` is the smallest that fits; where none does, the largest that was tried."""

    platform: str
    gpu: str
    layout: Layout
    memory: ServingMemory
    fits: bool
    sequences: int
    limit: str
    decode: Bound | None = None
    prefill: Bound | None = None


@dataclass(frozen=True, slots=True)
class Training:
    """One server model for one run."""

    platform: str
    gpu: str
    layout: Layout
    memory: TrainingMemory
    available: float
    fits: bool
    limit: str


def gpu_memory(gpu: GpuProfile) -> float:
    """Return a GPU's memory as NVML gives it, bytes: what is sold as 80 GB is not 80 GB."""
    return gpu.memory.value * MIB


def servers(wanted: tuple[str, ...] = ()) -> list[tuple[PlatformProfile, GpuProfile]]:
    """Return server models with their GPUs: all, or those whose id or GPU id is wanted. Raises RackreadyError for an id that nothing has."""
    found = [(profile, loader.gpu(profile.gpu)) for profile in map(loader.platform, loader.known("platform"))]
    for name in wanted:
        if not any(name in {platform.id, gpu.id} for platform, gpu in found):
            known = ", ".join(sorted({platform.id for platform, _ in found} | {gpu.id for _, gpu in found}))
            raise RackreadyError(f"--on {name}: no server or GPU profile has that id - Expected: one of {known} Actual: {name}. Correct it.")
    return [pair for pair in found if not wanted or {pair[0].id, pair[1].id} & set(wanted)]


def layouts(model: Llm, platform: PlatformProfile, gpu: GpuProfile, fixed: Layout, gpus: int = 0, refused: list[str] | None = None) -> Iterator[Layout]:
    """Yield layouts from the smallest on: tensor parallelism within the NVLink domain or server first, then pipeline stages.

    A degree of ``fixed`` that is not 0 is taken as it is; ``ep`` and ``zero`` always are. With ``gpus`` the rest of them is data parallelism.
    Raises RackreadyError when both tp and pp are fixed and cannot be. Why others cannot be is added to ``refused``.
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
                    refused.append(str(error))
                continue
            yield layout


def _even(layout: Layout, gpus: int) -> None:
    """Raise RackreadyError when tp x pp does not divide the GPUs."""
    if gpus and (layout.dp == 0 or gpus % (layout.tp * layout.pp)):
        size = layout.tp * layout.pp
        raise RackreadyError(
            f"--gpus {gpus}: Expected: a multiple of tp x pp = {layout.tp} x {layout.pp} = {size} Actual: {gpus}. "
            f"Take {max(1, gpus // size) * size}, or other degrees."
        )


def serve_on(platform: PlatformProfile, gpu: GpuProfile, model: Llm, job: ServingJob, fixed: Layout, sequences: int | None) -> Serving:
    """Return the smallest layout on which ``sequences`` (None: one) full contexts fit, with its bounds."""
    tried: tuple[Layout, ServingMemory] | None = None
    refused: list[str] = []
    for layout in layouts(model, platform, gpu, fixed, refused=refused):
        memory = serving_memory(model, layout, job, gpu_memory(gpu))
        tried = (layout, memory)
        if memory.sequences >= (sequences or 1):
            batch = sequences or memory.sequences
            steps = decode(model, layout, job, gpu, platform, batch)
            return Serving(platform.id, gpu.id, layout, memory, True, batch, steps.limit, steps, prefill(model, layout, job, gpu, platform))  # noqa: FBT003 - a field
    return Serving(platform.id, gpu.id, *_some(tried, model, platform, refused), False, 0, "memory")  # noqa: FBT003 - a field


def train_on(platform: PlatformProfile, gpu: GpuProfile, model: Llm, job: TrainingJob, fixed: Layout, gpus: int = 0) -> Training:
    """Return the smallest layout whose fullest GPU has room, on ``gpus`` GPUs (0: one replica)."""
    tried: tuple[Layout, TrainingMemory] | None = None
    available = gpu_memory(gpu)
    refused: list[str] = []
    for layout in layouts(model, platform, gpu, fixed, gpus, refused):
        memory = training_memory(model, layout, job)
        tried = (layout, memory)
        if memory.total <= available:
            return Training(platform.id, gpu.id, layout, memory, available, True, "")  # noqa: FBT003 - a field
    return Training(platform.id, gpu.id, *_some(tried, model, platform, refused), available, False, "memory")  # noqa: FBT003 - a field


def _some(tried: tuple[Layout, _T] | None, model: Llm, platform: PlatformProfile, refused: list[str]) -> tuple[Layout, _T]:
    """Return what was tried last. Raises RackreadyError when nothing could be: with what stood in the way of every layout, when there is such a thing."""
    if tried is None:
        everywhere = [line for line in refused[0].splitlines() if all(line in text.splitlines() for text in refused)] if refused else []
        if everywhere:
            raise RackreadyError("\n".join(everywhere))
        raise RackreadyError(
            f"{platform.id}: no layout of {model.name} is possible there - Expected: degrees that divide {model.heads} heads and the GPUs Actual: none. "
            "Give --tp and --pp, or another --gpus."
        )
    return tried
