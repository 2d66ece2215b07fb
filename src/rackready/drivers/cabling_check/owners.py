"""The nodes that a finding about cables concerns: their own, or all behind the switches that it names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from rackready.drivers.cabling_check.findings import DEVICE_EXCHANGED
from rackready.drivers.cabling_check.types import End, PlannedCable
from rackready.model.outcome import Finding

_NOWHERE = "cabling"
"""Where the judge reports that there was nothing to compare."""


class Owners:
    """The nodes that a finding concerns, of those that are checked."""

    def __init__(
        self, cables: Iterable[PlannedCable], nodes: Collection[str], is_trunk: Callable[[PlannedCable], bool]
    ) -> None:
        """``is_trunk``: whether a cable joins two switches."""
        self._nodes, self._is_trunk = frozenset(nodes), is_trunk
        self._at: dict[End, PlannedCable] = {}
        self._own: dict[str, set[str]] = {}
        self._trunks: dict[str, set[str]] = {}
        for cable in cables:
            self._at[cable.a.end] = self._at[cable.b.end] = cable
            if self._is_trunk(cable):
                self._trunks.setdefault(cable.a.device, set()).add(cable.b.device)
                self._trunks.setdefault(cable.b.device, set()).add(cable.a.device)
            else:
                self._own.setdefault(cable.b.device, set()).add(cable.a.device)

    def due(self, cable: PlannedCable) -> bool:
        """Whether a cable must be there: it is a checked node's, or joins two switches."""
        return cable.a.device in self._nodes or self._is_trunk(cable)

    def of_cable(self, cable: PlannedCable) -> set[str]:
        """Return the checked nodes that a cable concerns: its own, or all behind the switches that it joins."""
        if self._is_trunk(cable):
            return self.behind(cable.a.device) | self.behind(cable.b.device)
        return {cable.a.device} & self._nodes

    def at(self, end: End) -> set[str]:
        """Return the checked nodes of the cable that is planned at a port."""
        cable = self._at.get(end)
        return self.of_cable(cable) if cable is not None else set()

    def behind(self, switch: str) -> set[str]:
        """Return the checked nodes at a switch; of one without nodes, those at the nearest switches that have some."""
        seen, now = {switch}, {switch}
        while now:
            found = {node for name in now for node in self._own.get(name, ())}
            if found:
                return found & self._nodes
            now = {peer for name in now for peer in self._trunks.get(name, ())} - seen
            seen |= now
        return set()

    def of(self, finding: Finding) -> set[str]:
        """Return its own nodes and that of the cable at its port; of a finding about switches, all nodes behind them.

        A finding that names no device is about all. A stranger in the place of a switch concerns those behind it; at a
        free port it concerns nobody.
        """
        devices = {finding.node, *finding.nodes}
        if (cable := self._at.get(End(finding.node, finding.part))) is not None:
            devices |= {cable.a.device, cable.b.device}
        switches = devices & {*self._own, *self._trunks}
        taken = finding.code == DEVICE_EXCHANGED.code and switches
        if devices - switches and not taken:
            return devices & self._nodes if devices != {_NOWHERE} else set(self._nodes)
        return {node for switch in switches for node in self.behind(switch)} | devices & self._nodes
