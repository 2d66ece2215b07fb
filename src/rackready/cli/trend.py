"""`rackready trend`: figures of gates over time, and which got worse."""

from __future__ import annotations

import csv
import sys
import time
from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from rackready.cli import complete
from rackready.cli.output import Env, console, print_json, print_table, working_paths
from rackready.cli.streams import tolerant
from rackready.model.near import CORRECT, among, hosts_among
from rackready.model.problems import RackreadyError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rackready.gates.trend.judged import TrendRow

_SHOWN = 400
"""Rows of a table at most: beyond them, a reader wants a file."""


class TrendFormat(StrEnum):
    """Output format of a trend."""

    TEXT = "text"
    JSON = "json"
    CSV = "csv"


def trend(
    env: Env = "sim",
    node: Annotated[str, typer.Option("--node", help="Only this node.", autocompletion=complete.nodes)] = "",
    gate: Annotated[str, typer.Option("--gate", help="Only this gate.", autocompletion=complete.gates)] = "",
    days: Annotated[int, typer.Option("--days", min=1, max=3650, help="Days of evidence to read.")] = 180,
    output: Annotated[
        TrendFormat, typer.Option("--output", help="text, json (one document), or csv (a line for each reading).")
    ] = TrendFormat.TEXT,
) -> None:
    """Show how the figures of gates change over time: each against its own past, and against identical units.

    A change of driver, firmware, kernel, tool, parameters or part begins a new past. The table shows what is not
    steady; with --node or --gate it shows everything.

    Exit codes: 0 no regression, 1 some figure regressed, 2 refused.
    """
    from rackready.design.site import load_site  # noqa: PLC0415 - `--help` loads no database
    from rackready.evidence.store import EvidenceStore  # noqa: PLC0415
    from rackready.gates.engine.registry import all_gates  # noqa: PLC0415
    from rackready.gates.trend import site_trend  # noqa: PLC0415
    from rackready.gates.trend.judged import TrendOutcome  # noqa: PLC0415
    from rackready.ledger.store import Ledger  # noqa: PLC0415

    paths = working_paths(env)
    site = load_site(env, root=paths.root)
    _require("--node", node, [item.name for item in site.nodes()])
    _require("--gate", gate, list(all_gates()))
    rows: list[TrendRow] = []
    if Ledger.exists(paths.database):
        with Ledger.read_only(paths.database) as ledger:
            store = EvidenceStore.read_only(ledger, paths.raw)
            rows = site_trend.trend(site, store, site_trend.TrendScope(days, node, gate), time.time())
    if output is TrendFormat.JSON:
        print_json({"days": days, "figures": [site_trend.document(row, readings=bool(node or gate)) for row in rows]})
    elif output is TrendFormat.CSV:
        with tolerant(sys.stdout):
            csv.writer(sys.stdout, lineterminator="\n").writerows(site_trend.lines(rows))
    else:
        _show(rows, whole=bool(node or gate))
    raise typer.Exit(int(any(row.outcome is TrendOutcome.REGRESSION for row in rows)))


def _require(option: str, value: str, known: Sequence[str]) -> None:
    if value and value not in known:
        raise RackreadyError(
            f"{option} {value}",
            expected=f"one of {(hosts_among if option == '--node' else among)(known, value)}",
            actual="no such " + option.removeprefix("--"),
            next_step=CORRECT if option == "--node" else "Correct it: `rackready gate list` shows the ids.",
        )


def _show(rows: Sequence[TrendRow], *, whole: bool) -> None:
    """Print the rows that a reader should see, steps of the version set, and how many there are of each outcome."""
    from rackready.gates.trend.judged import TrendOutcome  # noqa: PLC0415

    quiet = {TrendOutcome.STEADY, TrendOutcome.FEW, TrendOutcome.NOT_JUDGED}
    shown = [row for row in rows if whole or row.outcome not in quiet]
    headers = ("target", "gate", "metric", "now", "past", "change", "readings", "outcome", "fleet")
    if shown:
        print_table(headers, [_cells(row) for row in shown[:_SHOWN]])
    if len(shown) > _SHOWN:
        console.print(f"and {len(shown) - _SHOWN} more: use --node, --gate or --output csv")
    for words, number in _steps(rows).items():
        console.print(f"new past of {number} figures: {words}")
    counts = Counter(row.outcome.value for row in rows)
    console.print(", ".join(f"{number} {outcome}" for outcome, number in counts.items()) or "no figure on record")


def _cells(row: TrendRow) -> tuple[str, ...]:
    centre = row.past.centre
    change = f"{(row.now / centre - 1) * 100:+.1f} %" if centre else ""
    return (
        row.key.target,
        row.key.gate,
        row.key.metric,
        f"{row.now:.4g} {row.key.unit}",
        f"{centre:.4g}" if centre is not None else "",
        change,
        str(len(row.readings)),
        row.outcome.value if not row.past.why else row.past.why,
        str(row.fleet),
    )


def _steps(rows: Sequence[TrendRow]) -> Counter[str]:
    """Return the changes that began present pasts, with the number of figures, and their change where all agree."""
    from rackready.gates.trend.site_trend import text  # noqa: PLC0415

    return Counter(f"{text(row.step.at)[:10]} {row.step.what}{_moved(row)}" for row in rows if row.step is not None)


def _moved(row: TrendRow) -> str:
    step = row.step
    if step is None or not step.before:
        return ""
    return f" ({row.key.metric} {(step.after / step.before - 1) * 100:+.1f} %)"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(trend)
