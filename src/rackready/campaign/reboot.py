"""The reboot at the end of install: only for a reason, once a node, drained first, and verified after it.

The reasons are observed on the node (ondevice/reboot_reasons.py), before and after. A reboot that a killed run left
open is observed by the boot id before anything else is done to the node.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from rackready.design.pinned import site_of
from rackready.drivers.process import STOP, check_stop
from rackready.drivers.remote import Remote
from rackready.drivers.ssh.target import node_target
from rackready.handover.production import in_production, take_out
from rackready.ledger.effect import Observation, run_effect
from rackready.ledger.store import Ledger
from rackready.model.outcome import CONTINUES, Outcome
from rackready.model.phase import UNTOUCHED, NodeResult, PhaseContext
from rackready.model.problems import RackreadyError, quoted
from rackready.model.site import Site
from rackready.ondevice import reboot_reasons
from rackready.paths import EnvPaths

REBOOT = "reboot"
PHASE = "install"
_READ_S = 60.0
_POLL_S = 2.0
_WORKERS = 16
_SHUTDOWN_S = 180.0
"""How long a shutdown may take before a boot with the same id means that it did not begin.

systemd ends a service after at most 90 s (DefaultTimeoutStopSec=, systemd-system.conf(5)); twice that is our choice.
"""
_COMMAND = ("systemctl", "reboot")
_UP = ("systemctl", "is-system-running", "--wait")
"""Waits until the boot has ended; a node with a failed unit answers too (systemctl(1)), and gates judge it."""

Results = dict[str, NodeResult]


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason for a reboot, as the node shows it."""

    code: str
    expected: str
    actual: str

    def __str__(self) -> str:
        return f"Expected: {self.expected} Actual: {self.actual}"


@dataclass(frozen=True, slots=True)
class BootReading:
    """A node's present boot and its reasons for another one; ``failure`` tells why nothing is known."""

    boot_id: str = ""
    reasons: tuple[Reason, ...] = ()
    failure: str = ""


class Nodes:
    """The nodes as the reboot step reaches them: each call uses a connection of its own, for none survives a reboot."""

    def __init__(self, site: Site, paths: EnvPaths) -> None:
        self._site, self._paths = site, paths

    def look(self, node: str) -> BootReading:
        """Return the node's boot id and reasons. Raises Interrupted."""
        answer = self._run(node, ("python3", "-"), stdin=_script(), timeout_s=_READ_S)
        if answer.failure or answer.timed_out or answer.exit_code != 0:
            return BootReading(failure=answer.failure or answer.stderr.strip() or f"no answer within {_READ_S:.0f} s")
        return parsed(answer.stdout)

    def reboot(self, node: str) -> None:
        """Ask the node to reboot. The answer may be lost with the connection: the boot id decides."""
        self._run(node, _COMMAND, timeout_s=_READ_S)

    def wait_until_up(self, node: str, timeout_s: float) -> None:
        """Wait until the node's services have started, at most that long."""
        self._run(node, _UP, timeout_s=max(1.0, timeout_s))

    def _run(self, node: str, argv: tuple[str, ...], *, stdin: str = "", timeout_s: float) -> Any:  # noqa: ANN401
        remote = Remote({node: node_target(self._site, node, self._paths.known_hosts)})
        try:
            return remote.run(node, argv, stdin=stdin, timeout_s=timeout_s)
        finally:
            remote.close()


@cache
def _script() -> str:
    return inspect.getsource(reboot_reasons)


