"""A phase that nodes apply themselves: an order for each, and a signed report that is judged as a push is.

The intent is committed first, then the order is written, then the node is told. A killed controller finds the open
intent with its order, and waits for that report again; nothing is ordered twice. Whoever gives up replaces the order
by one that only checks, so that no node applies it later.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from rackready.campaign.drained_phase import Results, Runner
from rackready.campaign.proof import Played, proven
from rackready.campaign.pull import contact
from rackready.campaign.pull.order import APPLY, CHECK, PullOrder, present, write
from rackready.campaign.pull.report import Judge, forget
from rackready.campaign.pull.service_interfaces import BuiltRelease, PullServices, Triggered
from rackready.campaign.pull.services import services_of
from rackready.campaign.pull.wait import GRACE_S, Wait, wait_for
from rackready.design.facts import desired_digest
from rackready.design.pinned import site_of
from rackready.drivers.process import Interrupted
from rackready.ledger.store import DETAIL, Ledger, LedgerEntry
from rackready.model.outcome import Outcome
from rackready.model.phase import UNTOUCHED, NodeResult, PhaseContext
from rackready.model.problems import Message, RackreadyError
from rackready.model.pull import Pull
from rackready.model.site import Site
from rackready.paths import EnvPaths

ORDER = "pull:order"
"""Operation of the ledger: an order that only checks. Its token is the order's sequence."""
PULLED = "pulled"
"""In what an intent observed: the release, and the variables of the phase, that its order names."""
_WORKERS = 16


def runner(ctx: PhaseContext, phase: str, play: Played, services: PullServices | None = None) -> Runner:
    """Return what runs a phase on nodes: orders where the site says so, else a proof and the play."""
    pull = site_of(ctx).pull
    return (
        proven(ctx, phase, play)
        if pull is None or phase not in pull.phases
        else pulled(ctx, pull, phase, play, services)
    )


def pulled(ctx: PhaseContext, pull: Pull, phase: str, play: Played, services: PullServices | None = None) -> Runner:
    """Return what runs a phase on nodes by orders. A dry run is an order that only checks."""

    def run(own: PhaseContext, nodes: list[str]) -> Results:
        if not nodes:
            return {}
        site, paths = site_of(ctx), EnvPaths(ctx.root, ctx.env)
        with Ledger.open(paths.database) as ledger:
            try:
                used = services or services_of(site, pull, paths, ledger.identity())
            except RackreadyError as error:  # the key that signs cannot be used
                return {node: _untouched(f"{node}: {phase}: {error}") for node in nodes}
            return _Pulling(own, site, paths, ledger, phase, play, used, pull, asked_dry=ctx.check).results(nodes)

    return run


@dataclass(frozen=True, slots=True)
class _Ready:
    """A node for which an order can be written."""

    built: BuiltRelease
    variables: Mapping[str, Any]

    @property
    def named(self) -> dict[str, str]:
        """Return what an order of it is about, to compare it with that of an earlier run."""
        text = json.dumps(self.variables, sort_keys=True).encode()
        return {"release": self.built.release, "variables": hashlib.sha256(text).hexdigest()}


