"""The model of `rackready size`: from a config.json, or from its parameters and shape."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from pydantic import ValidationError

from rackready.design.sizing import parameters
from rackready.design.sizing.hugging_face import read_config
from rackready.design.sizing.hugging_face_weights import BESIDE
from rackready.model.llm import Llm, Weights
from rackready.model.problems import RackreadyError

Config = Annotated[Path | None, typer.Option("--config", help="config.json of a Hugging Face model.")]
Params = Annotated[
    str,
    typer.Option("--params", help="Total parameters, e.g. 70B, with the shape, instead of --config."),
]
Layers = Annotated[int, typer.Option("--layers", help="Number of layers.")]
Hidden = Annotated[int, typer.Option("--hidden", help="Hidden size.")]
Heads = Annotated[int, typer.Option("--heads", help="Number of attention heads.")]
KvHeads = Annotated[int, typer.Option("--kv-heads", help="Key and value heads. Default: as many as heads.")]
Vocabulary = Annotated[
    int, typer.Option("--vocabulary", help="Tokens of the vocabulary. Default: no separate embeddings.")
]
WeightsOption = Annotated[
    str,
    typer.Option(
        "--weights",
        help=f"Weight format: {', '.join(get_args(Weights))}. Default: the model's, else bf16.",
    ),
]

_AMOUNT = re.compile(r"^(\d+(?:\.\d+)?)([KMBT]?)$")
_SCALE = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}


@dataclass(frozen=True, slots=True)
class Asked:
    """Options about the model. 0 and empty: not given."""

    config: Path | None = None
    params: str = ""
    layers: int = 0
    hidden: int = 0
    heads: int = 0
    kv_heads: int = 0
    vocabulary: int = 0
    weights: str = ""
    assumed: list[str] = field(default_factory=list)


def amount(text: str, option: str) -> float:
    """Return the number of 70B, 15T, 8.03B or 4096. Raises RackreadyError for other text, and for 0."""
    match = _AMOUNT.match(text.upper())
    value = float(match[1]) * _SCALE[match[2]] if match else 0.0
    if not value:
        raise RackreadyError(
            f"{option} {text}",
            expected="a number above 0 such as 70B, 8.03B or 15T (K, M, B, T: 10^3 to 10^12)",
            actual=f"{text!r}",
            next_step="Correct it.",
        )
    return value


def model_of(asked: Asked) -> tuple[Llm, list[str]]:
    """Return the model and its assumptions. Raises RackreadyError if it is given twice, not at all, or impossible."""
    if (asked.config is None) == (not asked.params):
        said = "both" if asked.params else "neither"
        raise RackreadyError(
            "--config, --params",
            expected="exactly one of them",
            actual=said,
            next_step="Name the model by its config.json, or by its parameters and shape.",
        )
    if asked.weights and asked.weights not in get_args(Weights):
        raise RackreadyError(
            f"--weights {asked.weights}",
            expected=f"one of {', '.join(get_args(Weights))}",
            actual=asked.weights,
            next_step="Choose one of them.",
        )
    weights: Any = asked.weights or None
    return _from_config(asked.config, weights) if asked.config is not None else _from_shape(asked)


def _from_config(path: Path, weights: Weights | None) -> tuple[Llm, list[str]]:
    raw, beside = _json(path, "Give a model's config.json."), path.with_name(BESIDE)
    quantized: Any = None
    if weights is None and beside.is_file():
        step = "Correct it, or set the number format with --weights."
        quantized = _json(beside, step)
        if not isinstance(quantized, dict):
            actual = type(quantized).__name__
            raise RackreadyError(beside, expected="one JSON object", actual=actual, next_step=step)
    return read_config(raw, str(path), weights, quantized)


def _json(path: Path, step: str) -> object:
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except RecursionError as error:
        actual = "nested too deep to be read"
        raise RackreadyError(path, expected="a JSON file", actual=actual, next_step=step) from error
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise RackreadyError(path, expected="a JSON file", actual=error, next_step=step) from error


def _from_shape(asked: Asked) -> tuple[Llm, list[str]]:
    missing = [f"--{name}" for name in ("layers", "hidden", "heads") if getattr(asked, name) <= 0]
    if missing:
        raise RackreadyError(
            ", ".join(missing),
            expected="the shape with --params, because cache and activations depend on it",
            actual="not given",
            next_step="Give them, or --config.",
        )
    assumed = (
        []
        if asked.kv_heads
        else ["every head has its own keys and values (--kv-heads); a model with grouped queries caches less"]
    )
    assumed += (
        [] if asked.vocabulary else ["embeddings are spread like layers (--vocabulary); the fullest GPU may hold more"]
    )
    assumed += [] if asked.weights else ["weights are bf16 (--weights)"]
    if asked.hidden % asked.heads:
        raise RackreadyError(
            f"--hidden {asked.hidden}",
            expected=f"a multiple of --heads {asked.heads}",
            actual=asked.hidden,
            next_step="Correct one of them.",
        )
    if asked.vocabulary < 0:
        raise RackreadyError(
            f"--vocabulary {asked.vocabulary}", expected="at least 0", actual=asked.vocabulary, next_step="Correct it."
        )
    if round(amount(asked.params, "--params")) < 1:
        raise RackreadyError(
            f"--params {asked.params}",
            expected="at least 1 parameter",
            actual=asked.params,
            next_step="Give a number such as 70B.",
        )
    try:
        model = _shape(asked)
    except ValidationError as error:
        raise RackreadyError(
            f"--kv-heads {asked.kv_heads}",
            expected=f"a divisor of --heads {asked.heads}",
            actual=asked.kv_heads,
            next_step="Correct it.",
        ) from error
    outside = parameters.least(model) if asked.vocabulary else 0
    if parameters.total(model) < outside:
        raise RackreadyError(
            f"--params {asked.params}",
            expected=f"at least {outside:,}, which its embeddings have",
            actual=asked.params,
            next_step="Correct one of them.",
        )
    return model, assumed


def _shape(asked: Asked) -> Llm:
    weights: Any = asked.weights or "bf16"
    return Llm(
        name=asked.params,
        layers=asked.layers,
        hidden=asked.hidden,
        heads=asked.heads,
        kv_heads=asked.kv_heads or asked.heads,
        head_dim=asked.hidden // asked.heads,
        intermediate=0,
        vocabulary=asked.vocabulary,
        parameters=round(amount(asked.params, "--params")),
        weights=weights,
    )
