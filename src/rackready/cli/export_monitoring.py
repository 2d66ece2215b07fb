"""`rackready export prometheus`, `export grafana` and `export metrics`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rackready.cli.output import Env, Format, Output, console, print_json, progress, working_paths
from rackready.model.problems import RackreadyError

if TYPE_CHECKING:
    from rackready.render.owned_folder import Settled

Folder = Annotated[Path, typer.Option("--out", help="Folder for the files. Other files in it stay.")]

_OURS = "# Written by rackready export metrics"
_HEAD = _OURS + " of environment {} of site {}.\n"
_SUFFIX = ".prom"
"""node_exporter's textfile collector reads no other files."""


def register(app: typer.Typer) -> None:
    """Add `prometheus`, `grafana` and `metrics` to `rackready export`."""
    app.command("prometheus")(export_prometheus)
    app.command("grafana")(export_grafana)
    app.command("metrics")(export_metrics)


def export_prometheus(out: Folder, env: Env = "sim", output: Output = Format.TEXT) -> None:
    """Write Prometheus' configuration, rules and scrape targets, Alertmanager's routes, and counters of dcgm-exporter.

    Files that rackready did not write, or that were edited since, are refused.

    Exit codes: 0 written, 2 refused and nothing written.
    """
    from rackready.design.site import load_site  # noqa: PLC0415
    from rackready.render.monitoring import missing, monitoring_files  # noqa: PLC0415
    from rackready.render.owned_folder import write_owned  # noqa: PLC0415

    site = load_site(env, root=working_paths(env).root)
    made = monitoring_files(site)
    _show(out, list(made), write_owned(out, made, f"rackready export prometheus --env {env}"), missing(site), output)


def export_grafana(out: Folder, env: Env = "sim", output: Output = Format.TEXT) -> None:
    """Write Grafana dashboards: fleet, rack, node, rail and campaign.

    Files that rackready did not write, or that were edited since, are refused.

    Exit codes: 0 written, 2 refused and nothing written.
    """
    from rackready.design.site import load_site  # noqa: PLC0415
    from rackready.render.grafana import grafana_files  # noqa: PLC0415
    from rackready.render.owned_folder import write_owned  # noqa: PLC0415

    load_site(env, root=working_paths(env).root)  # a site file with problems is refused here as everywhere
    made = grafana_files()
    _show(out, list(made), write_owned(out, made, "rackready export grafana"), [], output)


def _show(folder: Path, made: list[str], done: Settled, notes: list[str], output: Format) -> None:
    if output is Format.JSON:
        changes = {"changed": done.changed, "removed": done.removed}
        print_json({"folder": str(folder), "files": made, **changes, "notes": notes})
        return
    for name in made:
        console.print(f"{folder / name}{'' if name in done.changed else ' (unchanged)'}")
    for name in done.removed:
        progress.print(f"removed, no longer needed: {folder / name}")
    for note in notes:
        progress.print(note, style="yellow")


def export_metrics(
    env: Env = "sim",
    out: Annotated[
        Path | None,
        typer.Option("--out", help="File that node_exporter's textfile collector reads, *.prom. Default: print them."),
    ] = None,
    output: Output = Format.TEXT,
) -> None:
    """Print rackready's own metrics, or write them to a file: states, campaign, gates, and what the plan expects.

    Reads only the site file and the records; needs no lock, and may run at any time.

    Exit codes: 0 done, 2 refused and nothing written.
    """
    head, found = _metrics(env)
    text = head + found
    count = sum(not line.startswith("#") for line in text.splitlines())
    if out is not None:
        _write(out, head, text)
    if output is Format.JSON:
        print_json({"file": str(out) if out else None, "samples": count, **({} if out else {"text": text})})
    elif out is None:
        typer.echo(text, nl=False)
    else:
        console.print(f"{count} metrics written to {out}")


def _metrics(env: str) -> tuple[str, str]:
    """Return the head, which says whose metrics they are, and the metrics."""
    from rackready.cli.status import working_campaigns  # noqa: PLC0415
    from rackready.design.site import load_site  # noqa: PLC0415
    from rackready.evidence.store import EvidenceStore  # noqa: PLC0415
    from rackready.handover.metrics import metrics  # noqa: PLC0415
    from rackready.ledger.store import Ledger  # noqa: PLC0415
    from rackready.render.exposition import exposition  # noqa: PLC0415
    from rackready.watch.view import look  # noqa: PLC0415
    from rackready.watch.view_metrics import metrics as watch_metrics  # noqa: PLC0415

    paths = working_paths(env)
    site = load_site(env, root=paths.root)
    head = _HEAD.format(env, site.name)
    if not Ledger.exists(paths.database):
        return head, exposition(metrics(site, {}, None, None, time.time()))
    with Ledger.read_only(paths.database) as ledger:
        store = EvidenceStore.read_only(ledger, paths.raw)
        campaigns = working_campaigns(ledger, paths)
        rows = {row.name: row for row in ledger.states()}
        found = metrics(site, rows, store, campaigns[0] if campaigns else None, time.time())
        watched = look(ledger, {node.name for node in site.nodes()}, paths, rows)
        return head, exposition([*found, *(watch_metrics(watched, site) if watched else ())])


def _write(out: Path, head: str, text: str) -> None:
    from rackready import files  # noqa: PLC0415

    if out.suffix != _SUFFIX:
        raise RackreadyError(
            f"--out {out}",
            expected=f"a file name that ends with {_SUFFIX}: node_exporter reads no other",
            actual=out.name,
            next_step=f"Name it {out.with_suffix(_SUFFIX).name}.",
        )
    try:
        there = out.read_text(encoding="utf-8", errors="replace").partition("\n")[0] if out.exists() else head.strip()
        if there not in {head.strip(), f"{_OURS}."}:  # the last: of older versions
            raise RackreadyError(
                f"--out {out}",
                expected="no file, or one that rackready wrote for this environment",
                actual=there.removeprefix("# ")[:120] if there.startswith(_OURS) else "somebody else's file",
                next_step="Name another file.",
            )
        files.replace(out, text.encode(), mode=0o644)
    except OSError as error:
        raise RackreadyError(
            f"--out {out}",
            expected="a folder that exists and can be written",
            actual=error.strerror or str(error),
            next_step="Make the folder, which node_exporter's --collector.textfile.directory names.",
        ) from error