def parsed(text: str) -> BootReading:
    """Return what a node printed about its boot."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or found.get("format") != reboot_reasons.FORMAT or not found.get("boot_id"):
        return BootReading(failure="no document about its boot")
    rows = [Reason(row["code"], row["expected"], row["actual"]) for row in found["reasons"]]
    return BootReading(found["boot_id"], tuple(rows))


def run_with_reboot(
    ctx: PhaseContext, run: Callable[[PhaseContext, list[str]], Results], nodes: list[str], hosts: Nodes | None = None
) -> Results:
    """Run the install phase, then reboot the nodes that it leaves with a reason. Raises Interrupted."""
    if not nodes:
        return run(ctx, nodes)
    site, paths = site_of(ctx), EnvPaths(ctx.root, ctx.env)
    with Ledger.open(paths.database) as ledger:
        step = _Step(ctx, site, ledger, hosts or Nodes(site, paths))
        unsettled, rebooted = ({}, {}) if ctx.check else step.settle(nodes)
        results = unsettled | run(ctx, [node for node in nodes if node not in unsettled])
        results |= {node: _after(results[node], why) for node, why in rebooted.items() if node in results}
        good = [node for node in nodes if node in results and results[node].outcome.value in CONTINUES]
        return results | step.finish({node: results[node] for node in good})


def reboot_for(ctx: PhaseContext, ledger: Ledger, node: str, reason: Reason, hosts: Nodes | None = None) -> NodeResult:
    """Reboot one drained node for a reason that the node itself does not show. Raises Interrupted.

    A reboot that a killed run left open is observed first, and then done again: the reason may be newer than it.
    """
    site, paths = site_of(ctx), EnvPaths(ctx.root, ctx.env)
    step = _Step(ctx, site, ledger, hosts or Nodes(site, paths))
    errors, _ = step.settle([node])
    seen = step.hosts.look(node)
    if node in errors or seen.failure:
        return errors.get(node) or NodeResult(Outcome.ERROR, _unread(node, seen), touched=False)
    return step.reboot(node, replace(seen, reasons=(reason,)), NodeResult(Outcome.PASS))


@dataclass(frozen=True, slots=True)
class _Step:
    """The reboots of one install run."""

    ctx: PhaseContext
    site: Site
    ledger: Ledger
    hosts: Nodes

    @property
    def limit_s(self) -> float:
        return float(self.site.campaign.provision_timeout_s)

    def settle(self, nodes: list[str]) -> tuple[Results, dict[str, str]]:
        """Observe the reboots that a killed run left open.

        Return an error for each node that shows nothing, and for each that rebooted the reasons why.
        """
        left = [node for node in nodes if self._open(node) is not None]
        settled = _each(left, self._settle_one)
        errors = {node: result for node, result in settled if isinstance(result, NodeResult)}
        return errors, {node: why for node, why in settled if isinstance(why, str)}

    def _open(self, node: str) -> Any:  # noqa: ANN401 - an entry of the ledger, or None
        last = self.ledger.latest(node, REBOOT)
        return last if last is not None and last.status == "intent" else None

    def _settle_one(self, node: str) -> NodeResult | str | None:
        entry = self._open(node)
        self._tell(
            node, "an earlier run was interrupted at a reboot; it is observed before anything is changed", "warn"
        )
        deadline = time.monotonic() + self.limit_s
        while (seen := self._observe(node, entry.observed)) is Observation.UNKNOWN and time.monotonic() < deadline:
            STOP.wait(_POLL_S)
            check_stop()
        if seen is Observation.UNKNOWN:
            error = _not_back(node, self.limit_s, self.hosts.look(node), entry.observed["boot_id"])
            return NodeResult(Outcome.ERROR, str(error), touched=False)
        if seen is Observation.HAPPENED:
            self.ledger.done(entry.token, {"observed": "after interruption"})
            self.hosts.wait_until_up(node, self.limit_s)
            return words(tuple(Reason(*row) for row in entry.observed["reasons"]))
        self.ledger.failed(entry.token, "observed: did not happen")
        return None

    def _observe(self, node: str, stored: Mapping[str, Any]) -> Observation:
        now = self.hosts.look(node)
        if now.failure:
            return Observation.UNKNOWN
        if now.boot_id != stored["boot_id"]:
            return Observation.HAPPENED
        under_way = time.time() - float(stored["at"]) < _SHUTDOWN_S
        return Observation.UNKNOWN if under_way else Observation.NOT_HAPPENED

    def finish(self, results: Results) -> Results:
        """Return the results after the reboots that the nodes need and may have."""
        out: Results = {}
        need: dict[str, BootReading] = {}
        for node, seen in _each(list(results), self.hosts.look):
            if seen.failure and not self.ctx.check:
                out[node] = replace(results[node], outcome=Outcome.ERROR, message=_unread(node, seen))
            elif seen.reasons:
                need[node] = seen
        if self.ctx.check:
            return {node: _planned(results[node], seen, self._allowed()) for node, seen in need.items()}
        ready, kept = self._may(need, results)
        out |= kept
        return out | dict(_each(list(ready), lambda node: self.reboot(node, need[node], results[node])))

    def _allowed(self) -> bool:
        return self.site.software.allow_reboot is not False

    def _may(self, need: Mapping[str, BootReading], results: Results) -> tuple[list[str], Results]:
        """Return the nodes to reboot, and a result for each that needs it and is not rebooted."""
        if not self._allowed():
            return [], {node: _refused(node, seen, results[node], "false") for node, seen in need.items()}
        busy, kept = in_production(self.ctx, need)
        if self.site.software.allow_reboot is None:
            refused = {node: _refused(node, need[node], results[node], _NOT_SET) for node in busy}
            kept |= {node: replace(one, data=one.data | {UNTOUCHED: True}) for node, one in refused.items()}
        else:
            kept |= take_out(self.ctx, {node: f"reboot: {words(need[node].reasons)}" for node in busy})
        return [node for node in need if node not in kept], kept

    def reboot(self, node: str, seen: BootReading, result: NodeResult) -> NodeResult:
        """Reboot a node once in a campaign, and return the result after it."""
        last = self.ledger.latest(node, REBOOT)
        if last is not None and last.status == "done" and last.observed.get("campaign") == self.ctx.campaign:
            return replace(result, outcome=Outcome.FAIL, message=_in_vain(node, seen))
        self._tell(node, f"reboots: {words(seen.reasons)}", "warn")
        before = {"boot_id": seen.boot_id, "at": time.time(), "campaign": self.ctx.campaign, "reasons": _plain(seen)}
        try:
            run_effect(
                self.ledger,
                node,
                REBOOT,
                _digest(seen),
                before=lambda: before,
                observe=lambda stored: self._observe(node, stored),
                act=lambda _token: self._act(node, seen.boot_id),
            )
            after = self.hosts.look(node)
        except RackreadyError as error:
            return replace(result, outcome=Outcome.ERROR, message=str(error), changed=True)
        if after.failure:
            return replace(result, outcome=Outcome.ERROR, message=_unread(node, after), changed=True)
        if after.reasons:
            return replace(result, outcome=Outcome.FAIL, message=_in_vain(node, after), changed=True)
        return _after(result, words(seen.reasons))

    def _act(self, node: str, boot_id: str) -> dict[str, Any]:
        """Reboot and wait for another boot. An exception leaves the intent open: the next run observes it."""
        check_stop()
        self.hosts.reboot(node)
        deadline = time.monotonic() + self.limit_s
        while (now := self.hosts.look(node)).failure or now.boot_id == boot_id:
            if time.monotonic() > deadline:
                raise _not_back(node, self.limit_s, now, boot_id)
            STOP.wait(_POLL_S)
            check_stop()
        self.hosts.wait_until_up(node, deadline - time.monotonic())
        self._tell(node, "rebooted", "info")
        return {"boot_id": now.boot_id}

    def _tell(self, node: str, text: str, level: str) -> None:
        self.ledger.event(self.ctx.campaign, node, PHASE, text, level)


_NOT_SET = "not set, and the node is in production"


def words(reasons: tuple[Reason, ...]) -> str:
    """Return reasons in a line: what a boot must end with."""
    return "; ".join(reason.expected for reason in reasons)


def _each(nodes: list[str], act: Callable[[str], Any]) -> list[tuple[str, Any]]:
    with ThreadPoolExecutor(max_workers=max(1, min(len(nodes), _WORKERS))) as pool:
        return list(zip(nodes, pool.map(act, nodes), strict=True))


def _digest(seen: BootReading) -> str:
    return hashlib.sha256(json.dumps([seen.boot_id, _plain(seen)]).encode()).hexdigest()


def _plain(seen: BootReading) -> list[list[str]]:
    return [[reason.code, reason.expected, reason.actual] for reason in seen.reasons]


def _planned(result: NodeResult, seen: BootReading, allowed: bool) -> NodeResult:  # noqa: FBT001 - the site's setting
    """Return a dry run's result with the reboot that would follow, or that would be refused."""
    what = "reboot" if allowed else "reboot, refused by software.allow_reboot: false"
    changes = [*result.data.get("changes", []), f"{what}: {words(seen.reasons)}"]
    return replace(result, changed=True, data=result.data | {"changes": changes})


