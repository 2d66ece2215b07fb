"""The image store: archives of root file systems named by their SHA-256, and what each name stands for."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Annotated

from pydantic import Field, StringConstraints, ValidationError

from rackready.files import replace
from rackready.model.base import Line, Model, Name
from rackready.model.problems import RackreadyError
from rackready.model.wanted import fault
from rackready.paths import private_dir

SUFFIX = ".tar.zst"
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class StoredImage(Model):
    """An image of an operating system: a root file system as tar, compressed with zstd."""

    name: Name = Field(description="name in the site file")
    sha256: Digest = Field(description="SHA-256 of the archive, which is its file name")
    size: int = Field(gt=0, description="size of the archive in bytes")
    unpacked: int = Field(gt=0, description="size of its files in bytes")
    os: Line = Field(description="ID of its os-release, e.g. debian")
    release: Line = Field(description="VERSION_ID of its os-release, e.g. 12")
    kernel: Line = Field(description="release of its newest kernel")
    mdadm: bool | None = Field(
        None, description="whether it has mdadm, which a RAID1 pair needs; none: imported before this was recorded"
    )
    built: datetime = Field(description="when it was built or imported")
    source: Line = Field(description="what it was made of")
    recipe: Line = Field("", description="digest of the recipe that built it; empty if it was imported")


class ImageStore:
    """Images below one folder, ``.rackready/images``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def names(self) -> list[str]:
        """Return the names of all images."""
        return sorted(path.stem for path in self.folder.glob("*.json"))

    def find(self, name: str) -> StoredImage:
        """Return an image whose archive is there with its size. Raises RackreadyError with the known names."""
        path = self._record(name)
        if not path.is_file():
            raise RackreadyError(
                f"image {name}",
                expected=f"one of: {', '.join(self.names()) or 'none yet'}",
                actual="not in the image store",
                next_step=f"Build it with `rackready image build {name}`, or import an archive.",
            )
        image = _parsed(path)
        actual = self.archive(image).stat().st_size if self.archive(image).is_file() else 0
        if actual != image.size:
            raise RackreadyError(
                f"image {name}: {self.archive(image)}",
                expected=f"{image.size} bytes",
                actual=f"{actual} bytes" if actual else "no such file",
                next_step=f"Build or import {name} again.",
            )
        return image

    def archive(self, image: StoredImage) -> Path:
        """Return the path of an image's archive."""
        return self.folder / f"{image.sha256}{SUFFIX}"

    def add(self, archive: Path, image: StoredImage) -> StoredImage:
        """Move an archive from inside the store's folder to its place, and record its name; a former one is replaced.

        An archive that no name stands for any more is removed. Raises OSError.
        """
        private_dir(self.folder)
        archive.replace(self.archive(image))
        document = json.dumps(image.model_dump(mode="json"), indent=2) + "\n"
        replace(self._record(image.name), document.encode(), mode=0o644)
        self._remove_unnamed()
        return image

    def _remove_unnamed(self) -> None:
        named = {_parsed(self._record(name)).sha256 for name in self.names()}
        for path in self.folder.glob(f"*{SUFFIX}"):
            if path.name.removesuffix(SUFFIX) not in named:
                path.unlink()

    def _record(self, name: str) -> Path:
        return self.folder / f"{name}.json"


def _parsed(path: Path) -> StoredImage:
    try:
        return StoredImage.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise RackreadyError(
            path,
            expected="the record of an image",
            actual=fault(error.errors()[0]),
            next_step=f"Remove the file, then build or import {path.stem} again.",
        ) from error
