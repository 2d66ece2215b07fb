"""An upgrade, wave by wave. Its record is written before and after each step, so a killed run goes on in its wave.

What acts on the world comes in from outside (``Ways``): the order, the rules and the record are here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rackready.campaign.stop_request import StopRequest
from rackready.campaign.upgrade.order import Order
from rackready.campaign.upgrade.windows import ask
from rackready.design.names import listed
from rackready.model.commands import repair
from rackready.model.outcome import CONTINUES
from rackready.model.phase import TOGETHER
from rackready.model.problems import Message, RackreadyError
from rackready.model.site import Site
from rackready.model.upgrade import NodeRecord, NodeStep, UpgradeRecord, UpgradeState, WaveRecord

_PERCENT = 100
_TAKE_OUT, _INSTALL, _LAST = "take-out", "install", "handover"
_GONE = "it is not in the site file any more"


Results = Mapping[str, Mapping[str, Any]]
"""Node -> outcome, message, phase, and ``kinds``: what went wrong, by gate and code, or by role and task."""


@dataclass(frozen=True, slots=True)
class Ways:
    """What an upgrade does to the world, and what it asks of it."""

    move: Callable[[Sequence[str], bool], Results]
    """Takes nodes through the phases of a wave; ``True``: back to their former sets."""
    serving: Callable[[], Collection[str]]
    offered: Callable[[Sequence[str]], list[Message]]
    """Returns what the nodes' repositories lack, of the new set and of the way back."""
    asked: Callable[[], StopRequest]
    now: Callable[[], datetime]
    say: Callable[[str], None]
    save: Callable[[UpgradeRecord], None]
    faulty: Callable[[], Mapping[str, str]] = dict
    """Returns the nodes that `rackready watch` drained for a fault, with the fault."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Whether the site's windows count. ``wave_s``: the longest that a wave is expected to take; None: not measured."""

    heed: bool
    wave_s: float | None


