"""`rackready mirror`: a local package mirror of exactly what the site's version set needs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rackready.cli.output import Env, Format, Output, Verbose, console, print_json, print_table, progress, working_paths
from rackready.cli.progress_lines import SILENCE_S
from rackready.model.problems import RackreadyError

if TYPE_CHECKING:
    from rackready.drivers.mirror.build import Built, Order
    from rackready.drivers.mirror.parts import Item
    from rackready.drivers.mirror.plan import Image
    from rackready.model.operations import Repository
    from rackready.model.site import Site
    from rackready.paths import EnvPaths

Check = Annotated[
    bool, typer.Option("--check", help="Dry run: show what would be fetched, with sizes, and build nothing.")
]
Verify = Annotated[
    bool, typer.Option("--verify", help="Check a mirror that is there, such as one carried in. Fetches nothing.")
]

_FOLDER = "package-mirror"
_KEY = "package-mirror-key.asc"


def mirror(  # noqa: PLR0913 - what a mirror is made with
    *,
    env: Env = "sim",
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder of the mirror; default: .rackready/ENV/package-mirror.")
    ] = None,
    archive: Annotated[
        Path | None, typer.Option("--archive", help="Write the mirror to this tar file too, to carry it in.")
    ] = None,
    kernel: Annotated[
        list[str] | None,
        typer.Option("--kernel", help="Add headers or modules of this kernel (`uname -r` on a node); repeatable."),
    ] = None,
    installed: Annotated[
        Path | None,
        typer.Option(
            "--installed",
            help="/var/lib/dpkg/status of a node before install: leave out what it has. Default: an empty system.",
        ),
    ] = None,
    signing_key: Annotated[
        Path | None,
        typer.Option(
            "--signing-key",
            help="OpenPGP secret key without passphrase that signs the mirror; default: a key of its own, made once.",
        ),
    ] = None,
    version_set: Annotated[
        str | None,
        typer.Option("--set", help="Version set of the mirror, for a site with several (software.groups)."),
    ] = None,
    check: Check = False,
    verify: Verify = False,
    output: Output = Format.TEXT,
    verbose: Verbose = False,
) -> None:
    """Build a signed package mirror of exactly what the site's nodes need, from software.upstreams.

    It reads the packages from the roles, resolves their dependencies with apt-get or dnf, fetches what is new, and
    checks signature, files and installation before it replaces the old mirror. A second run with nothing new changes
    nothing. Exit: 0 the mirror is good, 2 refused or not built; the old mirror stays as it is.
    """
    from rackready.design.site import load_site  # noqa: PLC0415
    from rackready.design.software_of import only  # noqa: PLC0415

    paths = working_paths(env)
    site = only(load_site(env, root=paths.root), version_set)
    folder = _absolute(out) or paths.state / _FOLDER
    if verify:
        if check or archive is not None:
            raise RackreadyError(
                "--verify",
                expected="alone",
                actual="with --check or --archive",
                next_step="Omit them: it only reads.",
            )
        _verify(site, paths, folder, tuple(kernel or ()), output)
        return
    from rackready.drivers.mirror.build import Order, build, carry  # noqa: PLC0415
    from rackready.drivers.mirror.plan import images, plan  # noqa: PLC0415

    _reachable(out)
    wanted = plan(site, paths, tuple(kernel or ()), _absolute(installed))
    secret = _absolute(signing_key) or paths.state / _KEY
    if signing_key is not None and not secret.is_file():
        raise RackreadyError(
            f"--signing-key {secret}", expected="a secret key", actual="no file", next_step="Correct the path."
        )
    order = Order(
        site.name,
        site.software.set,
        wanted,
        images(site),
        folder,
        secret,
        lambda text: progress.print(text, style="dim"),
        _steps(verbose=verbose),
        tuple(kernel or ()),
    )
    built = build(order, check=check)
    target = _absolute(archive)
    carried = target is not None and not check and carry(folder, target, order.tell)
    notes = _notes(site, order, built, check=check)
    if output is Format.JSON:
        print_json(_document(env, order, built, check=check, archive=target, carried=carried, notes=notes))
    else:
        _print(order, built, check=check, archive=target, carried=carried)
        for note in notes:
            console.print(note, style="yellow")


def _reachable(out: Path | None) -> None:
    """Make the folders above a mirror that was named. A web server must be able to reach it."""
    for above in reversed((Path.cwd() / out).parents) if out is not None else ():
        if not above.exists():
            above.mkdir()
            above.chmod(0o755)


def _absolute(path: Path | None) -> Path | None:
    return Path.cwd() / path if path is not None else None


def _steps(*, verbose: bool, clock: Callable[[], float] = time.monotonic) -> Callable[[str], None]:
    """Return what prints the lines of a tool: all of them, or one after every SILENCE_S."""
    printed = clock()

    def step(line: str) -> None:
        nonlocal printed
        if line.strip() and (verbose or clock() - printed >= SILENCE_S):
            printed = clock()
            progress.print(line, style="dim")

    return step


def _verify(site: Site, paths: EnvPaths, folder: Path, kernels: tuple[str, ...], output: Format) -> None:
    """Check a mirror against the site and the key that nodes trust, without its upstreams."""
    import tempfile  # noqa: PLC0415

    from rackready.drivers.mirror import verify  # noqa: PLC0415
    from rackready.drivers.mirror.plan import plan  # noqa: PLC0415
    from rackready.drivers.mirror.tools import require  # noqa: PLC0415

    manifest = verify.read_manifest(folder)
    wanted = plan(site, paths, kernels or tuple(manifest.get("kernels", ())), build=False)
    wanted = replace(wanted, upstreams=())
    require(("dnf", "gpg") if wanted.is_rpm else ("apt-get", "gpg"))
    key = _trusted_key(site, str(manifest["signed_by"]))
    with tempfile.TemporaryDirectory(prefix="rr-mirror-") as name:
        files = verify.verify(folder, wanted, Path(name) / "check", key if key and key.is_file() else None)
    if output is Format.JSON:
        print_json({"out": folder, "good": True, "files": files, "signed_by": manifest["signed_by"]})
        return
    where = key or "a key of the site with this fingerprint"
    absent = f"its own {verify.KEY}: {where} is not there, so compare the fingerprint"
    trusted = key if key and key.is_file() else absent
    console.print(f"{folder}: good. {files} files, signed by {manifest['signed_by']} (checked with {trusted})")


def _notes(site: Site, order: Order, built: Built, *, check: bool) -> list[str]:
    """Return what an operator has to know beside the result."""
    notes = []
    if not order.kernels:
        notes.append(
            "Headers of the nodes' kernel are not included: the kernel is not in the site file. Give "
            "`--kernel RELEASE` (`uname -r` on a node) unless the nodes have the headers."
        )
    unpinned = [image for image in order.images if not image.digest]
    notes += [
        f"{item.gate}: {item.image} has no digest: name it as IMAGE@sha256:... in the gate set." for item in unpinned
    ]
    if order.images:
        notes.append("Container images are listed in the manifest and not fetched. Copy them to your registry.")
    if not check and not _trusted(site, order, built):
        notes.append(
            f"Nodes trust {_trusted_keys(site)}, which is not the key of this mirror and its packages. Copy "
            f"{order.out}/mirror.asc there before nodes use it."
        )
    more = order.wanted.package_keys(built.signed_by)
    if not check and more and site.software.mirror is None and not _declared(site, built.signed_by, more):
        notes.append(
            "Packages keep the signatures of their upstreams. Declare `package_fingerprints: "
            f"[{', '.join(more)}]` beside `fingerprint: {built.signed_by}` in software.repositories."
        )
    return notes


def _trusted_key(site: Site, signed_by: str) -> Path | None:
    """Return the key file that nodes trust a mirror with: the one mirror's, or that of the repository with the key."""
    if site.software.mirror is not None:
        return site.software.mirror.key
    return next((item.key for item in _repositories(site) if item.fingerprint == signed_by), None)


