"""Which layers of a config.json have experts, by the rules of the families that say it.

===================================================
================================================================================================== keys
a layer i (from 0) has experts when (Hugging Face transformers, ``modeling_<family>.py``)
===================================================
================================================================================================== ``moe_layers``,
``interleave_moe_layer_step``        it is in ``moe_layers``; without that list, when i + 1 is a multiple of the step
(llama4,
                                                     ``Llama4TextConfig``)
``mlp_only_layers``, ``decoder_sparse_step``         it is not in ``mlp_only_layers`` and i + 1 is a multiple of the
step (qwen2_moe, qwen3_moe) ``first_k_dense_replace``, ``moe_layer_freq``        i is not below the first and is a
multiple of the second (deepseek_v2, deepseek_v3) ===================================================
==================================================================================================
"""

from __future__ import annotations

from typing import Any, Protocol

from rackready.model.problems import RackreadyError


class Numbers(Protocol):
    """What is read from: a config.json whose whole numbers are asked for by name."""

    source: str
    raw: dict[str, Any]

    def number(self, name: str) -> int | None:
        """Return a whole number, None when there is none; raises RackreadyError for anything else."""

    def positive(self, name: str) -> int | None:
        """Return a whole number above 0, None when there is none; raises RackreadyError for 0."""

    def required(self, name: str) -> int:
        """Return a whole number above 0 that must be there; raises RackreadyError."""


def without_experts(config: Numbers) -> int:
    """Return how many layers of a model with experts have none. Raises RackreadyError for lists and numbers that name layers that it has not."""
    layers = config.required("layers")
    listed = _listed(config, "moe_layers", layers)
    if listed is not None:
        return layers - len(listed)
    plain = _listed(config, "mlp_only_layers", layers) or frozenset()
    first = config.number("first_k_dense_replace") or 0
    if first > layers:
        raise RackreadyError(
            f"{config.source}: first_k_dense_replace - Expected: at most {layers} layers Actual: {first}. "
            "Correct the file."
        )
    step = config.positive("interleave_moe_layer_step") or config.positive("decoder_sparse_step") or 1
    every = config.positive("moe_layer_freq") or 1
    routed = [
        layer for layer in range(first, layers) if layer not in plain and (layer + 1) % step == 0 and layer % every == 0
    ]
    return layers - len(routed)


def _listed(config: Numbers, key: str, layers: int) -> frozenset[int] | None:
    """Return the layers that a list names, None when there is none."""
    value = config.raw.get(key)
    if value is None:
        return None
    wrong = not isinstance(value, list) or any(
        isinstance(item, bool) or not isinstance(item, int) or not 0 <= item < layers for item in value
    )
    if wrong or len(set(value)) < len(value):
        raise RackreadyError(
            f"{config.source}: {key} - Expected: a list of layers, each once, from 0 to {layers - 1} "
            f"Actual: {value!r}. Correct the file."
        )
    return frozenset(value)
