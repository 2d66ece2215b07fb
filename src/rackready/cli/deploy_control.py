"""Pauses, ends and continues deploys for the command line, and chooses what a deploy failed on."""

from __future__ import annotations

from typing import Any

from rackready.campaign import stop_request
from rackready.campaign.request import DEPLOY, DEPLOY_KIND
from rackready.campaign.stop_request import StopRequest
from rackready.cli.output import Format, console, print_json, working_paths
from rackready.design.names import listed
from rackready.design.site import load_site
from rackready.ledger.lock import ControllerLock, is_held, is_held_here
from rackready.ledger.store import PAUSED, Ledger
from rackready.model.outcome import CONTINUES
from rackready.model.problems import RackreadyError
from rackready.paths import EnvPaths


def ask(paths: EnvPaths, request: StopRequest) -> str:
    """Ask the running deploy to pause or end, and return what happens then. Raises RackreadyError when none runs."""
    where, row = f"deploy --{request.value}", _last(paths)
    running = row is not None and row["status"] == "running" and is_held(paths.lock, paths.database)
    if row is None or not running:
        actual = "none" if row is None else f"{row['id']}: {row['status']}"
        raise RackreadyError(where, expected="a deploy that runs", actual=actual, next_step="There is nothing to do.")
    if not is_held_here(paths.lock):
        step = f"Run `rackready {where}` on the machine that runs it."
        raise RackreadyError(where, expected="a deploy on this machine", actual="on another one", next_step=step)
    stop_request.put(paths.deploy_request, request)
    return f"campaign {row['id']}: asked to {request.value}; it does so after the phase under way"


def require_not_paused(paths: EnvPaths) -> None:
    """Raise RackreadyError where a deploy waits for the operator's word."""
    row = _last(paths)
    if row is not None and row["status"] == PAUSED:
        step = "Go on with `rackready deploy --resume`, or end it with --abort."
        raise RackreadyError(
            f"campaign {row['id']}", expected="no deploy that is paused", actual=row["status"], next_step=step
        )


def end(paths: EnvPaths) -> str:
    """End the deploy that runs or is paused, and return what happens then. Raises RackreadyError when there is none."""
    row = _last(paths)
    if row is None or row["status"] != PAUSED:
        return ask(paths, StopRequest.ABORT)
    with ControllerLock(paths.lock, "rackready deploy --abort", paths.database), Ledger.open(paths.database) as ledger:
        ledger.put_campaign(row["id"], status="aborted")
    return f"campaign {row['id']}: aborted; its nodes keep their states"


def paused(paths: EnvPaths) -> list[str]:
    """Return the nodes of the paused deploy. Raises RackreadyError when none is paused."""
    row = _last(paths)
    if row is None or row["status"] != PAUSED:
        actual = "none" if row is None else f"{row['id']}: {row['status']}"
        step = "Begin one: `rackready deploy`."
        raise RackreadyError("deploy --resume", expected="a deploy that is paused", actual=actual, next_step=step)
    return list(row["nodes"])


def failed(paths: EnvPaths) -> list[str]:
    """Return the nodes that the last deploy tried and did not bring to its last phase. Raises RackreadyError if none.

    Nodes that it did not reach have not failed: a plain deploy goes on with them.
    """
    where, row = "deploy --failed-only", _last(paths)
    results: dict[str, Any] | None = row["summary"].get("results") if row is not None else None
    if row is None or results is None:
        actual = "none" if row is None else f"{row['id']}: {row['status']}"
        step = "Run `rackready deploy`: each node continues from its state."
        raise RackreadyError(where, expected="a deploy that ended", actual=actual, next_step=step)
    found = [node for node in row["nodes"] if node in results and not _came_through(results[node])]
    if not found:
        actual = f"none in {row['id']}"
        step = "There is nothing to do."
        raise RackreadyError(where, expected="nodes that failed", actual=actual, next_step=step)
    return found


def limit_of(env: str, *, resume: bool) -> str:
    """Return `--limit` for the nodes of the paused deploy, or for those that failed, without nodes that are gone."""
    paths = working_paths(env)
    names = paused(paths) if resume else failed(paths)
    known = {node.name for node in load_site(env, root=paths.root).nodes()}
    kept = [name for name in names if name in known]
    if not kept:
        where = f"deploy {'--resume' if resume else '--failed-only'}"
        step = "Run `rackready deploy`."
        raise RackreadyError(where, expected="nodes of the site", actual=listed(names), next_step=step)
    return ",".join(kept)


def one_of(options: list[tuple[str, object]]) -> None:
    """Raise RackreadyError where more than one of these options is given."""
    given = [name for name, value in options if value]
    if len(given) > 1:
        known = ", ".join(name for name, _ in options)
        raise RackreadyError("deploy", expected=f"one of {known}", actual=", ".join(given), next_step="Give one.")


def require_alone(word: str, *, check: bool, erase: list[str], full: bool) -> None:
    """Raise RackreadyError where options of a run come with a word to a running deploy."""
    given = [*(["--check"] if check else []), *(["--erase"] if erase else []), *(["--full"] if full else [])]
    if given:
        raise RackreadyError(
            f"deploy {word}", expected=f"{word} alone", actual=", ".join(given), next_step="Leave them out."
        )


def tell(paths: EnvPaths, output: Format, *, abort: bool) -> None:
    """Ask the running deploy, or end the paused one, and print what happens then."""
    text = end(paths) if abort else ask(paths, StopRequest.PAUSE)
    if output is Format.JSON:
        print_json({"env": paths.env, "asked": "abort" if abort else "pause", "what": text})
    else:
        console.print(text)


def _came_through(result: dict[str, Any]) -> bool:
    return result["outcome"] in CONTINUES and result["phase"] == DEPLOY[-1]


def _last(paths: EnvPaths) -> dict[str, Any] | None:
    if not Ledger.exists(paths.database):
        return None
    with Ledger.read_only(paths.database) as ledger:
        return next((row for row in ledger.campaigns() if row["kind"] == DEPLOY_KIND), None)
