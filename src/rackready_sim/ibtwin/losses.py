"""Losses in the twin: one switch above the leafs, or one uplink; opensm routes again, and every pair is walked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rackready.drivers.ib.opensm_conf import render_options
from rackready.drivers.ib.opensm_log import OpensmState, read_opensm_log
from rackready_sim.ibtwin.ibsim import Ibsim
from rackready_sim.ibtwin.routes import lost_pairs, read_lfts, uplinks
from rackready_sim.ibtwin.topology import Twin, TwinLink, guid
from rackready_sim.sampling import evenly

_LISTED = 5


@dataclass(frozen=True, slots=True)
class LossResult:
    """One loss. ``pairs``: ordered pairs of adapters that no longer reach each other; ``examples``: some of them."""

    lost: str
    pairs: int
    examples: tuple[str, ...]


def sweep(sim: Ibsim, engine: str, roots: Sequence[str] = ()) -> OpensmState:
    """Run opensm once over the fabric, with its dumps, and return what it did.

    ``roots``: node ids of switches that it is told as roots. It reads partitions.conf of the twin's folder, and nothing
    of this machine's own opensm. Raises OpensmConfError for an unknown engine.
    """
    log, conf = sim.folder / "opensm.log", sim.folder / "opensm.conf"
    log.unlink(missing_ok=True)
    options: dict[str, object] = {"routing_engine": engine, "partition_config_file": sim.folder / "partitions.conf"}
    if roots:
        options["root_guid_file"] = sim.folder / "root-guids"
        (sim.folder / "root-guids").write_text("".join(f"{guid(node):#x}\n" for node in roots), encoding="utf-8")
    conf.write_text(render_options(options), encoding="utf-8")
    # -o: one sweep; 0x43: errors, infos and routing dumps (opensm(8), -D).
    sim.run("opensm", "-o", "-F", str(conf), "-f", str(log), "-D", "0x43")
    return read_opensm_log(log.read_text(encoding="utf-8", errors="replace"))


def losses(sim: Ibsim, twin: Twin, engine: str, most_uplinks: int, roots: Sequence[str] = ()) -> Iterator[LossResult]:
    """Yield the result of the loss of each upper switch, then of uplinks: all, or that many evenly spread ones."""
    leafs = {link.b.node for link in twin.links if link.a.node[0] == "H"}
    for node in sorted({link.b.node for link in uplinks(twin)} - leafs):
        own = [link for link in twin.links if node in {link.a.node, link.b.node}]
        yield _lose(sim, twin, (engine, roots), twin.names[node].split(";")[-1].split(":")[0], own)
    for link in evenly(uplinks(twin), most_uplinks):
        yield _lose(sim, twin, (engine, roots), words(twin, link), [link])


def words(twin: Twin, link: TwinLink) -> str:
    """Return a link between switches in the names of the plan."""
    named = {node: name for name, node in twin.switches.items()}
    ends = [twin.plan.switch_end(named[port.node], port.number) for port in (link.a, link.b)]
    return f"{ends[0]} to {ends[1]}"


def _lose(
    sim: Ibsim, twin: Twin, routing: tuple[str, Sequence[str]], name: str, links: Sequence[TwinLink]
) -> LossResult:
    sim.tell(*(f"Unlink {link.a}" for link in links))
    try:
        sweep(sim, *routing)
        tables = read_lfts((sim.folder / "opensm-lfts.dump").read_text(encoding="utf-8"))
        lost = list(lost_pairs(twin, tables, {id(link) for link in links}))
    finally:
        sim.tell(*(f"Link {link.a} {link.b}" for link in links))
    examples = tuple(f"{twin.names[source]} to {twin.names[goal]}" for source, goal in lost[:_LISTED])
    return LossResult(name, len(lost), examples)
