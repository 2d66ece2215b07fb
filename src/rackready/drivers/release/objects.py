"""The store of a site's releases: files named by the SHA-256 of their content, written once."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from rackready import files
from rackready.drivers.release.error import ReleaseError
from rackready.paths import EnvPaths, private_dir

_MODE = 0o444
"""Objects never change: not even their owner writes to them. Secrets in them are sealed."""


@dataclass(frozen=True, slots=True)
class Blob:
    """The name of an object: SHA-256 (hex) and size of its content, bytes."""

    sha256: str
    size: int

    @classmethod
    def of(cls, data: bytes) -> Blob:
        """Return the name of a content."""
        return cls(hashlib.sha256(data).hexdigest(), len(data))

    def document(self) -> dict[str, str | int]:
        """Return the name as plain data."""
        return {"sha256": self.sha256, "size": self.size}


@dataclass
class Objects:
    """The objects of an environment, below the folder that nodes fetch from. Counts what it writes."""

    folder: Path
    new: set[str] = field(default_factory=set)
    kept: set[str] = field(default_factory=set)

    def path(self, sha256: str) -> Path:
        """Return the file of an object."""
        return self.folder / sha256

    def put(self, data: bytes) -> Blob:
        """Store a content and return its name. A file that exists is kept if it is whole. Raises OSError.

        A damaged one is replaced: here is what it should be. Thousands are written at once, so none is synced: what a
        power cut damages is found by its SHA-256 wherever it is read, and the next build writes it again.
        """
        blob = Blob.of(data)
        if blob.sha256 in self.new or blob.sha256 in self.kept:
            return blob
        if not self.new and not self.kept:
            private_dir(self.folder)
        if files.settle(self.path(blob.sha256), data, mode=_MODE, sync=False):
            self.new.add(blob.sha256)
        else:
            self.kept.add(blob.sha256)
        return blob

    def get(self, blob: Blob) -> bytes:
        """Return the content of an object. Raises ReleaseError when it is missing or damaged."""
        path = self.path(blob.sha256)
        try:
            data = path.read_bytes() if path.stat().st_size == blob.size else None
        except OSError as error:
            raise _lost(path, blob, "no file" if isinstance(error, FileNotFoundError) else error.strerror) from error
        if data is None:
            raise _lost(path, blob, f"{path.stat().st_size} bytes")
        if (found := Blob.of(data)) != blob:
            raise _lost(path, blob, f"SHA-256 {found.sha256[:12]}")
        return data

    def whole(self, blob: Blob) -> bool:
        """Return whether an object is there and undamaged."""
        try:
            self.get(blob)
        except ReleaseError:
            return False
        return True


def objects_of(paths: EnvPaths) -> Objects:
    """Return the store of an environment."""
    return Objects(release_folder(paths) / "objects" / "sha256")


def release_folder(paths: EnvPaths) -> Path:
    """Return the folder that `rackready release serve` serves as it is."""
    return paths.state / "release"


def _lost(path: Path, blob: Blob, actual: object) -> ReleaseError:
    return ReleaseError(
        path,
        "object of a release",
        expected=f"{blob.size} bytes with SHA-256 {blob.sha256[:12]}",
        actual=actual,
        next_step="Run `rackready release build`: it writes the object again.",
    )
