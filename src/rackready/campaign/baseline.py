"""Firmware and BIOS settings of nodes, brought to the baseline before provisioning: one node first, then waves.

Firmware goes first, because a new BIOS may change its attributes; then all attributes by one restart. What a killed run
left open is observed first: a version that is there is not updated again, and a running task is waited for.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from rackready.campaign.drained_phase import Results, run_drained
from rackready.campaign.firmware_task import FirmwareTask
from rackready.campaign.firmware_versions import VersionWait
from rackready.campaign.node_bmcs import NodeBmcs
from rackready.design.facts import node_facts
from rackready.design.pinned import site_of
from rackready.drivers import redfish_bios, redfish_task, redfish_update
from rackready.drivers.process import check_stop
from rackready.drivers.redfish import Bmc, PowerAction
from rackready.drivers.redfish_certificate import restart_manager
from rackready.drivers.redfish_errors import BmcError, BmcTlsError, BmcUnreachableError
from rackready.gates.bmc.guard import cycler, refusal
from rackready.ledger.effect import Observation, run_effect
from rackready.ledger.store import Ledger
from rackready.model.baseline import Baseline, FirmwareFile
from rackready.model.outcome import Outcome
from rackready.model.phase import UNTOUCHED, NodeResult, PhaseContext
from rackready.model.problems import RackreadyError
from rackready.model.site import Node, Site
from rackready.paths import EnvPaths

FIRMWARE, BIOS = "firmware", "bios-settings"
"""The ledger's operations."""
_WAVE = 8
"""Nodes of a wave after the first one. Our choice: a bad update stays on few nodes."""
_APPLIED_S = 900.0
"""Longest time from a restart until the BIOS reports its new settings, s (OpenStack Ironic's default for boot mode)."""
_VERSION_S = 480.0
"""Longest time until a BMC answers again and reports a new version after an update, s (OpenStack Ironic's default)."""
_POLL_S = 10.0


def run_baseline_drained(ctx: PhaseContext, nodes: list[str]) -> Results:
    """Bring nodes to their baseline; those in production are drained first. With ``ctx.check`` only compare."""
    return run_drained(ctx, "baseline", run_baseline, nodes)


def run_baseline(ctx: PhaseContext, nodes: list[str]) -> Results:
    """Compare nodes with their baseline, and unless ``ctx.check`` bring those that differ to it. No node raises."""
    site, paths = site_of(ctx), EnvPaths(ctx.root, ctx.env)
    with Ledger.open(paths.database) as ledger:
        work = Work(site, paths, ledger, ctx.campaign)
        out = dict(zip(nodes, _in_parallel(work.compare, nodes), strict=True))
        if ctx.check:
            return out
        todo: dict[str, list[str]] = {}
        for node in nodes:
            if out[node].outcome is Outcome.PASS and out[node].changed:
                todo.setdefault(site.node(node).platform, []).append(node)
        for same in todo.values():
            out |= _in_waves(work.apply, same)
    return out


def _in_parallel(do: Callable[[str], NodeResult], nodes: list[str]) -> list[NodeResult]:
    with ThreadPoolExecutor(max_workers=max(1, min(32, len(nodes))), thread_name_prefix="baseline") as pool:
        return list(pool.map(do, nodes))


def _in_waves(do: Callable[[str], NodeResult], nodes: list[str]) -> Results:
    """Do one node, then waves of several; after a wave in which one goes wrong, nothing is done to the others."""
    out: Results = {}
    for wave in _waves(nodes):
        out |= dict(zip(wave, _in_parallel(do, wave), strict=True))
        bad = next((node for node in wave if out[node].outcome is not Outcome.PASS), None)
        if bad is not None:
            text = (
                "{node}: baseline - Expected: {bad} comes to it first Actual: that went wrong. "
                "Nothing was done to {node}: repair {bad}, or leave it out, then run again."
            )
            left = [node for node in nodes if node not in out]
            left_out = {UNTOUCHED: True}
            return out | {
                node: NodeResult(Outcome.ERROR, text.format(node=node, bad=bad), data=left_out, touched=False)
                for node in left
            }
    return out


def _waves(nodes: list[str]) -> Iterator[list[str]]:
    rest = iter(nodes)
    size = 1
    while wave := list(islice(rest, size)):
        yield wave
        size = _WAVE


def site_baseline(site: Site, node: str) -> Baseline | None:
    """Return what the site itself declares for a node's server model."""
    return site.baselines.get(site.node(node).platform)


