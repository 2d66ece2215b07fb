"""Published checkpoints whose config.json says less, or something else, than its keys: formats, defaults, layers."""

from __future__ import annotations

from typing import Any

import pytest

from rackready.design.sizing import parameters
from rackready.design.sizing.hugging_face import read_config
from rackready.design.sizing.parallel import Layout
from rackready.design.sizing.serving_memory import weights_on_gpu
from rackready.model.llm import Llm
from rackready.model.problems import RackreadyError

GIB = 2**30
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
ATTENTION = [f"model.layers.{layer}.self_attn.{part}_proj" for layer in range(126) for part in "qkvo"]
ENDS = [f"model.layers.{layer}.mlp.{part}_proj" for layer in (0, 125) for part in ("gate", "up", "down")]
ALL_ATTENTION = 126 * (2 * 16384 * 16384 + 2 * 16384 * 1024)
FEED_FORWARD = 3 * 16384 * 53248


def modelopt(**quantization: object) -> dict[str, Any]:
    return {"producer": {"name": "modelopt", "version": "0.29.0"}, "quantization": quantization}


def gib(model: Llm) -> float:
    return round(weights_on_gpu(model, Layout()) / GIB)


def refusal(raw: dict[str, Any], beside: dict[str, Any] | None = None) -> str:
    with pytest.raises(RackreadyError) as refused:
        read_config(raw, "config.json", None, beside)
    return str(refused.value)


def test_the_file_of_modelopt_beside_config_json_names_the_format() -> None:
    beside = modelopt(quant_algo="NVFP4", kv_cache_quant_algo="FP8", group_size=16, exclude_modules=["lm_head"])
    model, assumed = read_config(L405, "config.json", None, beside)
    assert (model.weights, model.group, gib(model)) == ("nvfp4", 16, 218)
    assert assumed == ["weights are nvfp4: hf_quant_config.json beside the file says so"]
    own = {**L405, "quantization_config": {"quant_method": "fp8"}}
    assert read_config(own, "config.json", None, beside)[0].weights == "fp8", "config.json comes first"
    assert read_config(L405, "config.json", "bf16", beside)[0].weights == "bf16", "the user's word comes first"


@pytest.mark.parametrize(
    ("algorithm", "weights", "group"),
    [
        ("FP8", "fp8", None),
        ("FP8_PER_CHANNEL_PER_TOKEN", "fp8", None),
        ("NVFP4_AWQ", "nvfp4", 16),
        ("W4A8_NVFP4_FP8", "nvfp4", 16),
        ("W4A8_MXFP4_FP8", "mxfp4", 16),
        ("W4A16_AWQ", "int4", 16),
        ("W8A8_SQ_PER_CHANNEL", "int8", 16),
        (None, "bf16", None),  # the cache alone is quantized
    ],
)
def test_algorithms_of_modelopt(algorithm: str | None, weights: str, group: int | None) -> None:
    model, _ = read_config(L405, "config.json", None, modelopt(quant_algo=algorithm, group_size=16))
    assert (model.weights, model.group) == (weights, group)


def test_what_modelopt_excludes_stays_in_16_bits() -> None:
    excluded = ["lm_head", "model.layers.0.self_attn*", "model.layers.1.self_attn", "model.layers.2.mlp.down_proj"]
    model, assumed = read_config(L405, "config.json", None, modelopt(quant_algo="FP8", exclude_modules=excluded))
    assert model.kept == 2 * ALL_ATTENTION // 126 + FEED_FORWARD // 3
    assert assumed[-1] == "2.0 billion parameters of layers stay in 16 bits: the file excludes their modules"


def test_wildcards_name_modules_that_others_are_part_of() -> None:
    """The list of openai/gpt-oss-120b's config.json; its experts are MXFP4, and attention is in 16 bits."""
    excluded = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
    quantization = {"quant_method": "mxfp4", "modules_to_not_convert": excluded}
    model, _ = read_config({**L405, "quantization_config": quantization}, "config.json")
    assert model.kept == ALL_ATTENTION


