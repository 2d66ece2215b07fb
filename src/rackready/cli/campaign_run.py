"""Shared by `deploy` and single phases: choose the nodes, run the campaign, show progress and the result."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import typer

from rackready.campaign.applied import record_applied
from rackready.campaign.controller import Finished, Reporter, Show, keep_off_alone, run_campaign
from rackready.campaign.log_file import log_path
from rackready.campaign.request import DEPLOY_KIND, CampaignRequest, new_request
from rackready.campaign.summary import NodeSummary, document, exit_code, summarise
from rackready.cli.deploy_control import require_not_paused
from rackready.cli.limit import choose, written
from rackready.cli.output import Format, console, print_json, print_reasons, print_table, progress, working_paths
from rackready.cli.progress_lines import Lines
from rackready.cli.sets_of_upgrade import require_no_other_set, settle_sets
from rackready.cli.streams import tolerant
from rackready.design import outline
from rackready.design.deployable import require
from rackready.design.imaging import imaged_nodes
from rackready.design.pinned import edited
from rackready.design.site import load_site
from rackready.design.site_inputs import site_key
from rackready.drivers.required import require_drivers
from rackready.drivers.ssh.target import read_private_key
from rackready.gates.engine.site_check import require_gates
from rackready.ledger.store import Ledger
from rackready.model.base import expand_names
from rackready.model.problems import RackreadyError, StoppedError
from rackready.model.refusal import document as refused
from rackready.model.site import Site
from rackready.model.state import NodeState
from rackready.paths import EnvPaths


def run(  # noqa: PLR0913 - what is asked for
    kind: str,
    phases: tuple[str, ...],
    *,
    env: str,
    limit: str,
    check: bool,
    output: Format,
    again: bool = False,
    erase: Sequence[str] = (),
    full: bool = False,
    verbose: bool = False,
    resume: bool = False,
) -> None:
    """Run phases on the site's nodes, then exit with the code of the result."""
    rows, result = carried_out(
        kind,
        phases,
        env=env,
        limit=limit,
        check=check,
        output=output,
        again=again,
        erase=erase,
        full=full,
        verbose=verbose,
        resume=resume,
    )
    if output is Format.JSON:
        print_json(result)
    else:
        show_result(rows, result)
    _leave(exit_code(rows, result["stopped"]))


def carried_out(  # noqa: PLR0913 - what is asked for
    kind: str,
    phases: tuple[str, ...],
    *,
    env: str,
    limit: str,
    check: bool,
    output: Format,
    again: bool = False,
    erase: Sequence[str] = (),
    full: bool = False,
    verbose: bool = False,
    resume: bool = False,
    seen_as: Callable[[Site], Site] | None = None,
) -> tuple[list[NodeSummary], dict[str, Any]]:
    """Run phases on the site's nodes and return their rows and the result. ``seen_as``: the site for this run.

    ``resume``: go on although the last deploy is paused.
    """
    paths = working_paths(env)
    if kind == DEPLOY_KIND and not (resume or check):
        require_not_paused(paths)
    key = site_key(paths)
    written = site = load_site(env, root=paths.root)
    if seen_as is not None:
        site = seen_as(site)
    require_gates(site, str(paths.site_file))
    require_drivers(site, str(paths.site_file), switches="fabric" in phases)
    nodes = choose(site, limit)
    require_no_other_set(paths, site, nodes)
    if not check:
        settle_sets(paths, command_words(kind, env=env, limit=limit, check=check, again=again, erase=erase, full=full))
    to_erase = erased(site, nodes, erase)
    require(site, nodes, kind)
    if "provision" in phases and imaged_nodes(site):
        from rackready.stacks.boot_jobs import require_images  # noqa: PLC0415 - most sites image nothing

        require_images(site, paths, nodes)
    read_private_key("this controller", site.access.private_key)
    begun = time.monotonic()
    able, left_out = _without_those_out(paths, nodes)
    request = new_request(
        site,
        env=env,
        root=paths.root,
        kind=kind,
        phases=phases,
        nodes=tuple(able),
        check=check,
        again=again,
        erase=tuple(node for node in to_erase if node in able),
        full=full,
    )
    outline.keep(paths, outline.outline_of(written), key)  # `status` reads it from now on
    command = command_words(kind, env=env, limit=limit, check=check, again=again, erase=erase, full=full)
    with _shown(request, verbose=verbose) as show:
        finished = (run_campaign if able else keep_off_alone)(
            paths,
            request,
            command=command,
            reporter=Reporter(_say, show, partial(stopped, json=output is Format.JSON)),
            verbose=verbose,
        )
    with Ledger.open(paths.database) as ledger:
        rows = summarise(ledger, able, finished.results) + left_out
    rows.sort(key=lambda row: nodes.index(row.name))
    result = document(
        finished.campaign,
        rows,
        seconds=time.monotonic() - begun,
        resumed=finished.resumed,
        drained=finished.drained,
        stopped=finished.stopped,
    )
    result |= _reports(paths, site, finished.campaign) | {"log": str(log_path(paths, finished.campaign))}
    result["site_edited"] = "" if seen_as is not None else edited(request.context())
    _record(paths, site, request, finished, rows)
    return rows, result


@contextmanager
def _shown(request: CampaignRequest, *, verbose: bool) -> Iterator[Show]:
    """Return the progress display: a live table on a terminal; lines elsewhere, with ``verbose`` and in a dry run."""
    lines = Lines(verbose=verbose)
    if verbose or request.check or not progress.is_terminal or not request.nodes:
        yield lines
        return
    from rackready.cli.live_table import LiveTable  # noqa: PLC0415 - pipelines need none

    with LiveTable(progress, request.nodes, request.phases, lines) as table:
        yield table


