"""What transformers builds for each family of decoders, by ``model_type``, where config.json does not say it.

Source: huggingface/transformers 5.24.0, src/transformers/models/FAMILY/modeling_FAMILY.py and configuration_FAMILY.py.
"""

from __future__ import annotations

PLAIN_MLP = frozenset(
    {
        *("apertus", "apertus1p5_text", "arcee", "bloom", "codegen", "falcon", "gpt2", "gpt_bigcode", "gpt_neo"),
        *("gpt_neox", "gpt_neox_japanese", "gptj", "jais2", "mpt", "nanochat", "nemotron", "openai-gpt", "opt"),
        *("persimmon", "phi", "starcoder2", "xglm"),
    }
)
"""Families whose feed-forward block has two matrices, without a gate."""

GATED_MLP = frozenset(
    {
        *("cohere", "cohere2", "dbrx", "deepseek_v2", "deepseek_v3", "deepseek_v32", "diffllama", "dots1", "ernie4_5"),
        *("ernie4_5_moe", "exaone4", "exaone_moe", "flex_olmo", "gemma", "gemma2", "gemma3", "gemma3_text", "glm"),
        *("glm4", "glm4_moe", "glm4_moe_lite", "gpt_oss", "granite", "granitemoe", "granitemoeshared", "helium"),
        *("hunyuan_v1_dense", "hunyuan_v1_moe", "hyperclovax", "llama", "llama4", "llama4_text", "minicpm3", "minimax"),
        *("minimax_m2", "ministral", "ministral3", "mistral", "mistral4", "mixtral", "olmo", "olmo2", "olmo3", "olmoe"),
        *("phi3", "phi4_multimodal", "phimoe", "qwen2", "qwen2_5_vl", "qwen2_5_vl_text", "qwen2_moe", "qwen3"),
        *("qwen3_moe", "qwen3_vl", "qwen3_vl_text", "seed_oss", "smollm3", "solar_open", "stablelm", "vaultgemma"),
        *("youtu",),
    }
)
"""Families whose feed-forward block has three matrices, one of them a gate."""

LEARNED_POSITIONS = frozenset({"gpt2", "gpt_bigcode", "gpt_neo", "openai-gpt", "opt"})
"""Families with a table of positions."""

TIED = frozenset(
    {
        *("bloom", "cohere", "cohere2", "ernie4_5", "ernie4_5_moe", "falcon", "gemma", "gemma2", "gemma3"),
        *("gemma3_text", "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox_japanese", "minicpm3", "mpt", "openai-gpt"),
        *("opt", "smollm3", "starcoder2", "vaultgemma", "xglm", "youtu"),
    }
)
"""Families that tie embeddings unless the file says otherwise."""

_GEMMA_3 = {
    "vocab_size": 262_208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131_072,
}
"""configuration_gemma3.py, Gemma3TextConfig. The files of gemma-3-27b-it and its sisters leave some of them out."""
DEFAULTS: dict[str, dict[str, int]] = {"gemma3": _GEMMA_3, "gemma3_text": _GEMMA_3}
"""Values that the published files of a family leave out, because they are those of its class."""
