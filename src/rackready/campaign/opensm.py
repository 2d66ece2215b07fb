"""Partitions of tenants on a site with opensm: managers outside of a run get them, too.

Every manager has the whole partition file: the master sets the keys of all ports by it, and a standby that takes over
sets them by its own. The ledger knows what each manager got last.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rackready.campaign.drained_phase import Results
from rackready.campaign.drift.applied import INFINIBAND
from rackready.design.infiniband import manager_nodes, opensm_instances, tenant_partitions
from rackready.design.names import listed
from rackready.drivers.ansible import run_playbook
from rackready.handover.production import in_production
from rackready.ledger.store import Ledger
from rackready.model.outcome import CONTINUES, Outcome
from rackready.model.phase import UNTOUCHED, NodeResult, PhaseContext
from rackready.model.problems import Message, quoted
from rackready.model.site import Site
from rackready.model.state import NodeState
from rackready.paths import EnvPaths

PLAYBOOK = "update-opensm.yml"
OPERATION = "opensm:partitions"
"""Effect in the ledger: a manager got the partition file whose digest is the entry's desired one."""
_MEMBERS = "members"
"""In what such an entry observed: node -> digest of its memberships."""
_FILE = "name,ipoib,indx0"
"""Form of a partition in the file: managers get it again when it changes (drivers/ib/partitions.py: render)."""
_AWAY = frozenset({NodeState.REPAIR, NodeState.RETIRED})
"""States of managers that run no opensm. They come back through the fabric phase."""
Guids = Mapping[str, Sequence[str]]
"""Node -> GUIDs of its ports, 16 hex digits each."""


@dataclass(frozen=True, slots=True)
class Behind:
    """A manager that does not surely have the present partition file. ``nodes``: those whose keys differ in it.

    ``known``: what it had before is known. If not, ``nodes`` are all that have keys now.
    """

    nodes: frozenset[str]
    known: bool


def with_managers(
    ctx: PhaseContext, site: Site, nodes: Sequence[str], guids: Guids, play: Callable[[list[str]], Results]
) -> Results:
    """Return the results of ``play`` on the nodes, with the partitions of their tenants on managers outside of the run.

    A node whose keys such a manager does not take is not played: its result names the manager. A dry run only says
    whose keys change. A site without opensm is unchanged.
    """
    own = site.fabric.infiniband
    if own is None or own.subnet_manager != "opensm":
        return play(list(nodes))
    with Ledger.open(EnvPaths(ctx.root, ctx.env).database) as ledger:
        return _Run(ctx, site, ledger, nodes, guids).go(play)


