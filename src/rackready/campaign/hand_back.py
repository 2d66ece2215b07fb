"""A node leaves its tenant: drained, scrubbed, its scratch erased, others shown out of its BMC, rebooted, looked at.

Nothing is destroyed before everything that could refuse was asked. A run that was killed is simply repeated: each step
finds what is left. Until its gates have passed, the node's return stays open, and nothing certifies it
(handover/returned.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rackready.campaign.reboot import Reason, reboot_for
from rackready.design.handover_of import handover_site, served
from rackready.design.pinned import site_of
from rackready.drivers.process import check_stop
from rackready.drivers.redfish_sessions import BmcDoor
from rackready.drivers.remote import Remote
from rackready.drivers.scheduler.registry import reader_for
from rackready.drivers.ssh.target import node_target, read_private_key
from rackready.drivers.tenant_node import ELSEWHERE, GPU_MEMORY, PROCESS, Left, Scratch, TenantNode, strangers
from rackready.gates.engine.registry import gate
from rackready.handover.production import take_out
from rackready.handover.returned import HAND_BACK, open_return
from rackready.ledger.store import Ledger
from rackready.model.bmc import Bmc as BmcSite
from rackready.model.commands import repair
from rackready.model.near import CORRECT, hosts_among
from rackready.model.operations import DeclaredSkip
from rackready.model.outcome import Outcome
from rackready.model.phase import PhaseContext
from rackready.model.problems import Message, RackreadyError
from rackready.model.site import Site
from rackready.model.state import LIFE, NodeState
from rackready.paths import EnvPaths
from rackready.profiles import loader

PHASE = HAND_BACK
BOOT = Reason("hand-back", "a boot after its tenant left", "the tenant's boot")
_SHOWN = 5
_ASKED = 16
"""Nodes whose jobs are asked for, to find partners without any. Judgement: a rack has no more nodes that matter."""


class HandBackRefusedError(RackreadyError):
    """The node may not return now, or is not clean. It stays drained, and nothing certifies it."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a tenant left. ``sessions``: users of the BMC's other sessions; ``accounts``: ones not in the site."""

    traces: Left
    scratch: Scratch
    sessions: list[str] = field(default_factory=list)
    accounts: list[str] = field(default_factory=list)
    bmc: bool = True

    def lines(self) -> list[str]:
        """Return what was found, a line each."""
        out = self.traces.words()
        out += [f"scratch: {plan}" for plan in self.scratch.plans]
        out += [f"BMC session: {_some(self.sessions)}"] if self.sessions else []
        out += [f"BMC account: {_some(self.accounts)}"] if self.accounts else []
        return out if self.bmc else [*out, "BMC: not known to the site file, so its sessions and accounts stay"]


