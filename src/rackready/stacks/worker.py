"""``python -m rackready.stacks.worker``: run the engine on some racks in parallel, outside the controller's process.

It reads one JSON request from standard input and writes one JSON result to the file that the request names. A failed
node is an entry in the result, not an error of the worker.
"""

from __future__ import annotations

import fcntl
import heapq
import json
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pulumi import automation as auto

from rackready import files
from rackready.design.imaging import imaging_words
from rackready.design.pinned import site_of
from rackready.drivers import pulumi as engine
from rackready.drivers.marked_processes import name_of
from rackready.drivers.process import session_members
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult, PhaseContext
from rackready.model.problems import RackreadyError, quoted
from rackready.model.site import Site
from rackready.paths import Database, EnvPaths, private_dir
from rackready.stacks.boot_jobs import stop_service, write_jobs
from rackready.stacks.events import Recorder
from rackready.stacks.kinds import KINDS, StackKind

_RACKS_AT_LEAST, _RACKS_AT_MOST = 4, 64
"""Engines in parallel. A machine boots for minutes, so racks that wait for others cost most of the time of a site."""
_ENGINE_MIB = 200
"""Memory of an engine with its provider: docs/benchmarks.md, "Powering on"; half of what is free is for them."""
_NODES_A_CORE = 32
"""Nodes in work for each core, as measured (docs/benchmarks.md): on two busy cores 64 passed, of 256 some timed out."""
_NODES_AT_ONCE = 32
"""Nodes of one rack that its engine works on in parallel."""


@dataclass(frozen=True, slots=True)
class StackRequest:
    """A request: ``action`` is up, preview or destroy; ``racks`` has the requested nodes per rack."""

    env: str
    root: str
    campaign: str
    action: str
    racks: dict[str, list[str]]
    result: str
    site_digest: str = ""
    erase: list[str] = field(default_factory=list)
    at_once: int = _RACKS_AT_LEAST
    """Racks whose engines run side by side."""

    def context(self) -> PhaseContext:
        """Return the context of the run."""
        return PhaseContext(self.env, Path(self.root), self.campaign, site_digest=self.site_digest)


