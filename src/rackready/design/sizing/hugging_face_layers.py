"""Layers with experts in a config.json, by the rules of the families that define them.

Layer i (from 0) has experts by these keys (Hugging Face transformers, ``modeling_<family>.py``):

- ``moe_layers``, ``interleave_moe_layer_step``: it is in ``moe_layers``; without that list, i + 1 is a multiple of the
  step (llama4, ``Llama4TextConfig``).
- ``mlp_only_layers``, ``decoder_sparse_step``: it is not in ``mlp_only_layers``, and i + 1 is a multiple of the step
  (qwen2_moe, qwen3_moe).
- ``first_k_dense_replace``, ``moe_layer_freq``: i is not below the first and is a multiple of the second (deepseek_v2,
  deepseek_v3).
"""

from __future__ import annotations

from typing import Any, Protocol

from rackready.model.problems import RackreadyError


class Numbers(Protocol):
    """Source of the numbers: a config.json whose whole numbers are read by name."""

    source: str
    raw: dict[str, Any]

    def number(self, name: str) -> int | None:
        """Return a whole number; None if there is none. Raises RackreadyError for other values."""

    def positive(self, name: str) -> int | None:
        """Return a whole number above 0; None if there is none. Raises RackreadyError for 0."""

    def required(self, name: str) -> int:
        """Return a required whole number above 0; raises RackreadyError."""


def without_experts(config: Numbers) -> int:
    """Return how many layers of a model with experts have none. Raises RackreadyError for layers that do not exist."""
    layers = config.required("layers")
    listed = _listed(config, "moe_layers", layers)
    if listed is not None:
        return layers - len(listed)
    plain = _listed(config, "mlp_only_layers", layers) or frozenset()
    first = config.number("first_k_dense_replace") or 0
    if first > layers:
        raise RackreadyError(
            config.source,
            "first_k_dense_replace",
            expected=f"at most {layers} layers",
            actual=first,
            next_step="Correct the file.",
        )
    step = config.positive("interleave_moe_layer_step") or config.positive("decoder_sparse_step") or 1
    every = config.positive("moe_layer_freq") or 1
    routed = [
        layer for layer in range(first, layers) if layer not in plain and (layer + 1) % step == 0 and layer % every == 0
    ]
    return layers - len(routed)


def _listed(config: Numbers, key: str, layers: int) -> frozenset[int] | None:
    """Return the layers in a list; None if there is no list."""
    value = config.raw.get(key)
    if value is None:
        return None
    wrong = not isinstance(value, list) or any(
        isinstance(item, bool) or not isinstance(item, int) or not 0 <= item < layers for item in value
    )
    if wrong or len(set(value)) < len(value):
        raise RackreadyError(
            config.source,
            key,
            expected=f"a list of layers, each once, from 0 to {layers - 1}",
            actual=f"{value!r}",
            next_step="Correct the file.",
        )
    return frozenset(value)
