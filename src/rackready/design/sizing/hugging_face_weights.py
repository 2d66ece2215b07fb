"""Number format of a checkpoint's weights: from its config.json, or from ModelOpt's file beside it.

ModelOpt up to 0.29 wrote ``hf_quant_config.json`` with one object ``quantization``; later ones write
``quantization_config`` in config.json. The first is read only without the second (vllm-project/vllm,
vllm/transformers_utils/config.py, get_config). Formats: NVIDIA/TensorRT-Model-Optimizer,
modelopt/torch/export/quant_utils.py, process_layer_quant_config.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from rackready.design.sizing import parameters
from rackready.model.llm import Llm, Weights
from rackready.model.problems import RackreadyError

BESIDE = "hf_quant_config.json"
"""ModelOpt's file beside config.json."""
_DTYPES: dict[str, Weights] = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
_FOUR, _EIGHT = 4, 8
_FP8 = frozenset({"fp8", "fbgemm_fp8"})
"""huggingface/transformers, utils/quantization_config.py, QuantizationMethod.FP8 and FBGEMM_FP8 (Llama 3.1 405B)."""
_ALGORITHMS: tuple[tuple[str, Weights], ...] = (
    ("nvfp4", "nvfp4"),  # NVFP4, NVFP4_AWQ, W4A8_NVFP4_FP8: weights, then activations
    ("mxfp4", "mxfp4"),  # W4A8_MXFP4_FP8
    ("w4a", "int4"),  # W4A16_AWQ, W4A8_AWQ
    ("w8a", "int8"),  # W8A16, W8A8_SQ_PER_CHANNEL
    ("fp8", "fp8"),  # FP8, FP8_PER_CHANNEL_PER_TOKEN
)
"""Part of ModelOpt's ``quant_algo`` -> format of the weights; the first that it contains."""

_EXCLUDED = ("modules_to_not_convert", "exclude_modules", "ignore")
"""Lists of modules that stay as they were: of transformers, of ModelOpt's own file, of ModelOpt in config.json."""


@dataclass(frozen=True, slots=True)
class Format:
    """Format of the weights, weights that share a scale, modules that stay in 16 bits, and what is assumed."""

    weights: Weights
    group: int | None = None
    excluded: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()


def format_of(raw: dict[str, Any], source: str, beside: dict[str, Any] | None) -> Format:
    """Return the format of a config.json's weights; ``beside``: the object of ModelOpt's file, None without one.

    Raises RackreadyError for a format that is not known.
    """
    quantization = raw.get("quantization_config")
    if isinstance(quantization, dict):
        return _quantized(source, "quantization_config", quantization)
    if beside is not None:
        inner = beside.get("quantization")
        if not isinstance(inner, dict):
            actual = "none" if inner is None else type(inner).__name__
            raise _wrong(source, f"{BESIDE}: quantization", "one object", actual)
        if inner.get("quant_algo") is not None:  # null: the cache alone is quantized
            found = _quantized(source, BESIDE, {"quant_method": "modelopt", **inner})
            told = f"weights are {found.weights}: {BESIDE} beside the file says so"
            return Format(found.weights, found.group, found.excluded, (told,))
    dtype = str(raw.get("dtype") or raw.get("torch_dtype") or "")
    if dtype in _DTYPES:
        return Format(_DTYPES[dtype])
    return Format("bf16", assumed=("weights are bf16: the file has no known dtype",))


def kept_in_16_bits(model: Llm, excluded: tuple[str, ...]) -> int:
    """Return the parameters of excluded modules of the layers: attention, and feed-forward blocks of a dense model.

    A name is that of a module (``model.layers.0.mlp.down_proj``, or a whole ``model.layers.0.self_attn``), or has
    wildcards (``model.layers.0.self_attn*``; gpt-oss: ``model.layers.*.self_attn``). Modules outside the layers are in
    16 bits anyway; layers of other parts, as of a vision tower, are not counted at all.
    """
    names = {name[max(name.find("layers."), 0) :] for name in excluded if not _of_other_part(name)}
    wild = [name for name in names if "*" in name]
    return sum(
        size
        for layer in range(model.layers)
        for leaf, size in _leaves(model)
        if _excludes(names, wild, f"layers.{layer}.{leaf}")
    )


def _excludes(names: set[str], wild: list[str], module: str) -> bool:
    """Whether a module of a layer, or one that it is part of, is named."""
    parts = module.split(".")
    parents = [".".join(parts[:end]) for end in range(2, len(parts) + 1)]
    return any(parent in names or any(fnmatchcase(parent, name) for name in wild) for parent in parents)


