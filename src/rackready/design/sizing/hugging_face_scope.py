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
    problems = [
        Message(
            source,
            key,
            expected="layers of one kind",
            actual=f"{raw[key]!r}",
            next_step="rackready cannot size such a model. Choose another one.",
        )
        for key in said
    ]
    kinds = raw.get("layer_types")
    other = sorted({str(kind) for kind in kinds} - _ATTENTION) if isinstance(kinds, list) else []
    if other:
        expected = ", ".join(sorted(_ATTENTION))
        problems.append(
            Message(
                source,
                "layer_types",
                expected=expected,
                actual=", ".join(other),
                next_step="rackready cannot size such a model. Choose another one.",
            )
        )
    return problems
