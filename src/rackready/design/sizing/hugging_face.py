"""Reads a model's shape from a Hugging Face config.json. Missing facts are assumed and listed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import ValidationError

from rackready.design.sizing.families import DEFAULTS, GATED_MLP, LEARNED_POSITIONS, PLAIN_MLP, TIED
from rackready.design.sizing.hugging_face_layers import without_experts
from rackready.design.sizing.hugging_face_scope import refuse_unsized
from rackready.design.sizing.hugging_face_weights import Format, format_of, kept_in_16_bits
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


@dataclass(slots=True)
class Reader:
    """One config.json, and the assumptions about it."""

    source: str
    raw: dict[str, Any]
    weights: Weights | None = None
    """Weight format set by the user, which overrides the file."""
    beside: dict[str, Any] | None = None
    """What ModelOpt's file beside it holds."""
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


def read_config(
    raw: object, source: str, weights: Weights | None = None, beside: dict[str, Any] | None = None
) -> tuple[Llm, list[str]]:
    """Return the model of a parsed config.json and the assumptions; ``weights`` replaces its number format.

    ``beside``: the content of ModelOpt's hf_quant_config.json. Raises RackreadyError if the model cannot be sized.
    """
    if not isinstance(raw, dict):
        raise RackreadyError(
            source, expected="one JSON object", actual=type(raw).__name__, next_step="Use a model's config.json."
        )
    reader = Reader(source, raw, weights, beside)
    if isinstance(raw.get("text_config"), dict):
        outer = {key: raw[key] for key in ("model_type", "dtype", "torch_dtype") if key in raw}
        text = {"model_type": "", **outer, **raw["text_config"]}
        quantization = raw.get("quantization_config", text.get("quantization_config"))
        reader = Reader(source, {**text, "quantization_config": quantization}, weights, beside)
        reader.assume("only text_config is sized: parts for images and sound are not counted")
    _fill(reader)
    try:
        return _model(reader, str(raw.get("_name_or_path") or raw.get("model_type") or source)), reader.assumed
    except ValidationError as error:
        expected = "the shape of one model"
        raise RackreadyError.of(refusals(error.errors(), source, expected, "Correct the file.")) from error


def _fill(reader: Reader) -> None:
    """Add what transformers takes where the file says nothing: a nested text_config keeps only what differs."""
    family = str(reader.raw.get("model_type", ""))
    missing = {key: value for key, value in DEFAULTS.get(family, {}).items() if reader.raw.get(key) is None}
    reader.raw = {**reader.raw, **missing}
    for key, value in missing.items():
        reader.assume(f"{key} is {value}, the default of transformers for {family}: the file has none")


def _model(reader: Reader, name: str) -> Llm:
    family = str(reader.raw.get("model_type", ""))
    refuse_unsized(reader.raw, reader.source)
    heads, hidden = reader.required("heads"), reader.required("hidden")
    latent = _latent(reader)
    found = _format(reader)
    if reader.raw.get("sliding_window") and reader.raw.get("use_sliding_window", True):
        reader.assume("the cache is counted as if every layer used the whole context; sliding windows need less")
    model = Llm(
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
        weights=found.weights,
        group=found.group,
        context=reader.number("context"),
    )
    kept = kept_in_16_bits(model, found.excluded) if found.excluded else 0
    if kept:
        reader.assume(f"{kept / 1e9:.1f} billion parameters of layers stay in 16 bits: the file excludes their modules")
    return model.model_copy(update={"kept": kept})


def _format(reader: Reader) -> Format:
    """Return the format of the weights: that of the user, else that of the files."""
    if reader.weights is not None:
        return Format(reader.weights)
    found = format_of(reader.raw, reader.source, reader.beside)
    for text in found.assumed:
        reader.assume(text)
    return found


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