@pytest.mark.parametrize(
    "before",
    ["vision_tower.vision_model.encoder.", "model.vision_tower.", "visual.", "audio_tower.", "model.encoder.", "mtp."],
)
def test_layers_of_other_parts_are_no_layers_of_the_model(before: str) -> None:
    excluded = [f"{before}layers.0.self_attn.q_proj", f"{before}layers.*.mlp.down_proj", "lm_head"]
    model, assumed = read_config(L405, "config.json", None, modelopt(quant_algo="FP8", exclude_modules=excluded))
    assert (model.kept, [text for text in assumed if "16 bits" in text]) == (0, [])
    own = [*excluded, "language_model.model.layers.0.self_attn.q_proj"]
    model, _ = read_config(L405, "config.json", None, modelopt(quant_algo="FP8", exclude_modules=own))
    assert model.kept == 16384 * 16384


def test_fp8_of_meta_keeps_attention_and_both_ends_in_16_bits() -> None:
    """meta-llama/Llama-3.1-405B-Instruct-FP8; huggingface/transformers, QuantizationMethod.FBGEMM_FP8."""
    quantization = {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}
    whole, _ = read_config({**L405, "quantization_config": quantization}, "config.json")
    listed = {**quantization, "modules_to_not_convert": ATTENTION + ENDS}
    model, _ = read_config({**L405, "quantization_config": listed}, "config.json")
    assert (whole.weights, whole.kept, model.weights) == ("fp8", 0, "fp8")
    assert model.kept == ALL_ATTENTION + 2 * FEED_FORWARD
    more = weights_on_gpu(model, Layout()) - weights_on_gpu(whole, Layout())
    assert more == pytest.approx(model.kept), "2 bytes in place of 1"
    assert gib(model) == 454


def test_a_format_that_modelopt_mixes_is_refused() -> None:
    assert refusal(L405, modelopt(quant_algo="MIXED_PRECISION", quantized_layers={})) == (
        "config.json: hf_quant_config.json - Expected: awq, gptq, fp8, mxfp4, nvfp4, bitsandbytes or "
        "compressed-tensors of 4 or 8 bits Actual: modelopt with quant_algo MIXED_PRECISION. "
        "Set the number format with --weights."
    )
    assert refusal(L405, {"quantization": "NVFP4"}) == (
        "config.json: hf_quant_config.json: quantization - Expected: one object Actual: str. Correct the file."
    )


def test_gemma_3_has_what_transformers_takes_where_its_file_says_nothing() -> None:
    """TensorRT-LLM, test_modeling_gemma3vl.py, GEMMA3_27B_MINI_CONFIG, with all layers: no vocab_size."""
    text = {
        "head_dim": 128,
        "hidden_size": 5376,
        "intermediate_size": 21504,
        "model_type": "gemma3_text",
        "num_attention_heads": 32,
        "num_hidden_layers": 62,
        "num_key_value_heads": 16,
    }
    raw = {"model_type": "gemma3", "text_config": text, "torch_dtype": "bfloat16"}
    model, assumed = read_config(raw, "config.json")
    assert (model.vocabulary, model.head_dim, model.tied) == (262208, 128, True)
    assert parameters.total(model) == pytest.approx(27.0e9, rel=0.01)
    default = "the default of transformers for gemma3_text: the file has none"
    assert assumed == [
        "only text_config is sized: parts for images and sound are not counted",
        f"vocab_size is 262208, {default}",
        f"max_position_embeddings is 131072, {default}",
    ]


def test_gemma_3_of_4b_names_no_heads() -> None:
    text = {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34}
    model, _ = read_config({"model_type": "gemma3", "text_config": text}, "config.json")
    assert (model.heads, model.kv_heads, model.head_dim) == (8, 4, 256)
    assert parameters.total(model) == pytest.approx(3.9e9, rel=0.01)


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
