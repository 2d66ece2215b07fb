"""`rackready image`: builds, imports and lists the images that nodes get, and the ramdisk that writes them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rackready.cli.output import Format, Output, Verbose, console, print_json, print_table, progress
from rackready.model.problems import RackreadyError
from rackready.paths import project_root, state_base

if TYPE_CHECKING:
    from rackready.images.ramdisk import Ramdisk
    from rackready.images.store import ImageStore, StoredImage

app = typer.Typer(help="Images of operating systems, and the ramdisk that writes them.", no_args_is_help=True)

Again = Annotated[bool, typer.Option("--again", help="Build although nothing changed here, for newer packages.")]
Name = Annotated[str, typer.Argument(help="Name of the image, as provisioning.image in the site file.")]

_MB = 1e6


def register(parent: typer.Typer) -> None:
    """Add the command group to the application."""
    parent.add_typer(app, name="image")


@app.command("build")
def build(name: Name, *, again: Again = False, output: Output = Format.TEXT, verbose: Verbose = False) -> None:
    """Build an image from packages of its distribution into the image store. Needs root.

    An image from the same recipe is kept.

    Exit codes: 0 the image is in the store, 2 refused or not built.
    """
    from rackready.images import build as builder  # noqa: PLC0415
    from rackready.images.recipes import recipe  # noqa: PLC0415

    image = builder.build(_store(), recipe(name), _say(verbose=verbose), again=again)
    _show(image, output)


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="Root file system: tar compressed with zstd, .tar.zst.")],
    *,
    name: Annotated[str, typer.Option("--name", help="Name for it, as provisioning.image in the site file.")],
    output: Output = Format.TEXT,
    verbose: Verbose = False,
) -> None:
    """Copy an archive of a root file system into the image store, if it has what a node needs to boot.

    Exit codes: 0 the image is in the store, 2 refused.
    """
    from rackready.images.build import import_file  # noqa: PLC0415

    _say(verbose=verbose)(f"image {name}: reading {file}")
    _show(import_file(_store(), Path.cwd() / file, name), output)


@app.command("list")
def list_(*, output: Output = Format.TEXT) -> None:
    """List the images of the image store.

    Exit codes: 0 listed, 2 an image is damaged.
    """
    store = _store()
    images = [store.find(name) for name in store.names()]
    if output is Format.JSON:
        print_json({"images": [_document(image) for image in images]})
    elif not images:
        progress.print("No image yet: build one with `rackready image build debian12`.")
    else:
        rows = [(item.name, f"{item.os} {item.release}", item.kernel, _size(item.size), item.sha256) for item in images]
        print_table(("name", "system", "kernel", "size", "SHA-256"), rows)


@app.command("show")
def show(name: Name, *, output: Output = Format.TEXT) -> None:
    """Show an image of the image store.

    Exit codes: 0 shown, 2 no image has this name.
    """
    _show(_store().find(name), output)


@app.command("ramdisk")
def ramdisk(*, again: Again = False, output: Output = Format.TEXT, verbose: Verbose = False) -> None:
    """Build the kernel and the ramdisk that write images on nodes. Needs root.

    A ramdisk from the same recipe and agent is kept.

    Exit codes: 0 the ramdisk is there, 2 refused or not built.
    """
    from rackready.images import ramdisk as builder  # noqa: PLC0415

    built = builder.build(_base() / "ramdisk", _say(verbose=verbose), again=again)
    if output is Format.JSON:
        print_json(_ramdisk_document(built))
        return
    console.print(f"{built.kernel}: Linux {built.kernel_release}")
    console.print(f"{built.initrd}: {_size(built.initrd_size)}, SHA-256 {built.initrd_sha256}")


def _base() -> Path:
    try:
        return state_base(project_root())
    except FileNotFoundError as error:
        raise RackreadyError(error) from error


def _store() -> ImageStore:
    from rackready.images.store import ImageStore  # noqa: PLC0415

    return ImageStore(_base() / "images")


def _say(*, verbose: bool) -> Any:  # noqa: ANN401 - a function of a text
    return lambda text: progress.print(text, style="" if verbose else "dim")


def _show(image: StoredImage, output: Format) -> None:
    document = _document(image)
    if output is Format.JSON:
        print_json(document)
        return
    for key, value in document.items():
        if value:
            console.print(f"{key}: {_size(value) if key in {'size', 'unpacked'} else value}")


def _document(image: StoredImage) -> dict[str, Any]:
    return {**image.model_dump(mode="json"), "archive": str(_store().archive(image))}


def _ramdisk_document(built: Ramdisk) -> dict[str, Any]:
    return {
        "kernel": built.kernel,
        "initrd": built.initrd,
        "kernel_release": built.kernel_release,
        "kernel_sha256": built.kernel_sha256,
        "initrd_sha256": built.initrd_sha256,
        "initrd_size": built.initrd_size,
    }


def _size(size: int) -> str:
    return f"{size / _MB:.1f} MB"
