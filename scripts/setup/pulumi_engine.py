"""The Pulumi engine in the pinned version: from the PATH, else the official release, else built from Go modules.

It comes with the Python language host, so that plain ``pulumi preview`` works in a stack's folder. Everything lands in
``.rackready/tools/bin``; which way was taken is kept in ``.rackready/tools/pulumi.json``.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pulumi_modules
import pulumi_release
from console import PRIVATE, ROOT, SetupError, digest_of, make_private, say, shown

TOOLS = PRIVATE / "tools"
BIN = TOOLS / "bin"
STAMP = TOOLS / "pulumi.json"
PROGRAMS = ("pulumi", "pulumi-language-python", "pulumi-language-python-exec")
RECIPE = [ROOT / "tools" / "pulumi-engine" / part / "go.mod" for part in ("engine", "language-python")]


def pinned_version() -> str:
    """Return the version that pyproject.toml pins for the SDK: engine and SDK are the same release."""
    found = re.search(r'"pulumi==([0-9.]+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    if found is None:
        raise SetupError("pyproject.toml does not pin pulumi", "Pin it as pulumi==X.Y.Z.")
    return found[1]


def ensure() -> None:
    """Make the engine available once, by the first way that works. Raises SetupError that says what was tried."""
    version = pinned_version()
    if _current(version):
        say(f"Pulumi engine {version}: up to date")
        return
    make_private()
    BIN.mkdir(mode=0o700, parents=True, exist_ok=True)
    ways: list[tuple[str, Callable[[str, Path], str]]] = [
        ("found on the PATH", _from_path),
        ("official release archive", pulumi_release.install),
        ("built from Go modules", pulumi_modules.install),
    ]
    refusals = []
    for way, install in ways:
        try:
            detail = install(version, BIN)
        except SetupError as error:
            refusals.append(f"  {way}: {error}\n    -> {error.what_to_do}")
            say(f"Pulumi engine, {way}: no ({str(error).splitlines()[0]})")
            continue
        _finish(version, way, detail)
        return
    text = f"no Pulumi engine {version}. What was tried:\n" + "\n".join(refusals)
    raise SetupError(
        text, "Any one of these ways is enough. Until then only provisioning is missing: every other command works."
    )


def _current(version: str) -> bool:
    try:
        stamp = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    if stamp.get("version") != version or stamp.get("recipe") != digest_of(*RECIPE):
        return False
    return all((BIN / name).exists() for name in PROGRAMS) and version_of(BIN / "pulumi") == version


def _finish(version: str, way: str, detail: str) -> None:
    seen = version_of(BIN / "pulumi")
    if seen != version:
        raise SetupError(
            f"{shown(BIN)}/pulumi - Expected: version {version} Actual: {seen or 'it does not run'}",
            f"Remove {shown(TOOLS)} and run this again.",
        )
    STAMP.write_text(
        json.dumps({"version": version, "way": way, "detail": detail, "recipe": digest_of(*RECIPE)}, indent=2) + "\n",
        encoding="utf-8",
    )
    say(f"Pulumi engine {version}: ready, {way} ({detail})")


def version_of(program: Path) -> str:
    """Return the version that a pulumi executable reports, without its leading v; empty when it does not run."""
    env = {**os.environ, "PULUMI_SKIP_UPDATE_CHECK": "true"}
    try:
        done = subprocess.run(
            [str(program), "version"],
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip().removeprefix("v") if done.returncode == 0 else ""


def _from_path(version: str, target: Path) -> str:
    """Link the programs that lie on the PATH, when they are the pinned version and complete."""
    outside = os.pathsep.join(
        folder
        for folder in os.environ.get("PATH", "").split(os.pathsep)
        if folder and Path(folder).resolve() != target.resolve()
    )
    found = {name: shutil.which(name, path=outside) for name in PROGRAMS}
    engine = found["pulumi"]
    if engine is None:
        raise SetupError("there is no pulumi on the PATH", f"Put Pulumi {version} on the PATH.")
    seen = version_of(Path(engine))
    if seen != version:
        raise SetupError(
            f"{engine} - Expected: version {version} Actual: {seen or 'it does not run'}",
            f"Put Pulumi {version} first on the PATH.",
        )
    absent = [name for name, path in found.items() if path is None]
    if absent:
        raise SetupError(f"{engine} comes without {', '.join(absent)}", "Put the whole release archive on the PATH.")
    for name, path in found.items():
        link = target / name
        link.unlink(missing_ok=True)
        link.symlink_to(Path(str(path)).resolve())
    return engine
