"""The workers in `rackready status`: who they are, what they have, when they were last heard of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rackready.cli.output import console, print_table
from rackready.design.names import listed

if TYPE_CHECKING:
    from rackready.ledger.store import Ledger
    from rackready.model.database import WorkerUse


def workers_of(ledger: Ledger, use: WorkerUse | None) -> dict[str, Any]:
    """Return the workers and the batches that nobody has, as JSON types; empty where no workers are used."""
    if use is None:
        return {}
    from rackready.ledger.work import open_batches  # noqa: PLC0415 - only where there is a server
    from rackready.ledger.work_workers import known_workers  # noqa: PLC0415 - the same

    batches = open_batches(ledger)
    at_work = {row.worker: _batch(row) for row in batches if row.worker is not None}
    rows = [
        {
            "name": row.name,
            "host": row.host,
            "pid": row.pid,
            "labels": row.labels,
            "version": row.version,
            "state": "stopped" if row.ended else "alive" if row.alive(use.lease_s) else "silent",
            "silent_s": round(row.silent_s, 1),
            "refuses": row.refuses,
            "batch": at_work.get(row.name),
        }
        for row in known_workers(ledger)
    ]
    return {"workers": rows, "waiting": [_batch(row) for row in batches if row.worker is None]}


def _batch(row: Any) -> dict[str, Any]:  # noqa: ANN401 - a row
    return {
        "campaign": row.campaign,
        "phase": row.phase,
        "nodes": list(row.nodes),
        "labels": dict(row.labels),
        "attempt": row.attempt + 1,
        "token": row.token,
    }


def print_workers(found: dict[str, Any]) -> None:
    """Print them as people read them."""
    if not found:
        return
    headers = ("worker", "host", "labels", "state", "heard of", "batch")
    print_table(headers, [_row(item) for item in found["workers"]], title="workers")
    for item in found["workers"]:
        if item["refuses"]:
            console.print(f"{item['name']} refuses: {item['refuses']}", style="yellow")
    for batch in found["waiting"]:
        labels = ", ".join(f"{key}={value}" for key, value in batch["labels"].items())
        console.print(f"waits for a worker{f' with {labels}' if labels else ''}: {_words(batch)}", style="yellow")


def _row(item: dict[str, Any]) -> tuple[str, ...]:
    labels = " ".join(f"{key}={value}" for key, value in item["labels"].items())
    batch = _words(item["batch"]) if item["batch"] else ""
    return (item["name"], item["host"], labels, item["state"], f"{item['silent_s']:.0f} s ago", batch)


def _words(batch: dict[str, Any]) -> str:
    return f"{batch['phase']} of {listed(batch['nodes'])}"
