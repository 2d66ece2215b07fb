"""The Pulumi engine built from its Go modules; ``tools/pulumi-engine`` pins every one of them by checksum (go.sum)."""

from __future__ import annotations

import shutil
from pathlib import Path

import go_modules
from console import ROOT, say

_SOURCES = ROOT / "tools" / "pulumi-engine"
_SDK = "github.com/pulumi/pulumi/sdk/v3"
_VERSION_VARIABLE = f"{_SDK}/go/common/version.Version"


def install(version: str, target: Path) -> str:
    """Build engine and language host into ``target``; return which Go built them. Raises SetupError."""
    go_modules.check_go()
    say("building the Pulumi engine from its Go modules: about 3 minutes on 2 cores, once")
    _build("engine", "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi", target / "pulumi", f"v{version}")
    host = _SOURCES / "language-python"
    version_of_host = go_modules.module_version(_SDK, host)
    package = f"{_SDK}/python/cmd/pulumi-language-python"
    _build(host.name, package, target / "pulumi-language-python", version_of_host)
    _copy_exec(target)
    return go_modules.go("version", cwd=_SOURCES)


def _build(part: str, package: str, program: Path, version: str) -> None:
    go_modules.build(_SOURCES / part, package, program, f"-s -w -X {_VERSION_VARIABLE}={version}")


def _copy_exec(target: Path) -> None:
    """The language host starts this script of the engine's own release from beside itself."""
    sdk = go_modules.module_folder(_SDK, _SOURCES / "engine")
    program = target / "pulumi-language-python-exec"
    shutil.copyfile(sdk / "python" / "cmd" / program.name, program)
    program.chmod(0o755)