def _trusted_keys(site: Site) -> str:
    if site.software.mirror is not None:
        return f"{site.software.mirror.key} (software.mirror.key)"
    return f"{', '.join(str(item.key) for item in _repositories(site))} (software.repositories)"


def _repositories(site: Site) -> list[Repository]:
    """Return the repositories of the nodes that the mirror is for: one key may sign the mirrors of several sets."""
    from rackready.design.repositories import repositories_of  # noqa: PLC0415
    from rackready.profiles import loader  # noqa: PLC0415

    return repositories_of(site, loader.software(site.software.set).os)


def _declared(site: Site, signed_by: str, more: list[str]) -> bool:
    """Return whether a repository declares the keys of a mirror and of its packages."""
    wanted = {signed_by, *more}
    return any({item.fingerprint, *item.package_fingerprints} == wanted for item in _repositories(site))


def _trusted(site: Site, order: Order, built: Built) -> bool:
    """Return whether nodes trust the key that signed the mirror, and those of its packages."""
    from rackready.drivers.mirror import keys  # noqa: PLC0415
    from rackready.drivers.mirror.tools import MirrorError  # noqa: PLC0415

    key = _trusted_key(site, built.signed_by)
    try:
        wanted = {built.signed_by, *order.wanted.package_keys(built.signed_by)}
        return key is not None and wanted <= set(keys.fingerprints(key))
    except MirrorError:
        return False


def _print(order: Order, built: Built, *, check: bool, archive: Path | None, carried: bool) -> None:
    from rackready.drivers.mirror.build import size  # noqa: PLC0415

    if check:
        if built.lacking:
            rows = [(item.name, item.version, size([item])) for item in built.lacking]
            print_table(("package", "version", "size"), rows)
        console.print(
            f"would fetch {len(built.lacking)} of {len(built.items)} packages, "
            f"{size(built.lacking)} of {size(built.items)}; nothing was built"
        )
        return
    word = "built" if built.changed else "nothing new"
    console.print(
        f"{order.out}: {word}. {len(built.items)} packages, {size(built.items)}; {len(built.lacking)} fetched; "
        f"{built.files} files checked; signed by {built.signed_by}"
    )
    if more := order.wanted.package_keys(built.signed_by):
        console.print(f"its packages are signed by {', '.join(more)}")
    if archive is not None:
        console.print(f"{archive}: {'written' if carried else 'nothing new'}")


def _document(  # noqa: PLR0913 - what a document has
    env: str, order: Order, built: Built, *, check: bool, archive: Path | None, carried: bool, notes: list[str]
) -> dict[str, Any]:
    """Return the JSON document."""
    return {
        "env": env,
        "site": order.site,
        "set": order.set,
        "system": order.wanted.system,
        "check": check,
        "out": order.out,
        "changed": built.changed,
        "signed_by": built.signed_by or None,
        "package_fingerprints": order.wanted.package_keys(built.signed_by),
        "packages": [_item(item) for item in built.items],
        "size": sum(item.size for item in built.items),
        "fetch": [item.file for item in built.lacking],
        "fetch_size": sum(item.size for item in built.lacking),
        "files_checked": built.files,
        "images": [_image(image) for image in order.images],
        "archive": archive if not check else None,
        "archive_written": carried,
        "notes": notes,
    }


def _item(item: Item) -> dict[str, Any]:
    return {key: getattr(item, key) for key in ("name", "version", "architecture", "file", "size")}


def _image(image: Image) -> dict[str, Any]:
    return asdict(image)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(mirror)
