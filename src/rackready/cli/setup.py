"""`rackready setup`: installs what Python packages do not bring, the Pulumi engine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import typer

from rackready.cli.output import Format, Output, console, print_json, progress
from rackready.model.problems import RackreadyError
from rackready.paths import STATE, project_root, shipped, state_base


def setup(output: Output = Format.TEXT) -> None:
    """Install the Pulumi engine, in the version that this rackready was made with. `make setup` does it in a checkout.

    The engine goes into tools/bin of the state folder: .rackready of the site repository, or $RACKREADY_STATE. It comes
    from the PATH, else from the official release, verified by its checksum ($RACKREADY_PULUMI_RELEASES names a mirror),
    else it is built from Go modules, each pinned by hash. A second run is instant.

    Exit codes: 0 installed, 2 none of these ways worked, and the text says why.
    """
    base = _base()
    lines = _run(base)
    program = base / "tools" / "bin" / "pulumi"
    if output is Format.JSON:
        print_json({"engine": str(program), "done": lines})
    else:
        console.print(str(program))


def _base() -> Path:
    try:
        return state_base(Path() if os.environ.get(STATE) else project_root())
    except FileNotFoundError as error:
        raise RackreadyError(error) from error


def _run(base: Path) -> list[str]:
    """Run the set-up that was shipped with this code, and return what it said. Raises RackreadyError."""
    argv = [sys.executable, str(shipped() / "scripts" / "setup"), "--only-pulumi"]
    env = os.environ | {STATE: str(base), "PYTHONDONTWRITEBYTECODE": "1"}
    lines = []
    with subprocess.Popen(
        argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as child:
        for line in child.stdout or ():
            progress.print(line.rstrip())
            lines.append(line.rstrip())
    if child.returncode:
        raise RackreadyError(
            f"Pulumi engine in {base / 'tools' / 'bin'}",
            expected="installed",
            actual=f"set-up ended with {child.returncode}; its output is above",
            next_step="Make one of these ways work, then run `rackready setup` again. Only provisioning needs it.",
        )
    return [line.removeprefix("set-up: ") for line in lines if line.startswith("set-up: ")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(setup)