class Engine:
    """One upgrade."""

    def __init__(self, site: Site, record: UpgradeRecord, ways: Ways, windows: Windows) -> None:
        self.site, self.record, self.ways, self.windows = site, record, ways, windows
        self.order = Order(site)

    def run(self) -> UpgradeRecord:
        """Go on until the upgrade ends, waits or stops; return its record.

        Raises RackreadyError when a wave may not begin because a package is missing: nothing was changed then.
        """
        record = self.record
        if record.wave is None:
            self._set(UpgradeState.RUNNING)
        while record.wave is not None or self._begin():
            self._wave()
            if self._stopped():
                if self.ways.asked() is StopRequest.ABORT:
                    self._abort()
                break
        return record

    def _set(self, state: UpgradeState, reason: str = "") -> None:
        self.record.state, self.record.reason = state, reason
        self.ways.save(self.record)
        if reason:
            self.ways.say(f"{state.value}: {reason}")

    def _begin(self) -> bool:
        """Record the next wave. Return False when none begins; the record then says why."""
        if self._asked():
            return False
        record = self.record
        self._set_aside()
        waiting = record.named(NodeStep.WAITING)
        wave = self.order.next(waiting, self.ways.serving(), first=record.waves == 0)
        if not wave.nodes:
            for node in waiting:
                record.nodes[node].step, record.nodes[node].reason = NodeStep.LEFT_OUT, wave.held[node]
            self._set(UpgradeState.FINISHED)
            return False
        if not self._in_window(wave.nodes):
            return False
        lacking = self.ways.offered(wave.nodes)
        if lacking:
            raise RackreadyError.of(lacking)
        record.wave = WaveRecord(number=record.waves + 1, nodes=list(wave.nodes), begun=self._seconds())
        for node in wave.nodes:
            record.nodes[node].step, record.nodes[node].wave = NodeStep.MOVING, record.wave.number
        self._set(UpgradeState.RUNNING)
        return True

    def _set_aside(self) -> None:
        """Leave out what waits and is gone from the site file, or was drained for a fault that nobody repaired yet."""
        faulty = self.ways.faulty()
        for node in self.record.named(NodeStep.WAITING):
            why = "" if node in self.order.places else _GONE
            if why := why or (f"{faulty[node]}. Repair it first: {repair(node)}" if node in faulty else ""):
                self._leave_out(node, why)

    def _leave_out(self, node: str, why: str) -> None:
        self.record.nodes[node].step, self.record.nodes[node].reason = NodeStep.LEFT_OUT, why
        self.ways.say(f"left out: {node}: {why}")

    def _seconds(self) -> float:
        return self.ways.now().timestamp()

    def _asked(self) -> bool:
        asked = self.ways.asked()
        if asked is StopRequest.PAUSE:
            self._set(UpgradeState.PAUSED, "asked by another terminal; `rackready upgrade --resume` continues it")
        elif asked is StopRequest.ABORT:
            self._abort()
        return asked is not StopRequest.NOTHING

    def _abort(self) -> None:
        left = len(self.record.named(NodeStep.WAITING))
        self._set(UpgradeState.ABORTED, f"asked by another terminal; {left} nodes keep their former set")

    def _in_window(self, nodes: Sequence[str]) -> bool:
        if not (self.windows.heed and self.site.maintenance):
            return True
        racks = {self.site.rack_of(node).name for node in nodes}
        if self.windows.wave_s is None:
            raise RackreadyError(
                "maintenance windows",
                "the duration of a wave",
                expected="measured by an earlier upgrade or deploy",
                actual="not measured",
                next_step="State the longest with --expect-minutes, or run with --outside-windows.",
            )
        found = ask(self.site.maintenance, racks, self.ways.now(), self.windows.wave_s)
        if found.fits is not None:
            return True
        minutes = f"a wave of {listed(nodes)} may take {self.windows.wave_s / 60:.0f} minutes"
        why = f"window {found.open_now.name} ends at {_utc(found.open_now.ends)}" if found.open_now else "none is open"
        then = f"The next one begins at {_utc(found.later.begins)} ({found.later.name})" if found.later else ""
        then = then or "No window of the site is long enough for these racks"
        self._set(UpgradeState.WINDOW, f"{minutes}, and {why}. {then}: run the same command then.")
        return False

    def _wave(self) -> None:
        """Take the wave up, and what did not come up back; both go on where a killed run stopped."""
        record, wave = self.record, self.record.wave
        assert wave is not None  # noqa: S101 - called with a wave only
        for node in [node for node in wave.nodes if node not in self.order.places]:
            self._leave_out(node, _GONE)
        wave.nodes = [node for node in wave.nodes if node in self.order.places]
        self.ways.say(f"wave {wave.number}: {listed(wave.nodes) or 'no node'} to {record.to}")
        if wave.back is None:
            found = self.ways.move(wave.nodes, False) if wave.nodes else {}  # noqa: FBT003 - the way up
            wave.back = self._settled(wave.nodes, found)
            self.ways.save(record)
        wave.back = [node for node in wave.back if node in wave.nodes]
        if wave.back:
            self.ways.say(f"wave {wave.number}: back to the former set: {listed(wave.back)}")
            found = self.ways.move(wave.back, True)  # noqa: FBT003 - the way back
            for node in wave.back:
                _settle_back(record.nodes[node], found[node])
        record.seconds.append(round(self._seconds() - wave.begun, 1))
        record.wave, record.waves = None, wave.number
        self.ways.save(record)

    def _settled(self, nodes: Sequence[str], found: Results) -> list[str]:
        """Record how nodes came through the way up; return those that go back to their former set.

        Nodes of an NVLink domain have one driver: where one of them stays behind, those that came through go back, too.
        """
        record = self.record
        back = {node for node in nodes if not _settle(record.nodes[node], found[node])}
        for unit in self.order.units:
            mates = [node for node in nodes if node in unit]
            behind = next((node for node in mates if node in back or _stays(record.nodes[node], found[node])), "")
            for node in mates if behind else ():
                if found[node].get(TOGETHER):
                    back.add(node)
                elif record.nodes[node].step is NodeStep.READY:
                    record.nodes[node].step = NodeStep.FAILED
                    record.nodes[node].reason = f"Goes back with {behind}, of its NVLink domain."
                    record.nodes[node].goes_with = behind
                    back.add(node)
        return [node for node in nodes if node in back]

    def _stopped(self) -> bool:
        """Return whether the stop rule ends the upgrade here; a kind of failure stops it once."""
        record = self.record
        nodes = [node for node in record.nodes.values() if node.wave == record.waves]
        tried = [node for node in nodes if node.step is not NodeStep.LEFT_OUT]
        bad = [node for node in tried if node.step is not NodeStep.READY and not node.goes_with]
        new = sorted({kind for node in bad for kind in node.kinds} - set(record.kinds))
        record.kinds = sorted({*record.kinds, *new})
        reasons = [f"new kind of failure in wave {record.waves}: {', '.join(new)}"] if new else []
        limit = self.site.upgrade.stop_above_pct
        if len(bad) * _PERCENT > limit * len(tried):
            reasons.append(f"{len(bad)} of {len(tried)} nodes of wave {record.waves} failed, more than {limit} %")
        if not reasons or not record.named(NodeStep.WAITING):
            self.ways.save(record)
            return False
        step = "Check them; `rackready upgrade --resume` continues with the others."
        self._set(UpgradeState.STOPPED, f"{'; '.join(reasons)}. {step}")
        return True


def _settle(node: NodeRecord, result: Mapping[str, Any]) -> bool:
    """Record how a node came through the way up; return False if it goes back."""
    node.reason, node.kinds, node.goes_with = str(result["message"]), list(result.get("kinds", [])), ""
    if result["outcome"] in CONTINUES and result["phase"] == _LAST:
        node.step, node.reason, node.kinds = NodeStep.READY, "", []
        return True
    if result["phase"] == _TAKE_OUT:
        node.step, node.kinds = NodeStep.LEFT_OUT, []
        return True
    node.step = NodeStep.FAILED
    return str(result["phase"]) != _INSTALL


def _stays(node: NodeRecord, result: Mapping[str, Any]) -> bool:
    """Return whether a node was left out for a reason of its own."""
    return node.step is NodeStep.LEFT_OUT and not result.get(TOGETHER)


def _settle_back(node: NodeRecord, result: Mapping[str, Any]) -> None:
    """Record how a node came back. One that was left out for the sake of its NVLink domain never had the new set."""
    kept = node.step is NodeStep.LEFT_OUT
    if result["outcome"] in CONTINUES and result["phase"] == _LAST:
        node.step = NodeStep.LEFT_OUT if kept else NodeStep.ROLLED_BACK
        return
    node.step, node.back = NodeStep.FAILED, kept or result["phase"] != _TAKE_OUT
    node.reason = f"{node.reason} On the way back to {node.former}: {result['message']}"


def _utc(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"
