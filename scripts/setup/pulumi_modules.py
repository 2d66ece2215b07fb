"""The Pulumi engine built from its Go modules; ``tools/pulumi-engine`` pins every one of them by checksum (go.sum)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from console import ROOT, SetupError, retried, run, say

_SOURCES = ROOT / "tools" / "pulumi-engine"
_VERSION_VARIABLE = "github.com/pulumi/pulumi/sdk/v3/go/common/version.Version"
_OLDEST_GO = (1, 21)
_HELP = "A Go module proxy must be reachable (`go env GOPROXY`); then run this again."


def install(version: str, target: Path) -> str:
    """Build engine and language host into ``target``; return which Go built them. Raises SetupError."""
    if shutil.which("go") is None:
        raise SetupError(
            "there is no Go toolchain on the PATH", "Install Go 1.25 or newer, with a module proxy that it can reach."
        )
    _check_go()
    say("building the Pulumi engine from its Go modules: about 3 minutes on 2 cores, once")
    _build("engine", "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi", target / "pulumi", f"v{version}")
    _build(
        "language-python",
        "github.com/pulumi/pulumi/sdk/v3/python/cmd/pulumi-language-python",
        target / "pulumi-language-python",
        _host_version(),
    )
    _copy_exec(target)
    return _go("version", cwd=_SOURCES)


def _check_go() -> None:
    """From 1.21 on, Go fetches the toolchain that a module asks for; older versions fail with an unhelpful message."""
    text = _go("version", cwd=ROOT)
    found = re.search(r"go(\d+)\.(\d+)", text)
    if found is None or (int(found[1]), int(found[2])) < _OLDEST_GO:
        raise SetupError(
            f"Go - Expected: 1.21 or newer Actual: {text}",
            "Install Go 1.25 or newer, with a module proxy that it can reach.",
        )


def _env() -> dict[str, str]:
    """Settings of this build alone; the user's own stay as they are. Without cgo no C compiler is needed."""
    return {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false", "GOWORK": "off"}


def _build(part: str, package: str, program: Path, version: str) -> None:
    folder = _SOURCES / part
    retried(
        lambda: run(
            ["go", "mod", "download"],
            what=f"fetching the Go modules of {part}",
            what_to_do=_HELP,
            cwd=folder,
            env=_env(),
        )
    )
    partial = program.with_name(f".{program.name}.part")
    argv = [
        "go",
        "build",
        "-trimpath",
        "-ldflags",
        f"-s -w -X {_VERSION_VARIABLE}={version}",
        "-o",
        str(partial),
        package,
    ]
    run(
        argv,
        what=f"building {program.name}",
        what_to_do="It needs about 3 GB of memory and 5 GB of disk below `go env GOCACHE`.",
        cwd=folder,
        env=_env(),
    )
    partial.replace(program)


def _host_version() -> str:
    return _go("list", "-m", "-f", "{{.Version}}", "github.com/pulumi/pulumi/sdk/v3", cwd=_SOURCES / "language-python")


def _copy_exec(target: Path) -> None:
    """The language host starts this script of the engine's own release from beside itself."""
    sdk = _go("list", "-m", "-f", "{{.Dir}}", "github.com/pulumi/pulumi/sdk/v3", cwd=_SOURCES / "engine")
    program = target / "pulumi-language-python-exec"
    shutil.copyfile(Path(sdk) / "python" / "cmd" / program.name, program)
    program.chmod(0o755)


def _go(*arguments: str, cwd: Path) -> str:
    done = subprocess.run(
        ["go", *arguments], cwd=cwd, env=_env(), capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        raise SetupError(f"go {arguments[0]}: {done.stderr.strip()}", _HELP)
    return done.stdout.strip()
