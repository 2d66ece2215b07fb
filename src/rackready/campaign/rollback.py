"""Firmware of nodes, brought back to the versions before their last updates, from the images that their BMCs keep.

The ledger knows each part that was updated and its version before. Every part's kept image is found before the first
is made active: a node is rolled back as a whole, or not at all.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from rackready.campaign.baseline import FIRMWARE, NodeWork, Work
from rackready.campaign.drained_phase import Results, run_drained
from rackready.campaign.firmware_task import AWAY_S, FirmwareTask
from rackready.campaign.firmware_versions import VersionWait
from rackready.design.pinned import site_of
from rackready.drivers import redfish_task, redfish_update
from rackready.drivers.process import check_stop
from rackready.drivers.redfish import Bmc, PowerAction
from rackready.drivers.redfish_errors import BmcError, BmcTlsError, BmcUnreachableError
from rackready.drivers.redfish_rollback import Backup, backup_of, roll_back
from rackready.ledger.rows import LedgerEntry
from rackready.ledger.store import Ledger
from rackready.model.baseline import Baseline, same_version
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult, PhaseContext
from rackready.model.problems import RackreadyError
from rackready.paths import EnvPaths

ROLLBACK = "firmware-rollback"
"""The ledger's operation."""
_ACTIVE_S = 480.0
"""Longest time until a BMC answers again and reports its version, s (OpenStack Ironic's default after an update)."""
_POLL_S = 10.0


@dataclass(frozen=True, slots=True)
class _Update:
    """The last update of a part. ``was``: its version before; ``token``: of the ledger's entry."""

    part: str
    was: str
    token: int


def run_rollback_drained(ctx: PhaseContext, nodes: list[str]) -> Results:
    """Roll back the last firmware updates of nodes; those in production are drained first."""
    return run_drained(ctx, "baseline", run_rollback, nodes)


def run_rollback(ctx: PhaseContext, nodes: list[str]) -> Results:
    """Roll back the last firmware updates of nodes; with ``ctx.check`` only say what would be. No node raises."""
    paths = EnvPaths(ctx.root, ctx.env)
    with Ledger.open(paths.database) as ledger:
        work = Work(site_of(ctx), paths, ledger, ctx.campaign)
        with ThreadPoolExecutor(max_workers=max(1, min(32, len(nodes))), thread_name_prefix="rollback") as pool:
            return dict(zip(nodes, pool.map(lambda name: _one(work, name, check=ctx.check), nodes), strict=True))


def _one(work: Work, name: str, *, check: bool) -> NodeResult:
    this = _Rollback(work, name)
    try:
        todo, words = this.plan(settle=not check)
    except RackreadyError as error:
        return NodeResult(Outcome.ERROR, str(error), touched=False)
    text = ", ".join(words) or "at its versions before the last update"
    if check or not todo:
        return NodeResult(Outcome.PASS, text, changed=bool(todo), data={"changes": words}, touched=False)
    try:
        this.run(todo)
    except RackreadyError as error:
        return NodeResult(Outcome.ERROR, str(error))
    return NodeResult(Outcome.PASS, text, changed=True, data={"changes": words})


