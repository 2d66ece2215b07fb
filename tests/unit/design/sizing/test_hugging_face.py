"""config.json of many families: values read, assumptions reported, and every refusal by its text."""

from __future__ import annotations

from typing import Any

import pytest

from rackready.design.sizing import parameters
from rackready.design.sizing.hugging_face import read_config
from rackready.model.llm import Llm
from rackready.model.problems import RackreadyError

BASE: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "intermediate_size": 14336,
    "torch_dtype": "bfloat16",
}


def read(**changes: object) -> tuple[Llm, list[str]]:
    return read_config({key: value for key, value in {**BASE, **changes}.items() if value is not ...}, "config.json")


def test_nothing_is_assumed_of_a_complete_file() -> None:
    model, assumed = read()
    assert assumed == []
    assert (model.head_dim, model.tied, model.mlp_matrices, model.weights) == (128, False, 3, "bf16")


def test_a_head_may_be_wider_than_its_share() -> None:
    assert read(head_dim=256)[0].head_dim == 256


def test_missing_values_are_assumed_and_reported() -> None:
    _, assumed = read(num_key_value_heads=..., intermediate_size=..., torch_dtype=...)
    assert assumed == [
        "weights are bf16: the file has no known dtype",
        "every head has its own keys and values: the file has no num_key_value_heads",
        "the feed-forward layer is 4 x hidden wide: the file has no intermediate_size",
    ]


@pytest.mark.parametrize("family", ["apertus", "nemotron", "arcee", "starcoder2", "gpt2"])
def test_families_without_a_gate_have_two_matrices(family: str) -> None:
    # huggingface/transformers, modeling_apertus.py and modeling_nemotron.py: up_proj and down_proj alone.
    model, assumed = read(model_type=family)
    assert model.mlp_matrices == 2
    assert assumed == []


def test_a_gate_of_an_unknown_family_is_an_assumption() -> None:
    model, assumed = read(model_type="new_family")
    assert model.mlp_matrices == 3
    assert assumed == [
        "the feed-forward block has a gate, three matrices: rackready does not know model_type new_family"
    ]


@pytest.mark.parametrize("family", ["cohere", "cohere2", "smollm3", "gemma2"])
def test_families_that_tie_embeddings_unless_the_file_says_otherwise(family: str) -> None:
    # huggingface/transformers, configuration_cohere.py: tie_word_embeddings True.
    assert read(model_type=family)[0].tied
    assert not read(model_type=family, tie_word_embeddings=False)[0].tied


def test_sliding_windows_are_an_upper_bound() -> None:
    assert read(sliding_window=4096)[1] == [
        "the cache is counted as if every layer used the whole context; sliding windows need less"
    ]
    assert read(sliding_window=4096, use_sliding_window=False)[1] == []


def test_one_key_and_value_head() -> None:
    assert read(num_key_value_heads=..., multi_query=True)[0].kv_heads == 1


def test_only_the_text_part_of_a_multimodal_model() -> None:
    model, assumed = read_config({"model_type": "llava", "text_config": BASE}, "config.json")
    assert model.layers == 32
    assert assumed == ["only text_config is sized: parts for images and sound are not counted"]


def test_experts_of_qwen_and_of_deepseek() -> None:
    qwen = read(num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768, decoder_sparse_step=1)[0].experts
    assert (qwen.count, qwen.active, qwen.intermediate, qwen.shared, qwen.dense_layers) == (128, 8, 768, 0, 0)
    deepseek = read(
        n_routed_experts=64,
        num_experts_per_tok=6,
        moe_intermediate_size=1408,
        n_shared_experts=2,
        first_k_dense_replace=1,
    )[0].experts
    assert (deepseek.shared, deepseek.dense_layers) == (2816, 1)
    gated = read(
        num_experts=60, num_experts_per_tok=4, moe_intermediate_size=1408, shared_expert_intermediate_size=5632
    )[0].experts
    assert gated is not None
    assert gated.shared == 5632
    every_second = read(num_experts=16, num_experts_per_tok=1, decoder_sparse_step=2)[0].experts
    assert every_second.dense_layers == 16


@pytest.mark.parametrize(
    ("quantization", "weights", "group"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "int4", 128),
        ({"quant_method": "gptq", "bits": 4, "group_size": -1}, "int4", None),
        ({"quant_method": "gptq", "bits": 8, "group_size": 32}, "int8", 32),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8", None),
        ({"quant_method": "mxfp4"}, "mxfp4", None),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}, "nvfp4", 16),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "int4", None),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"type": "float", "num_bits": 8}}},
            },
            "fp8",
            None,
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"g": {"weights": {"type": "int", "num_bits": 4, "group_size": 128}}},
            },
            "int4",
            128,
        ),
    ],
)
def test_quantization_is_honoured(quantization: dict[str, Any], weights: str, group: int | None) -> None:
    model, _ = read(quantization_config=quantization)
    assert (model.weights, model.group) == (weights, group)


