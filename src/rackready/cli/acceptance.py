"""`rackready report acceptance`: writes the signed acceptance report of a rack."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import typer

from rackready.cli.output import Format, console, print_json, working_paths
from rackready.cli.run_log import terminal_log
from rackready.model.problems import RackreadyError

ACCEPTANCE = "acceptance"


@dataclass(frozen=True, slots=True)
class AcceptanceCall:
    """The words of a call. ``beside``: options of the report of a campaign."""

    campaign: str
    rack: str
    out: Path | None
    beside: list[str]
    pdf: bool

    def folder(self) -> Path:
        """Return the folder of the files. Raises RackreadyError when the words do not fit."""
        if self.campaign != ACCEPTANCE:
            raise RackreadyError(
                f"report {self.campaign}".rstrip(),
                expected="--rack, --out and --no-pdf only with `report acceptance`",
                actual=self.campaign or "no word after report",
                next_step="Run `rackready report acceptance --rack RACK --out DIR`.",
            )
        if self.beside:
            raise RackreadyError(
                "report acceptance",
                expected="only --rack, --out, --no-pdf, --env and --output",
                actual=", ".join(self.beside),
                next_step="Remove the other options.",
            )
        if not self.rack or self.out is None:
            absent = [name for name, given in (("--rack", self.rack), ("--out", self.out)) if not given]
            raise RackreadyError(
                "report acceptance",
                expected="--rack RACK and --out DIR",
                actual=f"no {' and no '.join(absent)}",
                next_step="Give both.",
            )
        return self.out


def accept(env: str, wanted: AcceptanceCall, output: Format, *, verbose: bool) -> None:
    """Write the report. Exits with 1 when some node of the rack has no certificate that counts."""
    from rackready.design.site import load_site  # noqa: PLC0415
    from rackready.handover.acceptance import acceptance, rack_named  # noqa: PLC0415
    from rackready.handover.acceptance_files import browser, write  # noqa: PLC0415
    from rackready.handover.keys import keys_of  # noqa: PLC0415

    folder, paths = wanted.folder(), working_paths(env)
    site = load_site(env, root=paths.root)
    rack, printer = rack_named(site, wanted.rack), browser() if wanted.pdf else None
    keys = keys_of(site, paths)
    with terminal_log(f"rackready report acceptance --rack {rack.name} --env {env}", verbose=verbose):
        document = acceptance(site, keys, rack)
        made = write(document, keys, folder, printer)
    if output is Format.JSON:
        files = {"html": made.html, "pdf": made.pdf, "bundle": made.bundle}
        print_json({**document, "signer": made.signer, "files": files})
    else:
        console.print(
            f"rack {rack.name}: {document['accepted']} of {len(document['nodes'])} nodes have a certificate that counts"
        )
        for path in filter(None, (made.html, made.pdf, made.bundle)):
            console.print(str(path))
    if document["accepted"] != len(document["nodes"]):
        raise typer.Exit(1)