_OTHER_PARTS = ("vision", "visual", "audio", "encoder", "mtp")
"""Words before ``layers.`` in names of other parts: ``vision_tower.vision_model.encoder.layers.0.self_attn.q_proj``
(Gemma 3, LLaVA), ``mtp.layers.0.mlp.down_proj`` (Qwen's further tokens)."""


def _of_other_part(name: str) -> bool:
    before, found, _ = name.partition("layers.")
    return bool(found) and any(word in before for word in _OTHER_PARTS)


def _leaves(model: Llm) -> Iterator[tuple[str, int]]:
    """Yield the linear modules of one layer by their names in transformers, with their parameters."""
    if model.latent is not None:
        yield "self_attn", parameters.attention(model)
    else:
        queries, keys = (model.hidden * heads * model.head_dim for heads in (model.heads, model.kv_heads))
        yield from (("self_attn.q_proj", queries), ("self_attn.o_proj", queries))
        yield from (("self_attn.k_proj", keys), ("self_attn.v_proj", keys))
    if model.experts is None:
        width = model.hidden * model.intermediate
        gate = ("mlp.gate_proj",) if model.mlp_matrices == 3 else ()  # noqa: PLR2004 - with a gate
        yield from ((name, width) for name in (*gate, "mlp.up_proj", "mlp.down_proj"))


def _quantized(source: str, where: str, raw: dict[str, Any]) -> Format:
    """Return the format of a quantization_config: AWQ, GPTQ, FP8, bitsandbytes, MXFP4, ModelOpt, compressed-tensors."""
    found = _named(source, raw)
    if found is None:
        method, algorithm = str(raw.get("quant_method", "")).lower(), raw.get("quant_algo")
        bits = _bits(raw)
        actual = method or "no quant_method"
        actual += "" if algorithm is None else f" with quant_algo {algorithm}"
        actual += "" if bits is None else f" with bits {bits!r}"
        expected = "awq, gptq, fp8, mxfp4, nvfp4, bitsandbytes or compressed-tensors of 4 or 8 bits"
        raise RackreadyError(
            source, where, expected=expected, actual=actual, next_step="Set the number format with --weights."
        )
    lists = (raw.get(key) for key in _EXCLUDED)
    excluded = tuple(name for names in lists if isinstance(names, list) for name in names if isinstance(name, str))
    weights, group = found
    return Format(weights, group if isinstance(group, int) and group > 0 else None, excluded)


def _named(source: str, raw: dict[str, Any]) -> tuple[Weights, object] | None:
    method, group = str(raw.get("quant_method", "")).lower(), raw.get("group_size")
    algorithm = str(raw.get("quant_algo", "")).lower()
    if method == "compressed-tensors":
        return _compressed(source, raw)
    if method in {"mxfp4", "nvfp4"}:
        return ("mxfp4" if method == "mxfp4" else "nvfp4"), group
    if method in _FP8:
        return "fp8", None
    known = next((weights for part, weights in _ALGORITHMS if part in algorithm), None)
    if known is not None:
        return known, None if known == "fp8" else group
    bits = _bits(raw)
    if isinstance(bits, int) and bits in {_FOUR, _EIGHT}:
        return ("int4" if bits == _FOUR else "int8"), group
    return None


def _bits(raw: dict[str, Any]) -> object:
    return raw.get("bits") or (_FOUR if raw.get("load_in_4bit") else _EIGHT if raw.get("load_in_8bit") else None)


def _compressed(source: str, raw: dict[str, Any]) -> tuple[Weights, object] | None:
    groups = raw.get("config_groups")
    first: object = next(iter(groups.values()), {}) if isinstance(groups, dict) else {}
    inner = _object(source, "weights", _object(source, "a group", first).get("weights") or {})
    kind, bits, group = str(inner.get("type", "")), inner.get("num_bits"), inner.get("group_size")
    if bits == _EIGHT:
        return ("fp8" if kind == "float" else "int8"), group
    if bits == _FOUR:
        return ("nvfp4" if kind == "float" else "int4"), group
    return None


def _object(source: str, what: str, value: object) -> dict[str, Any]:
    """Return a part of quantization_config that must be an object. Raises RackreadyError."""
    if not isinstance(value, dict):
        raise _wrong(source, "quantization_config.config_groups", f"{what} as an object", type(value).__name__)
    return value


def _wrong(source: str, where: str, expected: str, actual: str) -> RackreadyError:
    return RackreadyError(source, where, expected=expected, actual=actual, next_step="Correct the file.")