def test_experts_in_every_second_layer_of_llama_4() -> None:
    # Maverick as published: 400 billion parameters, 17 billion of them for one token.
    shape = {
        "hidden_size": 5120,
        "num_hidden_layers": 48,
        "num_attention_heads": 40,
        "head_dim": 128,
        "vocab_size": 202048,
        "intermediate_size": 8192,
    }
    model, assumed = read(
        **shape, num_local_experts=128, num_experts_per_tok=1, interleave_moe_layer_step=2, intermediate_size_mlp=16384
    )
    assert model.experts is not None
    assert (
        model.experts.dense_layers,
        model.experts.intermediate,
        model.experts.shared,
        model.intermediate,
        assumed,
    ) == (24, 8192, 8192, 16384, [])
    assert parameters.total(model) == pytest.approx(400e9, rel=0.01)
    assert parameters.active(model) == pytest.approx(17e9, rel=0.02)


def test_layers_that_a_list_leaves_without_experts() -> None:
    # Qwen: mlp_only_layers beside the step; Llama 4: moe_layers in place of the step. The dense ones keep the width of
    # intermediate_size.
    qwen = read(num_experts=64, num_experts_per_tok=8, moe_intermediate_size=1408, mlp_only_layers=[0, 1, 31])[0]
    stepped = read(
        num_experts=64, num_experts_per_tok=8, moe_intermediate_size=1408, mlp_only_layers=[0, 1], decoder_sparse_step=2
    )[0]
    llama = read(num_local_experts=16, num_experts_per_tok=1, interleave_moe_layer_step=2, moe_layers=[3, 7, 11])[0]
    assert [model.experts.dense_layers for model in (qwen, stepped, llama)] == [3, 17, 29]
    assert llama.experts.shared == 14336
    none = read(num_experts=64, num_experts_per_tok=8, moe_intermediate_size=1408, mlp_only_layers=[])[0]
    experts = 3 * 4096 * 1408 * 64 + 4096 * 64
    assert parameters.total(none) - parameters.total(qwen) == 3 * (experts - 3 * 4096 * 14336)


def test_first_layers_and_frequency_of_deepseek() -> None:
    model = read(
        n_routed_experts=64,
        num_experts_per_tok=6,
        moe_intermediate_size=1408,
        first_k_dense_replace=3,
        moe_layer_freq=2,
    )[0]
    assert model.experts.dense_layers == 32 - 14  # 4, 6, ... 30 have experts


@pytest.mark.parametrize("family", ["gemma3", "gemma3_text"])
def test_gemma_3_ties_its_head(family: str) -> None:
    assert read(model_type=family)[0].tied
    assert read_config(
        {"model_type": family, "text_config": {key: value for key, value in BASE.items() if key != "model_type"}},
        "config.json",
    )[0].tied


def test_no_more_layers_can_lack_experts_than_there_are() -> None:
    model = read(n_routed_experts=64, num_experts_per_tok=6)[0].model_dump()
    with pytest.raises(ValueError, match=r"100 layers without experts of 32"):
        Llm.model_validate({**model, "experts": {**model["experts"], "dense_layers": 100}})


