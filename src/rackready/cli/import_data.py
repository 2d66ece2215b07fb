"""`rackready import`: imports data about the site from other systems."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rackready import files
from rackready.cli import netbox
from rackready.cli.output import Env, Format, Output, console, env_paths, print_json
from rackready.design.manifest import ManifestMachine, earlier, overlay, read_manifest, secret_name
from rackready.design.names import listed
from rackready.design.overlays import RENAME, Overlay, read_overlay
from rackready.design.own_profiles import read_own
from rackready.design.site import parse_site
from rackready.design.site_inputs import FOLDER, MACHINES, overlay_files
from rackready.design.strays import added_by, without_strays
from rackready.design.yaml import dump_yaml, read_yaml
from rackready.model.problems import RackreadyError
from rackready.paths import private_dir

app = typer.Typer(help="Import a vendor's manifest or a NetBox site.", no_args_is_help=True)

_HEAD = "# Written by `rackready import manifest`; merged over site.yml. Passwords are in secrets/, not here.\n"


@app.callback()
def _group() -> None:
    """Keep `manifest` as a word while it is the only command."""


@app.command()
def manifest(
    file: Annotated[Path, typer.Argument(help="CSV with the columns serial, bmc_mac, password, rack, unit.")],
    env: Env = "sim",
    output: Output = Format.TEXT,
) -> None:
    """Import a vendor's manifest: serial numbers, MAC addresses and factory passwords of BMCs, by position in the rack.

    Writes inventories/ENV/machines.yml and the passwords below inventories/ENV/secrets. Exit codes: 0 written, 2
    refused and nothing written.
    """
    paths = env_paths(env)
    target = paths.inventory / MACHINES
    # Data of an earlier manifest is dropped: a replaced machine has another serial.
    alone = [read_overlay(path, paths.root) for path in overlay_files(paths) if path != target]
    written, own = read_yaml(paths.site_file), read_own(paths.inventory / FOLDER, paths.root)
    before_it = parse_site(written, source=str(paths.site_file), base=paths.root, overlays=alone, own=own)
    machines = read_manifest(_text(file), before_it, str(file))
    secrets = paths.inventory / "secrets"
    before = read_overlay(target, paths.root).document if target.exists() else None
    kept = earlier(before, before_it, machines)
    document = overlay(machines, kept.document, secrets.relative_to(paths.root).as_posix())
    # Check the future site before anything is written; write the passwords, and last, in one step, the file that
    # refers to them. Entries of nodes that are gone block no import: another one may replace them.
    added = added_by(one.document for one in alone)
    over = [
        Overlay(f"{MACHINES} made from {file}", without_strays(kept.site, document, added)[0])
        if path == target
        else read_overlay(path, paths.root)
        for path in overlay_files(paths, with_machines=True)
    ]
    parse_site(written, source=f"{paths.site_file} with {file}", base=paths.root, overlays=over, own=own)
    _keep(secrets, machines)
    files.replace(target, (_HEAD + dump_yaml(document)).encode(), mode=0o644)
    if output is Format.JSON:
        nodes = [machine.node for machine in machines]
        print_json({"machines": len(machines), "file": str(target), "nodes": nodes, "not_in_site": list(kept.strays)})
    else:
        console.print(f"{len(machines)} machines written to {target}; their passwords are in {secrets} (mode 0600)")
        if kept.strays:
            console.print(f"{listed(kept.strays)}: still in {target}, but not in site.yml. {RENAME}")


_RECOGNIZED = (
    (b"PK\x03\x04", "a ZIP file, such as a workbook of Excel (.xlsx) or LibreOffice (.ods)"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old workbook of Excel (.xls)"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
)
"""First bytes of files that are often given in place of a CSV file: PKWARE's APPNOTE 4.3.7, Microsoft's MS-CFB 2.2,
and the byte order marks of RFC 2781 3.2."""


def _text(file: Path) -> str:
    wanted = "a CSV file in UTF-8"
    try:
        content = file.read_bytes()
    except OSError as error:
        step = "Correct the path or the encoding."
        raise RackreadyError(file, expected=wanted, actual=error.strerror or error, next_step=step) from error
    found = next((name for start, name in _RECOGNIZED if content.startswith(start)), "not UTF-8")
    try:
        if found == "not UTF-8":
            return content.decode().replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError:
        pass
    step = "Save it from the spreadsheet as CSV UTF-8, or convert its encoding with iconv."
    raise RackreadyError(file, expected=wanted, actual=found, next_step=step)


def _keep(secrets: Path, machines: list[ManifestMachine]) -> None:
    private_dir(secrets)
    for machine in machines:
        files.replace(secrets / secret_name(machine.node), f"{machine.password}\n".encode())


def register(parent: typer.Typer) -> None:
    """Add the commands."""
    app.command("netbox")(netbox.import_netbox)
    parent.add_typer(app, name="import")
