"""`rackready certificate`: shows, exports and verifies certificates."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rackready.cli import certificate_file, complete
from rackready.cli.certificate_file import Export
from rackready.cli.limit import Limit
from rackready.cli.output import Env, Format, Output, Verbose, console, print_json
from rackready.model.problems import RackreadyError

app = typer.Typer(help="Show, export and verify certificates of nodes.", no_args_is_help=True)

Key = Annotated[
    Path | None,
    typer.Option("--key", help="Public key (PEM) that must have signed it. Default: the keys of the environment."),
]


def register(parent: typer.Typer) -> None:
    """Add the command group to the application."""
    parent.add_typer(app, name="certificate")


@app.callback()
def _group() -> None:
    """Show, export and verify certificates."""


@app.command()
def verify(  # noqa: PLR0913, PLR0917 - each is an option of the command
    file: Annotated[
        Path | None, typer.Argument(help="Certificate in a file, from any site. Default: those of the nodes.")
    ] = None,
    key: Key = None,
    subject: Annotated[
        Path | None,
        typer.Option("--subject", help="With FILE: fingerprint that it must be about (`certificate export`)."),
    ] = None,
    env: Env = "sim",
    limit: Limit = "",
    verbose: Verbose = False,  # noqa: FBT002 - a flag
    output: Output = Format.TEXT,
) -> None:
    """Check nodes and their list of parts, and report whether their certificates still count.

    Loads nothing. A node that fails a check is quarantined and drained. A node whose certificate no longer counts is
    drained until it is deployed again. There is no dry run: a look is what records and judges.

    With FILE, it contacts no node, and verifies the signature and the subject of that certificate.

    Exit codes: 0 all count, 1 some do not, 2 refused.
    """
    if file is not None:
        if limit:
            raise RackreadyError(
                f"certificate verify {file}",
                expected="only --key, --subject, --env and --output with a file",
                actual=f"--limit {limit}",
                next_step="Remove it.",
            )
        certificate_file.verify(file, key, subject, env, output)
        return
    if alone := [name for name, value in (("--key", key), ("--subject", subject)) if value is not None]:
        raise RackreadyError(
            "certificate verify",
            expected=f"a file with {' and '.join(alone)}",
            actual="none",
            next_step="Give the file, or remove the option.",
        )
    from rackready.cli.campaign_run import run  # noqa: PLC0415

    run("certificate verify", ("verify",), env=env, limit=limit, check=False, output=output, verbose=verbose)


@app.command()
def show(
    what: Annotated[
        str, typer.Argument(metavar="NODE|FILE", help="Node of the site, or file.", autocompletion=complete.nodes)
    ],
    key: Key = None,
    env: Env = "sim",
    output: Output = Format.TEXT,
) -> None:
    """Show a certificate: subject, gates with their bounds and sources, signer, and why it is void if it is.

    It contacts no node: the signature counts and, for a node of the site, its records. `certificate verify` checks the
    node itself.

    Exit codes: 0 it counts, 1 it is void, 2 refused.
    """
    found = certificate_file.look(what, key, env)
    scheduler = certificate_file.scheduler(what, env)
    if output is Format.JSON:
        print_json({**certificate_file.document(found), "scheduler": scheduler})
    else:
        for line in certificate_file.lines(found):
            console.print(line)
        if scheduler:
            console.print(f"  scheduler  {scheduler}, by the site file; the certificate names none")
    raise typer.Exit(1 if found.void else 0)


@app.command()
def export(
    node: Annotated[str, typer.Argument(help="Node of the site.", autocompletion=complete.nodes)],
    out: Annotated[Path, typer.Option("--out", help="File to write.")],
    kind: Annotated[
        Export,
        typer.Option(
            "--format",
            help="bundle: Sigstore bundle v0.3; envelope: DSSE; subject: the node's fingerprint, whose SHA-256 is the "
            "subject; key: public key (PEM).",
        ),
    ] = Export.BUNDLE,
    env: Env = "sim",
    output: Output = Format.TEXT,
) -> None:
    """Write a node's certificate to a file that others can verify without rackready.

    Its signature is verified first. Whether it still counts is what `certificate show` reports.
    """
    written = certificate_file.export(node, kind, out, env)
    if output is Format.JSON:
        print_json(written)
        return
    console.print(f"{written['file']}")
    if kind is Export.BUNDLE:
        console.print(f"Verify it with cosign 3: {written['verify']}")


@app.command()
def keys(env: Env = "sim", output: Output = Format.TEXT) -> None:
    """Show the keys of the environment's certificates: the one that signs, and those that still verify.

    Each is printed as the site file takes it, with the number of certificates on file that it signed.
    """
    from rackready.cli.certificate_keys import listed  # noqa: PLC0415

    rows = listed(env)
    if output is Format.JSON:
        print_json({"keys": rows})
        return
    for row in rows:
        console.print(f"{row['role']:<8} {row['id'] or row['place']}, {row['certificates']} certificates")
        if row["public"]:
            console.print(f"         {row['public']} ({row['place']})")
