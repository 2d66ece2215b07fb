"""Places of stored outputs: a file of this machine or of a shared folder, or an object of a store."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rackready.drivers.object_store import Bucket
from rackready.drivers.object_store_error import ObjectStoreError

ASIDE = "set-aside"
"""Folder beside that of raw outputs, and begin of keys, for what was found damaged."""


class OutputPlace(Protocol):
    """One output's place. Its methods raise OSError or ObjectStoreError."""

    def there(self) -> bool:
        """Return whether something is there."""

    def content(self) -> bytes:
        """Return what is there; nothing when it cannot be read: it is moved all the same."""

    def aside(self, now: int) -> str:
        """Return where it can be set aside, ``now`` in ns since 1970."""

    def move(self, now: int) -> None:
        """Move it there."""


@dataclass(frozen=True, slots=True)
class FilePlace:
    """A file."""

    path: Path

    def there(self) -> bool:
        """Return whether the file or a link is there."""
        return self.path.exists() or self.path.is_symlink()

    def content(self) -> bytes:
        """Return its content."""
        try:
            return self.path.read_bytes()
        except OSError:
            return b""

    def aside(self, now: int) -> str:
        """Return the path of a file beside the folder of outputs."""
        return str(self.path.parent.parent.parent / ASIDE / f"{self.path.name}.{now}")

    def move(self, now: int) -> None:
        """Move the file."""
        to = Path(self.aside(now))
        to.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path.replace(to)


@dataclass(frozen=True, slots=True)
class ObjectPlace:
    """An object of a bucket."""

    bucket: Bucket
    key: str

    def there(self) -> bool:
        """Return whether there is an object."""
        return self.bucket.get(self.key) is not None

    def content(self) -> bytes:
        """Return its content."""
        try:
            return self.bucket.get(self.key) or b""
        except ObjectStoreError:
            return b""

    def _to(self, now: int) -> str:
        return f"{ASIDE}/{self.key.rpartition('/')[2]}.{now}"

    def aside(self, now: int) -> str:
        """Return the URL of the object's new place."""
        settings = self.bucket.settings
        return f"s3://{settings.bucket}/{settings.prefix}/{self._to(now)}"

    def move(self, now: int) -> None:
        """Move the object."""
        self.bucket.move(self.key, self._to(now))