def _after(result: NodeResult, why: str) -> NodeResult:
    """Return the result of a node that was rebooted."""
    changes = [*result.data.get("changes", []), f"reboot: {why}"]
    return replace(result, changed=True, data=result.data | {"changes": changes})


def _refused(node: str, seen: BootReading, result: NodeResult, actual: str) -> NodeResult:
    text = (
        f"{node}: a reboot is needed: {words(seen.reasons)} - Expected: software.allow_reboot: true "
        f"Actual: {actual}. Nothing was rebooted. Reboot the node when it suits, or set software.allow_reboot: true; "
        "then run again."
    )
    return replace(result, outcome=Outcome.FAIL, message=text)


def _unread(node: str, seen: BootReading) -> str:
    return (
        f"{node}: reasons for a reboot - Expected: read from the node Actual: {quoted(seen.failure)}. "
        "Check the node's console and SSH, then run again."
    )


def _not_back(node: str, limit_s: float, now: BootReading, boot_id: str) -> RackreadyError:
    return RackreadyError(
        node,
        "reboot",
        expected=f"SSH answers from another boot within {limit_s:.0f} s",
        actual=now.failure or f"still boot {boot_id}",
        next_step="Look at the node's console through its BMC, then run again: the reboot is observed first, not "
        "repeated.",
    )


def _in_vain(node: str, seen: BootReading) -> str:
    first = seen.reasons[0]
    more = f" and {len(seen.reasons) - 1} more" if len(seen.reasons) > 1 else ""
    return (
        f"{node}: after its reboot - {first}{more}. It is not rebooted again in this run. "
        "Check the node's boot menu (/boot/grub/grub.cfg) and boot order, then run again."
    )
