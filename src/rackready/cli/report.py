"""`rackready report`: writes the report of a campaign from its records."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from rackready.cli.acceptance import ACCEPTANCE, AcceptanceCall, accept
from rackready.cli.output import Env, Format, Output, Verbose, console, print_json, working_paths
from rackready.cli.run_log import terminal_log
from rackready.model.problems import RackreadyError
from rackready.paths import EnvPaths


def report(  # noqa: PLR0913, PLR0917 - each is an option of the command
    campaign: Annotated[
        str,
        typer.Argument(
            metavar="[CAMPAIGN|acceptance]",
            help="Campaign id. Default: the latest. acceptance: the signed report of a rack for its new owner.",
        ),
    ] = "",
    env: Env = "sim",
    output: Output = Format.TEXT,
    raw: Annotated[str, typer.Option("--raw", help="Print the stored raw output with this SHA-256 instead.")] = "",
    junit: Annotated[
        Path | None,
        typer.Option("--junit", help="Also write the JUnit XML to this file."),
    ] = None,
    again: Annotated[  # noqa: FBT002 - a flag
        bool,
        typer.Option("--again", help="Judge the stored outputs again with today's gates; records do not change."),
    ] = False,
    rack: Annotated[str, typer.Option("--rack", help="With acceptance: the rack.")] = "",
    out: Annotated[Path | None, typer.Option("--out", help="With acceptance: folder of the files.")] = None,
    no_pdf: Annotated[bool, typer.Option("--no-pdf", help="With acceptance: HTML alone.")] = False,  # noqa: FBT002
    verbose: Verbose = False,  # noqa: FBT002 - as above
) -> None:
    """Write the HTML, JSON and JUnit report of a campaign.

    Reads records only; needs no root and no connection. With --output json, prints the report, one node per line. A
    pass that no longer counts (docs/howto/evidence.md) and a required gate without a record are shown as not run.

    `report acceptance` writes what was delivered, measured and left out in a rack, as HTML and PDF, with a signature
    over both. PDF needs Chromium.

    Exit codes: 0 all pass, 1 gates or coverage of some node did not pass or no longer count, a node is set aside, or
    the campaign has not ended, 2 refused.
    """
    if campaign == ACCEPTANCE or rack or out is not None or no_pdf:
        others = {"--raw": bool(raw), "--junit": junit is not None, "--again": again}
        options = AcceptanceCall(campaign, rack, out, [name for name, given in others.items() if given], pdf=not no_pdf)
        accept(env, options, output, verbose=verbose)
        return
    from rackready.evidence.report import write_reports  # noqa: PLC0415
    from rackready.gates.records.rejudge import Rejudge  # noqa: PLC0415
    from rackready.handover.counted import Counted  # noqa: PLC0415
    from rackready.ledger.store import Ledger  # noqa: PLC0415

    paths = working_paths(env)
    if raw:
        beside = [campaign, f"--junit {junit}" if junit else "", "--again" if again else ""]
        _print_raw(paths, raw, [word for word in beside if word], output)
        return
    known = [row["id"] for row in Ledger.read_only(paths.database).campaign_heads()]
    wanted = campaign or next(iter(known), "")
    if not known:
        raise RackreadyError(
            f"report --env {env}",
            expected="a campaign on record",
            actual="none yet",
            next_step="Run `rackready deploy`, then report again.",
        )
    if wanted not in known:
        raise RackreadyError(
            f"campaign {wanted}",
            expected=f"one of {', '.join(known[:10])}",
            actual="none of them",
            next_step="Omit it for the latest.",
        )
    with terminal_log(f"rackready report {wanted} --env {env}", verbose=verbose):
        judging = Rejudge() if again else None
        written = write_reports(paths.root, env, wanted, judging=judging, counting=Counted())
    if junit is not None:
        _copy(written.junit, junit)
    if output is Format.JSON:
        with written.json.open(encoding="utf-8") as file:
            shutil.copyfileobj(file, sys.stdout)
    else:
        console.print(f"{written.html}\n{written.json}\n{junit or written.junit}")
    if not written.good:
        raise typer.Exit(1)


def _print_raw(paths: EnvPaths, digest: str, beside: list[str], output: Format) -> None:
    """Print one stored output. Raises RackreadyError for options that do not apply, and when it is gone or damaged."""
    from rackready.evidence.store import EvidenceStore  # noqa: PLC0415
    from rackready.ledger.store import Ledger  # noqa: PLC0415

    if beside:
        raise RackreadyError(
            f"--raw {digest}",
            expected="only --env and --output with it",
            actual=", ".join(beside),
            next_step="Remove the other options.",
        )
    text = EvidenceStore.read_only(Ledger.read_only(paths.database), paths.raw).raw(digest)
    if output is Format.JSON:
        print_json({"raw": digest, "text": text})
    else:
        typer.echo(text, nl=False)


def _copy(source: Path, target: Path) -> None:
    """Copy the JUnit XML. Raises RackreadyError when the target cannot be written."""
    try:
        shutil.copyfile(source, target)
    except OSError as error:
        same = isinstance(error, shutil.SameFileError)
        what = (
            "the report's own"
            if same
            else "a named pipe"
            if isinstance(error, shutil.SpecialFileError)
            else error.strerror
        )
        step = "Omit --junit" if same else f"Name another, or take {source}"
        raise RackreadyError(
            f"--junit {target}",
            expected="another writable file",
            actual=what,
            next_step=f"{step}: the report itself is written.",
        ) from error


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(report)