def racks_at_once(database: Database, racks: Mapping[str, Sequence[str]]) -> int:
    """Return how many racks this machine can work on side by side, by its free memory, its cores and the racks' nodes.

    A PostgreSQL server has a limited number of connections (docs/howto/postgresql.md), and every rack takes some.
    """
    if database.settings.is_file():
        return _RACKS_AT_LEAST
    found = re.search(r"^MemAvailable:\s+(\d+) kB$", Path("/proc/meminfo").read_text(encoding="ascii"), re.MULTILINE)
    free_mib = int(found[1]) // 1024 if found is not None else 0
    nodes = min(_NODES_AT_ONCE, max((len(own) for own in racks.values()), default=1))
    by_nodes = _NODES_A_CORE * (os.cpu_count() or 1) // nodes
    return min(_RACKS_AT_MOST, max(_RACKS_AT_LEAST, min(free_mib // 2 // _ENGINE_MIB, by_nodes)))


def rounds(racks: dict[str, list[str]], at_once: int) -> int:
    """Return the most rounds of booting nodes that follow each other, for the time limit of the whole run.

    A rack's engine works on a limited number of nodes, those that its stack knows before the new ones. A limited number
    of racks run in parallel; the next starts when one ends.
    """
    free = [0] * at_once
    for nodes in racks.values():
        own = -(-len(nodes) // _NODES_AT_ONCE) + (1 if len(nodes) > 1 else 0)
        heapq.heapreplace(free, free[0] + own)
    return max(free)


def run(request: StackRequest) -> dict[str, NodeResult]:
    """Run the request on every rack and return a result per node; an error of a rack is in its nodes' results."""
    results: dict[str, NodeResult] = {}
    with ThreadPoolExecutor(max_workers=request.at_once) as pool:
        for found in pool.map(partial(_rack, request), list(request.racks)):
            results.update(found)
    stop_service(site_of(request.context()), EnvPaths(Path(request.root), request.env))
    return results


def _rack(request: StackRequest, rack: str) -> dict[str, NodeResult]:
    """Run the rack's stacks: metal before virtual, so that hypervisors are on; in the other order to remove."""
    site = site_of(request.context())
    results: dict[str, NodeResult] = {}
    for kind in reversed(KINDS) if request.action == "destroy" else KINDS:
        nodes = [node for node in request.racks[rack] if site.node(node).kind == kind.kind]
        results |= _stack(request, site, rack, kind, nodes) if nodes else {}
    return results


def _stack(
    request: StackRequest, site: Site, rack: str, kind: StackKind[Any], nodes: list[str]
) -> dict[str, NodeResult]:
    paths = EnvPaths(Path(request.root), request.env)
    recorder = Recorder(kind)
    failure = ""
    try:
        with _alone(paths, rack), _turn() as recorder.begun:
            jobs = write_jobs(site, paths, rack) if kind.kind == "metal" and request.action != "destroy" else {}
            recorder.imaging = {node: imaging_words(site, site.node(node)) for node in jobs}
            args = kind.nodes(site, request.env, rack, jobs)
            program = partial(kind.declare, site, request.env, rack, jobs)
            stack = engine.open_stack(paths, rack, program, campaign=request.campaign, project=kind.project)
            for operation in _operations(stack, request.action, args, nodes, recorder):
                _unlocked(stack, operation)
            if request.action == "destroy":
                return _given_up(paths, args, nodes, recorder)
    except auto.CommandError as error:
        failure = engine.last_words(str(error))
    except RackreadyError as error:
        failure = str(error)
    results = recorder.results(nodes, check=request.action == "preview")
    return {
        node: _stopped(node, failure) if failure and recorder.unheard(node) else result
        for node, result in results.items()
    }


@contextmanager
def _alone(paths: EnvPaths, rack: str) -> Iterator[None]:
    """Wait until no other batch of ours uses the rack's stack: the engine refuses a second run instead of waiting."""
    fd = os.open(private_dir(paths.pulumi) / f"{rack}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


_STARTS = threading.BoundedSemaphore(max(_RACKS_AT_LEAST, os.cpu_count() or 1))
"""Engines that start side by side. Each takes a core for seconds: more would starve those that talk to BMCs."""


@contextmanager
def _turn() -> Iterator[Callable[[], None]]:
    """Wait for a turn to start an engine; yield a function that gives it back, as the end does at the latest."""
    with ExitStack() as held:
        held.enter_context(_STARTS)
        yield held.close


def _operations(
    stack: auto.Stack, action: str, args: Sequence[Any], nodes: list[str], recorder: Recorder
) -> list[Callable[[], object]]:
    """Return the operations: the whole stack at once, or first its known nodes with a refresh, then the new ones.

    The engine cannot refresh a target that is not in the stack yet. A run without targets would delete a node that is
    in the stack and no longer in the site file, so such a stack is never run as a whole: another command retires nodes.
    """
    known = {str(item["urn"]) for item in (stack.export_stack().deployment or {}).get("resources", [])}
    kind = recorder.kind
    declared = {node.node for node in args}
    if declared <= set(nodes) and {kind.node_of(urn) for urn in known} <= {*declared, ""}:
        return [partial(_operate, stack, action, None, recorder, refresh=True)]
    wanted = kind.urns(stack.name, nodes)
    old = [urn for urn in wanted if urn in known]
    new = [urn for urn in wanted if urn not in known and action != "destroy"]
    return [
        partial(_operate, stack, action, urns, recorder, refresh=refresh)
        for urns, refresh in ((old, True), (new, False))
        if urns
    ]


def _operate(stack: auto.Stack, action: str, target: list[str] | None, recorder: Recorder, *, refresh: bool) -> None:
    common: dict[str, Any] = {
        "target": target,
        "on_event": recorder.take,
        "on_output": _echo,
        "on_error": _echo,
        "color": "never",
        "refresh": refresh,
    }
    if action == "preview":
        stack.preview(**common)
    elif action == "destroy":
        stack.destroy(continue_on_error=True, parallel=_NODES_AT_ONCE, **common)
    else:
        stack.up(continue_on_error=True, parallel=_NODES_AT_ONCE, suppress_outputs=True, **common)


def _unlocked(stack: auto.Stack, operation: Callable[[], object]) -> None:
    """Run the operation, again after freeing a dead run's lock: our controller holds the controller lock."""
    try:
        operation()
    except auto.ConcurrentUpdateError as error:
        engine.free_lock(stack, error)
        operation()


def _stopped(node: str, failure: str) -> NodeResult:
    """Return the error of the whole stack as a node's result: nothing is known about the node itself."""
    return NodeResult(Outcome.ERROR, f"{node}: not provisioned - Expected: its stack runs Actual: {quoted(failure)}")


def _given_up(paths: EnvPaths, args: Sequence[Any], nodes: list[str], recorder: Recorder) -> dict[str, NodeResult]:
    """Return each node's result; end what a killed run began on a node before the engine recorded it."""
    results = recorder.results(nodes)
    with Ledger.open(paths.database) as ledger:
        for node in args:
            if node.node in results and recorder.unheard(node.node):
                results[node.node] = _forgotten(recorder.kind, node, ledger, paths)
    return results


def _forgotten(kind: StackKind[Any], args: object, ledger: Ledger, paths: EnvPaths) -> NodeResult:
    try:
        done = kind.removed(args, ledger, paths, _echo)
    except RackreadyError as error:
        return NodeResult(Outcome.ERROR, str(error))
    return NodeResult(Outcome.PASS, done or "nothing was made", changed=bool(done))


def _echo(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - goes into the log of the run


def _stop(_number: int, _frame: object) -> None:
    """Pass Ctrl-C on to our engines: they end their running operations, which the provider cuts short."""
    for pid in session_members(os.getsid(0)):
        if pid != os.getpid() and name_of(pid) == "pulumi":
            _interrupt(pid)


def _interrupt(pid: int) -> None:
    """Ask one engine to end; if it ended by itself meanwhile, the others must still be asked."""
    try:
        os.kill(pid, signal.SIGINT)
    except ProcessLookupError:
        _echo(f"pulumi, pid {pid}, had ended by itself")


def main() -> None:
    """Run the request on standard input and write the results."""
    signal.signal(signal.SIGINT, _stop)
    request = StackRequest(**json.load(sys.stdin))
    results = run(request)
    files.replace(Path(request.result), json.dumps({node: asdict(result) for node, result in results.items()}).encode())


if __name__ == "__main__":
    main()
