"""`rackready evidence`: imports outputs captured elsewhere, and exports the kit that captures them."""

from __future__ import annotations

import getpass
import secrets
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from rackready.cli import complete, evidence_aside
from rackready.cli.limit import named
from rackready.cli.output import Env, Format, Output, Verbose, console, print_json, working_paths
from rackready.cli.run_log import run_log
from rackready.model.outcome import CONTINUES, Outcome

app = typer.Typer(
    help="Import outputs captured elsewhere; list damaged evidence.",
    no_args_is_help=True,
)
app.command("set-aside")(evidence_aside.show)


def register(parent: typer.Typer) -> None:
    """Add the command group to the application."""
    parent.add_typer(app, name="evidence")


@app.command("import")
def import_evidence(
    source: Annotated[Path, typer.Argument(help="Folder with manifest.json, that file, or a tar archive.")],
    env: Env = "sim",
    by: Annotated[str, typer.Option("--by", help="Person who imports. Default: the user of this machine.")] = "",
    address: Annotated[
        list[str] | None,
        typer.Option(
            "--address",
            help="NODE:HCA=ADDRESS: IPv4 address of a compute NIC at capture. Default: the site's.",
        ),
    ] = None,
    verbose: Verbose = False,  # noqa: FBT002 - a flag
    output: Output = Format.TEXT,
) -> None:
    """Judge outputs captured elsewhere, and record them as imported.

    Facts that the outputs cannot prove, e.g. host and boot, are reported; they satisfy no gate that needs them.

    Exit codes: 0 pass, 1 fail, 2 error or refused.
    """
    from rackready.design.site import load_site  # noqa: PLC0415
    from rackready.evidence.store import EvidenceStore  # noqa: PLC0415
    from rackready.gates.engine.site_check import require_gates  # noqa: PLC0415
    from rackready.gates.records.captured import read  # noqa: PLC0415
    from rackready.gates.records.imported import Import, check_by  # noqa: PLC0415
    from rackready.ledger.lock import ControllerLock  # noqa: PLC0415
    from rackready.ledger.store import Ledger  # noqa: PLC0415

    paths = working_paths(env)
    who = check_by(by or _user())
    site = load_site(env, root=paths.root)
    require_gates(site, str(paths.site_file))
    capture = read(source)
    campaign = f"import-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{secrets.token_hex(3)}"
    command = f"rackready evidence import {source} --env {env}"
    with (
        ControllerLock(paths.lock, command, paths.database),
        run_log(paths, campaign, command, verbose=verbose),
        Ledger.open(paths.database) as ledger,
    ):
        found = Import(
            site,
            EvidenceStore.open(ledger, paths.raw),
            ledger,
            capture,
            campaign,
            who,
            datetime.now(UTC),
            env,
            tuple(address or ()),
        ).run()
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
            console.print(f"{row['node']} {row['gate']}: {row['outcome']}")
            for text in (*row["findings"], *row["lacks"]):
                console.print(f"  {text}")
    outcomes = {item.verdict.outcome for item in found}
    raise typer.Exit(0 if outcomes <= CONTINUES else 1 if Outcome.FAIL in outcomes else 2)


def _user() -> str:
    """Return the user of this machine. Raises RackreadyError when it has no name, as in some containers."""
    from rackready.model.problems import RackreadyError  # noqa: PLC0415

    try:
        return getpass.getuser()
    except (KeyError, OSError) as error:
        raise RackreadyError(
            "--by",
            expected="a name",
            actual="none, and the user of this machine has no name",
            next_step="Give --by NAME.",
        ) from error


@app.command("export-kit")
def export_kit(
    out: Annotated[Path, typer.Option("--out", help="Output folder; each node gets a folder in it.")],
    node: Annotated[
        list[str],
        typer.Option(
            "--node",
            help="Nodes of the site: names or host lists, comma-separated; repeatable.",
            autocompletion=complete.node_list,
        ),
    ],
    env: Env = "sim",
    gate_set: Annotated[
        str, typer.Option("--set", help="Gate set. Default: the site's.", autocompletion=complete.gate_sets)
    ] = "",
    output: Output = Format.TEXT,
) -> None:
    """Write a kit that captures gate outputs on a host that rackready cannot reach.

    Copy the folder to the host, run collect.py there, and import the archive with `rackready evidence import`.
    """
    from rackready.design.site import load_site  # noqa: PLC0415
    from rackready.gates.engine.site_check import require_gates  # noqa: PLC0415
    from rackready.gates.records.capture_kit import write_kit  # noqa: PLC0415
    from rackready.profiles import loader  # noqa: PLC0415

    paths = working_paths(env)
    site = load_site(env, root=paths.root)
    require_gates(site, str(paths.site_file))
    known = [item.name for item in site.nodes()]
    names = named(node, known, "--node")
    entries = loader.set_of(site.gates, gate_set).gates if gate_set else loader.gates_of(site.gates)
    kits = [write_kit(site, name, entries, out) for name in names]
    if output is Format.JSON:
        print_json(
            {"kits": [{"folder": str(kit.folder), "gates": list(kit.gates), "left_out": kit.left_out} for kit in kits]}
        )
        return
    for kit in kits:
        console.print(
            f"{kit.folder}: {len(kit.gates)} gates. There: python3 collect.py --by NAME; "
            "here: rackready evidence import ARCHIVE"
        )
        for name, why in kit.left_out.items():
            console.print(f"  not included: {name}: {why}")
