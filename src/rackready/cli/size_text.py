"""Answers of `rackready size` as text: question, assumptions, one table."""

from __future__ import annotations

from typing import Any

from rackready.cli.output import console, print_table

Document = dict[str, Any]
_GIB = 2**30


def gib(size: float) -> str:
    """Return bytes as GiB with one decimal."""
    return f"{size / _GIB:,.1f} GiB"


def model(document: Document) -> None:
    """Print the facts of a model."""
    _head(document["model"])
    _assumed(document)


def _head(found: Document) -> None:
    active = (
        ""
        if found["active_parameters"] == found["parameters"]
        else f", {found['active_parameters'] / 1e9:,.2f} billion of them for one token"
    )
    console.print(f"{found['name']}: {found['parameters'] / 1e9:,.2f} billion parameters{active}")
    heads = f"{found['heads']} heads, {found['kv_heads']} for keys and values"
    console.print(f"  {found['layers']} layers, hidden size {found['hidden']}, {heads}, {found['attention']} attention")
    console.print(
        f"  weights {gib(found['weight_bytes'])} in {found['weights']}; "
        f"cache {found['kv_bytes_per_token']['bf16']:,.0f} bytes a token in bf16"
    )


def _assumed(document: Document) -> None:
    if document["assumed"]:
        console.print("Assumed:")
        for text in document["assumed"]:
            console.print(f"  - {text}")


def _notes(document: Document) -> None:
    for row in document["candidates"]:
        for note in row["notes"]:
            console.print(f"  {row['platform']}: {note}")


def _layout(row: Document) -> str:
    servers = f" in {row['servers']} servers" if row["servers"] > 1 else ""
    experts = f" ep {row['ep']}" if row["ep"] > 1 else ""
    several = f", {row['replicas']} of them" if row.get("replicas", 1) > 1 else ""
    batches = f", {count} micro-batches" if (count := row.get("step", {}).get("micro_batches")) else ""
    return (
        f"tp {row['tp']} pp {row['pp']} dp {row['dp']}{experts}: {row['gpus']} "
        f"GPU{'s' if row['gpus'] > 1 else ''}{servers}{several}{batches}"
    )


def serving(document: Document) -> None:
    """Print servers that can serve, with bounds, and those that cannot."""
    job, money = document["job"], document["currency"]
    _head(document["model"])
    console.print(
        f"Serving {job['context']:,} tokens a sequence, cache in {job['kv']}. Speeds are bounds of one replica."
    )
    _assumed(document)
    priced = any(row.get("cost") for row in document["candidates"])
    headers = [
        "server",
        "GPU",
        "one replica",
        "weights a GPU",
        "sequences",
        "decode tokens/s",
        "each",
        "prefill tokens/s",
        "bound by",
    ]
    rows = [
        [*_serving_cells(row, job["least_rate"]), *_cost_cells(priced, row, "per_million_tokens")]
        for row in document["candidates"]
    ]
    print_table([*headers, *_cost_columns(priced, money)], rows, words={"one replica", "bound by"})
    _notes(document)


def _serving_cells(row: Document, least_rate: float | None) -> list[str]:
    start = [row["platform"], row["gpu"], _layout(row), gib(row["memory"]["weights"])]
    if row["best_rate"] is not None:
        return [
            *start,
            "too slow",
            "",
            "",
            "",
            f"rate: {row['best_rate']:,.1f} tokens/s at most, {least_rate or 0.0:,.1f} wanted",
        ]
    if not row["fits"]:
        free = row["memory"]["usable"] - row["memory"]["weights"] - row["memory"]["reserve"]
        return [
            *start,
            "does not fit",
            "",
            "",
            "",
            f"memory: {gib(max(free, 0.0))} left for the cache" if free > 0 else f"memory: {gib(-free)} short",
        ]
    decode, prefill = row["decode"], row["prefill"]
    speeds = [
        f"{decode['tokens_per_second']:,.0f}",
        f"{decode['per_sequence']:,.1f}",
        f"{prefill['tokens_per_second']:,.0f}",
    ]
    return [*start, f"{row['sequences']:,}", *speeds, _bound_by(decode, prefill)]


def _bound_by(decode: Document, prefill: Document) -> str:
    """Return the judged limits of decode and prefill, and the limits that could not be judged."""
    unclear = dict.fromkeys([*decode["not_judged"], *prefill["not_judged"]])
    named = f"{decode['limit']}, {prefill['limit']}"
    return f"{named}; not judged: {', '.join(unclear)}" if unclear else named


def _cost_columns(priced: bool, money: str) -> list[str]:  # noqa: FBT001 - whether there is such a column
    return [f"cost of a million tokens{f', {money}' if money else ''}"] if priced else []


def _cost_cells(priced: bool, row: Document, name: str) -> list[str]:  # noqa: FBT001 - whether there is such a column
    if not priced:
        return []
    cost = row.get("cost")
    if not cost:
        return [""]
    virtual = cost.get(f"{name}_virtual")
    return [f"{cost[name]:,.2f}" + (f" (virtual {virtual:,.2f})" if virtual is not None else "")]


def training(document: Document) -> None:
    """Print servers that can train, with memory, days and cost, and those that cannot."""
    job, money = document["job"], document["currency"]
    _head(document["model"])
    states = f"{job['optimizer']}, ZeRO {job['zero']}"
    console.print(
        f"Training with {states}, {job['sequence']:,} tokens a sequence, micro-batch {job['micro_batch']}, "
        f"recomputation {job['recompute']}."
    )
    if job["tokens"]:
        console.print(f"A run of {job['tokens']:,.0f} tokens at MFU {job['mfu']:g} (source: {job['mfu_source']}).")
    _assumed(document)
    priced = any(row.get("cost") for row in document["candidates"])
    days = ["days", "GPU hours"] if job["tokens"] else []
    cost = [f"cost of the run{f', {money}' if money else ''}"] if priced else []
    headers = [
        "server",
        "GPU",
        "layout",
        "fullest GPU",
        "weights",
        "gradients",
        "optimizer",
        "activations",
        "bound by",
        *days,
        *cost,
    ]
    rows = [
        [*_training_cells(row), *_days(row, bool(days)), *_cost_cells(priced, row, "run")]
        for row in document["candidates"]
    ]
    print_table(headers, rows, words={"layout", "bound by"})
    _notes(document)


def _training_cells(row: Document) -> list[str]:
    memory = row["memory"]
    full = f"{gib(memory['total'])} of {gib(memory['available'])}"
    parts = [gib(memory[name]) for name in ("weights", "gradients", "optimizer")]
    kept = gib(memory["activations"] + memory["recomputing"] + memory["logits"])
    limit = row["limit"] if row["fits"] else f"memory: {gib(memory['total'] - memory['available'])} short"
    return [row["platform"], row["gpu"], _layout(row), full, *parts, kept, limit]


def _days(row: Document, wanted: bool) -> list[str]:  # noqa: FBT001 - whether there are such columns
    if not wanted:
        return []
    return [f"{row['days']:,.1f}", f"{row['gpu_hours']:,.0f}"] if "days" in row else ["", ""]
