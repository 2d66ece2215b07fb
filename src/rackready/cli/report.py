"""`rackready report`: writes the report of a campaign again, from the records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from rackready.cli.output import Env, Format, Output, console, env_paths


def report(
    campaign: Annotated[str, typer.Argument(help="Campaign; the latest when left out.")] = "",
    env: Env = "sim",
    output: Output = Format.TEXT,
    raw: Annotated[str, typer.Option("--raw", help="Print the raw output of this SHA-256 instead.")] = "",
    junit: Annotated[Path | None, typer.Option("--junit", help="Also write the JUnit XML to this file; it always lies beside the HTML.")] = None,
) -> None:
    """Write the HTML, JSON and JUnit report of a campaign. Reads records only; needs no root and no connection.

    With `--output json` the report itself is printed. Exit code 1 when some node's evidence is not a pass.
    """
    from rackready.evidence.report import write_reports  # noqa: PLC0415
    from rackready.evidence.store import EvidenceStore  # noqa: PLC0415
    from rackready.ledger.store import Ledger  # noqa: PLC0415
    from rackready.model.problems import RackreadyError  # noqa: PLC0415

    paths = env_paths(env)
    ledger = Ledger.read_only(paths.database)
    known = [row["id"] for row in ledger.campaigns()]
    if raw:
        typer.echo(EvidenceStore.read_only(ledger, paths.raw).raw(raw), nl=False)
        return
    wanted = campaign or next(iter(known), "")
    if wanted not in known:
        message = f"campaign {wanted!r} - Expected: one of {', '.join(known[:10]) or 'none yet'}. `rackready status` names the latest."
        raise RackreadyError(message)
    html, json_file = write_reports(paths.root, env, wanted)
    text = json_file.read_text(encoding="utf-8")
    xml = json_file.with_name(f"{json_file.stem}.junit.xml")
    if junit is not None:
        junit.write_bytes(xml.read_bytes())
    if output is Format.JSON:
        typer.echo(text, nl=False)
    else:
        console.print(f"{html}\n{json_file}\n{junit or xml}", markup=False)
    if any(node["outcome"] not in {"pass", "skip"} for node in json.loads(text)["nodes"]):
        raise typer.Exit(1)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(report)
