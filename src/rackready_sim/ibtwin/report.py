"""One rehearsal of a planned InfiniBand fabric: cabling, partitions, routes and losses, as data and as text."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rackready.design.plan import lay
from rackready.design.subnet_roots import root_guids, root_names
from rackready.drivers.ib.cabling import check_cabling
from rackready.drivers.ib.discover import read_ibnetdiscover
from rackready.drivers.ib.opensm_log import judge_opensm
from rackready.drivers.ib.partitions import first_key, judge_keys, judge_place, partitions_of, render, wanted_keys
from rackready.drivers.ib.planned import planned_cables
from rackready.drivers.ib.smp import read_first_pkey, read_pkeys
from rackready.model.outcome import Finding
from rackready.model.place import Place
from rackready.model.site import Site
from rackready_sim.ibtwin.ibsim import Ibsim, require, running
from rackready_sim.ibtwin.losses import LossResult, losses, sweep
from rackready_sim.ibtwin.routes import RouteCheck, balance, check_routes, lost_pairs, read_lfts, uplinks
from rackready_sim.ibtwin.topology import Twin, as_declared, twin_of

UPLINKS = 32
"""Uplinks whose loss is tried by default: each is one sweep of opensm."""
_CLIENTS = 4
"""Programs at once: ibsim 0.10 serves ten clients."""


@dataclass(slots=True)
class Rehearsal:
    """Result. ``findings`` and ``lost_pairs`` (without any loss) must be empty, and ``routes`` without loops."""

    engine: str
    switches: int
    adapters: int
    cables: int
    uplinks: int
    notes: tuple[str, ...]
    findings: list[Finding] = field(default_factory=list)
    routes: RouteCheck | None = None
    lost_pairs: int = 0
    spread: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Upper switch -> fewest and most destinations that one leaf sends there."""
    losses: list[LossResult] = field(default_factory=list)
    keys_read: int = 0
    """Ports whose partition keys were read back."""
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Return whether everything was checked and nothing is wrong; a loss may cost pairs."""
        return not self.findings and not self.lost_pairs and self.routes is not None and not self.routes.loops

    def document(self) -> dict[str, Any]:
        """Return it as plain data."""
        routes = self.routes
        return {
            "passed": self.passed,
            "engine": self.engine,
            "switches": self.switches,
            "adapters": self.adapters,
            "cables": self.cables,
            "uplinks": self.uplinks,
            "findings": [item.model_dump() for item in self.findings],
            "paths": routes.paths if routes else 0,
            "hops": {str(hops): pairs for hops, pairs in (routes.hops if routes else {}).items()},
            "credit_loops": routes.loops if routes else None,
            "lost_pairs": self.lost_pairs,
            "spread": {name: {"fewest": low, "most": high} for name, (low, high) in sorted(self.spread.items())},
            "partition_keys_read": self.keys_read,
            "losses": [{"lost": item.lost, "pairs": item.pairs, "examples": item.examples} for item in self.losses],
            "notes": self.notes,
            "seconds": round(self.seconds, 1),
        }

    def lines(self) -> Iterator[str]:
        """Yield it as text."""
        yield f"fabric twin: {self.switches} switches, {self.adapters} adapters, {self.cables} cables under opensm"
        yield from (f"  note: {note}" for note in self.notes)
        yield f"cabling and partitions: {len(self.findings)} findings; partition keys of {self.keys_read} ports read"
        yield from (f"  {finding}" for finding in self.findings)
        if self.routes is not None:
            hops = ", ".join(f"{pairs} of {count} hops" for count, pairs in self.routes.hops.items())
            yield f"routes of {self.engine}: {self.routes.paths} paths ({hops}); {self.lost_pairs} lost"
            yield f"credit loops: {'FOUND: the fabric can deadlock' if self.routes.loops else 'none'}"
        for name, (low, high) in sorted(self.spread.items()):
            yield f"  {name}: {low} to {high} destinations of each leaf"
        survived = [item for item in self.losses if not item.pairs]
        yield f"losses: {len(survived)} of {len(self.losses)} survived"
        for item in self.losses:
            if item.pairs:
                yield f"  {item.lost}: {item.pairs} pairs lost, such as {'; '.join(item.examples)}"
        yield f"{'passed' if self.passed else 'FAILED'} ({self.seconds:.0f} s)"


def rehearse(site: Site, engine: str, most_uplinks: int, say: Callable[[str], None] = print) -> Rehearsal:
    """Run the twin of a site and return its result.

    Raises SimError if programs are missing or fail, IbPlanError if the site has no InfiniBand fabric to compare.
    """
    began = time.monotonic()
    plan = planned_cables(lay(site))
    require()
    twin = twin_of(plan)
    every = len(uplinks(twin))
    out = Rehearsal(engine, len(twin.switches), len(twin.adapters), len(plan.cables), every, _notes(twin, most_uplinks))
    host = twin.adapters[min(twin.adapters)]
    with tempfile.TemporaryDirectory(prefix="rackready-fabric-") as folder, running(twin, Path(folder), host) as sim:
        say("opensm routes the planned fabric")
        _first(sim, site, twin, out)
        say(f"losing each upper switch, and {min(every, most_uplinks)} of {every} uplinks")
        out.losses += losses(sim, twin, engine, most_uplinks, _roots(site, twin, engine))
    out.seconds = time.monotonic() - began
    return out


def _notes(twin: Twin, most_uplinks: int) -> tuple[str, ...]:
    notes = ["ibsim carries management only: no data, adaptive routing, SHARP or vendor counters are simulated."]
    if twin.slower:
        notes.append(f"ibsim 0.10 does not know {twin.slower}: the twin declares HDR, and its rates prove nothing.")
    if (every := len(uplinks(twin))) > most_uplinks:
        notes.append(
            f"the loss of {most_uplinks} of {every} uplinks is tried, in even steps; --uplinks {every}: of all."
        )
    return tuple(notes)


def _roots(site: Site, twin: Twin, engine: str) -> list[str]:
    """Return the switches that role opensm tells opensm as roots; none where the site does not give their GUIDs."""
    return [twin.switches[name] for name in root_names(site)] if engine == "updn" and root_guids(site) else []


def _first(sim: Ibsim, site: Site, twin: Twin, out: Rehearsal) -> None:
    """Fill in everything that holds without a loss."""
    ports: dict[str, list[int]] = {}
    for end, guid in twin.port_guids().items():
        ports.setdefault(end.device, []).append(guid)
    partitions = partitions_of(site, ports)
    (sim.folder / "partitions.conf").write_text(render(partitions), encoding="utf-8")
    state = sweep(sim, out.engine, _roots(site, twin, out.engine))
    out.findings += judge_opensm("opensm", state, out.engine)
    fabric = read_ibnetdiscover(sim.run("ibnetdiscover").stdout)
    out.findings += check_cabling(as_declared(twin.plan), fabric)
    lids = {port.guid: port.lid for node in fabric.nodes.values() for port in node.ports.values()}
    guids = sorted(twin.port_guids().items())
    with ThreadPoolExecutor(_CLIENTS) as pool:
        held = list(pool.map(lambda item: _held(sim, lids.get(item[1], 0)), guids))
    for (end, guid), text in zip(guids, held, strict=True):
        wanted, where = (
            wanted_keys(partitions, guid, manager=twin.adapters[end] == sim.host),
            Place(end.device, end.port),
        )
        out.keys_read += text is not None
        out.findings += judge_keys(where, wanted, None if text is None else read_pkeys(text))
        if text is not None:
            out.findings += judge_place(where, first_key(site, end.device), read_first_pkey(text))
    tables = read_lfts((sim.folder / "opensm-lfts.dump").read_text(encoding="utf-8"))
    out.lost_pairs = sum(1 for _ in lost_pairs(twin, tables))
    out.routes = check_routes(sim)
    out.spread = _spread(twin, balance(twin, tables))


def _held(sim: Ibsim, lid: int) -> str | None:
    """Return the table of partition keys of a port by its LID; None without a LID."""
    return sim.run("smpquery", "pkeys", str(lid)).stdout if lid else None


def _spread(twin: Twin, sent: Mapping[str, Mapping[str, int]]) -> dict[str, tuple[int, int]]:
    names = {node: name for name, node in twin.switches.items()}
    uppers = {upper for counts in sent.values() for upper in counts}
    return {
        names[upper]: (
            min(counts.get(upper, 0) for counts in sent.values()),
            max(counts.get(upper, 0) for counts in sent.values()),
        )
        for upper in uppers
    }
