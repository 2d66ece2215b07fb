"""`rackready gate show` and `explain`: the exact commands of a gate, and how it judges."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rackready.cli import complete
from rackready.cli.output import Env, Format, Output, console, env_paths, print_json, progress
from rackready.model.problems import RackreadyError

if TYPE_CHECKING:
    from rackready.gates.base import GateFacts

GateId = Annotated[
    str, typer.Argument(help="Gate id, e.g. node/gpu/validation/dcgm-r1.", autocompletion=complete.gates)
]
Profile = Annotated[
    str,
    typer.Option(
        "--profile",
        help="Server or GPU profile, e.g. dgx_h100, h100_sxm. Default: the site's.",
        autocompletion=complete.machines,
    ),
]
Nodes = Annotated[int, typer.Option("--nodes", min=1, help="Number of nodes that take part.")]
Gpus = Annotated[
    int | None,
    typer.Option("--gpus", min=1, help="Number of GPUs, when a machine has only part of the server's."),
]


def show(
    ctx: typer.Context,
    gate_id: GateId,
    env: Env = "sim",
    profile: Profile = "",
    nodes: Nodes = 1,
    output: Output = Format.TEXT,
) -> None:
    """Show a gate's inputs and every command that it would run.

    Includes all launches, and the commands of other launchers and choices.
    """
    from rackready.gates.engine.describe import shown  # noqa: PLC0415
    from rackready.gates.engine.registry import gate  # noqa: PLC0415

    found = gate(gate_id, inputs_of(ctx, env).get(gate_id, {}))
    known = facts_for(ctx, env, profile, max(found.min_nodes, nodes))
    document = shown(found, known, list(known.nodes))
    if output is Format.JSON:
        print_json(document)
        return
    _head(document)
    runs = document["runs"]
    if document["nothing"]:
        _say(f"it runs nothing: {document['nothing']}")
        return
    _say(
        f"runs: {len(runs)} ({', '.join(runs[:8])}{', ...' if len(runs) > len(runs[:8]) else ''}); "
        f"commands of {runs[0]}:"
    )
    _commands(document["commands"])
    if document["takes"]:
        _say("`gate evaluate` also takes what these print:")
    for key, words in document["takes"].items():
        _say(f"  {key}: {words}")
    for variant in document["variants"]:
        refused = f" refused: {variant['left_out']}" if variant["left_out"] else ""
        _say(f"with {variant['choice']} = {variant['value']}:{refused}")
        _commands(variant["commands"])


def _commands(commands: list[dict[str, Any]]) -> None:
    """Print every command in full; repeated ones (launches) once, with their number and stages."""
    alike: dict[tuple[str, str, str, str], list[dict[str, Any]]] = {}
    for item in commands:
        stem = _NUMBERS.sub("", item["key"])  # readings before and after differ, although the command is the same
        alike.setdefault((item["node"], item["role"], item["line"], stem), []).append(item)
    for (node, role, line, _), same in alike.items():
        place = f"{node} (its BMC)" if same[0]["via"] == "bmc" else node
        kind = f" ({role})" if role != "step" else ""
        _say(
            f"  {_stages([item['stage'] for item in same])} {place}{kind} [{_times(same)}, at most "
            f"{same[0]['timeout_s']:g} s]:\n    {line}"
        )


_NUMBERS = re.compile(r"[0-9]+")


def _stages(stages: list[int]) -> str:
    """Return the stages in words. Stages that are not adjacent have other commands between them."""
    if len(set(stages)) == 1:
        return f"stage {stages[0]}"
    steps = {after - before for before, after in pairwise(stages)}
    return (
        f"stages {stages[0]} to {stages[-1]}" if steps == {1} else f"stages {', '.join(str(stage) for stage in stages)}"
    )


def _times(same: list[dict[str, Any]]) -> str:
    """Return the keys of equal commands, and how often they run."""
    if len(same) == 1:
        return str(same[0]["key"])
    how = "side by side" if same[0]["stage"] == same[-1]["stage"] else "one after the other"
    return f"{same[0]['key']} to {same[-1]['key']}, {len(same)} times, {how}"


def explain(
    ctx: typer.Context,
    gate_id: GateId,
    env: Env = "sim",
    profile: Profile = "",
    nodes: Nodes = 1,
    output: Output = Format.TEXT,
) -> None:
    """Explain how a gate judges: bounds with sources, outcomes, findings and next steps."""
    from rackready.gates.engine.describe import explained  # noqa: PLC0415
    from rackready.gates.engine.registry import gate  # noqa: PLC0415

    found = gate(gate_id, inputs_of(ctx, env).get(gate_id, {}))
    document = explained(found, facts_for(ctx, env, profile, max(found.min_nodes, nodes)))
    if output is Format.JSON:
        print_json(document)
        return
    _head(document)
    for text in document["how"]:
        if text != document["title"]:
            _say(f"\n{_wrapped(text)}")
    _say(f"\nbounds on {document['of']}: {document['no_bounds'] or 'as far as they are known before a run:'}")
    for item in document["bounds"]:
        inputs = ", ".join(
            f"{name}={value:.6g}" if isinstance(value, float) else f"{name}={value}"
            for name, value in item["inputs"].items()
        )
        unit = "" if item["unit"] == "1" else f" {item['unit']}"
        value = f"{item['bound']:.6g}{unit}{' (derived)' if item['derived'] else ''}"
        _say(
            f"  {item['label']}: {item['metric']} {item['op']} {value}: "
            f"{item['source']}{f' [{inputs}]' if inputs else ''}"
        )
    _applied(env, gate_id)
    for item in document["fleet"]:
        worse = "below" if item["better"] == "higher" else "above"
        _say(
            f"  fleet: {item['metric']} not {worse} that of at least 16 identical units; "
            f"smallest detectable effect {item['effect']:.0%} of their median"
        )
    for outcome in ("fail", "error"):
        _say(f"\n{outcome}, when it finds:")
        for item in (item for item in document["findings"] if item["outcome"] == outcome):
            _say(f"  {item['code']}: {item['title']}")
            for text in (item["meaning"], *(f"next: {step}" for step in item["next_steps"])):
                _say(f"    {text}")
    _say(f"\nfindings of every gate: {', '.join(item['code'] for item in document['every_gate'])}")
    _say("\noutcomes:")
    for outcome, words in document["outcomes"].items():
        _say(f"  {outcome}: {words}")
    _sets(document)


def _applied(env: str, gate_id: str) -> None:
    """Print the last applied bounds, from the newest record that has any; nothing without records."""
    from rackready.evidence.store import EvidenceStore  # noqa: PLC0415
    from rackready.ledger.store import Ledger  # noqa: PLC0415

    try:
        paths = env_paths(env)
        if not Ledger.exists(paths.database):
            return
        records = EvidenceStore.read_only(Ledger.read_only(paths.database), paths.raw).newest(gate_id).values()
    except RackreadyError as error:
        progress.print(f"last applied bounds cannot be read: {error}")
        return
    last = max((record for record in records if record.verdict.criteria), key=lambda record: record.id, default=None)
    if last is not None:
        _say(f"last applied bounds ({last.target}, {last.started:%Y-%m-%d %H:%M} UTC, record {last.id}):")
        for bound in last.verdict.criteria:
            inputs = ", ".join(f"{name}={value}" for name, value in bound.inputs.items())
            _say(
                f"  {bound.label}: {bound.metric} {bound.op.value} {bound.bound:g} {bound.unit} "
                f"({bound.source}){f' [{inputs}]' if inputs else ''}"
            )


def _sets(document: dict[str, Any]) -> None:
    _say("\ngate sets:" if document["sets"] else f"\ngate sets: none ({document['in_no_set'] or 'no reason given'})")
    for item in document["sets"]:
        age = f"counts for {item['max_age_hours']:g} h" if item["max_age_hours"] else "does not age"
        boot = ", void after a boot" if item["after_boot"] else ""
        _say(f"  {item['set']}: {'required' if item['required'] else 'advisory'}, {age}{boot}")


def _head(document: dict[str, Any]) -> None:
    _say(
        f"{document['id']}\n{document['title']}\nmeasures: "
        f"{', '.join(document['measures']) or 'nothing that coverage counts'}"
    )
    for name, item in document["inputs"].items():
        _say(f"  input {name} = {_yaml(item['value'])}: {item['description']}")


def _yaml(value: object) -> str:
    """Return a value as a site file and --set take it: true, null, 8388608."""
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)


def _wrapped(text: str) -> str:
    return "\n".join(textwrap.fill(line, _WIDTH, break_on_hyphens=False) for line in text.split("\n"))


_WIDTH = 120


def _say(text: str) -> None:
    console.print(text)


def inputs_of(ctx: typer.Context, env: str) -> dict[str, dict[str, Any]]:
    """Return gate id -> inputs of the site's set; empty when the default environment has no site file.

    Raises RackreadyError for a named environment that does not exist, and for a broken site file.
    """
    from rackready.design.site import load_site  # noqa: PLC0415
    from rackready.profiles.loader import gates_of  # noqa: PLC0415

    if not named(ctx) and not _has_site(env):
        return {}
    return {entry.id: entry.inputs for entry in gates_of(load_site(env, root=env_paths(env).root).gates)}


def named(ctx: typer.Context) -> bool:
    """Return whether the call, or $ENV, names an environment.

    Compares the name of the source: newer releases of typer have their own enumeration.
    """
    return getattr(ctx.get_parameter_source("env"), "name", "") != "DEFAULT"


def _has_site(env: str) -> bool:
    """Return whether there is a site file, good or bad. Outside a checkout there is none."""
    try:
        return env_paths(env).site_file.exists()
    except RackreadyError:
        return False


def facts_for(ctx: typer.Context, env: str, profile: str, nodes: int) -> GateFacts:
    """Return facts by profile, else by the server model of the site's first node. Report the server for a GPU.

    Raises RackreadyError if neither a profile nor an environment is given and the default environment has no site file.
    """
    from rackready.design.handover_of import handover_views  # noqa: PLC0415
    from rackready.design.site import load_site  # noqa: PLC0415
    from rackready.gates.engine.site_facts import slurm_jobs  # noqa: PLC0415

    if profile:
        return facts_of_profile(profile, nodes)
    if not named(ctx) and not _has_site(env):
        raise RackreadyError(
            ctx.command_path,
            expected="a server",
            actual=f"no --profile, and environment {env} has no site file",
            next_step="Give a profile, e.g. --profile dgx_h100, or an environment with --env.",
        )
    site = load_site(env, root=env_paths(env).root)
    found = facts_of_profile(site.nodes()[0].platform, nodes)
    fabric = found.fabric.model_copy(update={"nccl_net": site.fabric.nccl_net})
    first = handover_views(site)[0].site
    reservation, user = slurm_jobs(first)
    return replace(found, launcher=first.gates.launcher, fabric=fabric, reservation=reservation, job_user=user)


def facts_of_profile(wanted: str, nodes: int | Sequence[str], gpus: int | None = None) -> GateFacts:
    """Return facts by profile, for a number of nodes or for node names. Reports which server a GPU model means."""
    from rackready.gates.records.offline import facts, platform_of  # noqa: PLC0415

    server = platform_of(wanted, gpus)
    if server.id != wanted or gpus is not None:
        progress.print(f"profile {wanted}: using {server.id} with {server.gpus} GPUs")
    return facts(server, nodes)
