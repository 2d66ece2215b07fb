"""`rackready gate`: lists, explains and runs gates, and judges outputs captured elsewhere."""

from __future__ import annotations

from typing import Any

import typer

from rackready.cli import gate_evaluate, gate_run, gate_show
from rackready.cli.gate_show import inputs_of
from rackready.cli.output import Env, Format, Output, print_json, print_table, progress

app = typer.Typer(
    help="List, explain and run gates; judge outputs captured elsewhere.",
    no_args_is_help=True,
)


def register(parent: typer.Typer) -> None:
    """Add the command group to the application."""
    parent.add_typer(app, name="gate")


@app.command("list")
def list_gates(ctx: typer.Context, env: Env = "sim", output: Output = Format.TEXT) -> None:
    """List every gate with its gate sets, and whether the site's set has it."""
    from rackready.gates.engine.registry import all_gates  # noqa: PLC0415
    from rackready.profiles.loader import gate_set, known  # noqa: PLC0415

    wanted = inputs_of(ctx, env)
    if not wanted:
        progress.print(f"{env} has no site file: its gate set is unknown")
    sets = {name: {entry.id for entry in gate_set(name).gates} for name in known("gate_sets")}
    rows: list[dict[str, Any]] = [
        {
            "id": gate_id,
            "title": kind.title(),
            "covers": sorted(kind.covers),
            "in_set": gate_id in wanted,
            "sets": [name for name, ids in sets.items() if gate_id in ids],
        }
        for gate_id, kind in all_gates().items()
    ]
    if output is Format.JSON:
        print_json({"gates": rows})
        return
    _print(rows, env)


def _print(rows: list[dict[str, Any]], env: str) -> None:
    """Print the gates as a table. Ids stay whole: people type them."""
    headers = ("gate", "a pass means", "measures", "sets", f"in {env}'s set")
    lines = [
        (row["id"], row["title"], ", ".join(row["covers"]), ", ".join(row["sets"]), "yes" if row["in_set"] else "")
        for row in rows
    ]
    print_table(headers, lines, words=set(headers[1:4]))


app.command("show")(gate_show.show)
app.command("explain")(gate_show.explain)
app.command("run")(gate_run.run)
app.command("evaluate")(gate_evaluate.evaluate)
