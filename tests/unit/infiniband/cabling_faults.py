"""Twenty cabling faults in a twin, on cables of their own, each with the finding that must name it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from rackready.drivers.cabling_check.types import End, PlannedCable
from rackready.model.outcome import Finding
from rackready_sim.ibtwin.topology import Twin, TwinLink, TwinPort

FOREIGN = "H-02000003000000a0"


@dataclass(slots=True)
class Fault:
    """One fault. ``console``: commands that inject it; ``before``: change of the topology before ibsim starts.

    ``code`` and ``words``: of the only finding that may name it.
    """

    name: str
    code: str
    words: tuple[str, ...]
    console: list[str] = field(default_factory=list)
    before: Callable[[], None] | None = None


class Faults:
    """Takes cables at random, each once."""

    def __init__(self, twin: Twin, seed: int) -> None:
        self._twin, self._plan, self._random = twin, twin.plan, random.Random(seed)  # noqa: S311 - a repeatable choice
        self._left = list(twin.plan.cables)
        self._random.shuffle(self._left)
        self._gone = sorted({cable.a.device for cable in self._left if cable.a.device not in self._plan.ports})[:3]

    def twenty(self) -> list[Fault]:
        """Return twenty faults of all kinds."""
        absent, *pair = self._gone
        out = [self._absent(absent), self._exchanged(*pair)]
        out += [self._missing(endpoint) for endpoint in (self._node_cable, self._node_cable, self._trunk)]
        out += [self._swapped(self._same_leaf()) for _ in range(3)]
        out += [self._swapped(self._same_node()) for _ in range(3)]
        out += [self._swapped(self._two_trunks()) for _ in range(2)]
        out += [self._moved("cable-wrong-rail", self._same_node()) for _ in range(2)]
        out += [
            self._moved("cable-wrong-port", self._same_leaf()),
            self._moved("cable-wrong-device", self._two_trunks()),
        ]
        out += [self._slow("cable-width", "1xHDR"), self._slow("cable-speed", "4xEDR"), self._foreign()]
        return out

    # --- cables

    def _take(self, fits: Callable[[PlannedCable], bool]) -> PlannedCable:
        found = next(cable for cable in self._left if fits(cable) and cable.a.device not in self._gone)
        self._left.remove(found)
        return found

    def _is_trunk(self, cable: PlannedCable) -> bool:
        return cable.a.device in self._plan.ports

    def _node_cable(self) -> PlannedCable:
        return self._take(lambda cable: not self._is_trunk(cable))

    def _trunk(self) -> PlannedCable:
        return self._take(self._is_trunk)

    def _pair(self, fits: Callable[[PlannedCable, PlannedCable], bool]) -> tuple[PlannedCable, PlannedCable]:
        free = [cable for cable in self._left if cable.a.device not in self._gone]
        one, other = next((one, other) for one in free for other in free if one is not other and fits(one, other))
        self._left.remove(one)
        self._left.remove(other)
        return one, other

    def _same_leaf(self) -> tuple[PlannedCable, PlannedCable]:
        return self._pair(lambda one, other: not self._is_trunk(one) and self._beside(one, other))

    def _beside(self, one: PlannedCable, other: PlannedCable) -> bool:
        return not self._is_trunk(other) and one.b.device == other.b.device

    def _same_node(self) -> tuple[PlannedCable, PlannedCable]:
        return self._pair(lambda one, other: not self._is_trunk(one) and one.a.device == other.a.device)

    def _two_trunks(self) -> tuple[PlannedCable, PlannedCable]:
        return self._pair(lambda one, other: self._is_trunk(one) and self._is_trunk(other) and self._apart(one, other))

    def _apart(self, cable: PlannedCable, one: PlannedCable) -> bool:
        return cable.b.device != one.b.device and cable.a.device != one.a.device

    def _ports(self, cable: PlannedCable) -> tuple[TwinPort, TwinPort]:
        return self._twin.port(cable.a.end), self._twin.port(cable.b.end)

    # --- faults

    def _missing(self, choose: Callable[[], PlannedCable]) -> Fault:
        cable = choose()
        return Fault("missing", "cable-missing", _ends(cable), [f"Unlink {self._ports(cable)[0]}"])

    def _swapped(self, cables: tuple[PlannedCable, PlannedCable]) -> Fault:
        (a, b), (c, d) = map(self._ports, cables)
        console = [f"Unlink {a}", f"Unlink {c}", f"Link {a} {d}", f"Link {c} {b}"]
        return Fault("swapped", "cable-swapped", (*_ends(cables[0]), *_ends(cables[1]), "Swap the cables at"), console)

    def _moved(self, code: str, cables: tuple[PlannedCable, PlannedCable]) -> Fault:
        """Plug the first cable into the port of the second one, which has no port any more."""
        (a, _), (c, d) = map(self._ports, cables)
        console = [f"Unlink {a}", f"Unlink {c}", f"Link {a} {d}"]
        return Fault("moved", code, (*_ends(cables[0]), *_ends(cables[1]), "Move the cable from"), console)

    def _slow(self, code: str, words: str) -> Fault:
        cable = self._node_cable()
        link = self._link(cable)
        return Fault("slow", code, (*_ends(cable), words), before=lambda: setattr(link, "words", words))

    def _foreign(self) -> Fault:
        cable = self._node_cable()
        link = self._link(cable)

        def before() -> None:
            self._twin.names[FOREIGN], self._twin.sizes[FOREIGN] = "intruder mlx5_0", 1
            link.a = TwinPort(FOREIGN, 1)

        return Fault("foreign", "cable-foreign-device", ("intruder", *_ends(cable)), before=before)

    def _absent(self, node: str) -> Fault:
        own = [f"Unlink {TwinPort(adapter, 1)}" for end, adapter in self._twin.adapters.items() if end.device == node]
        return Fault("absent", "cable-device-absent", (node, "8 cables"), own)

    def _exchanged(self, one: str, other: str) -> Fault:
        """Give two nodes each other's names, as hosts that were installed in the wrong place have them."""
        names, adapters = self._twin.names, self._twin.adapters

        def before() -> None:
            for end in [end for end in adapters if end.device == one]:
                first, second = adapters[end], adapters[End(other, end.port)]
                names[first], names[second] = names[second], names[first]

        return Fault("exchanged", "cable-device-exchanged", (one, other), before=before)

    def _link(self, cable: PlannedCable) -> TwinLink:
        a, b = self._ports(cable)
        return next(link for link in self._twin.links if (link.a, link.b) == (a, b))


def _ends(cable: PlannedCable) -> tuple[str, str]:
    return str(cable.a.end), str(cable.b.end)


def unnamed(faults: list[Fault], findings: list[Finding]) -> Iterator[str]:
    """Yield each fault that not exactly one finding names, and each finding that names none."""
    named: set[int] = set()
    for fault in faults:
        own = [item for item in findings if item.code == fault.code and all(word in str(item) for word in fault.words)]
        named |= {id(item) for item in own}
        if len(own) != 1:
            yield f"{fault.name} {fault.words}: {len(own)} findings"
    yield from (f"false: {item}" for item in findings if id(item) not in named)
