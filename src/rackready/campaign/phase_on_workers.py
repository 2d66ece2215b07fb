"""A phase on workers: its batches are offered in the work queue, and the results waited for.

The campaign stays with the controller. Which phases go to workers is said in ``database.yml``; a dry run, a phase that
nodes carry out themselves, and a site that is not the one of the files (which workers could not have), stay on the
controller.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from rackready import __version__
from rackready.campaign.abi import CAMPAIGN_ABI
from rackready.campaign.request import CampaignRequest
from rackready.design.handover_of import handover_site
from rackready.design.names import listed
from rackready.design.pinned import digest, pinned_file, read_pinned
from rackready.design.site import load_site
from rackready.drivers.process import STOP, Interrupted
from rackready.drivers.ssh.pins import pinned
from rackready.drivers.ssh.target import jump_target, node_target, slurm_target
from rackready.ledger.store import Ledger, LedgerError
from rackready.ledger.work import Offer, WorkQueue
from rackready.ledger.work_tables import DONE, FAILED, OFFERED, OPEN, WITHDRAWN
from rackready.ledger.work_workers import WorkerRow, known_workers
from rackready.model.database import WorkerUse
from rackready.model.operations import SlurmHandover
from rackready.model.outcome import Outcome
from rackready.model.phase import UNTOUCHED, NodeResult
from rackready.model.problems import RackreadyError
from rackready.model.site import Rack, Site
from rackready.paths import EnvPaths
from rackready.profiles import scope

_log = logging.getLogger(__name__)

_POLL_S = 0.5
_LET_GO_S = 24.0
"""How long a stopped campaign waits for its workers: less than the 28 s after which its process ends."""

Results = dict[str, dict[str, Any]]
"""Node -> its result as a step of the workflow returns it."""


def use_of(ledger: Ledger, request: CampaignRequest, phase: str) -> WorkerUse | None:
    """Return how workers are used for a phase of a campaign, None when the controller works on it itself."""
    use = ledger.backend.workers
    if use is None or request.check or phase not in use.phases:
        return None
    if not _written_site(request.root, request.env, request.site_digest) or _is_pulled(request, phase):
        return None
    return use


def _is_pulled(request: CampaignRequest, phase: str) -> bool:
    """Whether nodes carry out the phase themselves: the release folder and its server are the controller's."""
    pull = read_pinned(pinned_file(EnvPaths(Path(request.root), request.env), request.site_digest)).pull
    return pull is not None and phase in pull.phases


@lru_cache(maxsize=4)
def _written_site(root: str, env: str, site_digest: str) -> bool:
    """Whether the campaign's site is the one that its files give: workers have no other."""
    paths = EnvPaths(Path(root), env)
    try:
        with scope.unchanged():
            return digest(load_site(env, root=paths.root)) == site_digest
    except RackreadyError:
        return False


def run_offered(
    ledger: Ledger,
    use: WorkerUse,
    request: CampaignRequest,
    phase: str,
    nodes: list[str],
    record: Callable[[Mapping[str, NodeResult]], Results],
) -> Results:
    """Return the results of workers. ``record``: records the results of nodes without one, and returns them as JSON.

    Raises Interrupted when the campaign stops, and LedgerError.
    """
    paths = EnvPaths(request.context().root, request.env)
    site = read_pinned(pinned_file(paths, request.site_digest))
    queue = WorkQueue.open(ledger, use)
    offers = [_offer(site, paths, request, phase, part, use) for part in _parts(site, nodes, use)]
    waits = [_Wait(ledger, queue, queue.offer(offer), offer) for offer in offers]
    out: Results = {}
    while True:
        queue.sweep()
        for wait in waits:
            if not wait.over:
                wait.look()
        if all(wait.over for wait in waits):
            break
        if STOP.wait(_POLL_S):
            _stop(queue, [wait.number for wait in waits])
            raise Interrupted
    for wait in waits:
        out |= wait.result or record({node: wait.error(node) for node in wait.offer.nodes})
    return out


def _stop(queue: WorkQueue, numbers: Sequence[int]) -> None:
    """Take the batches back, and wait until their workers let go: a worker that does not loses its lease later."""
    try:
        queue.withdraw(numbers, stop=True)
        for _ in range(int(_LET_GO_S / _POLL_S)):
            if not any(queue.look(number).state in OPEN for number in numbers):
                return
            threading.Event().wait(_POLL_S)
    except LedgerError as error:
        _log.warning("batches could not be taken back: %s", error)


