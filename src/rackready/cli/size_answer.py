"""Answers of `rackready size` as plain documents, the same for JSON and text."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, get_args

from rackready.cli.size_cost import Money
from rackready.cli.size_model import amount
from rackready.design.sizing import links, parameters
from rackready.design.sizing.candidates import MOST_STEP_TOKENS, Load, Serving, Training, serve_on, servers, train_on
from rackready.design.sizing.parallel import Layout
from rackready.design.sizing.precision import KV_BYTES, computed_in, weight_bytes
from rackready.design.sizing.serving_memory import ServingJob, kv_bytes_per_token, weights_on_gpu
from rackready.design.sizing.training_memory import Optimizer, Recompute, TrainingJob
from rackready.design.sizing.training_speed import training_time
from rackready.model.llm import Llm
from rackready.model.problems import RackreadyError
from rackready.profiles import loader

GIB = 2**30
Document = dict[str, Any]


@dataclass(slots=True)
class SizeRequest:
    """The given options. Missing ones are assumed and noted."""

    raw: Document
    assumed: list[str] = field(default_factory=list)

    def of(self, name: str, default: Any, text: str, unsaid: Any = 0) -> Any:  # noqa: ANN401 - any option's value
        """Return an option's value, or its default, which is noted as assumed."""
        value = self.raw[name]
        if value not in {unsaid, ""}:
            return value
        self.assumed.append(text)
        return default

    def length(self, name: str, default: int, model: Llm) -> int:
        """Return the tokens of one sequence, at most the model's maximum. Raises RackreadyError above it."""
        most = model.context
        why = f", the maximum of {model.name}" if most is not None and most < default else ""
        default = default if most is None else min(default, most)
        value = int(self.of(name, default, f"{default:,} tokens a sequence{why} (--{name})"))
        if most is not None and value > most:
            raise RackreadyError(
                f"--{name} {value}",
                f"above the maximum of {model.name}",
                expected=f"at most {most}",
                actual=value,
                next_step="Lower it.",
            )
        return value

    def choice(self, name: str, known: tuple[str, ...], text: str) -> str:
        """Return one of the known words; the first is the default. Raises RackreadyError for any other."""
        value = str(self.of(name, known[0], text))
        if value not in known:
            raise RackreadyError(
                f"--{name.replace('_', '-')} {value}",
                expected=f"one of {', '.join(known)}",
                actual=value,
                next_step="Choose one of them.",
            )
        return value

    def share(self, name: str, default: float, text: str) -> float:
        """Return a share above 0 and up to 1. Raises RackreadyError outside."""
        value = float(self.of(name, default, text))
        if not 0 < value <= 1:
            raise RackreadyError(
                f"--{name} {value:g}", expected="above 0 and at most 1", actual=f"{value:g}", next_step="Correct it."
            )
        return value

    def reserve(self) -> float:
        """Return the bytes reserved on every GPU. Raises RackreadyError for a negative reserve."""
        text = (
            "2 GiB of every GPU for context, communication and fragmentation (--reserve-gib): a judgement; "
            "measure yours"
        )
        value = float(self.of("reserve_gib", 2.0, text, -1.0))
        if not (math.isfinite(value) and value >= 0):
            raise RackreadyError(
                f"--reserve-gib {value:g}",
                expected="at least 0, or -1 for 2",
                actual=f"{value:g}",
                next_step="Correct it.",
            )
        return value * GIB


def described(model: Llm) -> Document:
    """Return the facts of a model; bytes are of the whole model."""
    return {
        "name": model.name,
        "parameters": parameters.total(model),
        "active_parameters": parameters.active(model),
        "layers": model.layers,
        "hidden": model.hidden,
        "heads": model.heads,
        "kv_heads": model.kv_heads,
        "attention": "latent" if model.latent else "grouped" if model.kv_heads < model.heads else "full",
        "weights": model.weights,
        "bytes_per_weight": weight_bytes(model.weights, model.group),
        "weight_bytes": weights_on_gpu(model, Layout()),
        "kv_bytes_per_token": {kv: kv_bytes_per_token(model, kv) for kv in KV_BYTES},
    }


def serving_answer(model: Llm, assumed: list[str], raw: Document, on: tuple[str, ...], money: Money) -> Document:
    """Return servers that can serve the model, cheapest or smallest first, and those that cannot with their reason."""
    pairs = servers(on)
    money.check([platform.id for platform, _ in pairs])
    wanted = SizeRequest(raw, list(assumed))
    job = ServingJob(
        wanted.length("context", 8192, model),
        wanted.choice("kv", tuple(KV_BYTES), "the cache is kept in bf16 (--kv)"),
        wanted.share("utilization", 0.9, "the engine may use 90 % of GPU memory, vLLM's default (--utilization)"),
        wanted.reserve(),
    )
    sequences = int(wanted.of("sequences", 0, "as many sequences at a time as one replica holds (--sequences)"))
    load = Load(sequences, float(raw["least_rate"]))
    efficiency = wanted.share(
        "efficiency", 1.0, "speeds are upper bounds and costs lower bounds; measure, then give --efficiency"
    )
    rows = [
        _serving_row(serve_on(*pair, model, job, Layout(raw["tp"], raw["pp"]), load), model, money, efficiency)
        for pair in pairs
    ]
    wanted.assumed += money.assumed()
    return {
        "model": described(model),
        "job": {
            "context": job.context,
            "kv": job.kv,
            "utilization": job.utilization,
            "reserve_bytes": job.reserve,
            "sequences": sequences or None,
            "least_rate": load.least_rate or None,
            "efficiency": efficiency,
        },
        "currency": money.currency,
        "assumed": wanted.assumed,
        "candidates": sorted(rows, key=_order),
    }


