"""`rackready release`: builds, lists, shows and verifies the signed releases that nodes apply themselves."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rackready.cli import release_prune, release_reports, release_serve
from rackready.cli.chosen_hosts import retired
from rackready.cli.limit import Limit
from rackready.cli.output import Env, Format, Output, console, print_json, print_table, progress, working_paths
from rackready.cli.progress_lines import SILENCE_S
from rackready.model.problems import RackreadyError

if TYPE_CHECKING:
    from pathlib import Path

    from rackready.campaign.release_index import Index
    from rackready.drivers.release.build import Built
    from rackready.model.site import Site
    from rackready.paths import EnvPaths

app = typer.Typer(help="Build, list, show and verify the signed releases of nodes that pull.", no_args_is_help=True)
Which = Annotated[str, typer.Argument(metavar="[INDEX]", help="First digits of an index's name. Default: the newest.")]
_SHORT = 12
"""Digits of a SHA-256 that people read."""


def register(parent: typer.Typer) -> None:
    """Add the command group to the application."""
    parent.add_typer(app, name="release")


@app.command()
def build(env: Env = "sim", limit: Limit = "", output: Output = Format.TEXT) -> None:
    """Build the release of each node, and sign an index of them: code, wheels, keys of mirrors and sealed variables.

    Changes no node. A second build of the same state makes no new object. A campaign builds what it needs by itself.

    Exit codes: 0 every node has its release, 1 some have none, 2 refused.
    """
    from rackready.campaign import release_index  # noqa: PLC0415
    from rackready.drivers.release.build import build as build_all  # noqa: PLC0415
    from rackready.handover.keys import keys_of  # noqa: PLC0415

    site, paths, nodes = _chosen(env, limit)
    signer = keys_of(site, paths).signer()
    built = build_all(site, paths, _counted(nodes), lambda text: progress.print(text, style="dim"))
    index = release_index.write(paths, site.name, built, signer) if built.releases else None
    if output is Format.JSON:
        print_json(_built_document(built, index))
    else:
        _print_built(built, index)
    raise typer.Exit(1 if built.refused else 0)


@app.command("list")
def list_all(env: Env = "sim", output: Output = Format.TEXT) -> None:
    """List the indexes of builds, the newest first, and whether a key of the environment signed them.

    Exit codes: 0 all are signed, 1 some are not, 2 refused.
    """
    from rackready.campaign import release_index  # noqa: PLC0415

    site, paths, _ = _chosen(env, "")
    rows = [_row(site, paths, path) for path in release_index.indexes(paths)]
    if output is Format.JSON:
        print_json({"indexes": rows})
    elif not rows:
        progress.print("No release yet: `rackready release build` makes them.")
    else:
        lines = [(row["index"][:_SHORT], row["built"], str(row["nodes"]), row["fault"] or row["key"]) for row in rows]
        print_table(("index", "built", "nodes", "signed by"), lines)
    raise typer.Exit(1 if any(row["fault"] for row in rows) else 0)


@app.command()
def show(index: Which = "", env: Env = "sim", limit: Limit = "", output: Output = Format.TEXT) -> None:
    """Show which node has which release, and what is in it. Variables are sealed: they are not shown.

    Exit codes: 0 shown, 2 refused.
    """
    from rackready.drivers.release.objects import objects_of  # noqa: PLC0415

    site, paths, nodes = _chosen(env, limit)
    found = _read(site, paths, index)
    store = objects_of(paths)
    rows = [
        {
            "name": entry.node,
            "release": entry.release.sha256,
            "machine": entry.machine,
            **{key: value for key, value in json.loads(store.get(entry.release)).items() if key != "node"},
        }
        for entry in found.entries
        if entry.node in nodes
    ]
    if output is Format.JSON:
        print_json({"index": found.name, "site": found.site, "key": found.key, "nodes": rows})
        return
    console.print(f"index {found.name[:_SHORT]}: {len(found.entries)} nodes of {found.site}, signed by {found.key}")
    lines = [
        (row["name"], row["release"][:_SHORT], row["python"], row["ansible_core"], row["code"]["sha256"][:_SHORT])
        for row in rows
    ]
    print_table(("node", "release", "python", "ansible-core", "code"), lines)


@app.command()
def verify(index: Which = "", env: Env = "sim", limit: Limit = "", output: Output = Format.TEXT) -> None:
    """Verify signature and objects of an index: nothing is missing or damaged, and each node's variables open.

    Exit codes: 0 all is well, 1 something is not, 2 refused.
    """
    from rackready.campaign import release_index  # noqa: PLC0415
    from rackready.handover.keys import keys_of  # noqa: PLC0415

    site, paths, nodes = _chosen(env, limit)
    path = release_index.chosen(paths, index)
    found = release_index.verified(paths, path, keys_of(site, paths).trusted(), nodes if limit else None)
    faults = [str(fault) for fault in found.faults]
    if output is Format.JSON:
        print_json({"index": path.stem, "good": not faults, "objects": found.objects, "faults": faults})
    else:
        for fault in faults:
            console.print(fault)
        console.print(
            f"index {path.stem[:_SHORT]}: {len(faults)} faults"
            if faults
            else f"index {path.stem[:_SHORT]}: good. {found.objects} objects"
        )
    raise typer.Exit(1 if faults else 0)


def _chosen(env: str, limit: str) -> tuple[Site, EnvPaths, list[str]]:
    """Return the site, its paths, and the nodes of --limit that are not retired."""
    from rackready.cli.limit import choose  # noqa: PLC0415
    from rackready.design.site import load_site  # noqa: PLC0415

    paths = working_paths(env)
    site = load_site(env, root=paths.root)
    gone = set(retired(paths))
    return site, paths, [node for node in choose(site, limit) if node not in gone]


def _counted(nodes: Sequence[str]) -> Iterator[str]:
    """Yield the nodes, and say how far it is from time to time."""
    printed = time.monotonic()
    for number, node in enumerate(nodes):
        if time.monotonic() - printed >= SILENCE_S:
            printed = time.monotonic()
            progress.print(f"{number} of {len(nodes)} nodes", style="dim")
        yield node


def _built_document(built: Built, index: Path | None) -> dict[str, Any]:
    store = built.objects
    return {
        "index": index.stem if index else None,
        "objects": {"new": len(store.new), "kept": len(store.kept - store.new), "new_bytes": _bytes(built, store.new)},
        "nodes": [
            {
                "name": name,
                "release": found.blob.sha256,
                "machine": found.machine,
                "python": found.document["python"],
                "bytes": _size(found.document) + found.blob.size,
            }
            for name, found in built.releases.items()
        ],
        "refused": [{"name": name, "message": str(error)} for name, error in built.refused.items()],
    }


def _print_built(built: Built, index: Path | None) -> None:
    document = _built_document(built, index)
    lines = [
        (row["name"], row["release"][:_SHORT], row["python"], _mib(row["bytes"]), row["machine"])
        for row in document["nodes"]
    ]
    if lines:
        print_table(("node", "release", "python", "size", "machine"), lines)
    for row in document["refused"]:
        console.print(row["message"])
    count = document["objects"]
    console.print(f"objects: {count['new']} new ({_mib(count['new_bytes'])}), {count['kept']} kept")
    if index is not None:
        console.print(f"index {index.stem[:_SHORT]}: {len(built.releases)} nodes, {index}")


def _bytes(built: Built, names: set[str]) -> int:
    return sum(built.objects.path(name).stat().st_size for name in names)


def _size(document: Any) -> int:  # noqa: ANN401 - a release document, by parts
    """Return the bytes that a node fetches for a release, beside the document."""
    if isinstance(document, list):
        return sum(_size(item) for item in document)
    if isinstance(document, dict):
        return int(document["size"]) if "size" in document else sum(_size(item) for item in document.values())
    return 0


def _mib(count: int) -> str:
    return f"{count / 2**20:.1f} MiB"


def _row(site: Site, paths: EnvPaths, path: Path) -> dict[str, Any]:
    built = datetime.fromtimestamp(path.stat().st_mtime, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    try:
        found = _read(site, paths, path.stem)
    except RackreadyError as error:
        return {"index": path.stem, "built": built, "nodes": 0, "key": "", "fault": str(error)}
    return {"index": path.stem, "built": built, "nodes": len(found.entries), "key": found.key, "fault": ""}


def _read(site: Site, paths: EnvPaths, name: str) -> Index:
    from rackready.campaign import release_index  # noqa: PLC0415
    from rackready.handover.keys import keys_of  # noqa: PLC0415

    return release_index.read(release_index.chosen(paths, name), keys_of(site, paths).trusted())


release_serve.register(app)
release_reports.register(app)
release_prune.register(app)
