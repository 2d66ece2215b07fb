"""Parts of a mirror as plain data: what is wanted, what is fetched, and hashes of files."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from rackready.model.operations import Upstream

_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Need:
    """Packages that are installed together on nodes of some platforms, to their exact version (``""``: any)."""

    platforms: tuple[str, ...]
    packages: dict[str, str]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Everything that a mirror is made for."""

    system: str
    """Operating system of the version set, e.g. ubuntu2404."""
    needs: tuple[Need, ...]
    upstreams: tuple[Upstream, ...]
    pins: str = ""
    streams: tuple[str, ...] = ()
    installed: Path | None = None
    """dpkg's status file of a node before install; None: an empty system."""

    @property
    def is_rpm(self) -> bool:
        """Return whether the system has rpm packages."""
        return self.system.startswith("el")

    def package_keys(self, signed_by: str) -> list[str]:
        """Return the fingerprints of the keys that sign packages and not the index; of apt mirrors none does."""
        return sorted({item.fingerprint for item in self.upstreams} - {signed_by}) if self.is_rpm else []


@dataclass(frozen=True, slots=True)
class Item:
    """A package file. ``algorithm`` and ``digest`` are what the signed index of its upstream has."""

    name: str
    version: str
    architecture: str
    file: str
    """Its path in the mirror."""
    size: int
    algorithm: str
    digest: str
    fetched_as: str = ""
    """Its file name where the tool puts what it fetches."""


def digest(path: Path, algorithm: str = "sha256") -> str:
    """Return the hash of a file, hexadecimal."""
    total = hashlib.new(algorithm, usedforsecurity=False)
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            total.update(chunk)
    return total.hexdigest()


def matches(path: Path, item: Item) -> bool:
    """Return whether a file is the package that the index describes."""
    return path.is_file() and path.stat().st_size == item.size and digest(path, item.algorithm) == item.digest