def test_tied_embeddings_are_counted_once() -> None:
    assert parameters.total(read()[0]) - parameters.total(read(tie_word_embeddings=True)[0]) == 128256 * 4096


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ([], "config.json - Expected: one JSON object Actual: list. Use a model's config.json."),
        (
            {"architectures": ["ResNet"]},
            (
                "config.json: num_attention_heads is missing - Expected: the config.json of a decoder-only model "
                "Actual: keys architectures. "
                "Describe the model with --params and its shape instead."
            ),
        ),
        (
            {**BASE, "hidden_size": "big"},
            "config.json: hidden_size - Expected: a whole number Actual: 'big'. Correct the file.",
        ),
        (
            {**BASE, "num_hidden_layers": True},
            "config.json: num_hidden_layers - Expected: a whole number Actual: True. Correct the file.",
        ),
        (
            {**BASE, "kv_lora_rank": 512, "qk_rope_head_dim": 64},
            (
                "config.json: qk_nope_head_dim, v_head_dim is missing - "
                "Expected: the keys that latent attention needs beside kv_lora_rank Actual: none. "
                "Correct the file."
            ),
        ),
        (
            {**BASE, "num_local_experts": 8},
            (
                "config.json: num_experts_per_tok is missing - "
                "Expected: how many of 8 experts a token uses Actual: none. Correct the file."
            ),
        ),
        (
            {**BASE, "quantization_config": {"quant_method": "hqq", "nbits": 3}},
            (
                "config.json: quantization_config - Expected: awq, gptq, fp8, mxfp4, nvfp4, bitsandbytes or "
                "compressed-tensors of 4 or 8 bits Actual: hqq. "
                "Set the number format with --weights."
            ),
        ),
        (
            {**BASE, "model_type": "bert"},
            (
                "config.json: model_type - Expected: a decoder-only model Actual: bert. "
                "Use the config.json of a decoder-only model."
            ),
        ),
        (
            {**BASE, "attn_layer_period": 8, "expert_layer_period": 2},
            (
                "config.json: attn_layer_period - Expected: layers of one kind Actual: 8. "
                "rackready cannot size such a model. Choose another one.\n"
                "config.json: expert_layer_period - Expected: layers of one kind Actual: 2. "
                "rackready cannot size such a model. Choose another one."
            ),
        ),
        (
            {**BASE, "full_attention_interval": 4},
            (
                "config.json: full_attention_interval - Expected: layers of one kind Actual: 4. "
                "rackready cannot size such a model. Choose another one."
            ),
        ),
        (
            {**BASE, "layer_types": ["linear_attention", "full_attention"]},
            (
                "config.json: layer_types - Expected: chunked_attention, full_attention, sliding_attention "
                "Actual: linear_attention. "
                "rackready cannot size such a model. Choose another one."
            ),
        ),
        (
            {
                **BASE,
                "num_hidden_layers": 61,
                "n_routed_experts": 64,
                "num_experts_per_tok": 6,
                "first_k_dense_replace": 100,
            },
            "config.json: first_k_dense_replace - Expected: at most 61 layers Actual: 100. Correct the file.",
        ),
        (
            {**BASE, "num_key_value_heads": 0},
            "config.json: num_key_value_heads - Expected: a whole number above 0 Actual: 0. Correct the file.",
        ),
        (
            {**BASE, "head_dim": 0},
            "config.json: head_dim - Expected: a whole number above 0 Actual: 0. Correct the file.",
        ),
        (
            {**BASE, "num_experts": 8, "num_experts_per_tok": 2, "mlp_only_layers": [0, 32]},
            (
                "config.json: mlp_only_layers - Expected: a list of layers, each once, from 0 to 31 Actual: [0, 32]. "
                "Correct the file."
            ),
        ),
        (
            {**BASE, "num_local_experts": 8, "num_experts_per_tok": 1, "moe_layers": "all"},
            (
                "config.json: moe_layers - Expected: a list of layers, each once, from 0 to 31 Actual: 'all'. "
                "Correct the file."
            ),
        ),
        (
            {**BASE, "num_local_experts": 8, "num_experts_per_tok": 1, "interleave_moe_layer_step": 0},
            "config.json: interleave_moe_layer_step - Expected: a whole number above 0 Actual: 0. Correct the file.",
        ),
        (
            {**BASE, "num_attention_heads": 0},
            "config.json: num_attention_heads - Expected: a whole number above 0 Actual: 0. Correct the file.",
        ),
        (
            {**BASE, "quantization_config": {"quant_method": "gptq", "bits": [4]}},
            (
                "config.json: quantization_config - Expected: awq, gptq, fp8, mxfp4, nvfp4, bitsandbytes or "
                "compressed-tensors of 4 or 8 bits "
                "Actual: gptq with bits [4]. Set the number format with --weights."
            ),
        ),
        (
            {**BASE, "quantization_config": {"quant_method": "compressed-tensors", "config_groups": {"group_0": [4]}}},
            (
                "config.json: quantization_config.config_groups - Expected: a group as an object Actual: list. "
                "Correct the file."
            ),
        ),
        (
            {
                **BASE,
                "quantization_config": {
                    "quant_method": "compressed-tensors",
                    "config_groups": {"group_0": {"weights": [4]}},
                },
            },
            (
                "config.json: quantization_config.config_groups - Expected: weights as an object Actual: list. "
                "Correct the file."
            ),
        ),
    ],
)
def test_refusal(raw: object, text: str) -> None:
    with pytest.raises(RackreadyError) as refused:
        read_config(raw, "config.json")
    assert str(refused.value) == text


def test_a_number_that_no_model_has_is_refused_with_what_it_has_to_be() -> None:
    with pytest.raises(RackreadyError) as caught:
        read(n_routed_experts=1, num_experts_per_tok=2, moe_intermediate_size=8)
    assert str(caught.value) == "config.json: count - Expected: at least 2 Actual: 1. Correct the file."


def test_heads_that_cannot_be_grouped_are_refused() -> None:
    with pytest.raises(
        RackreadyError,
        match=r"^config.json - Expected: the shape of one model "
        r"Actual: 32 heads cannot share 5 key and value heads evenly. Correct the file.$",
    ):
        read(num_key_value_heads=5)
