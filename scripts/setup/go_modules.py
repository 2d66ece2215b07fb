"""Builds programs from Go modules that a folder's go.sum pins by checksum."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from console import ROOT, SetupError, retried, run

_OLDEST_GO = (1, 21)
HELP = "A Go module proxy must be reachable (`go env GOPROXY`); then run this again."
_INSTALL = "Install Go 1.25 or newer, with a module proxy that it can reach."


def check_go() -> None:
    """From 1.21 on, Go fetches the toolchain that a module asks for; older versions fail with an unhelpful message."""
    if shutil.which("go") is None:
        raise SetupError("there is no Go toolchain on the PATH", _INSTALL)
    text = go("version", cwd=ROOT)
    found = re.search(r"go(\d+)\.(\d+)", text)
    if found is None or (int(found[1]), int(found[2])) < _OLDEST_GO:
        raise SetupError(f"Go - Expected: 1.21 or newer Actual: {text}", _INSTALL)


def build(folder: Path, package: str, program: Path, link_flags: str) -> None:
    """Fetch the modules of a folder, and build a package of them. Raises SetupError."""
    retried(
        lambda: run(
            ["go", "mod", "download"],
            what=f"fetching the Go modules of {folder.name}",
            what_to_do=HELP,
            cwd=folder,
            env=_env(),
        )
    )
    partial = program.with_name(f".{program.name}.part")
    run(
        ["go", "build", "-trimpath", "-ldflags", link_flags, "-o", str(partial), package],
        what=f"building {program.name}",
        what_to_do="It needs about 3 GB of memory and 5 GB of disk below `go env GOCACHE`.",
        cwd=folder,
        env=_env(),
    )
    partial.replace(program)


def go(*arguments: str, cwd: Path) -> str:
    """Return what a go command prints. Raises SetupError."""
    done = subprocess.run(
        ["go", *arguments], cwd=cwd, env=_env(), capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        raise SetupError(f"go {arguments[0]}: {done.stderr.strip()}", HELP)
    return done.stdout.strip()


def module_folder(module: str, folder: Path) -> Path:
    """Return where a module that a folder requires lies in the module cache. Raises SetupError."""
    return Path(go("list", "-m", "-f", "{{.Dir}}", module, cwd=folder))


def module_version(module: str, folder: Path) -> str:
    """Return the version of a module that a folder requires. Raises SetupError."""
    return go("list", "-m", "-f", "{{.Version}}", module, cwd=folder)


def _env() -> dict[str, str]:
    """Settings of this build alone; the user's own stay as they are. Without cgo no C compiler is needed."""
    return {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false", "GOWORK": "off"}
