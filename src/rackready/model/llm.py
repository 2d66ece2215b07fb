"""The shape of a language model, for sizing.

A decoder-only transformer, dense or with experts, with grouped or latent attention.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from rackready.model.base import Model

Weights = Literal["fp32", "bf16", "fp16", "fp8", "int8", "int4", "nvfp4", "mxfp4"]
"""Format of the linear layers' weights; a quantized model keeps embeddings, norms and routers in 16 bits."""


class Latent(Model):
    """Multi-head latent attention (DeepSeek-V2 and later): caches one vector per token, no keys and values."""

    kv_rank: int = Field(ge=1, description="length of the compressed vector (kv_lora_rank)")
    rope_dim: int = Field(ge=1, description="length of the rotary key that all heads share (qk_rope_head_dim)")
    nope_dim: int = Field(ge=1, description="length of a head's key without position (qk_nope_head_dim)")
    value_dim: int = Field(ge=1, description="length of a head's value (v_head_dim)")
    query_rank: int | None = Field(
        None, ge=1, description="length of the compressed query (q_lora_rank); null: not compressed"
    )


class Experts(Model):
    """Mixture of experts."""

    count: int = Field(ge=2, description="routed experts of one layer")
    active: int = Field(ge=1, description="routed experts per token")
    intermediate: int = Field(ge=1, description="width of one expert")
    shared: int = Field(0, ge=0, description="total width of the shared experts, which every token visits")
    dense_layers: int = Field(0, ge=0, description="layers without experts")

    @model_validator(mode="after")
    def _active_exist(self) -> Experts:
        if self.active > self.count:
            message = f"{self.active} active experts of {self.count}"
            raise ValueError(message)
        return self


class Llm(Model):
    """The shape of one model."""

    name: str
    layers: int = Field(ge=1)
    hidden: int = Field(ge=1)
    heads: int = Field(ge=1)
    kv_heads: int = Field(ge=1, description="key and value heads: fewer than heads with grouped-query attention")
    head_dim: int = Field(ge=1)
    intermediate: int = Field(ge=0, description="width of the feed-forward layer; 0: unknown, parameters are given")
    vocabulary: int = Field(ge=0, description="tokens; 0: unknown, embeddings are not counted separately")
    tied: bool = Field(default=False, description="input embedding and output head are one matrix")
    mlp_matrices: Literal[2, 3] = Field(3, description="3 with a gate (SwiGLU), 2 without")
    learned_positions: int = Field(0, ge=0, description="length of a learned position table; 0: rotary or none")
    latent: Latent | None = None
    experts: Experts | None = None
    weights: Weights = "bf16"
    group: int | None = Field(
        None, ge=1, description="weights that share one scale; null: one scale per tensor, or no quantization"
    )
    kept: int = Field(
        0, ge=0, description="parameters of a quantized model's layers that stay in 16 bits; not of routed experts"
    )
    parameters: int | None = Field(None, ge=1, description="parameters as published; null: counted from the shape")
    context: int | None = Field(None, ge=1, description="longest sequence that the model supports, tokens")

    @model_validator(mode="after")
    def _heads_agree(self) -> Llm:
        if self.heads % self.kv_heads:
            message = f"{self.heads} heads cannot share {self.kv_heads} key and value heads evenly"
            raise ValueError(message)
        if self.parameters is None and not self.intermediate and self.experts is None:
            message = "neither the number of parameters nor the width of the feed-forward layer is given"
            raise ValueError(message)
        if self.experts is not None and self.experts.dense_layers > self.layers:
            message = f"{self.experts.dense_layers} layers without experts of {self.layers}"
            raise ValueError(message)
        return self
