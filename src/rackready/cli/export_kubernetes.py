"""`rackready export kubernetes`: values and objects for the operators of a Kubernetes cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rackready.cli.output import Env, Format, Output, Part, console, print_json, progress, working_paths
from rackready.model.problems import RackreadyError

if TYPE_CHECKING:
    from rackready.model.exported import Export, ExportedFile
    from rackready.paths import EnvPaths

Out = Annotated[Path, typer.Option("--out", help="Folder for the files; created if absent. Other files in it stay.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("kubernetes")(kubernetes)


def kubernetes(out: Out, env: Env = "sim", part: Part = "", output: Output = Format.TEXT) -> None:
    """Write values for GPU Operator, Network Operator and DRA driver, and objects for Kueue, each with its origin.

    It does not contact the cluster and installs nothing. It replaces files of an earlier export; it refuses edited
    ones, and those of another environment.

    Exit codes: 0 written, 2 refused and nothing written.
    """
    from rackready.render.exported import text_of  # noqa: PLC0415 - only this command pays for it
    from rackready.render.owned_folder import write_owned  # noqa: PLC0415

    made = _export(working_paths(env), part)
    command = f"kubernetes --env {env}{f' --part {part}' if part else ''}"
    texts = {file.name: text_of(file, command).encode() for file in made.files}
    done = write_owned(out, texts, f"rackready export {command}")
    if output is Format.JSON:
        print_json(_document(out, made, done.removed))
        return
    for file in made.files:
        console.print(str(out / file.name))
    for name in done.removed:
        progress.print(f"removed, no longer needed: {out / name}")
    for note in made.notes:
        progress.print(note, style="yellow")


def _export(paths: EnvPaths, part: str) -> Export:
    from rackready.design.handover_of import view_of_kind  # noqa: PLC0415
    from rackready.design.kube_export import kube_export  # noqa: PLC0415
    from rackready.design.mig_layouts import layouts_of  # noqa: PLC0415
    from rackready.design.site import load_site  # noqa: PLC0415
    from rackready.model.kubernetes import KubernetesHandover  # noqa: PLC0415

    where = f"inventories/{paths.env}/site.yml"
    whole = load_site(paths.env, root=paths.root)
    site = view_of_kind(whole, "kubernetes", part, where)
    if not isinstance(site.handover, KubernetesHandover):
        raise RackreadyError(
            where,
            expected="handover.kind: kubernetes",
            actual=f"handover.kind: {site.handover.kind}",
            next_step="See docs/howto/kubernetes.md.",
        )
    return kube_export(site, site.handover, layouts_of(paths.inventory, whole, site))


def _document(out: Path, made: Export, old: list[str]) -> dict[str, object]:
    return {
        "folder": str(out),
        "files": [file.name for file in made.files],
        "removed": old,
        "notes": list(made.notes),
        "values": [value for file in made.files for value in _values(file)],
    }


def _values(file: ExportedFile) -> list[dict[str, object]]:
    """Return the values of a file that have an origin. ``document``: which of its YAML documents, from 0."""
    return [
        {"file": file.name, "document": at, "path": list(item.path), "value": item.value, "source": item.source}
        for at, document in enumerate(file.documents)
        for item in document
        if item.source
    ]
