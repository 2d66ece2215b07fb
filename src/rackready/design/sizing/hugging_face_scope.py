"""Refuses models that cannot be sized: encoders, and layers of different kinds, which would be counted wrongly."""

from __future__ import annotations

from typing import Any

from rackready.model.problems import Message, RackreadyError

_ENCODERS = frozenset(
    {
        *(
            "albert",
            "bart",
            "bert",
            "big_bird",
            "camembert",
            "deberta",
            "deberta-v2",
            "distilbert",
            "electra",
            "ernie",
            "led",
            "longformer",
            "m2m_100",
        ),
        *(
            "marian",
            "mbart",
            "modernbert",
            "mpnet",
            "mt5",
            "nomic_bert",
            "pegasus",
            "roberta",
            "t5",
            "umt5",
            "whisper",
            "xlm-roberta",
            "xlm-roberta-xl",
        ),
    }
)
"""Families of transformers with an encoder: they have no cache of earlier tokens, or a second one."""
_ATTENTION = frozenset({"full_attention", "sliding_attention", "chunked_attention"})
"""Kinds of layers whose cache grows with the context; sliding and chunked ones count as full, an upper bound."""
_MIXED = (
    "block_configs",  # Nemotron Super and Ultra: NVIDIA-NeMo/Megatron-Bridge, llama_nemotron_config.py
    "full_attention_interval",
    "moe_layer_interval",
    "layers_block_type",
    "hybrid_override_pattern",
    "linear_attn_config",
)


def refuse_unsized(raw: dict[str, Any], source: str) -> None:
    """Raise RackreadyError, with every reason, for a model outside the formulas of plain decoders."""
    problems = _encoder(raw, source) + _mixed(raw, source)
    if problems:
        raise RackreadyError.of(problems)


def _encoder(raw: dict[str, Any], source: str) -> list[Message]:
    family = str(raw.get("model_type", ""))
    if family not in _ENCODERS and raw.get("is_encoder_decoder") is not True:
        return []
    return [
        (
            Message(
                source,
                "model_type",
                expected="a decoder-only model",
                actual=family or "is_encoder_decoder",
                next_step="Use the config.json of a decoder-only model.",
            )
        )
    ]


def _mixed(raw: dict[str, Any], source: str) -> list[Message]:
    said = [key for key in sorted(raw) if raw[key] is not None and (key in _MIXED or key.endswith("_layer_period"))]
    problems = [_unsized(source, key, "layers of one kind", _short(raw[key])) for key in said]
    kinds = raw.get("layer_types")
    other = sorted({str(kind) for kind in kinds} - _ATTENTION) if isinstance(kinds, list) else []
    if other:
        problems.append(_unsized(source, "layer_types", ", ".join(sorted(_ATTENTION)), ", ".join(other)))
    return problems + _linear(raw, source) + _no_shape(raw, source)


def _linear(raw: dict[str, Any], source: str) -> list[Message]:
    """Return a problem for layers of linear attention, which keep no keys and values.

    1: full attention (vllm-project/vllm, vllm/config/model.py, get_num_layers_by_block_type); MiniMax-M2 has only 1.
    """
    kinds = raw.get("attn_type_list")
    if not isinstance(kinds, list):
        return []
    linear = sum(kind != 1 for kind in kinds)
    actual = f"another kind for {linear} of {len(kinds)}"
    return [_unsized(source, "attn_type_list", "1 (full attention) for every layer", actual)] if linear else []


def _no_shape(raw: dict[str, Any], source: str) -> list[Message]:
    """Return a problem for a file that has no shape of its layers at the top: null where each layer has its own."""
    keys = ("num_key_value_heads", "intermediate_size")
    if any(raw.get(key, 0) is not None for key in keys):
        return []
    return [_unsized(source, ", ".join(keys), "the shape of all layers", "null")]


def _unsized(source: str, key: str, expected: str, actual: str) -> Message:
    step = "rackready cannot size such a model. Choose another one."
    return Message(source, key, expected=expected, actual=actual, next_step=step)


def _short(value: object) -> str:
    return f"a list of {len(value)}" if isinstance(value, list) else f"{value!r}"
