"""Builds an image from its recipe, or takes one that others built, into the image store."""

from __future__ import annotations

import re
import shutil
from datetime import UTC, datetime
from pathlib import Path

from rackready.drivers.contained import PROGRAMS
from rackready.images import archive
from rackready.images.ramdisk import EPOCH
from rackready.images.recipes import Recipe
from rackready.images.store import ImageStore, StoredImage
from rackready.images.tools import Say, mmdebstrap, require, run, work_folder
from rackready.model.base import NAME_PATTERN
from rackready.model.problems import RackreadyError
from rackready.paths import private_dir


def build(store: ImageStore, recipe: Recipe, say: Say, *, again: bool = False) -> StoredImage:
    """Build an image and return it; the one in the store if it is of this recipe.

    ``again``: also then, for newer packages. Raises RackreadyError with what the failing tool said.
    """
    present = store.find(recipe.name) if recipe.name in store.names() and not again else None
    if present is not None and present.recipe == recipe.digest:
        return present
    require(("mmdebstrap", "zstd", *PROGRAMS))
    say(f"image {recipe.name}: Debian {recipe.suite} with {len(recipe.packages)} packages (some minutes)")
    private_dir(store.folder)
    with work_folder(store.folder) as work:
        log = store.folder / f"{recipe.name}.log"
        log.unlink(missing_ok=True)
        tar = work / "root.tar"
        hooks = [f"--customize-hook={line}" for line in recipe.hooks]
        mmdebstrap(
            tar,
            recipe.suite,
            variant="minbase",
            packages=recipe.packages,
            options=[*recipe.options, *hooks],
            log=log,
            scratch=work,
            epoch=EPOCH,
        )
        say(f"image {recipe.name}: compressing")
        packed = work / "root.tar.zst"
        zstd = ["zstd", "--quiet", "-9", "-T0", "-o", str(packed), str(tar)]
        run(zstd, log=log, scratch=work, where=f"image {recipe.name}")
        tar.unlink()
        source = f"Debian {recipe.suite}, {len(recipe.packages)} packages by mmdebstrap"
        return _add(store, packed, recipe.name, source, recipe.digest)


def import_file(store: ImageStore, path: Path, name: str) -> StoredImage:
    """Copy an archive into the store under a name, and return the image.

    Raises RackreadyError when it is no root file system that can boot, or no image can have that name.
    """
    if not re.fullmatch(NAME_PATTERN, name):
        raise RackreadyError(
            f"--name {name}",
            expected="lower-case letters, digits and -, with a letter first, at most 63",
            actual="another name",
            next_step="Correct it.",
        )
    if not path.is_file():
        raise RackreadyError(path, expected="an archive", actual="no such file", next_step="Correct the path.")
    require(("zstd",))
    private_dir(store.folder)
    with work_folder(store.folder) as work:
        copy = work / path.name
        shutil.copyfile(path, copy)
        return _add(store, copy, name, f"imported from {path.name}", "", called=path)


def _add(
    store: ImageStore, packed: Path, name: str, source: str, recipe: str, *, called: Path | None = None
) -> StoredImage:
    found = archive.inspect(packed, called or packed)
    archive.check(packed, found)
    packed.chmod(0o644)
    image = StoredImage(
        name=name,
        sha256=archive.sha256(packed),
        size=packed.stat().st_size,
        unpacked=found.unpacked,
        os=found.os_release["ID"],
        release=found.os_release.get("VERSION_ID", "rolling"),
        kernel=found.kernel,
        mdadm=found.has_mdadm,
        built=datetime.now(UTC).replace(microsecond=0),
        source=source,
        recipe=recipe,
    )
    return store.add(packed, image)
