"""Parameters of a model, counted from its shape.

All counts are of single parameters; biases are left out (below 0.1 % in every model since 2020).
"""

from __future__ import annotations

from rackready.model.llm import Llm


def attention(model: Llm) -> int:
    """Return the parameters of one layer's attention.

    Grouped queries: h a d + 2 h k d + a d h. Latent attention (DeepSeek-V2, arXiv 2405.04434): down- and up-projections
    of query, key and value.
    """
    hidden, heads = model.hidden, model.heads
    latent = model.latent
    if latent is None:
        return 2 * hidden * heads * model.head_dim + 2 * hidden * model.kv_heads * model.head_dim
    key = latent.nope_dim + latent.rope_dim
    query = hidden * heads * key if latent.query_rank is None else latent.query_rank * (hidden + heads * key)
    compressed = hidden * (latent.kv_rank + latent.rope_dim) + latent.kv_rank * heads * (
        latent.nope_dim + latent.value_dim
    )
    return query + compressed + heads * latent.value_dim * hidden


def feed_forward(model: Llm, width: int) -> int:
    """Return the parameters of a feed-forward block of that width: three matrices with a gate (SwiGLU), two without."""
    return model.mlp_matrices * model.hidden * width


def norms(model: Llm) -> int:
    """Return the parameters of one layer's two norms."""
    return 2 * model.hidden


def routed(model: Llm) -> int:
    """Return the parameters of all routed experts of one layer; 0 for a dense model."""
    return model.experts.count * feed_forward(model, model.experts.intermediate) if model.experts else 0


def embedding(model: Llm) -> int:
    """Return the parameters of one embedding matrix."""
    return model.vocabulary * model.hidden


def outside_layers(model: Llm) -> int:
    """Return the parameters outside layers.

    These are embedding, output head if separate, learned positions if any, and last norm.
    """
    matrices = 1 if model.tied else 2
    return matrices * embedding(model) + model.learned_positions * model.hidden + model.hidden


def dense_layer(model: Llm) -> int:
    """Return the parameters of one layer without its routed experts (of an expert layer, if the model has experts)."""
    if model.experts is None:
        return attention(model) + feed_forward(model, model.intermediate) + norms(model)
    router = model.hidden * model.experts.count
    return attention(model) + feed_forward(model, model.experts.shared) + router + norms(model)


def _counted(model: Llm) -> int:
    if model.experts is None:
        return model.layers * dense_layer(model) + outside_layers(model)
    plain = model.experts.dense_layers
    first = plain * (attention(model) + feed_forward(model, model.intermediate) + norms(model))
    return first + (model.layers - plain) * (dense_layer(model) + routed(model)) + outside_layers(model)


def total(model: Llm) -> int:
    """Return all parameters: the published number if the model has one, else the count."""
    return model.parameters if model.parameters is not None else _counted(model)


def least(model: Llm) -> int:
    """Return the parameters outside layers and in routed experts: a model with no more than these has no attention."""
    experts = routed(model) * (model.layers - model.experts.dense_layers) if model.experts else 0
    return outside_layers(model) + experts


def active(model: Llm) -> int:
    """Return the parameters that one token uses: all of a dense model, else with the chosen experts' share."""
    if model.experts is None:
        return total(model)
    idle = (model.experts.count - model.experts.active) * feed_forward(model, model.experts.intermediate)
    return total(model) - (model.layers - model.experts.dense_layers) * idle


def layer_average(model: Llm) -> tuple[float, float]:
    """Return (parameters of one layer without routed experts, of its routed experts), averaged over layers.

    The averages add up to ``total``.
    """
    experts = routed(model) * (model.layers - model.experts.dense_layers) if model.experts else 0
    return (total(model) - outside_layers(model) - experts) / model.layers, experts / model.layers
