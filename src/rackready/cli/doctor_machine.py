"""Checks of `rackready doctor` of this machine: Python, packages, the Pulumi engine, OpenSSH, the simulated rack."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from rackready.cli.doctor_scene import Answer, Scene, output
from rackready.model.outcome import Outcome
from rackready.paths import is_checkout, setup_command

MIN_PYTHON = (3, 11)
SIMULATOR_PROGRAMS = ("podman", "runc", "mmdebstrap", "dpkg-deb", "apt-ftparchive", "gpg", "gcc", "ip")


def python(_scene: Scene) -> Answer:
    """Check the version of the running Python."""
    version = ".".join(str(part) for part in sys.version_info[:3])
    if sys.version_info[:2] < MIN_PYTHON:
        return (
            Outcome.FAIL,
            f"Expected: Python 3.11 or newer Actual: {version}. Install one, then: make setup PYTHON=/path/to/python3",
        )
    return Outcome.PASS, f"{version} ({sys.executable})"


def packages(scene: Scene) -> Answer:
    """Compare installed packages with the lock file, by name."""
    lock = scene.paths.root / "requirements.lock"
    if not (is_checkout() and lock.exists()):
        return Outcome.SKIP, "no requirements.lock here: this is an installed package, not a checkout"
    differing = [
        f"{name} {wanted} (installed: {have or 'none'})"
        for name, wanted in _locked(lock)
        if (have := _installed(name)) != wanted
    ]
    if differing:
        return (
            Outcome.FAIL,
            (
                f"Expected: the versions in requirements.lock Actual: {len(differing)} differ: "
                f"{', '.join(differing[:5])}. "
                "Run: make setup"
            ),
        )
    return Outcome.PASS, "as in requirements.lock"


def _locked(lock: Path) -> Iterator[tuple[str, str]]:
    """Yield name and version of packages that every platform needs; those with a marker may be absent."""
    for line in lock.read_text(encoding="utf-8").splitlines():
        found = re.match(r"^([A-Za-z0-9._-]+)==(\S+) *(;.*|\\)?$", line)
        if found and not (found[3] or "").startswith(";"):
            yield found[1], found[2]


def _installed(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def engine(scene: Scene) -> Answer:
    """Check for the Pulumi engine in the SDK's version, with its Python language host."""
    wanted = _installed("pulumi")
    folder = scene.private / "tools" / "bin"
    install = setup_command(scene.paths.root)
    path = os.pathsep.join([str(folder), os.environ.get("PATH", "")])
    program = shutil.which("pulumi", path=path)
    if program is None:
        return (
            Outcome.FAIL,
            (
                f"Expected: Pulumi {wanted} in .rackready/tools/bin or on the PATH Actual: none. "
                f"Run: {install} (only provisioning needs it)"
            ),
        )
    seen = output([program, "version"]).strip().removeprefix("v")
    if seen != wanted:
        return (
            Outcome.FAIL,
            (f"Expected: Pulumi {wanted}, as the SDK Actual: {seen or 'it does not run'} ({program}). Run: {install}"),
        )
    if shutil.which("pulumi-language-python", path=path) is None:
        return (
            Outcome.FAIL,
            (
                f"Expected: pulumi-language-python beside {program} Actual: none. "
                f"Run: {install} (`pulumi preview` in a stack's folder needs it)"
            ),
        )
    return Outcome.PASS, f"{seen} ({_way(scene) or program})"


def _way(scene: Scene) -> str:
    try:
        return str(json.loads((scene.private / "tools" / "pulumi.json").read_text(encoding="utf-8"))["way"])
    except (OSError, ValueError, KeyError):
        return ""


def ssh_client(_scene: Scene) -> Answer:
    """Check for OpenSSH's client, with which Ansible logs in."""
    program = shutil.which("ssh")
    if program is None:
        return Outcome.FAIL, "Expected: OpenSSH's client on the PATH Actual: none. Install it (apt: openssh-client)"
    return Outcome.PASS, program


def simulator(_scene: Scene) -> Answer:
    """Check the requirements of the simulated rack; only rehearsals need them."""
    search = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    absent = [name for name in SIMULATOR_PROGRAMS if shutil.which(name, path=search) is None]
    if absent:
        return (
            Outcome.SKIP,
            f"not installed: {', '.join(absent)}. Only the simulated rack needs them: make setup-sim (as root)",
        )
    return Outcome.PASS, "podman, runc and the build tools for images and packages are installed"