@dataclass(frozen=True, slots=True)
class Work:
    """What all nodes of one run have in common."""

    site: Site
    paths: EnvPaths
    ledger: Ledger
    campaign: str

    @property
    def bmcs(self) -> NodeBmcs:
        """Return the way to the BMCs."""
        return NodeBmcs(self.site, self.ledger, self.campaign, "baseline")

    def compare(self, name: str) -> NodeResult:
        """Return what differs on a node from its baseline."""
        wanted = site_baseline(self.site, name) or node_facts(self.site, name).baseline
        if wanted is None:
            text = f"no baseline is declared for {self.site.node(name).platform}"
            return NodeResult(Outcome.SKIP, text, touched=False)
        try:
            with self.bmc(name) as bmc:
                found = _differences(bmc, wanted)
        except RackreadyError as error:
            return NodeResult(Outcome.ERROR, str(error), touched=False)
        words = ", ".join(found) or "as its baseline"
        return NodeResult(Outcome.PASS, words, changed=bool(found), data={"changes": found}, touched=False)

    def apply(self, name: str) -> NodeResult:
        """Bring a node to its baseline."""
        wanted = site_baseline(self.site, name) or node_facts(self.site, name).baseline
        assert wanted is not None  # noqa: S101 - compare() found differences from it
        before = self.ledger.latest(name, FIRMWARE)
        try:
            done = NodeWork(self, self.site.node(name), wanted).apply()
        except RackreadyError as error:
            last = self.ledger.latest(name, FIRMWARE)
            updated = last is not None and last != before and last.status == "done"
            hint = f" `rackready baseline --rollback {name}` brings the version before back, if the BMC keeps it."
            return NodeResult(Outcome.ERROR, str(error) + (hint if updated else ""))
        return NodeResult(Outcome.PASS, ", ".join(done), changed=True, data={"changes": done})

    def bmc(self, name: str) -> Bmc:
        """Return a node's BMC. Raises BmcError while the site file does not know enough of it."""
        return self.bmcs.open(name)

    def say(self, node: str, text: str) -> None:
        """Record what is done to a node."""
        self.bmcs.say(node, text)


def _differences(bmc: Bmc, wanted: Baseline) -> list[str]:
    firmware = redfish_update.differences(bmc, wanted)
    out = [f"{part} {now or 'none'} -> {redfish_update.wanted_of(wanted, part)}" for part, now in firmware.items()]
    return out + [str(item) for item in redfish_bios.differences(bmc, wanted.bios_settings)]


