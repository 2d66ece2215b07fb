"""Routes of the twin: what opensm put into the switches, walked from adapter to adapter, and ibdmchk's judgement."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from rackready.drivers.ib.text import guid_of, unknown
from rackready_sim.errors import describe
from rackready_sim.ibtwin.ibsim import Ibsim
from rackready_sim.ibtwin.topology import Twin, TwinLink, TwinPort

_SWITCH = re.compile(r"Unicast lids \[\d+-\d+\] of switch Lid \d+ guid 0x([0-9a-f]+) ")
_ENTRY = re.compile(r"0x([0-9a-f]{4}) (\d{3}) # (Channel Adapter|Switch|Router) portguid 0x([0-9a-f]+): ")
_END = re.compile(r"(\d+) lids dumped$")
_NO_PORT = 255
"""Out port of a LID without a route (InfiniBand Architecture Specification vol. 1, 14.2.5.10)."""
_MAX_HOPS = 16
_NO_LOOPS, _LOOPS = "-I- no credit loops found", "-E- credit loops in routing"
_SCANNED = re.compile(r"-I- Scanned:(\d+) CA to CA paths")
_HOPS = re.compile(r"LFT ROUTE HOP HISTOGRAM -+\n(?:.*\n)*?HOPS NUM-CA-CA-PAIRS\n((?:\s+\d+\s+\d+\n)+)")
_CRASHES_AT_ITS_END = -11
"""ibutils 1.5.7 of Debian 12 reads a null pointer while it frees its tables, after it has printed its judgement."""


@dataclass(frozen=True, slots=True)
class Tables:
    """``ports``: switch node id -> LID -> out port; ``lids``: adapter node id -> its LID."""

    ports: Mapping[str, Mapping[int, int]]
    lids: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class RouteCheck:
    """Judgement of ibdmchk. ``hops``: hops -> pairs of adapters; ``loops``: None if it did not say."""

    paths: int
    hops: Mapping[int, int]
    loops: bool


def read_lfts(text: str) -> Tables:
    """Return the tables of opensm-lfts.dump (opensm -D 0x43). Raises IbTextError for an unknown or cut-off text."""
    ports: dict[str, dict[int, int]] = {}
    lids: dict[str, int] = {}
    own: dict[int, int] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if found := _SWITCH.match(line):
            own = ports.setdefault(f"S-{guid_of(found[1]):016x}", {})
        elif (found := _ENTRY.match(line)) and own is not None:
            own[int(found[1], 16)] = int(found[2])
            if found[3] == "Channel Adapter":
                lids[f"H-{guid_of(found[4]) - 1:016x}"] = int(found[1], 16)
        elif found := _END.match(line):
            own = None
        elif line.strip() and not line.startswith("0x"):
            raise unknown("opensm-lfts.dump", number, line, "a switch, an entry or the end of a switch")
    if not ports or own is not None:
        raise unknown("opensm-lfts.dump", 0, "", "tables of switches, each with its end")
    return Tables(ports, lids)


class Wiring:
    """Links of the twin that are plugged in."""

    def __init__(self, twin: Twin, without: Collection[int] = ()) -> None:
        """``without``: ids (``id()``) of links that are unplugged."""
        self._far: dict[tuple[str, int], TwinPort] = {}
        self.adapters: dict[str, TwinPort] = {}
        for link in twin.links:
            for here, there in ((link.a, link.b), (link.b, link.a)):
                if id(link) not in without:
                    self._far[here.node, here.number] = there
                if here.node[0] == "H":
                    self.adapters[here.node] = there

    def far(self, node: str, port: int) -> TwinPort | None:
        """Return what a port is connected to."""
        return self._far.get((node, port))

    def hops(self, tables: Tables, switch: str, lid: int, goal: str) -> int:
        """Return the switches on the way from a switch to an adapter by its LID; 0 if it does not arrive."""
        for count in range(1, _MAX_HOPS + 1):
            out = tables.ports.get(switch, {}).get(lid, _NO_PORT)
            there = self.far(switch, out)
            if there is None or there.node[0] == "H":
                return count if there is not None and there.node == goal else 0
            switch = there.node
        return 0


def lost_pairs(twin: Twin, tables: Tables, without: Collection[int] = ()) -> Iterator[tuple[str, str]]:
    """Yield every ordered pair of adapters, as node ids, between which the tables lead nowhere or not there."""
    wiring = Wiring(twin, without)
    behind: dict[str, list[str]] = defaultdict(list)
    alone = {adapter for adapter, port in wiring.adapters.items() if wiring.far(port.node, port.number) is None}
    for adapter, port in wiring.adapters.items():
        behind[port.node] += [adapter] if adapter not in alone else []
    for goal in wiring.adapters:
        yield from ((source, goal) for source in alone if source != goal)
        lid = tables.lids.get(goal, 0)
        for switch, sources in behind.items():
            if not lid or not wiring.hops(tables, switch, lid, goal):
                yield from ((source, goal) for source in sources if source != goal)


def balance(twin: Twin, tables: Tables) -> dict[str, Counter[str]]:
    """Return leaf -> upper switch -> destinations behind other leafs that the leaf sends there, by their node ids."""
    wiring = Wiring(twin)
    out: dict[str, Counter[str]] = {}
    for leaf in {port.node for port in wiring.adapters.values()}:
        sent = out.setdefault(leaf, Counter())
        for adapter, lid in tables.lids.items():
            there = wiring.far(leaf, tables.ports.get(leaf, {}).get(lid, _NO_PORT))
            if there is not None and there.node[0] == "S" and wiring.adapters[adapter].node != leaf:
                sent[there.node] += 1
    return out


def check_routes(sim: Ibsim) -> RouteCheck:
    """Return ibdmchk's judgement of the last dump. Raises SimError if it ends without one."""
    folder = sim.folder
    files = ["-s", "opensm-subnet.lst", "-f", "opensm.fdbs", "-m", "opensm.mcfdbs"]
    done = sim.run("ibdmchk", *files, codes=(0, 1, _CRASHES_AT_ITS_END))
    return read_ibdmchk(done.stdout, str(folder))


def read_ibdmchk(text: str, where: str = "") -> RouteCheck:
    """Return the judgement of an ibdmchk text. Raises SimError without a judgement on credit loops, or without paths.

    Shape: ibutils ibdm/src/fabric_verify.cpp and CredLoops.cpp, and ibdmchk 1.5.7 on the twin.
    """
    scanned, hops = _SCANNED.search(text), _HOPS.search(text)
    if scanned is None or hops is None or (_NO_LOOPS in text) == (_LOOPS in text):
        expected = "paths scanned, their hops, and whether there are credit loops"
        raise describe(f"ibdmchk {where}".strip(), expected, text[-300:], "Run it by hand in that folder.")
    rows = [line.split() for line in hops[1].splitlines()]
    return RouteCheck(int(scanned[1]), {int(hop): int(pairs) for hop, pairs in rows}, _LOOPS in text)


def uplinks(twin: Twin) -> list[TwinLink]:
    """Return the links between switches, in the order of the plan."""
    return [link for link in twin.links if link.a.node[0] == "S" and link.b.node[0] == "S"]
