"""`rackready export kubernetes`: values and objects for the operators of a Kubernetes cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rackready.cli.output import Env, Format, Output, console, env_paths, print_json, progress
from rackready.model.problems import Message, RackreadyError

if TYPE_CHECKING:
    from rackready.model.exported import Export, ExportedFile
    from rackready.paths import EnvPaths

Out = Annotated[Path, typer.Option("--out", help="Folder for the files; made if absent. Files of others stay.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("kubernetes")(kubernetes)


def kubernetes(out: Out, env: Env = "sim", output: Output = Format.TEXT) -> None:
    """Write values for GPU Operator, Network Operator and DRA driver, and objects for Kueue, each with its origin.

    The cluster is not asked and nothing is installed. Files of an earlier export are replaced.

    Exit codes: 0 written, 2 refused and nothing written.
    """
    from rackready.render.exported import MARK, text_of  # noqa: PLC0415 - only this command pays for it

    made = _export(env_paths(env))
    command = f"kubernetes --env {env}"
    texts = {file.name: text_of(file, command) for file in made.files}
    old = _ours(out, f"{MARK} kubernetes", set(texts))
    _write(out, texts)
    for path in old:
        path.unlink()
    if output is Format.JSON:
        print_json(_document(out, made, old))
        return
    for file in made.files:
        console.print(str(out / file.name))
    for path in old:
        progress.print(f"removed, no longer needed: {path}")
    for note in made.notes:
        progress.print(note, style="yellow")


def _export(paths: EnvPaths) -> Export:
    from rackready.design.kube_export import kube_export  # noqa: PLC0415
    from rackready.design.mig_layouts import mig_layouts  # noqa: PLC0415
    from rackready.design.site import load_site  # noqa: PLC0415
    from rackready.model.kubernetes import KubernetesHandover  # noqa: PLC0415

    site = load_site(paths.env, root=paths.root)
    if not isinstance(site.handover, KubernetesHandover):
        raise RackreadyError(
            f"inventories/{paths.env}/site.yml",
            expected="handover.kind: kubernetes",
            actual=f"handover.kind: {site.handover.kind}",
            next_step="See docs/howto/kubernetes.md.",
        )
    return kube_export(site, site.handover, mig_layouts(paths.inventory))


def _ours(out: Path, mark: str, names: set[str]) -> list[Path]:
    """Return files of an earlier export that this one lacks. Raises RackreadyError for names that others took."""
    foreign = [out / name for name in sorted(names) if (out / name).exists() and not _has(out / name, mark)]
    if foreign:
        raise RackreadyError.of(
            Message(
                str(path),
                expected="absent, or written by `rackready export kubernetes`",
                actual="a file of others",
                next_step="Name another folder, or move it away. Nothing was written.",
            )
            for path in foreign
        )
    return [path for path in sorted(out.glob("*.yaml")) if path.name not in names and _has(path, mark)]


def _has(path: Path, mark: str) -> bool:
    return path.is_file() and path.read_bytes().startswith(mark.encode())


def _write(out: Path, texts: dict[str, str]) -> None:
    from rackready import files  # noqa: PLC0415

    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            files.replace(out / name, text.encode(), mode=0o644)
    except OSError as error:
        raise RackreadyError(
            f"--out {out}",
            expected="a folder that can be written",
            actual=error.strerror or str(error),
            next_step="Correct the path or its rights.",
        ) from error


def _document(out: Path, made: Export, old: list[Path]) -> dict[str, object]:
    return {
        "folder": str(out),
        "files": [file.name for file in made.files],
        "removed": [path.name for path in old],
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