class _Run:
    """One run for some nodes."""

    def __init__(self, ctx: PhaseContext, site: Site, ledger: Ledger, nodes: Sequence[str], guids: Guids) -> None:
        self._ctx, self._ledger, self._nodes, self._guids = ctx, ledger, list(nodes), guids
        self._now = _memberships(site, guids)
        self._digest = _digest([_FILE, [own["name"] for own in tenant_partitions(site)], self._now])
        found = {name: self._behind(name) for name in manager_nodes(site) if opensm_instances(site, name)}
        self._managers = {name: behind for name, behind in found.items() if behind is not None}

    def go(self, play: Callable[[list[str]], Results]) -> Results:
        left = self._outside()
        nodes = [node for node in self._nodes if node not in left]
        tokens = self._begin(name for name in self._managers if name in nodes)
        results = play(nodes)
        self._end(tokens, results)
        return left | {node: self._told(node, result) for node, result in results.items()}

    def _behind(self, manager: str) -> Behind | None:
        """Return what a manager lacks by the ledger; None if it has the present file, or never needed one."""
        epoch = self._ledger.epoch(manager)
        every = [entry for entry in self._ledger.entries(manager) if entry.operation == OPERATION]
        own = [entry for entry in every if entry.epoch == epoch]
        done = [at for at, entry in enumerate(own) if entry.status == "done"]
        if not done:
            return Behind(frozenset(self._now), known=False) if self._now or every else None
        since = own[done[-1] :]  # a try that failed may have written its file
        if len(since) == 1 and since[0].desired == self._digest:
            return None
        differ = {node for entry in since for node in _differ(entry.observed[_MEMBERS], self._now)}
        return Behind(frozenset(differ), known=True)

    def _outside(self) -> Results:
        """Update the managers outside of the run on which keys of its nodes depend. Return the nodes that must wait."""
        due = {
            name: [node for node in self._nodes if node in behind.nodes]
            for name, behind in self._managers.items()
            if name not in self._nodes and self._runs(name)
        }
        due = {name: waiting for name, waiting in due.items() if waiting}
        if refused := self._refused(due):
            return refused
        if not due or self._ctx.check:
            return {}
        tokens = self._begin(due)
        results = run_playbook(self._ctx, PLAYBOOK, list(due), {"opensm_port_guids": self._guids})
        self._end(tokens, results)
        bad = [name for name, result in results.items() if result.outcome not in CONTINUES]
        return {node: _not_taken(node, name, results[name]) for name in bad for node in due[name]}

    def _runs(self, manager: str) -> bool:
        """Return whether opensm is known to run there: the fabric phase passed on it once, and it is not away."""
        row = self._ledger.state(manager)
        passed = any(
            entry.operation == f"install:{INFINIBAND}.yml" and entry.status == "done"
            for entry in self._ledger.entries(manager)
        )
        return passed and (row is None or row.state not in _AWAY)

    def _refused(self, due: Mapping[str, list[str]]) -> Results:
        """Return the errors of nodes that must wait: keys of nodes in production outside of the run would change, too.

        Managers in the run write the whole file, as those outside of it do.
        """
        written = {
            name: due.get(name, [name, *(node for node in self._nodes if node in behind.nodes)])
            for name, behind in self._managers.items()
            if behind.known and (name in due or name in self._nodes)
        }
        changing = {node for name in written for node in self._managers[name].nodes}.difference(self._nodes)
        busy, unknown = in_production(self._ctx, sorted(changing)) if changing else ([], {})
        if not busy and not unknown:
            return {}
        names = listed([*busy, *unknown])
        return {node: _not_alone(node, names, listed(written)) for nodes in written.values() for node in nodes}

    def _begin(self, managers: Iterable[str]) -> dict[str, int]:
        """Commit the intents. A dry run has none."""
        out: dict[str, int] = {}
        for name in [] if self._ctx.check else managers:
            last = self._ledger.latest(name, OPERATION)
            if last is not None and last.status == "intent":
                self._ledger.failed(last.token, "interrupted")
            out[name] = self._ledger.begin(name, OPERATION, self._digest, {_MEMBERS: self._now}).token
        return out

    def _end(self, tokens: Mapping[str, int], results: Results) -> None:
        for name, token in tokens.items():
            if results[name].outcome in CONTINUES:
                self._ledger.done(token)
            else:
                self._ledger.failed(token, results[name].message)

    def _told(self, node: str, result: NodeResult) -> NodeResult:
        """Return a node's result with the managers by which its keys change."""
        names = [
            name
            for name, behind in self._managers.items()
            if behind.known and node in behind.nodes and (name in self._nodes or self._runs(name))
        ]
        if not names:
            return result
        words = f"partition keys in opensm on {listed(names)}"
        return replace(result, changed=True, data={**result.data, "changes": [*result.data.get("changes", ()), words]})


def _memberships(site: Site, guids: Guids) -> dict[str, str]:
    """Return node -> digest of its memberships, of nodes whose GUIDs are known: only these are in the file."""
    return {
        node: _digest([own["key"], own["full"], sorted(guids[node])])
        for own in tenant_partitions(site)
        for node in own["nodes"]
        if guids.get(node)
    }


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _differ(before: Mapping[str, str], now: Mapping[str, str]) -> set[str]:
    return {node for node in {*before, *now} if before.get(node) != now.get(node)}


def _not_taken(node: str, manager: str, result: NodeResult) -> NodeResult:
    step = f"Correct that, or take {manager} out of fabric.infiniband.nodes; then run again."
    text = Message(
        node, "partition keys", f"those of {node} in opensm on {manager}", quoted(result.message), next_step=step
    )
    return NodeResult(Outcome.ERROR, str(text), data={UNTOUCHED: True}, touched=False)


def _not_alone(node: str, others: str, managers: str) -> NodeResult:
    text = Message(
        node,
        f"partition keys in opensm on {managers}",
        expected="nodes in production outside of this run keep theirs",
        actual=f"those of {others} would change, too",
        next_step="Nothing was changed. Run it for them, too (--limit), or again when their jobs have ended.",
    )
    return NodeResult(Outcome.ERROR, str(text), data={UNTOUCHED: True}, touched=False)
