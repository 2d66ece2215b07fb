"""The provision phase: one Pulumi stack per rack, in a worker process that a later run can find and end."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

from rackready.design.imaging import imaged_nodes
from rackready.design.pinned import site_of
from rackready.drivers import pulumi as engine
from rackready.drivers.process import run_child
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult, PhaseContext
from rackready.model.problems import RackreadyError
from rackready.model.site import Site
from rackready.paths import EnvPaths, private_dir
from rackready.stacks.imaging import ERASE_VARIABLE
from rackready.stacks.machine import POWER_OFF, POWER_ON
from rackready.stacks.worker import StackRequest, racks_at_once, rounds

_SPARE_S = 600
"""Seconds for the engine itself in each round, besides the time for a node to boot."""

_FULL = 1 << 20
"""Free bytes below which a run without a result is attributed to a full disk."""


def run_provision(ctx: PhaseContext, nodes: list[str]) -> dict[str, NodeResult]:
    """Power on nodes, wait for SSH and return a result for each; with ``ctx.check`` only report what would change.

    Every node of a rack stays declared, and targets limit the run to the given nodes: nothing is ever deleted here. No
    node raises an exception. Raises RackreadyError when the engine is not installed.
    """
    return _checked(ctx, nodes, "preview" if ctx.check else "up")


def run_destroy(ctx: PhaseContext, nodes: list[str]) -> dict[str, NodeResult]:
    """Power off those of the given nodes that we powered on, and remove all of them from the stack.

    Raises RackreadyError when the engine is not installed.
    """
    return _checked(ctx, nodes, "destroy")


def _checked(ctx: PhaseContext, nodes: list[str], action: str) -> dict[str, NodeResult]:
    try:
        return _run(ctx, nodes, action)
    except OSError as error:
        where = EnvPaths(ctx.root, ctx.env).state
        raise RackreadyError(
            where,
            "provisioning cannot write its files",
            expected="a writable folder",
            actual=error.strerror or error,
            next_step="Free disk space, then run again.",
        ) from error


def _run(ctx: PhaseContext, nodes: list[str], action: str) -> dict[str, NodeResult]:
    if not nodes:
        return {}
    site = site_of(ctx)
    paths = EnvPaths(ctx.root, ctx.env)
    engine.require_engine(ctx.root)
    logs = private_dir(paths.logs / (ctx.campaign or "provision"))
    before = _power_effects(paths, nodes)
    with tempfile.TemporaryDirectory(dir=paths.state, prefix="provision-") as scratch:
        result = Path(scratch) / "result.json"
        request = _request(ctx, site, nodes, action, result)
        log = logs / "provision.log"
        ended = _worker(paths, request, log, _limits(site, nodes))
        found = json.loads(result.read_text(encoding="utf-8")) if result.exists() else {}
    after = _power_effects(paths, nodes)
    return {
        node: replace(_result(node, found.get(node), ended, log), touched=after[node] != before[node]) for node in nodes
    }


def _limits(site: Site, nodes: list[str]) -> dict[str, int]:
    """Return the time limits of one round of nodes by their settings, in seconds: until SSH answers, and of imaging."""
    limits = {"campaign.provision_timeout_s": site.campaign.provision_timeout_s}
    if site.provisioning is not None and any(node.name in nodes for node in imaged_nodes(site)):
        limits["provisioning.timeout_s"] = site.provisioning.timeout_s
    return limits


def _power_effects(paths: EnvPaths, nodes: list[str]) -> dict[str, int]:
    """Return node -> its newest intent to power it on or off, 0 for none.

    Every effect is recorded before it happens: without a new intent, nothing was done to the node. A BMC that does not
    answer must not void the evidence of a running node.
    """
    with Ledger.open(paths.database) as ledger:
        return {
            node: max(
                (entry.token for entry in ledger.entries(node) if entry.operation in {POWER_ON, POWER_OFF}), default=0
            )
            for node in nodes
        }


def _request(ctx: PhaseContext, site: Site, nodes: list[str], action: str, result: Path) -> StackRequest:
    racks: dict[str, list[str]] = {}
    for node in nodes:
        racks.setdefault(site.rack_of(node).name, []).append(node)
    return StackRequest(
        ctx.env,
        str(ctx.root),
        ctx.campaign,
        action,
        racks,
        str(result),
        ctx.site_digest,
        list(ctx.erase),
        racks_at_once(EnvPaths(ctx.root, ctx.env).database, racks),
    )


def _worker(paths: EnvPaths, request: StackRequest, log: Path, limits: dict[str, int]) -> str:
    """Run the worker to its end and return how it ended, as text. ``limits``: of one round, see ``_limits``."""
    count, round_s, words = rounds(request.racks, request.at_once), sum(limits.values()) + _SPARE_S, " + ".join(limits)
    timeout_s = float(count * round_s)
    env = {
        **engine.child_environment(paths, campaign=request.campaign),
        ERASE_VARIABLE: ",".join(request.erase),
    }
    argv = [sys.executable, "-m", "rackready.stacks.worker"]
    with Ledger.open(paths.database) as ledger:
        asked = json.dumps(asdict(request))
        what = f"pulumi {request.action}"
        ended = run_child(
            argv, log=log, cwd=paths.root, env=env, stdin_text=asked, timeout_s=timeout_s, ledger=ledger, what=what
        )
    if shutil.disk_usage(paths.state).free < _FULL:
        return f"no space left on the disk of {paths.state}"
    limit = f"{count} round{'' if count == 1 else 's'} of {round_s} s ({words} + {_SPARE_S})"
    return f"stopped after {timeout_s:.0f} s: {limit}" if ended.timed_out else f"exit status {ended.returncode}"


def _result(node: str, found: dict[str, object] | None, ended: str, log: Path) -> NodeResult:
    if found is None:
        text = (
            f"{node}: not provisioned - Expected: a result of the provisioning worker Actual: none ({ended}). "
            f"Look at {log}, then run again."
        )
        return NodeResult(Outcome.ERROR, text)
    data: dict[str, object] = dict(found["data"])  # type: ignore[call-overload]
    return NodeResult(Outcome(str(found["outcome"])), str(found["message"]), bool(found["changed"]), data)
