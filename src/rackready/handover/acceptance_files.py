"""The files of an acceptance report: HTML, PDF, and a Sigstore bundle that signs both."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from rackready import files
from rackready.evidence import bounds
from rackready.handover.acceptance import AcceptanceError, Document
from rackready.handover.bundle import bundle
from rackready.handover.certificate import STATEMENT_TYPE
from rackready.handover.dsse import key_id, sign
from rackready.handover.keys import Keys
from rackready.model.printable import visible

ACCEPTANCE_TYPE = "https://github.com/rackready/rackready/rack-acceptance/v1"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
"""Names of the browser that prints PDF: of Debian, Ubuntu and RHEL (EPEL), and of Google's packages."""
_SHARED = 0o644
"""The files are made to be passed on."""
_LONGEST_S = 180.0
_SCRIPT = 4096
"""Bytes at the start of a program that show whether it is a script that starts a snap."""
_OF_SNAP = (
    "This browser is a snap, which reads and writes only visible folders of a home below /home. Install another "
    "browser, such as google-chrome, or give --no-pdf."
)


@dataclass(frozen=True, slots=True)
class Accepted:
    """The files of a report, and the key that signed them."""

    html: Path
    pdf: Path | None
    bundle: Path
    signer: str


def browser() -> str:
    """Return the program that prints PDF. Raises AcceptanceError when this machine has none."""
    for name in BROWSERS:
        if found := shutil.which(name):
            return found
    raise AcceptanceError(
        "report acceptance",
        expected=f"a browser that prints PDF on the PATH: one of {', '.join(BROWSERS)}",
        actual="none",
        next_step="Install one (apt: chromium), or give --no-pdf.",
    )


def write(document: Document, keys: Keys, folder: Path, printer: str | None) -> Accepted:
    """Write HTML, PDF and the bundle over both into a folder. ``printer``: the browser; None: no PDF.

    Raises AcceptanceError and OSError. The bundle comes last: without it, the files are unsigned. An earlier report
    stays whole until all of the new one is made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{document['rack']}-acceptance"
    html, pdf, proof = (folder / f"{name}{end}" for end in (".html", ".pdf", ".bundle.json"))
    signer = keys.signer()
    page = render({**document, "signer": key_id(signer.public)}, name, pdf=printer is not None).encode()
    made = {html: page}
    if printer:
        made[pdf] = printed(printer, page)
    envelope = sign(json.dumps(statement(document, made), sort_keys=True, separators=(",", ":")).encode(), signer)
    signed = bundle(envelope, keys, str(proof))
    for path in (proof,) if printer else (proof, pdf):
        path.unlink(missing_ok=True)
    for path, data in made.items():
        files.replace(path, data, mode=_SHARED)
    files.replace(proof, (json.dumps(signed, indent=2) + "\n").encode(), mode=_SHARED)
    return Accepted(html, pdf if printer else None, proof, key_id(signer.public))


def statement(document: Document, made: dict[Path, bytes]) -> dict[str, Any]:
    """Return the in-toto statement over the files: its subjects are their digests."""
    about = {key: document[key] for key in ("site", "env", "rack", "gate_set", "rackready", "accepted")}
    nodes = [
        {"name": node["name"], "state": node["state"], "counts": node["counts"]}
        | {"certificate_sha256": node["certificate"]["sha256"]}
        for node in document["nodes"]
    ]
    return {
        "_type": STATEMENT_TYPE,
        "subject": [
            {"name": path.name, "digest": {"sha256": hashlib.sha256(data).hexdigest()}} for path, data in made.items()
        ],
        "predicateType": ACCEPTANCE_TYPE,
        "predicate": {**about, "nodes": nodes, "issued": document["generated"]},
    }


def render(document: Document, name: str, *, pdf: bool) -> str:
    """Return the report as one HTML page. Every value is escaped; no URL is loaded."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("rackready.handover", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    environment.filters["figure"] = bounds.figure
    template = environment.get_template("acceptance.html.j2")
    return template.render(
        report=document, words=bounds.WORDS, label=bounds.label, name=name, kind=ACCEPTANCE_TYPE, pdf=pdf
    )


def printed(program: str, page: bytes) -> bytes:
    """Return a page as PDF. Raises AcceptanceError when the browser does not print it."""
    snap = is_snap(program)
    with tempfile.TemporaryDirectory(prefix="rackready-", dir=Path.home() if snap else None) as folder:
        source, target = Path(folder, "page.html"), Path(folder, "page.pdf")
        source.write_bytes(page)
        call = [program, "--headless", "--disable-gpu", "--no-pdf-header-footer", f"--user-data-dir={folder}/profile"]
        call += ["--no-sandbox"] if os.geteuid() == 0 else []  # as root, Chromium refuses to start with it
        try:
            done = subprocess.run(
                [*call, f"--print-to-pdf={target}", source.as_uri()],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_LONGEST_S,
                check=False,
                stdin=subprocess.DEVNULL,
            )
            if target.exists() and target.read_bytes().startswith(b"%PDF-"):
                return target.read_bytes()
            why = f"exit code {done.returncode}: {' '.join(done.stderr.split())[-300:] or 'no output'}"
        except subprocess.TimeoutExpired:
            why = f"no end after {_LONGEST_S:g} s"
        except OSError as error:
            why = str(error.strerror)
    step = _OF_SNAP if snap else "Run it by hand, or give --no-pdf."
    raise AcceptanceError(program, "printing the report", expected="a PDF", actual=why, next_step=step)


def is_snap(program: str) -> bool:
    """Return whether a browser is a snap: a link to the program snap, or the script that Ubuntu's package has for it.

    A snap has a /tmp of its own, and of the user's files reads and writes only those whose path below $HOME has no
    hidden part (snapcraft.io/docs/home-interface; Launchpad 1849437; marp-team/marp-cli pull request 203).
    """
    path = Path(program)
    if path.resolve().name == "snap" or path.is_relative_to("/snap"):
        return True
    try:
        with path.open("rb") as file:
            start = file.read(_SCRIPT)
    except OSError:
        return False  # starting it says why
    return start.startswith(b"#!") and b"/snap/bin/" in start