class Return:
    """The return of one node. Every method raises RackreadyError."""

    def __init__(self, ctx: PhaseContext, node: str) -> None:
        self.ctx, self.node = ctx, node
        self.site = site_of(ctx)
        self.paths = EnvPaths(ctx.root, ctx.env)
        known = [item.name for item in self.site.nodes()]
        if node not in known:
            raise HandBackRefusedError(
                node, expected=f"one of {hosts_among(known, node)}", actual="no such node", next_step=CORRECT
            )

    def look(self) -> Found:
        """Return what is there now; changes nothing."""
        with self._on_node() as tenant:
            traces, scratch = tenant.traces(scrub=False), tenant.scratch(erase=False)
        door = self._door()
        if door is None:
            return Found(traces, scratch, bmc=False)
        with door:
            users = door.users()
        accounts = strangers(users.accounts, _known(self.site, self.node), self.site.hand_back)
        # A monitor logs in again at once, so its sessions say nothing.
        sessions = sorted(set(users.sessions.values()) - set(self.site.hand_back.bmc_accounts))
        return Found(traces, scratch, sessions, accounts)

    def require_state(self) -> None:
        """Refuse a node that is not in use: never deployed, in quarantine, or retired."""
        row = still_open = None
        if Ledger.exists(self.paths.database):
            with Ledger.read_only(self.paths.database) as ledger:
                row, still_open = ledger.state(self.node), open_return(ledger, self.node)
        if row is None:
            step = f"Run `rackready deploy --env {self.ctx.env} --limit {self.node}` first."
            raise HandBackRefusedError(self.node, expected="a deployment record", actual="none", next_step=step)
        if row.state not in LIFE:
            then = "then run this again." if still_open else "and `deploy` it."
            step = f"Run {repair(self.node)} first, {then}"
            raise HandBackRefusedError(
                self.node, expected="a node in service", actual=f"{row.state.value} ({row.reason})", next_step=step
            )

    def scrub(self, reason: str) -> int:
        """Drain, scrub, reboot and look again. Returns the ledger's token: ``done`` ends the return.

        From its first step on, nothing certifies or offers the node. Call it under the controller lock. Raises
        HandBackRefusedError with what is left.
        """
        with Ledger.open(self.paths.database) as ledger:
            token = self._begin(ledger, reason)
            for campaign in ledger.supersede(self.node):
                self._tell(ledger, f"campaign {campaign} was cut off and is not resumed: the node was handed back")
            self._tell(ledger, "looks at what the tenant left")
            self._allow(self.look())
            change = ledger.change_begins(self.node, HAND_BACK)  # what was measured before is about a tenant's node
            self._clean(ledger)
            ledger.set_state(self.node, NodeState.REACHABLE, f"handed back: {reason}", phase=PHASE)
            self._tell(ledger, "reboots")
            booted = reboot_for(self.ctx, ledger, self.node, BOOT)
            if booted.outcome is not Outcome.PASS:
                raise HandBackRefusedError(booted.message)
            check_stop()
            self._require_clean(self.look())
            ledger.done(change, {"reason": reason})
            self._tell(ledger, "is clean", "ok")
        return token

    def _begin(self, ledger: Ledger, reason: str) -> int:
        """Record that the return begins, and drain the node. One that jobs keep has not begun, unless it had before."""
        earlier = open_return(ledger, self.node)
        token = _begun(ledger, self.node, reason)
        failed = take_out(self.ctx, {self.node: f"hand-back: {reason}"}).get(self.node)
        if failed is None:
            return token
        if earlier is None:
            ledger.done(token, {"outcome": "not begun"})
        raise HandBackRefusedError(failed.message)

    def _allow(self, found: Found) -> None:
        """Refuse before anything is destroyed."""
        problems = [
            self._message("scrub", "its traces can be removed", why, "Correct hand_back in the site file.")
            for why in (found.traces.refused,)
            if why
        ]
        problems += [
            self._message("scratch", "its drives can be erased", why, "Correct hand_back.scratch, or image the node.")
            for why in (found.scratch.refused,)
            if why
        ]
        problems += self._cannot(found)
        if problems:
            raise HandBackRefusedError.of(problems)

    def _cannot(self, found: Found) -> list[Message]:
        """Return what no scrub removes."""
        out = [
            self._message(
                "GPU memory", "cleared by the driver when it is freed", what, "Correct the driver's options; reboot."
            )
            for what in found.traces.traces.get(GPU_MEMORY, [])
        ]
        if files := found.traces.traces.get(ELSEWHERE, []):
            step = "Name their folders in hand_back.empty, or in hand_back.spare where they may stay."
            number = found.traces.counts.get(ELSEWHERE, len(files)) - len(files[:_SHOWN])
            text = f"{'; '.join(files[:_SHOWN])}{f' and {number} more' if number else ''}"
            out.append(self._message("files of tenants", "only where the site lets them be removed", text, step))
        if found.accounts:
            step = "Remove or disable them, or name them in hand_back.bmc_accounts."
            text = f"also {_some(found.accounts)}"
            out.append(self._message("BMC accounts", "only those that the site names", text, step))
        return out

    def _clean(self, ledger: Ledger) -> None:
        with self._on_node() as tenant:
            left = tenant.traces(scrub=True)
            if left.refused:
                step = "Look at the node's disks and its log, then run again. Scratch was not erased."
                raise HandBackRefusedError.of([self._message("scrub", "ended", left.refused, step)])
            self._tell(ledger, f"scrubbed: {left.gone} traces removed")
            self._require_ended(left)
            check_stop()
            scratch = tenant.scratch(erase=True)
        if scratch.refused:
            step = "Nothing uses the drives now. Correct the cause, then run again: it begins with them."
            raise HandBackRefusedError.of([self._message("scratch", "erased and recreated", scratch.refused, step)])
        if scratch.erased:
            self._tell(ledger, f"erased: {', '.join(scratch.erased)}")
        door = self._door()
        if door is not None:
            with door:
                closed = door.close_others()
            self._tell(ledger, f"BMC: {closed} sessions closed")
        else:
            self._tell(ledger, "BMC: not known to the site file, so nobody was shown out of it", "warn")

    def _require_ended(self, left: Left) -> None:
        """Refuse a node on which programs of tenants live on: then no file was removed."""
        if names := left.traces.get(PROCESS, []):
            step = (
                "They wait in the kernel: reset the node, then run again. Nothing but keys and schedules was removed."
            )
            text = f"alive after SIGKILL: {_some(names)}"
            raise HandBackRefusedError.of([self._message("programs of tenants", "ended", text, step)])

    def _require_clean(self, found: Found) -> None:
        lines = [
            *found.traces.words(but=(GPU_MEMORY, ELSEWHERE)),
            *([f"BMC session: {_some(found.sessions)}"] if found.sessions else []),
        ]
        problems = self._cannot(found)
        if lines:
            step = "End what brings it back, then run again. To be sure, image the node: `deploy --erase`."
            problems.append(self._message("after scrub and reboot", "no trace of a tenant", "; ".join(lines), step))
        if found.traces.refused or found.scratch.refused:
            self._allow(found)
        if problems:
            raise HandBackRefusedError.of(problems)

    @contextmanager
    def _on_node(self) -> Iterator[TenantNode]:
        access = self.site.access
        key = read_private_key(self.node, Path(access.private_key))
        remote = Remote({self.node: node_target(self.site, self.node, self.paths.known_hosts)})
        try:
            line = f"{key.get_name()} {key.get_base64()}"
            yield TenantNode(remote, self.node, self.site.hand_back, access.user, line)
        finally:
            remote.close()

    def _door(self) -> BmcDoor | None:
        site = self.site.node(self.node).bmc.known()
        return BmcDoor(self.node, site) if site is not None else None

    def _message(self, what: str, expected: str, actual: str, step: str) -> Message:
        return Message(self.node, what, expected=expected, actual=actual, next_step=step)

    def _tell(self, ledger: Ledger, text: str, level: str = "info") -> None:
        ledger.event(self.ctx.campaign, self.node, PHASE, text, level)


