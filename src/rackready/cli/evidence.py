"""`rackready evidence`: takes in outputs that were captured where rackready does not reach."""

from __future__ import annotations

import getpass
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from rackready.cli.output import Env, Format, Output, console, env_paths, print_json
from rackready.model.outcome import Outcome

app = typer.Typer(help="Evidence: import outputs that were captured elsewhere.", no_args_is_help=True)
_PASSED = frozenset({Outcome.PASS, Outcome.SKIP})


def register(parent: typer.Typer) -> None:
    """Add the command group to the application."""
    parent.add_typer(app, name="evidence")


@app.command("import")
def import_evidence(
    source: Annotated[Path, typer.Argument(help="Folder with manifest.json, that file, or a tar archive of the folder.")],
    env: Env = "sim",
    by: Annotated[str, typer.Option("--by", help="Who imports it; the user of this machine when left out.")] = "",
    output: Output = Format.TEXT,
) -> None:
    """Judge outputs that were captured elsewhere, and record them as imported. Exit codes: 0 pass, 1 fail, 2 error or refused.

    What they cannot prove (which host, which boot) is said, and satisfies no gate that demands it.
    """
    from rackready.design.site import load_site  # noqa: PLC0415
    from rackready.evidence.store import EvidenceStore  # noqa: PLC0415
    from rackready.gates.captured import read  # noqa: PLC0415
    from rackready.gates.imported import Import, check_by  # noqa: PLC0415
    from rackready.ledger.lock import ControllerLock  # noqa: PLC0415
    from rackready.ledger.store import Ledger  # noqa: PLC0415

    paths = env_paths(env)
    who = check_by(by or getpass.getuser())
    site = load_site(env, root=paths.root)
    capture = read(source)
    campaign = f"import-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    with ControllerLock(paths.lock, f"rackready evidence import {source} --env {env}"):
        ledger = Ledger.open(paths.database)
        try:
            found = Import(site, EvidenceStore.open(ledger, paths.raw), ledger, capture, campaign, who, datetime.now(UTC)).run()
        finally:
            ledger.close()
    rows = [
        {
            "node": item.node,
            "gate": item.gate,
            "outcome": item.verdict.outcome.value,
            "findings": [str(finding) for finding in item.verdict.findings],
            "lacks": list(item.lacks),
        }
        for item in found
    ]
    if output is Format.JSON:
        print_json({"campaign": campaign, "by": who, "captured_by": capture.manifest.by, "imported": rows})
    else:
        for row in rows:
            console.print(f"{row['node']} {row['gate']}: {row['outcome']}", markup=False)
            for text in (*row["findings"], *row["lacks"]):
                console.print(f"  {text}", markup=False)
    outcomes = {item.verdict.outcome for item in found}
    raise typer.Exit(0 if outcomes <= _PASSED else 1 if Outcome.FAIL in outcomes else 2)