@dataclass(frozen=True, slots=True)
class _Pulling:
    """One phase on one batch. ``asked_dry``: the operator asked for a dry run, so nothing at all is changed."""

    ctx: PhaseContext
    site: Site
    paths: EnvPaths
    ledger: Ledger
    phase: str
    play: Played
    services: PullServices
    pull: Pull
    asked_dry: bool

    @property
    def limit_s(self) -> float:
        return self.pull.limit_min * 60.0 + GRACE_S

    def results(self, nodes: list[str]) -> Results:
        """Return a result for each node."""
        ready, out = self._ready(nodes)
        if ready and (why := self._unserved(next(iter(ready.values())))):
            return out | {node: _untouched(f"{node}: {self.phase}: {why}") for node in ready}
        out |= self._settled(ready)
        rest = [node for node in ready if node not in out]
        new = contact.missing(self.ledger, self.services.agents, rest)
        if new and self.asked_dry:
            return out | self._pushed_dry(new) | self._ordered({n: ready[n] for n in rest if n not in new})
        out |= contact.made(replace(self.ctx, check=False), self.ledger, self.services.agents, new)
        return out | self._ordered({node: ready[node] for node in rest if node not in out})

    def _ready(self, nodes: list[str]) -> tuple[dict[str, _Ready], Results]:
        """Return the nodes with a release, and an untouched error for each without one."""
        ready: dict[str, _Ready] = {}
        out: Results = {}
        for node, built in self.services.releases.built(nodes, self.play.playbook).items():
            if isinstance(built, BuiltRelease):
                ready[node] = _Ready(built, dict(self.play.variables([node])))
            else:
                out[node] = _untouched(f"{node}: {self.phase}: {built}")
        return ready, out

    def _unserved(self, first: _Ready) -> str:
        try:
            self.services.releases.served(first.built.release)
        except RackreadyError as error:
            return str(error)
        return ""

    def _pushed_dry(self, nodes: list[str]) -> Results:
        """Return the results of a dry run by push: one that puts an agent on a node would be none."""
        self._tell_all(nodes, "has no agent yet, or another one: its dry run is pushed", "info")
        return self.play.run(self.ctx, nodes)

    # what an earlier run left open -------------------------------------------------------------------------------

    @property
    def operation(self) -> str:
        return f"install:{self.play.playbook}"

    def _settled(self, ready: Mapping[str, _Ready]) -> Results:
        """Wait for the reports of open intents; return the results that stand, and errors of those without one."""
        waits: dict[str, Wait] = {}
        entries: dict[str, LedgerEntry] = {}
        for node in ready:
            last = self.ledger.latest(node, self.operation)
            if last is None or last.status != "intent":
                continue
            self._tell(
                node, "an earlier run was interrupted here; its effect is observed before anything is changed", "warn"
            )
            entries[node] = last
            order = present(self.paths, node)
            if PULLED not in last.observed or order is None or order.sequence < last.token:
                self.ledger.failed(last.token, "interrupted before it was ordered")
            else:
                waits[node] = Wait(node, last.token, APPLY, self.limit_s, _signs(last.token, order))
        out = self._triggered(waits)
        self._wait([wait for node, wait in waits.items() if node not in out])
        for node, wait in waits.items():
            if node not in out and (result := self._settle(entries[node], wait, ready[node])):
                out[node] = result
        return out

    def _settle(self, entry: LedgerEntry, wait: Wait, ready: _Ready) -> NodeResult | None:
        """End an open intent by its report. Return its result where it is that of this run, or why nothing is known."""
        node = entry.node
        if wait.late:
            return self._none(node, wait)
        if wait.found != (entry.token, APPLY):
            self.ledger.failed(entry.token, "withdrawn: the node did something else after it")
            return None
        named = entry.observed[PULLED]
        result = self._judge(node, named["release"], entry.token, APPLY)
        self._end(entry.token, result, closing=True)
        same = named == ready.named and not self.ctx.check
        if result.outcome is Outcome.ERROR or not same:
            self._tell(node, f"that order ended: {result.message or result.outcome.value}; another one follows", "info")
            return None
        return result

    # orders ------------------------------------------------------------------------------------------------------

    def _ordered(self, ready: Mapping[str, _Ready]) -> Results:
        """Order, tell the nodes, and return what their reports show."""
        if not ready:
            return {}
        mode = CHECK if self.ctx.check else APPLY
        tokens = {node: self._begin(node, one) for node, one in ready.items()}
        waits = {node: Wait(node, token, mode, self.limit_s) for node, token in tokens.items()}
        try:
            for node, one in ready.items():
                self._write(node, tokens[node], mode, one)
            out = self._triggered(waits)
            self._revoke(out)
            # An order that failed is withdrawn at once: its node may be told of it again for its neighbours' sake.
            judged: Results = {}
            self._wait(
                [wait for node, wait in waits.items() if node not in out],
                lambda wait: judged.update({wait.node: self._result(wait.node, wait, ready[wait.node])}),
            )
        except Interrupted:
            self._revoke(node for node, wait in waits.items() if wait.found is None)
            raise
        for node, result in judged.items():
            self._end(tokens[node], result, closing=not waits[node].late)
        return out | judged

    def _begin(self, node: str, one: _Ready) -> int:
        """Commit the intent. A dry run has one of its own kind, for its number alone."""
        desired = desired_digest(self.site, node)
        operation = ORDER if self.ctx.check else self.operation
        last = self.ledger.latest(node, operation)
        if last is not None and last.status == "intent":
            self.ledger.failed(last.token, "interrupted; observed by the next run")
        return self.ledger.begin(node, operation, desired, {PULLED: one.named}).token

    def _write(self, node: str, sequence: int, mode: str, one: _Ready) -> None:
        tokens = {} if self.ctx.check else {node: sequence}
        extra = {**one.variables, "rackready_tokens": tokens, "rackready_ledger": self.ledger.identity()}
        now, limit_s = int(time.time()), self.pull.limit_min * 60
        forget(self.paths, node, sequence)
        order = PullOrder(
            site=self.ledger.identity(),
            env=self.ctx.env,
            node=node,
            machine=self.services.machine(node),
            sequence=sequence,
            issued=now,
            expires=now + int(self.limit_s),
            release=one.built.release,
            release_size=one.built.size,
            mode=mode,
            phase=self.phase,
            phases=self.pull.in_order,
            playbook=self.play.playbook,
            extra=self.services.releases.sealed(node, extra),
            limit_s=limit_s,
        )
        write(self.paths, order, self.services.signer)
        self._tell(node, f"ordered: {mode} release {one.built.release[:12]}, order {sequence}", DETAIL)

    def _triggered(self, waits: Mapping[str, Wait]) -> Results:
        """Tell the nodes; return an error for each that was not reached."""
        found = self._trigger_all(list(waits))
        for node in [node for node, told in found.items() if told.absent]:
            why = "its agent is gone"
            self._tell(node, f"{why}: it is put there again", "warn")
            contact.forgotten(self.ledger, self.services.agents, node, why)
            bad = contact.made(replace(self.ctx, check=False), self.ledger, self.services.agents, [node])
            found[node] = Triggered(bad[node].message) if bad else self.services.trigger(node)
        return {
            node: NodeResult(Outcome.ERROR, _untold(node, self.phase, told.failure))
            for node, told in found.items()
            if told.failure
        }

    def _trigger_all(self, nodes: Sequence[str]) -> dict[str, Triggered]:
        if not nodes:
            return {}
        with ThreadPoolExecutor(max_workers=min(len(nodes), _WORKERS)) as pool:
            return dict(zip(nodes, pool.map(self.services.trigger, nodes), strict=True))

    def _wait(self, waits: Sequence[Wait], over: Callable[[Wait], object] = lambda _wait: None) -> None:
        if waits:
            wait_for(self.paths, waits, partial(self._tell, level="info"), self._trigger_all, over)

    def _revoke(self, nodes: Any) -> None:  # noqa: ANN401 - any iterable of names
        """Replace orders to apply by such that only check, under a higher number."""
        for node in list(nodes):
            order = present(self.paths, node)
            if order is None or order.mode != APPLY:
                continue
            last = self.ledger.begin(node, ORDER, order.release, {})
            write(self.paths, replace(order, sequence=last.token, mode=CHECK), self.services.signer)
            self.ledger.done(last.token)
            self._tell(node, f"order {order.sequence} is withdrawn", "warn")

    # results -----------------------------------------------------------------------------------------------------

    def _result(self, node: str, wait: Wait, one: _Ready) -> NodeResult:
        if wait.late:
            self._revoke([node])
            return self._none(node, wait)
        result = self._judge(node, one.built.release, wait.sequence, wait.mode)
        if result.outcome is Outcome.ERROR:
            self._revoke([node])
        return result

    def _judge(self, node: str, release: str, sequence: int, mode: str) -> NodeResult:
        judge = Judge(self.ctx, self.phase, self.paths, self.ledger, self.services, self._tell)
        result = judge.result(node, release, sequence, mode)
        if judge.other_agent:
            why = "its report shows another agent, configuration or key"
            contact.forgotten(self.ledger, self.services.agents, node, why)
        return result

    def _end(self, token: int, result: NodeResult, *, closing: bool) -> None:
        """Commit the end. A node without a report keeps its open intent: its state is unknown."""
        if result.outcome is Outcome.PASS:
            self.ledger.done(token, dict(result.data))
        elif closing:
            self.ledger.failed(token, result.message)

    def _none(self, node: str, wait: Wait) -> NodeResult:
        step = (
            f"Look at `journalctl -u rackready-pull` on the node and at the log of `rackready release serve --env "
            f"{self.ctx.env}`, then run again: its report is looked for first."
        )
        where = f"{node}: {self.phase}"
        expected = f"its report of order {wait.sequence} within {wait.limit_s / 60:.0f} min"
        return NodeResult(Outcome.ERROR, str(Message(where, "no report", expected, "none", step)))

    def _tell_all(self, nodes: Sequence[str], text: str, level: str) -> None:
        for node in nodes:
            self._tell(node, text, level)

    def _tell(self, node: str, text: str, level: str) -> None:
        self.ledger.event(self.ctx.campaign, node, self.phase, text, level)


def _signs(token: int, order: PullOrder) -> tuple[tuple[int, str], ...]:
    """Return the reports by which a node shows that it did something else after an order."""
    later = ((order.sequence, order.mode),) if order.sequence > token else ()
    return (*later, (token, CHECK))


def _untouched(text: str) -> NodeResult:
    return NodeResult(Outcome.ERROR, text, data={UNTOUCHED: True}, touched=False)


def _untold(node: str, phase: str, failure: str) -> str:
    step = "Check that the node is up and that its address in the site file is right, then run again."
    return str(Message(f"{node}: {phase}", "its agent was not started", "SSH starts it", failure, step))
