"""Layout of a model over GPUs, and its validity."""

from __future__ import annotations

from dataclasses import dataclass

from rackready.model.llm import Llm
from rackready.model.problems import Message, RackreadyError


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
    found = (_heads(model, layout), _layers(model, layout), _experts(model, layout))
    reasons = [message for message in found if message is not None]
    if reasons:
        raise RackreadyError.of(reasons)


def _heads(model: Llm, layout: Layout) -> Message | None:
    if model.heads % layout.tp == 0 and (layout.tp % model.kv_heads == 0 or model.kv_heads % layout.tp == 0):
        return None
    ways = ", ".join(
        str(tp)
        for tp in range(1, model.heads + 1)
        if model.heads % tp == 0 and (tp % model.kv_heads == 0 or model.kv_heads % tp == 0)
    )
    return Message(
        f"--tp {layout.tp}",
        f"{model.heads} heads and {model.kv_heads} key and value heads cannot be split over {layout.tp} GPUs",
        expected=f"one of {ways}",
        actual=layout.tp,
        next_step="Choose one of them.",
    )


def _layers(model: Llm, layout: Layout) -> Message | None:
    if layout.pp <= model.layers:
        return None
    return Message(
        f"--pp {layout.pp}",
        "the model has fewer layers than pipeline stages",
        expected=f"at most {model.layers}",
        actual=layout.pp,
        next_step="Lower it.",
    )


def _experts(model: Llm, layout: Layout) -> Message | None:
    if layout.ep == 1:
        return None
    if model.experts is None:
        return Message(
            f"--ep {layout.ep}", f"{model.name} has no experts", expected="1", actual=layout.ep, next_step="Remove it."
        )
    if model.experts.count % layout.ep:
        return Message(
            f"--ep {layout.ep}",
            "experts cannot be split evenly",
            expected=f"a divisor of {model.experts.count}",
            actual=layout.ep,
            next_step="Choose one.",
        )
    if layout.dp % layout.ep:
        return Message(
            f"--ep {layout.ep}",
            "expert-parallel ranks are data-parallel ranks",
            expected=f"a divisor of --dp {layout.dp}",
            actual=layout.ep,
            next_step="Choose one.",
        )
    return None


def stage_layers(model: Llm, layout: Layout) -> int:
    """Return the number of layers in the fullest pipeline stage."""
    return -(-model.layers // layout.pp)
