"""`rackready size`: sizes servers for a language model: memory, layout, speed bounds and cost."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rackready.cli import complete, size_cost, size_model, size_text
from rackready.cli.output import Format, Output, env_paths, print_json
from rackready.cli.size_answer import described, serving_answer, training_answer
from rackready.cli.size_cost import Money, prices
from rackready.cli.size_model import Asked, model_of
from rackready.design.own_profiles import use_own
from rackready.design.site_inputs import FOLDER
from rackready.design.sizing.cost import Virtual

app = typer.Typer(help="Size servers for a language model: memory, speed bounds, cost.", no_args_is_help=True)

On = Annotated[
    list[str],
    typer.Option("--on", help="Server or GPU profile; repeatable. Default: all.", autocompletion=complete.machines),
]
Tp = Annotated[int, typer.Option("--tp", min=0, help="Tensor parallelism; 0: choose the cheapest.")]
Pp = Annotated[int, typer.Option("--pp", min=0, help="Pipeline stages; 0: the fewest that fit.")]
Ep = Annotated[int, typer.Option("--ep", min=1, help="Expert parallelism over data-parallel ranks.")]
Reserve = Annotated[
    float,
    typer.Option(
        "--reserve-gib",
        min=-1,
        help="Memory per GPU for context and communication, GiB; -1: 2.",
    ),
]


def _use_own(env: str) -> str:
    """Use the profiles of an environment."""
    paths = env_paths(env) if env else None
    if paths is not None:
        use_own(paths.inventory / FOLDER, paths.root)
    return env


OwnOf = Annotated[
    str,
    typer.Option(
        "--env",
        help="Environment whose profiles (inventories/ENV/profiles) are used too.",
        autocompletion=complete.environments,
        callback=_use_own,
    ),
]

# Each option is a parameter of its command, so that typer documents it.


@app.command()
def model(  # noqa: PLR0913, PLR0917 - each is an option of the command
    config: size_model.Config = None,
    params: size_model.Params = "",
    layers: size_model.Layers = 0,
    hidden: size_model.Hidden = 0,
    heads: size_model.Heads = 0,
    kv_heads: size_model.KvHeads = 0,
    vocabulary: size_model.Vocabulary = 0,
    weights: size_model.WeightsOption = "",
    output: Output = Format.TEXT,
) -> None:
    """Show the parameters, weight bytes and cache bytes per token of a model."""
    found, assumed = model_of(Asked(config, params, layers, hidden, heads, kv_heads, vocabulary, weights))
    document = {"model": described(found), "assumed": assumed}
    print_json(document) if output is Format.JSON else size_text.model(document)


@app.command()
def serve(  # noqa: PLR0913, PLR0917 - each is an option of the command
    config: size_model.Config = None,
    params: size_model.Params = "",
    layers: size_model.Layers = 0,
    hidden: size_model.Hidden = 0,
    heads: size_model.Heads = 0,
    kv_heads: size_model.KvHeads = 0,
    vocabulary: size_model.Vocabulary = 0,
    weights: size_model.WeightsOption = "",
    context: Annotated[
        int,
        typer.Option(
            "--context",
            min=0,
            help="Tokens per sequence, prompt and answer; 0: 8,192 or the model's maximum.",
        ),
    ] = 0,
    sequences: Annotated[
        int,
        typer.Option(
            "--sequences",
            min=0,
            help="Concurrent sequences over all replicas; 0: as many as one replica holds.",
        ),
    ] = 0,
    least_rate: Annotated[
        float, typer.Option("--least-rate", min=0, help="Lowest rate per sequence, tokens/s; 0: any.")
    ] = 0.0,
    kv: Annotated[str, typer.Option("--kv", help="Cache number format: bf16, fp16, fp8 or int8. Default: bf16.")] = "",
    utilization: Annotated[
        float,
        typer.Option("--utilization", help="Share of GPU memory for the engine; 0: 0.9 (vLLM)."),
    ] = 0.0,
    efficiency: Annotated[
        float,
        typer.Option("--efficiency", help="Measured share of the speed bound, for costs; 0: 1."),
    ] = 0.0,
    reserve: Reserve = -1.0,
    tp: Tp = 0,
    pp: Pp = 0,
    on: On = [],  # noqa: B006 - typer reads it, nothing changes it
    price_hour: size_cost.PriceHour = [],  # noqa: B006 - as --on
    price_gpu: size_cost.PriceGpu = [],  # noqa: B006
    life: size_cost.Life = size_cost.LIFE,
    kwh: size_cost.Kwh = 0.0,
    pue: size_cost.Pue = 0.0,
    load: size_cost.Load = 1.0,
    used: size_cost.Used = 1.0,
    overhead: size_cost.Overhead = 0.0,
    virtual_used: size_cost.VirtualUsed = 0.0,
    virtual_fee: size_cost.VirtualFee = 0.0,
    currency: size_cost.Currency = "",
    _env: OwnOf = "",
    output: Output = Format.TEXT,
) -> None:
    """Size serving: layout, sequences that fit, prefill and decode bounds, cost of a million tokens."""
    asked = Asked(config, params, layers, hidden, heads, kv_heads, vocabulary, weights)
    virtual = Virtual(overhead, virtual_used, virtual_fee)
    money = Money(
        prices("--price-hour", price_hour),
        prices("--price-gpu", price_gpu),
        life,
        kwh,
        pue,
        load,
        used,
        virtual,
        currency,
    )
    document = serving_answer(
        *model_of(asked),
        {
            "context": context,
            "sequences": sequences,
            "least_rate": least_rate,
            "kv": kv,
            "utilization": utilization,
            "efficiency": efficiency,
            "reserve_gib": reserve,
            "tp": tp,
            "pp": pp,
        },
        tuple(on),
        money,
    )
    _finish(document, output, size_text.serving)


@app.command()
def train(  # noqa: PLR0913, PLR0917 - each is an option of the command
    config: size_model.Config = None,
    params: size_model.Params = "",
    layers: size_model.Layers = 0,
    hidden: size_model.Hidden = 0,
    heads: size_model.Heads = 0,
    kv_heads: size_model.KvHeads = 0,
    vocabulary: size_model.Vocabulary = 0,
    sequence: Annotated[
        int,
        typer.Option("--sequence", min=0, help="Tokens per sequence; 0: 4,096 or the model's maximum."),
    ] = 0,
    micro_batch: Annotated[int, typer.Option("--micro-batch", min=0, help="Sequences per micro-batch; 0: 1.")] = 0,
    micro_batches: Annotated[
        int,
        typer.Option("--micro-batches", min=0, help="Micro-batches per step and data-parallel rank; 0: the fastest."),
    ] = 0,
    tokens: Annotated[str, typer.Option("--tokens", help="Tokens of the run, e.g. 15T, for days and cost.")] = "",
    gpus: Annotated[
        int, typer.Option("--gpus", min=0, help="GPUs in total; tp x pp divides them into replicas. 0: one replica.")
    ] = 0,
    zero: Annotated[int, typer.Option("--zero", min=-1, max=3, help="ZeRO stage; -1: 1.")] = -1,
    optimizer: Annotated[
        str, typer.Option("--optimizer", help="adam, adam_no_master, adam8bit or sgd. Default: adam.")
    ] = "",
    recompute: Annotated[
        str, typer.Option("--recompute", help="Recompute activations: none, selective or full. Default: selective.")
    ] = "",
    gradient_bytes: Annotated[
        int, typer.Option("--gradient-bytes", min=0, max=4, help="Bytes per gradient, 2 or 4; 0: 4.")
    ] = 0,
    mfu: Annotated[
        float,
        typer.Option("--mfu", help="Model FLOPs utilization, share of the dense peak; 0: 0.4."),
    ] = 0.0,
    mfu_source: Annotated[str, typer.Option("--mfu-source", help="Source of the MFU, for the report.")] = "",
    reserve: Reserve = -1.0,
    tp: Tp = 0,
    pp: Pp = 0,
    ep: Ep = 1,
    on: On = [],  # noqa: B006 - typer reads it, nothing changes it
    price_hour: size_cost.PriceHour = [],  # noqa: B006 - as --on
    price_gpu: size_cost.PriceGpu = [],  # noqa: B006
    life: size_cost.Life = size_cost.LIFE,
    kwh: size_cost.Kwh = 0.0,
    pue: size_cost.Pue = 0.0,
    load: size_cost.Load = 1.0,
    used: size_cost.Used = 1.0,
    overhead: size_cost.Overhead = 0.0,
    virtual_used: size_cost.VirtualUsed = 0.0,
    virtual_fee: size_cost.VirtualFee = 0.0,
    currency: size_cost.Currency = "",
    _env: OwnOf = "",
    output: Output = Format.TEXT,
) -> None:
    """Size training: fastest layout that fits, memory of the fullest GPU, days and cost of a run."""
    asked = Asked(config, params, layers, hidden, heads, kv_heads, vocabulary)
    virtual = Virtual(overhead, virtual_used, virtual_fee)
    money = Money(
        prices("--price-hour", price_hour),
        prices("--price-gpu", price_gpu),
        life,
        kwh,
        pue,
        load,
        used,
        virtual,
        currency,
    )
    wanted: dict[str, Any] = {
        "sequence": sequence,
        "micro_batch": micro_batch,
        "micro_batches": micro_batches,
        "tokens": tokens,
        "gpus": gpus,
        "zero": zero,
        "optimizer": optimizer,
        "recompute": recompute,
        "gradient_bytes": gradient_bytes,
        "mfu": mfu,
        "mfu_source": mfu_source,
        "reserve_gib": reserve,
        "tp": tp,
        "pp": pp,
        "ep": ep,
    }
    _finish(training_answer(*model_of(asked), wanted, tuple(on), money), output, size_text.training)


def _finish(document: dict[str, Any], output: Format, text: Any) -> None:  # noqa: ANN401 - a function of the document
    """Print the answer. Exits with 1 when no server fits."""
    print_json(document) if output is Format.JSON else text(document)
    if not any(row["fits"] for row in document["candidates"]):
        raise typer.Exit(1)


def register(parent: typer.Typer) -> None:
    """Add the command group to the application."""
    parent.add_typer(app, name="size")
