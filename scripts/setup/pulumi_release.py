"""The Pulumi engine from its official release archive, verified against the checksums published with it."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import NoReturn

from console import SetupError, retried, say

DEFAULT_SOURCE = "https://get.pulumi.com/releases/sdk"
"""Where Pulumi publishes releases; ``RACKREADY_PULUMI_RELEASES`` names a mirror of it."""

_MACHINES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}
_WANTED = ("pulumi", "pulumi-language-python", "pulumi-language-python-exec")
_CONNECT_S = 15


def install(version: str, target: Path) -> str:
    """Fetch, verify and unpack the archive into ``target``; return where it came from. Raises SetupError."""
    source = os.environ.get("RACKREADY_PULUMI_RELEASES", DEFAULT_SOURCE).rstrip("/")
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        raise SetupError(f"no release for a {platform.machine()} machine", "Build it from its Go modules.")
    archive = f"pulumi-v{version}-linux-{machine}.tar.gz"
    expected = os.environ.get("RACKREADY_PULUMI_SHA256") or _published(
        f"{source}/pulumi-{version}-checksums.txt", archive
    )
    say(f"fetching {source}/{archive}")
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        file = Path(folder) / archive
        retried(lambda: _download(f"{source}/{archive}", file), times=3)
        _verify(file, expected, archive)
        _unpack(file, target)
    return f"{source}/{archive}, sha256 {expected}"


def _published(url: str, archive: str) -> str:
    """Return the SHA-256 that the release publishes for an archive: lines of `<sha256>  <name>`."""
    text = retried(lambda: _read(url), times=2)
    for line in text.splitlines():
        checksum, _, name = line.partition(" ")
        if name.strip() == archive and len(checksum) == hashlib.sha256().digest_size * 2:
            return checksum
    raise SetupError(f"{url} has no checksum of {archive}", "Set RACKREADY_PULUMI_SHA256 to the archive's SHA-256.")


def _open(url: str) -> object:
    if not url.startswith(("https://", "file://")):
        raise SetupError(f"{url} is not https", "Set RACKREADY_PULUMI_RELEASES to an https:// or file:// address.")
    return urllib.request.urlopen(url, timeout=_CONNECT_S)  # noqa: S310 - the scheme was checked


def _read(url: str) -> str:
    try:
        with _open(url) as reply:  # type: ignore[attr-defined]
            return str(reply.read(1 << 20).decode("utf-8", "replace"))
    except OSError as error:
        _unreachable(url, error)


def _download(url: str, file: Path) -> None:
    try:
        with _open(url) as reply, file.open("wb") as out:  # type: ignore[attr-defined]
            shutil.copyfileobj(reply, out)
    except OSError as error:
        _unreachable(url, error)


def _unreachable(url: str, error: OSError) -> NoReturn:
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    raise SetupError(
        f"{url} cannot be fetched ({reason})", "Open the way to it, or set RACKREADY_PULUMI_RELEASES to a mirror."
    ) from error


def _verify(file: Path, expected: str, archive: str) -> None:
    with file.open("rb") as content:
        actual = hashlib.file_digest(content, "sha256").hexdigest()
    if actual != expected:
        raise SetupError(
            f"{archive} - Expected: sha256 {expected} Actual: {actual}; it was thrown away",
            "Do not use that source before its owner has explained the difference.",
        )


def _unpack(file: Path, target: Path) -> None:
    with tarfile.open(file) as archive:
        for name in _WANTED:
            member = archive.extractfile(f"pulumi/{name}")
            if member is None:
                raise SetupError(f"{file.name} lacks pulumi/{name}", "Report it: the archive's layout has changed.")
            part = target / f".{name}.part"
            with part.open("wb") as out:
                shutil.copyfileobj(member, out)
            part.chmod(0o755)
            part.replace(target / name)