def alone(site: Site, node: str) -> Site:
    """Return the site with the gates that a returning node passes alone: those that need more nodes are skipped.

    The deploy that follows measures these with partners, as far as the site's own set has them.
    """
    why = "needs other nodes: the deploy that follows measures it with partners"
    gates = site.gates.model_copy(update={"set": site.hand_back.gate_set})
    many = [entry.id for entry in loader.gates_of(gates) if gate(entry.id, {}).min_nodes > 1]
    skips = [DeclaredSkip(gate=name, nodes=[node], reason=why) for name in many]
    return site.model_copy(update={"gates": gates.model_copy(update={"skip": [*gates.skip, *skips]})})


def partners(ctx: PhaseContext, node: str) -> list[str]:
    """Return the nodes in service that a deploy of this node may measure it with: as many as gates after a boot need.

    They have its scheduler. Nodes of its rack come first, and of those the ones without jobs. When the scheduler does
    not answer, none is known to be free, and the first are taken: the deploy asks again before it drains one.
    """
    site, paths = site_of(ctx), EnvPaths(ctx.root, ctx.env)
    wanted = (
        max((gate(item.id, {}).min_nodes for item in loader.gates_of(site.gates) if item.after_boot), default=1) - 1
    )
    with Ledger.read_only(paths.database) as ledger:
        ready = {row.name for row in ledger.states() if row.state is NodeState.READY} - {node}
    rack = site.rack_of(node).name
    alike = [one.name for one in served(handover_site(site, node)) if one.name in ready]
    near = sorted(alike, key=lambda one: site.rack_of(one).name != rack)
    near = near[: max(_ASKED, wanted)]
    try:
        with reader_for(handover_site(site, node), paths) as adapter:
            near.sort(key=lambda one: bool(adapter.jobs(one)))
    except RackreadyError:
        pass
    return near[:wanted]


def _begun(ledger: Ledger, node: str, reason: str) -> int:
    """Record that a return begins, and return its token. One that a killed run left open ends as failed."""
    last = ledger.latest(node, HAND_BACK, every_epoch=True)
    if last is not None and last.status == "intent":
        ledger.failed(last.token, "interrupted")
    return ledger.begin(node, HAND_BACK, reason, {}).token


def _known(site: Site, node: str) -> BmcSite:
    found = site.node(node).bmc.known()
    if found is None:
        raise KeyError(node)
    return found


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"


def end(ctx: PhaseContext, node: str, token: int) -> None:
    """Record that a return has ended: the gates of its set have passed."""
    with Ledger.open(EnvPaths(ctx.root, ctx.env).database) as ledger:
        ledger.done(token, {"outcome": "pass"})
        ledger.event(ctx.campaign, node, PHASE, "has passed the gates of its set", "ok")