@dataclass(frozen=True, slots=True)
class _Rollback:
    work: Work
    name: str

    def plan(self, *, settle: bool) -> tuple[list[tuple[_Update, Backup]], list[str]]:
        """Return the parts to roll back with their images, and what changes in words. Raises RackreadyError.

        ``settle``: wait first for what a run that was cut has begun; a BMC's list of images changes when that ends.
        """
        node = self.work.site.node(self.name)
        with self.work.bmc(self.name) as bmc:
            bmc.require(str(node.serial), node.serial_kind)
            if settle:
                self._settle(bmc)
            todo = self._todo(bmc)
            words = [f"{update.part} {redfish_update.version(bmc, update.part)} -> {update.was}" for update, _ in todo]
        return todo, words

    def run(self, todo: list[tuple[_Update, Backup]]) -> None:
        """Roll back. Raises RackreadyError."""
        with self.work.bmc(self.name) as bmc:
            was = bmc.observe()
            self._node().require_idle()
            for update, backup in todo:
                self._back(bmc, update, backup)
        host = self._versions([item for item in todo if item[0].part != "bmc"])
        begun = self._node().activate(set(host.wanted)) if host.left() else []
        every = self._versions(todo)
        if left := every.left(set(every.wanted), begun):
            raise self._stayed(every.wanted, left)
        with self.work.bmc(self.name) as bmc:
            if was == "Off" and bmc.observe() == "On":
                bmc.power(PowerAction.OFF)

    def _settle(self, bmc: Bmc) -> None:
        """Wait for what a run that was cut has begun. Raises the error of a BMC that stays away."""
        last = self.work.ledger.latest(self.name, ROLLBACK)
        if last is None or last.status != "intent":
            return
        answered = time.monotonic()
        deadline = answered + redfish_task.TASK_S
        while time.monotonic() < deadline:
            check_stop()
            try:
                if self._settled(bmc, last):
                    return
                answered = time.monotonic()
            except (BmcUnreachableError, BmcTlsError):  # it restarts
                if time.monotonic() - answered > AWAY_S:
                    raise
                bmc.forget()
            time.sleep(_POLL_S)

    def _settled(self, bmc: Bmc, begun: LedgerEntry) -> bool:
        """Return whether what an earlier run has begun has ended; what has come of it is recorded. Raises BmcError."""
        if redfish_task.busy(bmc):
            return False
        now = redfish_update.version(bmc, str(begun.observed["part"]))
        if same_version(str(begun.observed["to"]), now):
            self.work.ledger.done(begun.token, {"observed": "after interruption"})
        return True

    def _node(self) -> NodeWork:
        return NodeWork(self.work, self.work.site.node(self.name), Baseline())

    def _todo(self, bmc: Bmc) -> list[tuple[_Update, Backup]]:
        """Return the parts to roll back with their kept images; the BMC itself last, because it goes away."""
        updates = self._updates()
        if not updates:
            raise RackreadyError(
                f"{self.name}: rollback",
                expected="a firmware update by rackready",
                actual="none is recorded",
                next_step="State the version and its file in baselines, then run `rackready baseline --apply --limit "
                f"{self.name}`.",
            )
        changed = [item for item in updates if not same_version(item.was, redfish_update.version(bmc, item.part))]
        changed.sort(key=lambda item: item.part == "bmc")
        waits = redfish_task.staged(bmc)
        begun = {item.part: Backup(item.was, "") for item in changed if waits and self._begun(item)}
        return [(item, begun.get(item.part) or backup_of(bmc, item.part, item.was)) for item in changed]

    def _begun(self, update: _Update) -> bool:
        """Whether a run that was cut has asked for this already: its image waits for the next boot."""
        last = self.work.ledger.latest(self.name, ROLLBACK, _digest(update))
        return last is not None and last.status in {"intent", "done"}

    def _updates(self) -> list[_Update]:
        """Return the last update of each part, from the ledger; updates before a repair were of another machine."""
        found: dict[str, _Update] = {}
        epoch = self.work.ledger.epoch(self.name)
        for entry in self.work.ledger.entries(self.name):
            part, was = entry.observed.get("part"), entry.observed.get("version")
            mine = entry.operation == FIRMWARE and entry.epoch == epoch and entry.status in {"done", "intent"}
            if mine and part and was:
                found[part] = _Update(part, was, entry.token)
        return list(found.values())

    def _back(self, bmc: Bmc, update: _Update, backup: Backup) -> None:
        """Make a kept image active, once."""

        def act() -> dict[str, str]:
            self.work.say(self.name, f"firmware of {update.part}: back to {update.was}")
            roll_back(bmc, update.part, backup, check_stop)
            return {"part": update.part, "version": update.was}

        FirmwareTask(
            ROLLBACK,
            _digest(update),
            f"rollback of {update.part}",
            update.part,
            update.was,
            before=lambda: {"part": update.part, "to": update.was},
            act=act,
        ).carry_out(self.work.ledger, self.name, bmc)

    def _versions(self, todo: list[tuple[_Update, Backup]]) -> VersionWait:
        wanted = {update.part: update.was for update, _ in todo}
        return VersionWait(lambda: self.work.bmc(self.name), wanted, _ACTIVE_S, _POLL_S)

    def _stayed(self, wanted: Mapping[str, str], left: Mapping[str, str]) -> BmcError:
        return BmcError(
            f"{self.name} BMC",
            "rollback",
            expected=", ".join(f"{part} {wanted[part]}" for part in left),
            actual=", ".join(f"{part} {now or 'none'}" for part, now in left.items()),
            next_step="The BMC took the request and keeps its version: look at its event log, then use the vendor's "
            "tool.",
        )


def _digest(update: _Update) -> str:
    """Return the digest of a rollback: the next one after each update."""
    return hashlib.sha256(f"{update.part}\0{update.was}\0{update.token}".encode()).hexdigest()
