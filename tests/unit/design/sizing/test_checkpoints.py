"""Published checkpoints whose config.json says less, or something else, than its keys: layers."""

from __future__ import annotations

from typing import Any

import pytest

from rackready.design.sizing.hugging_face import read_config
from rackready.model.problems import RackreadyError

L405: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 16384,
    "num_hidden_layers": 126,
    "num_attention_heads": 128,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "intermediate_size": 53248,
    "torch_dtype": "bfloat16",
}


def refusal(raw: dict[str, Any]) -> str:
    with pytest.raises(RackreadyError) as refused:
        read_config(raw, "config.json")
    return str(refused.value)


STEP = "rackready cannot size such a model. Choose another one."


def test_layers_with_shapes_of_their_own_are_refused() -> None:
    """Nemotron Super and Ultra: NVIDIA-NeMo/Megatron-Bridge, models/llama_nemotron/llama_nemotron_config.py."""
    nulls = {"num_key_value_heads": None, "intermediate_size": None}
    blocks = [{"attention": {"n_heads_in_group": 8}, "ffn": {"ffn_mult": 5.25}}] * 80
    shape = (
        f"config.json: num_key_value_heads, intermediate_size - Expected: the shape of all layers Actual: null. {STEP}"
    )
    assert refusal({**L405, **nulls, "block_configs": blocks}) == (
        f"config.json: block_configs - Expected: layers of one kind Actual: a list of 80. {STEP}\n{shape}"
    )
    assert refusal({**L405, **nulls}) == shape


def test_linear_attention_is_refused() -> None:
    """MiniMax-M1: seven layers of eight keep no keys and values. MiniMax-M2 has full attention alone."""
    assert refusal({**L405, "attn_type_list": [0, 0, 0, 0, 0, 0, 0, 1] * 10}) == (
        "config.json: attn_type_list - Expected: 1 (full attention) for every layer "
        f"Actual: another kind for 70 of 80. {STEP}"
    )
    assert read_config({**L405, "attn_type_list": [1] * 126}, "config.json")[0].layers == 126
