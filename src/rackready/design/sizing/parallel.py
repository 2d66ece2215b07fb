"""Layout of a model over GPUs, and its validity."""

from __future__ import annotations

from dataclasses import dataclass

from rackready.model.llm import Llm
from rackready.model.problems import RackreadyError


@dataclass(frozen=True, slots=True)
class Layout:
    """Degrees of parallelism (tensor, pipeline, data, expert), and the ZeRO stage over data-parallel ranks."""

    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    zero: int = 0

    @property
    def gpus(self) -> int:
        """Return the number of GPUs: tp x pp x dp.

        Expert-parallel ranks are data-parallel ranks (Megatron), so they add none.
        """
        return self.tp * self.pp * self.dp


def check(model: Llm, layout: Layout) -> None:
    """Raise RackreadyError, with every reason, if the model cannot be split that way."""
    reasons = [text for text in (_heads(model, layout), _layers(model, layout), _experts(model, layout)) if text]
    if reasons:
        raise RackreadyError("\n".join(reasons))


def _heads(model: Llm, layout: Layout) -> str:
    if model.heads % layout.tp == 0 and (layout.tp % model.kv_heads == 0 or model.kv_heads % layout.tp == 0):
        return ""
    ways = ", ".join(
        str(tp)
        for tp in range(1, model.heads + 1)
        if model.heads % tp == 0 and (tp % model.kv_heads == 0 or model.kv_heads % tp == 0)
    )
    return (
        f"--tp {layout.tp}: {model.heads} heads and {model.kv_heads} key and value heads cannot be split over "
        f"{layout.tp} GPUs - "
        f"Expected: one of {ways} Actual: {layout.tp}. Choose one of them."
    )


def _layers(model: Llm, layout: Layout) -> str:
    if layout.pp <= model.layers:
        return ""
    return (
        f"--pp {layout.pp}: the model has fewer layers than pipeline stages - Expected: at most {model.layers} "
        f"Actual: {layout.pp}. Lower it."
    )


def _experts(model: Llm, layout: Layout) -> str:
    if layout.ep == 1:
        return ""
    if model.experts is None:
        return f"--ep {layout.ep}: {model.name} has no experts - Expected: 1 Actual: {layout.ep}. Remove it."
    if model.experts.count % layout.ep:
        return (
            f"--ep {layout.ep}: experts cannot be split evenly - Expected: a divisor of {model.experts.count} "
            f"Actual: {layout.ep}. Choose one."
        )
    if layout.dp % layout.ep:
        return (
            f"--ep {layout.ep}: expert-parallel ranks are data-parallel ranks - "
            f"Expected: a divisor of --dp {layout.dp} Actual: {layout.ep}. Choose one."
        )
    return ""


def stage_layers(model: Llm, layout: Layout) -> int:
    """Return the number of layers in the fullest pipeline stage."""
    return -(-model.layers // layout.pp)
