"""One rehearsal of a planned underlay under FRR: sessions, routes, balance and losses, as data and as text."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rackready.design.overlay import isolated
from rackready.model.site import Site
from rackready_sim.errors import describe
from rackready_sim.ethtwin.namespaces import Namespaces, require, require_room, running
from rackready_sim.ethtwin.underlay import Port, Router, underlay_of
from rackready_sim.ethtwin.walk import Tables, lost_pairs, pairs, spread
from rackready_sim.sampling import evenly

_CONVERGE_S = 120.0
"""Limit for the first convergence and for each return after a loss."""
_LOSS_S = 15.0
"""Limit for the other paths to take over. BGP's hold time is 9 s (datacenter profile of FRR: 3 x 3 s)."""
_POLL_S = 0.2
_BFD_CABLES = 128
"""Cables at the planned BFD interval; with more the twin lengthens it: one machine sends the probes of all switches."""
_PINGS_AT_ONCE = 4
_LISTED = 5


@dataclass(frozen=True, slots=True)
class Loss:
    """One loss. ``pairs``: (leaf, prefix) that stayed lost; ``seconds``: until all were reached again, or the limit."""

    lost: str
    pairs: int
    examples: tuple[str, ...]
    seconds: float


@dataclass(slots=True)
class Rehearsal:
    """Result. ``lost`` holds the pairs without a path though nothing is lost."""

    switches: int
    cables: int
    uplinks: int
    notes: tuple[str, ...]
    sessions: int = 0
    pairs: int = 0
    lost: list[str] = field(default_factory=list)
    converged_s: float = 0.0
    pings: int = 0
    unanswered: list[str] = field(default_factory=list)
    spread: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    losses: list[Loss] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Return whether all sessions stand and all pairs reach each other without a loss."""
        whole = self.sessions == 2 * self.cables and self.pairs > 0 and self.pings > 0
        return whole and not self.lost and not self.unanswered

    def document(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "passed": self.passed,
            "switches": self.switches,
            "cables": self.cables,
            "uplinks": self.uplinks,
            "sessions": {"expected": 2 * self.cables, "established": self.sessions},
            "pairs": self.pairs,
            "lost_pairs": self.lost,
            "converged_s": round(self.converged_s, 1),
            "pings": self.pings,
            "unanswered_pings": self.unanswered,
            "equal_paths": {name: {"fewest": low, "most": high} for name, (low, high) in sorted(self.spread.items())},
            "losses": [
                {"lost": one.lost, "pairs": one.pairs, "examples": one.examples, "seconds": round(one.seconds, 1)}
                for one in self.losses
            ],
            "notes": self.notes,
            "seconds": round(self.seconds, 1),
        }

    def lines(self) -> Iterator[str]:
        """Yield it as text."""
        yield f"fabric twin: {self.switches} switches, {self.cables} cables between them, routed by FRR"
        yield from (f"  note: {note}" for note in self.notes)
        yield f"sessions: {self.sessions} of {2 * self.cables} ends established"
        yield f"routes: {self.pairs} pairs of switch and prefix, {len(self.lost)} lost ({self.converged_s:.1f} s)"
        yield from (f"  lost: {pair}" for pair in self.lost[:_LISTED])
        yield f"pings between loopbacks: {self.pings - len(self.unanswered)} of {self.pings} answered"
        yield from (f"  no answer: {pair}" for pair in self.unanswered[:_LISTED])
        for (low, high), names in sorted(_by_spread(self.spread).items()):
            width = f"{low}" if low == high else f"{low} to {high}"
            others = ", ..." if len(names) > 1 else ""
            yield f"  {width} equal paths to each other leaf: {len(names)} leafs ({names[0]}{others})"
        kept = [one for one in self.losses if not one.pairs]
        slowest = max((one.seconds for one in kept), default=0.0)
        yield f"losses: {len(kept)} of {len(self.losses)} survived, the slowest in {slowest:.1f} s"
        for one in self.losses:
            if one.pairs:
                yield f"  {one.lost}: {one.pairs} pairs lost, such as {'; '.join(one.examples)}"
        yield f"{'passed' if self.passed else 'FAILED'} ({self.seconds:.0f} s)"


def _by_spread(found: Mapping[str, tuple[int, int]]) -> dict[tuple[int, int], list[str]]:
    out: dict[tuple[int, int], list[str]] = {}
    for name, width in found.items():
        out.setdefault(width, []).append(name)
    return out


def rehearse(site: Site, most_uplinks: int, say: Callable[[str], None] = print) -> Rehearsal:
    """Run the twin of a site's underlay and return its result.

    Raises SimError if programs or root are missing, FRR refuses a configuration, or nothing is routed.
    """
    began = time.monotonic()
    routers = underlay_of(site)
    require()
    links = [(name, port) for name, router in routers.items() for port in router.ports]
    uplinks = [(name, port) for name, port in links if _is_upward(routers, name, port)]
    require_room(len(uplinks))
    interval = _interval(routers, len(uplinks))
    notes = _notes(routers, interval, len(uplinks), most_uplinks)
    if isolated(site):
        notes += ("tenants share one routing table in the twin: it proves the underlay, not that they are apart.",)
    out = Rehearsal(len(routers), len(links) // 2, len(uplinks), notes)
    with tempfile.TemporaryDirectory(prefix="rackready-fabric-") as folder:
        say(f"FRR routes the planned fabric on {len(routers)} switches")
        with running(routers, Path(folder), site.fabric.switch_mtu, interval) as twin:
            _healthy(twin, out)
            tried = evenly(uplinks, most_uplinks)
            say(f"losing each upper switch, and {len(tried)} of {len(uplinks)} uplinks")
            out.losses += _losses(twin, tried) if not out.lost else []
    out.seconds = time.monotonic() - began
    return out


_TIERS = {"leaf": 1, "spine": 2, "core": 3}


def _is_upward(routers: Mapping[str, Router], name: str, port: Port) -> bool:
    return _TIERS[routers[name].tier] < _TIERS[routers[port.peer].tier]


def _interval(routers: Mapping[str, Router], cables: int) -> int:
    """Return the interval of BFD in the twin, ms."""
    planned = max(router.routing.bfd_interval_ms for router in routers.values())
    return planned * max(1, -(-cables // _BFD_CABLES))


def _notes(routers: Mapping[str, Router], interval: int, uplinks: int, most: int) -> tuple[str, ...]:
    notes = ["the words of each switch system, switch chips, bandwidth and lossless queues are not part of the twin."]
    planned = max(router.routing.bfd_interval_ms for router in routers.values())
    if interval != planned:
        notes.append(f"BFD runs every {interval} ms, not {planned}: one machine sends the probes of {uplinks} cables.")
    if uplinks > most:
        notes.append(f"the loss of {most} of {uplinks} uplinks is tried, in even steps; --uplinks {uplinks}: of all.")
    return tuple(notes)


def _healthy(twin: Namespaces, out: Rehearsal) -> None:
    """Fill in everything that holds without a loss."""
    routers = twin.routers
    out.pairs = sum(1 for _ in pairs(routers, leafs=False))
    began = time.monotonic()
    before: Tables = {}
    while time.monotonic() - began < _CONVERGE_S:
        out.sessions = twin.sessions()
        tables = twin.routes()
        lost = lost_pairs(routers, tables, leafs=False)
        if out.sessions == 2 * out.cables and not lost and tables == before:
            break
        if tables != before:
            out.converged_s, before = time.monotonic() - began, tables
        time.sleep(_POLL_S)
    out.lost = [_words(pair) for pair in lost]
    out.spread = spread(routers, tables)
    ends = [
        (one, other)
        for one, near in routers.items()
        for other, far in routers.items()
        if near.routing.asn != far.routing.asn
    ]
    with ThreadPoolExecutor(_PINGS_AT_ONCE) as pool:
        answered = list(pool.map(lambda pair: twin.answers(*pair), ends))
    out.pings = len(ends)
    out.unanswered = [f"{one} to {other}" for (one, other), ok in zip(ends, answered, strict=True) if not ok]


def _losses(twin: Namespaces, uplinks: list[tuple[str, Port]]) -> Iterator[Loss]:
    """Yield the result of the loss of each switch above the leafs, then of the chosen uplinks."""
    whole = twin.routes()
    for name, router in twin.routers.items():
        if router.tier != "leaf":
            yield _lose(twin, whole, name, name, [port.interface for port in router.ports])
    for name, port in uplinks:
        yield _lose(twin, whole, f"{name} {port.name} to {port.peer} {port.peer_name}", name, [port.interface])


def _lose(twin: Namespaces, whole: Tables, said: str, name: str, interfaces: list[str]) -> Loss:
    began = time.monotonic()
    twin.set_links(name, interfaces, "down")
    try:
        while lost := lost_pairs(twin.routers, twin.routes(), leafs=True):
            if time.monotonic() - began > _LOSS_S:
                break
            time.sleep(_POLL_S)
        seconds = time.monotonic() - began
    finally:
        twin.set_links(name, interfaces, "up")
    _returned(twin, whole, said)
    return Loss(said, len(lost), tuple(_words(pair) for pair in lost[:_LISTED]), seconds)


def _returned(twin: Namespaces, whole: Tables, said: str) -> None:
    """Wait until every switch has all its paths again. Raises SimError if not: the next loss would not be single."""
    until = time.monotonic() + _CONVERGE_S
    while less := _fewer(whole, twin.routes()):
        if time.monotonic() > until:
            raise describe(
                f"fabric twin: {said}",
                f"all paths back within {_CONVERGE_S:g} s of its return",
                f"missing: {'; '.join(less[:_LISTED])}",
                "Run it again on a machine with less other work.",
            )
        time.sleep(_POLL_S)


def _fewer(whole: Tables, now: Tables) -> list[str]:
    """Return the switches and prefixes that have fewer paths than before."""
    return [
        f"{name} to {prefix} by {', '.join(sorted(devices - now[name].get(prefix, frozenset())))}"
        for name, routes in whole.items()
        for prefix, devices in routes.items()
        if not devices <= now[name].get(prefix, frozenset())
    ]


def _words(pair: tuple[str, str, str]) -> str:
    name, owner, prefix = pair
    return f"{name} to {prefix} of {owner}"
