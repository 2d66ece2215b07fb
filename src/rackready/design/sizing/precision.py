"""Bytes of a weight and of a cached value, and the number format in which a GPU computes with them."""

from __future__ import annotations

from rackready.design.sizing import parameters
from rackready.model.llm import Llm, Weights
from rackready.model.profile import GpuProfile, Precision

_BITS: dict[str, float] = {"fp32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "int8": 8, "int4": 4, "nvfp4": 4, "mxfp4": 4}
_SCALE_BITS: dict[str, float] = {"int4": 16 + 4, "nvfp4": 8, "mxfp4": 8, "int8": 16, "fp8": 16}
"""Bits of one group's scale (and zero point).

AWQ and GPTQ keep an fp16 scale and a 4-bit zero, NVFP4 an FP8 scale, MXFP4 an 8-bit exponent.
"""
_GROUP: dict[str, int] = {"int4": 128, "nvfp4": 16, "mxfp4": 32}
"""Default weights per group: 128 in AWQ and GPTQ, 16 in NVFP4, 32 in the OCP microscaling format."""

UNQUANTIZED_BYTES = 2.0
"""Bytes of a parameter in embeddings, output head, norms and routers of a quantized model, which stay in 16 bits."""
KV_BYTES: dict[str, float] = {"bf16": 2, "fp16": 2, "fp8": 1, "int8": 1}


def weight_bytes(weights: Weights, group: int | None = None) -> float:
    """Return the bytes of a quantized weight with its share of the scale: bf16 2, fp8 1, int4 in groups of 128 0.52."""
    size = group or _GROUP.get(weights)
    scale = _SCALE_BITS.get(weights, 0) / size if size else 0.0
    return (_BITS[weights] + scale) / 8


def layer_bytes(model: Llm) -> float:
    """Return the bytes of a weight of the layers outside routed experts, averaged over those that stay in 16 bits."""
    quantized = weight_bytes(model.weights, model.group)
    if not model.kept:
        return quantized
    share = model.kept / (parameters.layer_average(model)[0] * model.layers)
    return share * UNQUANTIZED_BYTES + (1 - share) * quantized


def outside_bytes(model: Llm) -> float:
    """Return the bytes of one parameter outside the quantized layers."""
    return 4.0 if model.weights == "fp32" else UNQUANTIZED_BYTES


def computed_in(gpu: GpuProfile, weights: Weights) -> tuple[Precision, str]:
    """Return the number format in which a GPU multiplies such weights, and a note if it is not their own.

    A format without a published rate on this GPU is unpacked to bf16 first (weight-only quantization).
    """
    own: dict[str, Precision] = {
        "fp32": "tf32",
        "bf16": "bf16",
        "fp16": "fp16",
        "fp8": "fp8",
        "nvfp4": "fp4",
        "mxfp4": "fp4",
    }
    wanted = own.get(weights)
    if wanted is not None and wanted in gpu.compute:
        return wanted, ""
    return (
        "bf16",
        f"{weights} weights are unpacked and multiplied in bf16: no {weights} rate of {gpu.product_name} is used",
    )