def _order(row: Document) -> tuple[Any, ...]:
    cost = row.get("cost") or {}
    return (not row["fits"], cost.get("per_million_tokens", cost.get("run", math.inf)), row["gpus"], row["platform"])


def _place(found: Serving | Training) -> Document:
    server, layout = loader.platform(found.platform), found.layout
    count = -(-layout.gpus // server.gpus)
    notes = []
    joined = links.between(server, loader.gpu(found.gpu), layout.gpus)
    if layout.gpus > 1 and joined.rate is None:
        notes.append(
            f"the rate of the {joined.carrier} between its GPUs is not published in the profile: the interconnect is "
            "not judged and may be the tighter limit"
        )
    return {
        "platform": found.platform,
        "gpu": found.gpu,
        "tp": layout.tp,
        "pp": layout.pp,
        "dp": layout.dp,
        "ep": layout.ep,
        "gpus": layout.gpus,
        "servers": count,
        "joined_by": joined.carrier if layout.gpus > 1 else None,
        "fits": found.fits,
        "limit": found.limit,
        "notes": notes,
    }


def _serving_row(found: Serving, model: Llm, money: Money, efficiency: float) -> Document:
    row = _place(found)
    note = computed_in(loader.gpu(found.gpu), model.weights)[1]
    row["notes"] += [note] if note else []
    row["memory"] = asdict(found.memory)
    row["sequences"], row["replicas"] = found.sequences, found.replicas
    row["best_rate"] = found.best_rate
    row["smallest"] = (
        {"tp": found.smallest.tp, "pp": found.smallest.pp, "gpus": found.smallest.gpus} if found.smallest else None
    )
    if found.decode is not None and found.prefill is not None:
        row["decode"], row["prefill"] = asdict(found.decode), asdict(found.prefill)
        row["cost"] = money.tokens(found.platform, found.layout.gpus, found.decode.tokens_per_second * efficiency)
    return row


_MICRO_BATCHES = (
    f"micro-batches per step for the fastest run, at most {MOST_STEP_TOKENS:,} tokens per step, as Llama 3 "
    "405B had (--micro-batches)"
)


def _training_job(wanted: SizeRequest, model: Llm) -> TrainingJob:
    size = int(wanted.of("gradient_bytes", 4, "gradients of 4 bytes (--gradient-bytes)"))
    if size not in {2, 4}:
        raise RackreadyError(
            f"--gradient-bytes {size}", expected="2 or 4", actual=size, next_step="Choose one of them."
        )
    optimizer: Any = wanted.choice(
        "optimizer", get_args(Optimizer), "Adam with an fp32 master copy, 12 bytes per parameter (--optimizer)"
    )
    recompute: Any = wanted.choice(
        "recompute",
        ("selective", *(name for name in get_args(Recompute) if name != "selective")),
        "FlashAttention or selective recomputation (--recompute)",
    )
    return TrainingJob(
        wanted.length("sequence", 4096, model),
        int(wanted.of("micro_batch", 1, "micro-batches of 1 sequence (--micro-batch)")),
        int(wanted.of("micro_batches", 0, _MICRO_BATCHES)) or None,
        float(size),
        optimizer,
        recompute,
        reserve=wanted.reserve(),
    )


def training_answer(model: Llm, assumed: list[str], raw: Document, on: tuple[str, ...], money: Money) -> Document:
    """Return servers that can train the model, with days and cost of a run when its tokens are given."""
    pairs = servers(on)
    money.check([platform.id for platform, _ in pairs], result=bool(raw["tokens"]))
    wanted = SizeRequest(raw, list(assumed))
    job = _training_job(wanted, model)
    zero = int(wanted.of("zero", 1, "ZeRO stage 1: optimizer states spread over data-parallel ranks (--zero)", -1))
    wanted.of("gpus", 0, "one replica, no data parallelism (--gpus)")
    wanted.assumed.append(
        "tensor parallelism with sequence parallelism; 1F1B pipeline schedule; bf16 weights and arithmetic"
    )
    tokens = amount(raw["tokens"], "--tokens") if raw["tokens"] else 0.0
    mfu = wanted.share(
        "mfu", 0.4, "MFU 0.4 (--mfu): assumed, no measurement was given; 0.35 to 0.5 is commonly reported"
    )
    found = [
        train_on(*pair, model, job, Layout(raw["tp"], raw["pp"], 1, raw["ep"], zero), raw["gpus"], mfu)
        for pair in pairs
    ]
    rows = [_training_row(item, model, tokens, mfu, money) for item in found]
    wanted.assumed += money.assumed()
    return {
        "model": described(model),
        "job": {
            **asdict(job),
            "zero": zero,
            "tokens": tokens or None,
            "mfu": mfu,
            "mfu_source": raw["mfu_source"] or ("not given" if raw["mfu"] else "assumed"),
        },
        "currency": money.currency,
        "assumed": wanted.assumed,
        "candidates": sorted(rows, key=_order),
    }


def _training_row(found: Training, model: Llm, tokens: float, mfu: float, money: Money) -> Document:
    row = _place(found)
    row["zero"] = found.layout.zero
    row["memory"] = {**asdict(found.memory), "total": found.memory.total, "available": found.available}
    if found.fits:
        time = training_time(
            model, found.layout, found.job, loader.gpu(found.gpu), loader.platform(found.platform), tokens, mfu
        )
        row["limit"] = time.limit
        row["step"] = {"seconds": time.seconds, "tokens": time.step_tokens, "micro_batches": found.job.micro_batches}
        if tokens:
            row["days"], row["gpu_hours"] = time.days, time.gpu_hours
            row["cost"] = money.run(found.platform, time.gpu_hours)
    return row