def command_words(  # noqa: PLR0913 - every option
    kind: str, *, env: str, limit: str, check: bool, again: bool, erase: Sequence[str] = (), full: bool = False
) -> str:
    """Return the command line that repeats this run."""
    options = [
        *(["--limit", shlex.quote(limit)] if limit else []),
        *(["--check"] if check else []),
        *(["--again"] if again else []),
        *(["--full"] if full else []),
        *(word for names in erase for word in ("--erase", shlex.quote(names))),
    ]
    return " ".join(["rackready", kind, "--env", env, *options])


_OUT = {NodeState.QUARANTINED: "fail", NodeState.REPAIR: "skip", NodeState.RETIRED: "skip"}
"""Side states whose nodes no campaign changes -> their outcome in the summary."""


def erased(site: Site, nodes: Sequence[str], given: Sequence[str]) -> list[str]:
    """Return the nodes of ``--erase``: names or host lists. Raises RackreadyError for one that is not imaged here."""
    wanted: list[str] = []
    for text in (part for names in given for part in written(names)):
        try:
            wanted += expand_names(text)
        except ValueError as error:
            step = "Give names, or host lists such as gpu[01-32]."
            raise RackreadyError(f"--erase {text}", expected="a host list", actual=error, next_step=step) from error
    imaged = [node.name for node in imaged_nodes(site) if node.name in nodes]
    unknown = [name for name in wanted if name not in imaged]
    if unknown:
        raise RackreadyError(
            f"--erase {', '.join(unknown)}",
            expected=f"some of {', '.join(imaged) or 'no node'}: chosen nodes with boot http or pxe",
            actual="none of them",
            next_step="Correct it, or --limit.",
        )
    return [name for name in imaged if name in wanted]


def _without_those_out(paths: EnvPaths, nodes: list[str]) -> tuple[list[str], list[NodeSummary]]:
    """Leave out nodes in quarantine, at their vendor, and retired: re-measuring until one passes would hide a fault."""
    if not Ledger.exists(paths.database):
        return nodes, []
    with Ledger.open(paths.database) as ledger:
        rows = {row.name: row for row in ledger.states()}
    left_out = [
        NodeSummary(
            name,
            rows[name].state.value,
            rows[name].phase,
            _OUT[rows[name].state],
            changed=False,
            reason=rows[name].reason,
        )
        for name in nodes
        if name in rows and rows[name].state in _OUT
    ]
    for row in left_out:
        if row.state == NodeState.RETIRED.value:
            words = f"is retired ({row.reason}) and left out. Remove it from the site file; to bring it back"
        elif row.state == NodeState.REPAIR.value:
            words = f"is out for repair ({row.reason}) and left out. When it is back"
        else:
            words = "is in quarantine and left alone. When it is repaired"
        step = "rma" if row.state == NodeState.REPAIR.value else "repair"
        back = " --returned" if step == "rma" else ""
        progress.print(f"{row.name} {words}: `rackready {step} {row.name}{back} --reason '...'`", style="yellow")
    return [name for name in nodes if name not in {row.name for row in left_out}], left_out


def _say(text: str) -> None:
    progress.print(text, style="yellow")


def stopped(error: StoppedError, *, json: bool) -> None:
    """Print the last words of a campaign that the operator stopped."""
    _say(str(error))
    if json:
        with tolerant(sys.stdout):
            print_json(refused(error))


def _reports(paths: EnvPaths, site: Site, campaign: str) -> dict[str, Any]:
    from rackready.evidence.report import write  # noqa: PLC0415 - only at the end of a campaign
    from rackready.handover.counted import Counted  # noqa: PLC0415 - as above

    written = write(site, paths, campaign, counting=Counted())
    return {"report_html": str(written.html), "report_json": str(written.json)}


def _record(paths: EnvPaths, site: Site, request: CampaignRequest, finished: Finished, rows: list[NodeSummary]) -> None:
    """Record what was applied. A failure to record is reported; it changes neither the nodes nor the exit code."""
    try:
        record_applied(paths, site, request, finished, rows)
    except (RackreadyError, OSError) as error:
        progress.print(f"could not record what was applied: {error}", style="yellow")


def show_result(rows: list[NodeSummary], result: dict[str, Any]) -> None:
    """Print the rows of a campaign, its reasons, and where its report is."""
    lines = [(row.name, row.state, row.phase, row.outcome, "yes" if row.changed else "no") for row in rows]
    print_table(("node", "state", "last phase", "outcome", "changed"), lines, title=f"campaign {result['campaign']}")
    print_reasons((row.name, row.reason) for row in rows)
    ready = sum(1 for row in rows if row.state == NodeState.READY.value)
    console.print(f"{ready} of {len(rows)} nodes ready, {result['seconds']} s")
    if result["stopped"]:
        console.print(f"ended early: {result['stopped']}", style="yellow")
    if (
        not result["stopped"]
        and not result["changed"]
        and not result["drained"]
        and all(row.outcome == "pass" for row in rows)
    ):
        console.print("nothing was changed: the site matches its file")
    if result["site_edited"]:
        console.print(result["site_edited"], style="yellow")
    console.print(f"report: {result['report_html']}\n        {result['report_json']}\nlog:    {result['log']}")


def _leave(code: int) -> None:
    raise typer.Exit(code)