@dataclass(slots=True)
class _Wait:
    """One batch on its way."""

    ledger: Ledger
    queue: WorkQueue
    number: int
    offer: Offer
    over: bool = False
    result: Results | None = None
    why: NodeResult | None = None
    told: str = ""
    since: float = 0.0
    """Since when nobody could take it."""

    def look(self) -> None:
        row = self.queue.look(self.number)
        if row.state == DONE:
            self.over, self.result = True, row.result
        elif row.state == FAILED:
            self.over, self.why = True, self._outlived(row.attempt)
        elif row.state == OFFERED:
            self._unclaimed()
        elif row.state not in OPEN:
            self.over, self.why = True, self._lost(row.state)
        else:
            self.told = ""  # a worker has it: who waits for the next one waits anew

    def _unclaimed(self) -> None:
        """Say why nobody takes it, once for each reason, and take it back after the limit."""
        lacking = self._lacking()
        limit, now = self.queue.use.wait_s, time.monotonic()
        if not lacking:
            self.told = ""
            return
        self.since = self.since if self.told else now
        if lacking != self.told:
            self.told = lacking
            text = f"waits for a worker: {lacking}; at most {limit} s"
            for node in self.offer.nodes:
                self.ledger.event(self.offer.campaign, node, self.offer.phase, text, "warn")
        if now - self.since >= limit:
            self.queue.withdraw([self.number])
            if self.queue.look(self.number).state == WITHDRAWN:  # nobody took it at the last moment
                self.over, self.why = True, self._nobody(lacking)

    def _lacking(self) -> str:
        """Return what no live worker fulfils, "" when one can take the batch as soon as it is free."""
        alive = [row for row in known_workers(self.ledger) if row.alive(self.queue.use.lease_s)]
        reasons = [(row.name, _unable(self.offer, row)) for row in alive]
        if any(not why for _, why in reasons):
            return ""
        needed = _needed(self.offer)
        return f"Expected: {needed} Actual: {listed(f'{name}: {why}' for name, why in reasons)}"

    def _nobody(self, lacking: str) -> NodeResult:
        """Return the error of a batch that nobody took; where a worker had it before, its nodes may be half changed."""
        options = "".join(f" --label {key}={value}" for key, value in self.offer.labels.items())
        start = f"Start `rackready worker --env {self.offer.request['env']}{options}`, then run again"
        begun, limit = self.queue.was_claimed(self.offer), self.queue.use.wait_s
        if begun:
            text = f"{self.offer.phase}: its worker gave it back, and no other took it within {limit} s - {lacking}. "
            return NodeResult(Outcome.ERROR, f"{text}{start}: what was begun is observed first.")
        text = f"{self.offer.phase}: no worker took it within {limit} s - {lacking}. {start}."
        return NodeResult(Outcome.ERROR, text, data={UNTOUCHED: True}, touched=False)

    def _outlived(self, attempt: int) -> NodeResult:
        text = (
            f"{self.offer.phase}: the workers that took it died or fell silent - Expected: a result "
            f"Actual: {attempt} workers ended without one. See their logs, then run again: it is observed first."
        )
        return NodeResult(Outcome.ERROR, text)

    def _lost(self, state: str) -> NodeResult:
        text = (
            f"{self.offer.phase}: the batch was taken from its controller - Expected: a result Actual: {state}. "
            "Run again: what was begun is observed first."
        )
        return NodeResult(Outcome.ERROR, text)

    def error(self, node: str) -> NodeResult:
        """Return the result of a node that no worker judged."""
        why = self.why or self._lost("no result")
        return NodeResult(why.outcome, f"{node}: {why.message}", data=dict(why.data), touched=why.touched)


def _needed(offer: Offer) -> str:
    labels = ", ".join(f"{key}={value}" for key, value in offer.labels.items())
    return f"a live worker with {labels}" if labels else "a live worker"


def _unable(offer: Offer, row: WorkerRow) -> str:
    """Return why a live worker cannot have a batch, "" when it can."""
    if (row.version, row.abi) != (offer.version, offer.abi):
        return f"rackready {row.version} (ABI {row.abi}), not {offer.version} (ABI {offer.abi})"
    for key, value in offer.labels.items():
        if row.labels.get(key) != value:
            return f"{key}={row.labels[key]}" if key in row.labels else f"no label {key}"
    return row.refuses


def _parts(site: Site, nodes: Sequence[str], use: WorkerUse) -> list[tuple[str, ...]]:
    """Return the nodes by their place, which decides who may work on them."""
    groups: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for node in nodes:
        groups.setdefault(tuple(sorted(_labels(site, node, use).items())), []).append(node)
    return [tuple(group) for group in groups.values()]


def _labels(site: Site, node: str, use: WorkerUse) -> dict[str, str]:
    if use.place_by is None:
        return {}
    rack = _rack(site, node)
    place = rack.name if use.place_by == "rack" else getattr(rack, use.place_by)
    return {use.place_by: place} if place is not None else {}


def _rack(site: Site, node: str) -> Rack:
    return next(rack for rack in site.racks if any(item.name == node for item in rack.nodes))


def _offer(
    site: Site, paths: EnvPaths, request: CampaignRequest, phase: str, nodes: tuple[str, ...], use: WorkerUse
) -> Offer:
    racks = tuple(dict.fromkeys(_rack(site, node).name for node in nodes))
    labels = _labels(site, nodes[0], use)
    return Offer(
        request.campaign,
        phase,
        nodes,
        racks,
        labels,
        request.plain(),
        _pins(site, paths, nodes),
        __version__,
        CAMPAIGN_ABI,
    )


def _pins(site: Site, paths: EnvPaths, nodes: Sequence[str]) -> Mapping[str, str]:
    """Return the host keys that this controller pinned for the nodes, the jump host and Slurm's controllers."""
    jump = jump_target(site, paths.known_hosts)
    views = [handover_site(site, node).handover for node in nodes]
    targets = [node_target(site, node, paths.known_hosts) for node in nodes] + ([jump] if jump else [])
    targets += [slurm_target(view, paths.known_hosts) for view in views if isinstance(view, SlurmHandover)]
    found = {host: pinned(paths.known_hosts, host) for host in dict.fromkeys(target.host for target in targets)}
    return {host: key for host, key in found.items() if key}
