"""Reads a model's shape from a Hugging Face config.json. Missing facts are assumed and listed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import ValidationError

from rackready.design.sizing.families import GATED_MLP, LEARNED_POSITIONS, PLAIN_MLP, TIED
from rackready.design.sizing.hugging_face_layers import without_experts
from rackready.design.sizing.hugging_face_scope import refuse_unsized
from rackready.model.llm import Experts, Latent, Llm, Weights
from rackready.model.problems import RackreadyError
from rackready.model.wanted import refusals

_NAMES = {
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "layers": ("num_hidden_layers", "n_layer", "num_layers"),
    "heads": ("num_attention_heads", "n_head"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads"),
    "vocabulary": ("vocab_size",),
    "intermediate": ("intermediate_size", "n_inner", "ffn_dim"),
    "context": ("max_position_embeddings", "n_positions", "n_ctx"),
}
_DTYPES: dict[str, Weights] = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
_FOUR, _EIGHT = 4, 8


@dataclass(slots=True)
class Reader:
    """One config.json, and the assumptions about it."""

    source: str
    raw: dict[str, Any]
    weights: Weights | None = None
    """Weight format set by the user, which overrides the file."""
    assumed: list[str] = field(default_factory=list)

    def number(self, name: str) -> int | None:
        """Return a whole number under any of its names, None if absent. Raises RackreadyError for other values."""
        for key in _NAMES.get(name, (name,)):
            value = self.raw.get(key)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise RackreadyError(
                    self.source, key, expected="a whole number", actual=f"{value!r}", next_step="Correct the file."
                )
            return value
        return None

    def required(self, name: str) -> int:
        """Return a required whole number above 0; raises RackreadyError."""
        value = self.number(name)
        if value is None:
            raise RackreadyError(
                self.source,
                f"{_NAMES[name][0]} is missing",
                expected="the config.json of a decoder-only model",
                actual=f"keys {', '.join(sorted(self.raw)[:8]) or 'none'}",
                next_step="Describe the model with --params and its shape instead.",
            )
        return self._above_zero(name, value)

    def positive(self, name: str) -> int | None:
        """Return a whole number above 0, None if absent. Raises RackreadyError for 0, which no formula accepts."""
        value = self.number(name)
        return None if value is None else self._above_zero(name, value)

    def _above_zero(self, name: str, value: int) -> int:
        if value == 0:
            key = next(key for key in _NAMES.get(name, (name,)) if self.raw.get(key) is not None)
            raise RackreadyError(
                self.source, key, expected="a whole number above 0", actual="0", next_step="Correct the file."
            )
        return value

    def assume(self, text: str) -> None:
        """Note an assumption for the report."""
        self.assumed.append(text)


def read_config(raw: object, source: str, weights: Weights | None = None) -> tuple[Llm, list[str]]:
    """Return the model of a parsed config.json and the assumptions; ``weights`` replaces its number format.

    Raises RackreadyError if the model cannot be sized.
    """
    if not isinstance(raw, dict):
        raise RackreadyError(
            source, expected="one JSON object", actual=type(raw).__name__, next_step="Use a model's config.json."
        )
    reader = Reader(source, raw, weights)
    if isinstance(raw.get("text_config"), dict):
        text = {"model_type": raw.get("model_type", ""), **raw["text_config"]}
        reader = Reader(
            source,
            {**text, "quantization_config": raw.get("quantization_config", text.get("quantization_config"))},
            weights,
        )
        reader.assume("only text_config is sized: parts for images and sound are not counted")
    try:
        return _model(reader, str(raw.get("_name_or_path") or raw.get("model_type") or source)), reader.assumed
    except ValidationError as error:
        expected = "the shape of one model"
        raise RackreadyError.of(refusals(error.errors(), source, expected, "Correct the file.")) from error


def _model(reader: Reader, name: str) -> Llm:
    family = str(reader.raw.get("model_type", ""))
    refuse_unsized(reader.raw, reader.source)
    heads, hidden = reader.required("heads"), reader.required("hidden")
    latent = _latent(reader)
    weights, group = _weights(reader)
    if reader.raw.get("sliding_window") and reader.raw.get("use_sliding_window", True):
        reader.assume("the cache is counted as if every layer used the whole context; sliding windows need less")
    return Llm(
        name=name,
        layers=reader.required("layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=_kv_heads(reader, heads, latent),
        head_dim=reader.positive("head_dim") or hidden // heads,
        intermediate=_intermediate(reader, hidden),
        vocabulary=reader.required("vocabulary"),
        tied=bool(reader.raw.get("tie_word_embeddings", family in TIED)),
        mlp_matrices=_matrices(reader, family),
        learned_positions=(reader.number("context") or 0) if family in LEARNED_POSITIONS else 0,
        latent=latent,
        experts=_experts(reader),
        weights=weights,
        group=group,
        context=reader.number("context"),
    )


def _matrices(reader: Reader, family: str) -> Literal[2, 3]:
    """Return the matrices of a feed-forward block: config.json never says whether it has a gate."""
    if family in PLAIN_MLP:
        return 2
    if family not in GATED_MLP:
        reader.assume(
            f"the feed-forward block has a gate, three matrices: rackready does not know model_type {family or 'none'}"
        )
    return 3


def _kv_heads(reader: Reader, heads: int, latent: Latent | None) -> int:
    found = reader.positive("kv_heads")
    if latent is not None:
        return heads
    if reader.raw.get("multi_query") and found is None:
        return 1
    if found is None:
        reader.assume("every head has its own keys and values: the file has no num_key_value_heads")
    return found or heads


def _intermediate(reader: Reader, hidden: int) -> int:
    # Llama 4: intermediate_size is the width of an expert; layers without experts have their own width.
    found = reader.number("intermediate_size_mlp") or reader.number("intermediate")
    if found is None:
        reader.assume("the feed-forward layer is 4 x hidden wide: the file has no intermediate_size")
    return found or 4 * hidden


def _latent(reader: Reader) -> Latent | None:
    rank = reader.number("kv_lora_rank")
    if rank is None:
        return None
    parts = {key: reader.number(key) for key in ("qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")}
    missing = [key for key, value in parts.items() if value is None]
    if missing:
        raise RackreadyError(
            reader.source,
            f"{', '.join(missing)} is missing",
            expected="the keys that latent attention needs beside kv_lora_rank",
            actual="none",
            next_step="Correct the file.",
        )
    return Latent(
        kv_rank=rank,
        rope_dim=parts["qk_rope_head_dim"] or 0,
        nope_dim=parts["qk_nope_head_dim"] or 0,
        value_dim=parts["v_head_dim"] or 0,
        query_rank=reader.number("q_lora_rank"),
    )


def _experts(reader: Reader) -> Experts | None:
    count = next(
        (found for key in ("n_routed_experts", "num_local_experts", "num_experts") if (found := reader.number(key))),
        None,
    )
    if not count:
        return None
    active = reader.number("num_experts_per_tok")
    if active is None:
        raise RackreadyError(
            reader.source,
            "num_experts_per_tok is missing",
            expected=f"how many of {count} experts a token uses",
            actual="none",
            next_step="Correct the file.",
        )
    width = reader.number("moe_intermediate_size") or reader.required("intermediate")
    shared = reader.number("shared_expert_intermediate_size") or (reader.number("n_shared_experts") or 0) * width
    if reader.raw.get("interleave_moe_layer_step") is not None or reader.raw.get("moe_layers") is not None:
        # Llama 4 (transformers, Llama4TextMoe): one shared expert of the same width.
        shared = width
    dense = without_experts(reader)
    return Experts(count=count, active=active, intermediate=width, shared=shared, dense_layers=dense)


def _weights(reader: Reader) -> tuple[Weights, int | None]:
    if reader.weights is not None:
        return reader.weights, None
    quantization = reader.raw.get("quantization_config")
    if isinstance(quantization, dict):
        return _quantized(reader, quantization)
    dtype = str(reader.raw.get("dtype") or reader.raw.get("torch_dtype") or "")
    if dtype not in _DTYPES:
        reader.assume("weights are bf16: the file has no known dtype")
    return _DTYPES.get(dtype, "bf16"), None


def _quantized(reader: Reader, raw: dict[str, Any]) -> tuple[Weights, int | None]:
    """Return number format and group of a quantization_config.

    It knows AWQ, GPTQ, FP8, bitsandbytes, MXFP4, NVFP4 and compressed-tensors.
    """
    method = str(raw.get("quant_method", "")).lower()
    if method == "compressed-tensors":
        groups = raw.get("config_groups")
        first: object = next(iter(groups.values()), {}) if isinstance(groups, dict) else {}
        inner = _object(reader, "weights", _object(reader, "a group", first).get("weights") or {})
        kind, bits, group = str(inner.get("type", "")), inner.get("num_bits"), inner.get("group_size")
        if bits == _EIGHT:
            return ("fp8" if kind == "float" else "int8"), group
        if bits == _FOUR:
            return ("nvfp4" if kind == "float" else "int4"), group
    if method in {"mxfp4", "nvfp4"}:
        return ("mxfp4" if method == "mxfp4" else "nvfp4"), raw.get("group_size")
    if method == "fp8" or "fp8" in str(raw.get("quant_algo", "")).lower():
        return "fp8", None
    if "nvfp4" in str(raw.get("quant_algo", "")).lower():
        return "nvfp4", raw.get("group_size")
    bits = raw.get("bits") or (_FOUR if raw.get("load_in_4bit") else _EIGHT if raw.get("load_in_8bit") else None)
    if isinstance(bits, int) and bits in {_FOUR, _EIGHT}:
        group = raw.get("group_size")
        return ("int4" if bits == _FOUR else "int8"), group if isinstance(group, int) and group > 0 else None
    raise RackreadyError(
        reader.source,
        "quantization_config",
        expected="awq, gptq, fp8, mxfp4, nvfp4, bitsandbytes or compressed-tensors of 4 or 8 bits",
        actual=f"{method or 'no quant_method'}{'' if bits is None else f' with bits {bits!r}'}",
        next_step="Set the number format with --weights.",
    )


def _object(reader: Reader, what: str, value: object) -> dict[str, Any]:
    """Return a part of quantization_config that must be an object. Raises RackreadyError."""
    if not isinstance(value, dict):
        raise RackreadyError(
            reader.source,
            "quantization_config.config_groups",
            expected=f"{what} as an object",
            actual=type(value).__name__,
            next_step="Correct the file.",
        )
    return value
