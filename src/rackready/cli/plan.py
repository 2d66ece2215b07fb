"""`rackready plan`: plans a site and compares the plan with the applied state. Changes nothing."""

from __future__ import annotations

import math
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rackready.cli.output import Env, env_paths, print_json
from rackready.design.collector import without_gc
from rackready.design.device_facts import device_facts
from rackready.design.diff import difference
from rackready.design.plan import SLACK_M, SPARES_PCT, plan_site
from rackready.design.plan_beyond import with_plan
from rackready.design.plan_summary import summary
from rackready.design.site import load_site
from rackready.design.yaml import read_yaml
from rackready.ledger import applied
from rackready.model import site as intent
from rackready.model.problems import Message, RackreadyError, SiteInvalidError
from rackready.paths import EnvPaths
from rackready.profiles import loader

NO_CHANGE, CHANGES, INVALID = 0, 1, 2


class PlanFormat(StrEnum):
    """Output format of a plan."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"


Site = Annotated[
    Path | None, typer.Option("--site", help="Plan this site file instead of the environment's own.", dir_okay=False)
]
Output = Annotated[
    PlanFormat,
    typer.Option("--output", help="text, json, or markdown for a pull-request comment."),
]
Write = Annotated[
    Path | None,
    typer.Option(
        "--write",
        help="Folder for plan.html, plan.json, CSV lists (cables, cords, bom, addresses) and one cable page per rack.",
    ),
]
Slack = Annotated[float, typer.Option("--slack-m", min=0, help="Spare length at each end of a cable, m.")]
Spares = Annotated[float, typer.Option("--spares-pct", min=0, help="Spares of each cable part, %.")]


def plan(
    env: Env = "sim",
    site: Site = None,
    output: Output = PlanFormat.TEXT,
    write: Write = None,
    slack_m: Slack = SLACK_M,
    spares_pct: Spares = SPARES_PCT,
) -> None:
    """Plan a site: fabric, cables, addresses, capacity, bill of materials and changes.

    Exit codes: 0 no change, 1 changes, 2 invalid.
    """
    _finite(("--slack-m", slack_m), ("--spares-pct", spares_pct))
    # One pass: a garbage collection between its steps would walk a million objects, all in use.
    with without_gc():
        _plan(env_paths(env), env, _existing(site), (slack_m, spares_pct), output, write)


def _plan(
    paths: EnvPaths, env: str, site: Path | None, inputs: tuple[float, float], output: PlanFormat, write: Path | None
) -> None:
    """Plan, compare, print and exit. ``inputs``: slack, m, and spares, per cent."""
    wanted = _loaded(paths, env, site)
    if wanted.gates.also or loader.owner("gate_sets", wanted.gates.set) is not None:
        from rackready.gates.engine.site_check import require_gates  # noqa: PLC0415 - only a site with gates of its own pays for loading them all

        require_gates(wanted, str(site or paths.site_file))
    made = plan_site(wanted, slack_m=inputs[0], spares_pct=inputs[1])
    before, not_compared = _before(paths, site, wanted.name)
    different = difference(before.facts, device_facts(made, before.facts))
    document = summary(made, before.at, different, not_compared)
    if write is not None:
        from rackready.render.plan_files import write_plan  # noqa: PLC0415 - only who writes files pays for templates

        document["written"] = {"folder": str(write), "files": write_plan(made, document, write)}
    _print(document, output)
    raise typer.Exit(INVALID if made.problems else CHANGES if different else NO_CHANGE)


def _loaded(paths: EnvPaths, env: str, site: Path | None) -> intent.Site:
    """Return the site. Raises SiteInvalidError, which includes problems of the plan."""
    try:
        return load_site(env, site_file=site, root=paths.root)
    except SiteInvalidError as error:
        if error.unread or not (site or paths.site_file).exists():
            raise
        raise with_plan(error) from error


def _before(paths: EnvPaths, file: Path | None, name: str) -> tuple[applied.AppliedFacts, str]:
    """Return the applied facts of that site in the environment, and a reason if another site was applied there."""
    before = applied.read(paths.state)
    if before.at is None or file is None or (paths.site_file.exists() and file.samefile(paths.site_file)):
        return before, ""
    theirs = before.site or _name_in(paths.site_file)
    if theirs == name:
        return before, ""
    whose = f"from site {theirs}" if theirs else "from a site whose name was not recorded"
    return applied.AppliedFacts(), f"environment {paths.env} was deployed {whose}, and this file describes site {name}"


def _name_in(file: Path) -> str:
    """Return the site's name in a site file, or empty. For records of releases without the name."""
    try:
        document = read_yaml(file)
    except SiteInvalidError:
        return ""
    return str(document.get("name", "")) if isinstance(document, dict) else ""


def _finite(*options: tuple[str, float]) -> None:
    """Raise RackreadyError for all numbers outside the limits of a cable list."""
    wrong = [
        Message(f"{option} {value:g}", expected="a finite number", actual=f"{value:g}", next_step="Correct it.")
        for option, value in options
        if not math.isfinite(value)
    ]
    if wrong:
        raise RackreadyError.of(wrong)


def _existing(site: Path | None) -> Path | None:
    if site is not None and not site.is_file():
        raise RackreadyError(f"--site {site}", expected="a site file", actual="none", next_step="Correct the path.")
    return site


def _print(document: dict[str, object], output: PlanFormat) -> None:
    from rackready.render.plan_markdown import plan_markdown  # noqa: PLC0415 - one of the two is needed
    from rackready.render.plan_text import plan_text  # noqa: PLC0415 - one of the two is needed

    if output is PlanFormat.JSON:
        print_json(document)
        return
    sys.stdout.write(plan_markdown(document) if output is PlanFormat.MARKDOWN else plan_text(document))


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(plan)