@dataclass(frozen=True, slots=True)
class NodeWork:
    """One node on its way to the baseline."""

    work: Work
    node: Node
    wanted: Baseline

    def apply(self) -> list[str]:
        """Return what was changed. Raises RackreadyError."""
        with self._bmc() as bmc:
            bmc.require(str(self.node.serial), self.node.serial_kind)
            was = bmc.observe()
            done = _differences(bmc, self.wanted)
            self.require_idle()
            files = self._due(bmc)
        for file in files:
            self._update(file)
        old = self._versions(files).left()
        begun = self.activate(set(old)) if old else []
        self._require_versions(files, begun)
        with self._bmc() as bmc:
            self._bios(bmc)
            if was == "Off" and bmc.observe() == "On":
                bmc.power(PowerAction.OFF)
        return done

    def _bmc(self) -> Bmc:
        return self.work.bmc(self.node.name)

    def require_idle(self) -> None:
        """Raise RackreadyError while jobs run on the node, or may start."""
        why = refusal(self.work.site, self.work.ledger, self.work.paths, self.node.name)
        if why:
            raise RackreadyError(
                self.node.name,
                "baseline",
                expected="a node on which no jobs run or may start",
                actual=why,
                next_step="Nothing was done to it: drain it first.",
            )

    def _due(self, bmc: Bmc) -> list[FirmwareFile]:
        """Return the files of the parts that differ; parts without one are reported at the end. Raises BmcError."""
        differ = redfish_update.differences(bmc, self.wanted)
        files = [file for file in self.wanted.files if file.part in differ]
        # A file of an earlier run that still goes on is not sent again: nothing to refuse.
        if not redfish_task.busy(bmc) and not redfish_task.staged(bmc):
            redfish_update.require_taken(bmc, files)
        return files

    def _update(self, file: FirmwareFile) -> None:
        """Send a file; after the BMC's own, wait for its restart: it ends what comes in between."""
        with self._bmc() as bmc:
            self._send(bmc, file)
        if file.part == "bmc" and self._versions([file]).left({"bmc"}):
            self._restart_bmc()
            self._versions([file]).left({"bmc"})

    def _send(self, bmc: Bmc, file: FirmwareFile) -> None:
        version = redfish_update.wanted_of(self.wanted, file.part)

        def act() -> dict[str, str]:
            self.work.say(self.node.name, f"firmware of {file.part}: {file.file.name}, to {version}")
            redfish_update.update(bmc, file, version, check_stop)
            return {"part": file.part, "sha256": file.sha256}

        FirmwareTask(
            FIRMWARE,
            _digest(file.part, version, file.sha256),
            f"firmware update of {file.part}",
            file.part,
            version,
            before=lambda: {"part": file.part, "version": redfish_update.version(bmc, file.part)},
            act=act,
        ).carry_out(self.work.ledger, self.node.name, bmc)

    def _versions(self, files: list[FirmwareFile]) -> VersionWait:
        wanted = {file.part: redfish_update.wanted_of(self.wanted, file.part) for file in files}
        return VersionWait(self._bmc, wanted, _VERSION_S, _POLL_S)

    def _restart_bmc(self) -> None:
        """Restart the BMC itself: its new firmware is there, and some BMCs do not restart with it by themselves."""
        with self._bmc() as bmc:
            require_no_update(bmc)
            self.work.say(self.node.name, "restart of the BMC, to activate its firmware")
            with suppress(BmcUnreachableError, BmcTlsError):  # with its answer
                restart_manager(bmc)

    def activate(self, parts: set[str]) -> list[str]:
        """Cycle the node's power: a staged update of these parts is active after it. Returns the tasks it carries on.

        A BIOS needs the host off and on. Boards need more: NVIDIA's firmware of BMC and HGX wants an AC cycle (NVIDIA
        MFT, nvredfish: "a full AC cycle of the board is needed"), where PDU or BMC can do it.
        """
        refuse = lambda node: refusal(self.work.site, self.work.ledger, self.work.paths, node)  # noqa: E731
        power = cycler(self.work.site, self.work.ledger, self.work.campaign, refuse)
        site = self.node.bmc.known()
        assert site is not None  # noqa: S101 - it was asked before
        with self._bmc() as bmc:
            require_no_update(bmc)
            begun = redfish_task.carried_on(bmc)
            board = any(redfish_update.is_with_the_board(bmc, part) for part in sorted(parts))
        self.work.say(self.node.name, "power cycle, to activate firmware")
        power.cycle(self.node.name, site, "auto" if board else "cold", "1", proceed=check_stop)
        return begun

    def _require_versions(self, files: list[FirmwareFile], begun: list[str]) -> None:
        """Wait for the wanted versions. Raises BmcError that names what stayed old."""
        sent = self._versions(files)
        sent.left(set(sent.wanted), begun)
        with self._bmc() as bmc:
            old = redfish_update.differences(bmc, self.wanted)
        if old:
            raise BmcError(
                bmc.where,
                "firmware",
                expected=", ".join(f"{part} {redfish_update.wanted_of(self.wanted, part)}" for part in old),
                actual=", ".join(f"{part} {now or 'none'}" for part, now in old.items()),
                next_step="The BMC took the file and keeps its version: look at its event log."
                if set(old) & set(sent.wanted)
                else "Give its file in baselines (files), or update it with the vendor's package.",
            )

    def _bios(self, bmc: Bmc) -> None:
        settings = self.wanted.bios_settings
        if not redfish_bios.differences(bmc, settings):
            return

        def act(_token: int) -> dict[str, list[str]]:
            changes = redfish_bios.differences(bmc, settings)
            todo = [item for item in changes if not item.staged]
            if todo:
                redfish_bios.stage(bmc, todo)
            self.work.say(self.node.name, f"{len(changes)} BIOS settings, one restart")
            bmc.power(PowerAction.RESET if bmc.observe() == "On" else PowerAction.ON)
            self._wait_applied(bmc)
            return {"settings": [item.name for item in changes]}

        run_effect(
            self.work.ledger,
            self.node.name,
            BIOS,
            _digest(json.dumps(settings, sort_keys=True)),
            before=lambda: {"power": bmc.observe()},
            observe=lambda _stored: (
                Observation.NOT_HAPPENED if redfish_bios.differences(bmc, settings) else Observation.HAPPENED
            ),
            act=act,
        )

    def _wait_applied(self, bmc: Bmc) -> None:
        deadline = time.monotonic() + _APPLIED_S
        while left := redfish_bios.differences(bmc, self.wanted.bios_settings):
            check_stop()
            if time.monotonic() > deadline:
                raise BmcError(
                    bmc.where,
                    "BIOS settings",
                    expected=f"applied within {_APPLIED_S:.0f} s of a restart",
                    actual=", ".join(map(str, left)),
                    next_step="Look at the node's console: it may wait for a key, or refuse a value; then run again.",
                )
            time.sleep(_POLL_S)


def require_no_update(bmc: Bmc) -> None:
    """Raise BmcError while an update runs: a power cycle in the middle of one may leave the board without firmware."""
    running = redfish_task.busy(bmc)
    if running:
        raise BmcError(
            bmc.where,
            "power cycle, to activate firmware",
            expected="no update or other task that runs",
            actual=running,
            next_step="Nothing was switched off. Wait until it has ended, then run again.",
        )


def _digest(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()
