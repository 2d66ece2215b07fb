"""The fabric phase: switches, NICs, where cables end, rails, both ends of every cable.

Nodes in production are drained before a change.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from rackready.campaign.cables import beside, with_ends, wrong_cables
from rackready.campaign.drained_phase import Results
from rackready.campaign.fabric_plan import Cables, FabricReadings, FabricWork, dry_results, plan
from rackready.campaign.opensm import with_managers
from rackready.campaign.rails import clear_idle, known_up, proven
from rackready.campaign.ufm import with_partitions
from rackready.design.facts import node_facts
from rackready.design.pinned import site_of
from rackready.design.switches import switch_config
from rackready.drivers.ansible import run_playbook
from rackready.drivers.ib_fabric.guids import port_guids
from rackready.drivers.ib_fabric.verify import verify_infiniband
from rackready.drivers.switch.agreement import verify_fabric
from rackready.drivers.switch.apply import OPERATION
from rackready.drivers.switch.configure import PORTS, run_switches
from rackready.drivers.switch.waves import with_uppers
from rackready.handover.production import in_production, take_out
from rackready.ledger.store import Ledger
from rackready.model.outcome import CONTINUES, Outcome
from rackready.model.phase import NodeResult, PhaseContext
from rackready.model.site import Site
from rackready.paths import EnvPaths

PLAYBOOK, INFINIBAND = "fabric.yml", "fabric-infiniband.yml"
NICS, RAILS = "nics", "rails"
"""Tags of the plays of ``PLAYBOOK``."""


def run_fabric(
    ctx: PhaseContext, nodes: list[str], same: Results | None = None, previews: Results | None = None
) -> Results:
    """Configure the switches of these nodes, then their NICs, check cables and rails, then compare both ends.

    A bad switch affects only the nodes behind it. ``same``: results of nodes on which, and on whose ports, nothing
    changes: their NICs are not done again. ``previews``: dry runs of the switches, which a dry run does not repeat.
    """
    same = same or {}
    site = site_of(ctx)
    behind = cables(site, nodes)
    switches = previews or run_switches(ctx, sorted({switch for names in behind.values() for switch in names}))
    clear_idle(ctx, site)
    out: Results = {}
    for name in nodes:
        bad = [switches[switch] for switch in behind[name] if switches[switch].outcome is not Outcome.PASS]
        if bad:
            out[name] = NodeResult(Outcome.ERROR, bad[0].message, data=dict(bad[0].data))
    out |= {name: result for name, result in same.items() if name in nodes and name not in out}
    hosts = _hosts(ctx, site, [name for name in nodes if name not in out], out)
    out |= {
        name: replace(result, changed=result.changed or any(switches[switch].changed for switch in behind[name]))
        for name, result in hosts.items()
    }
    if ctx.check:
        return out
    done = {name: out[name] for name in nodes if name in out and out[name].outcome in CONTINUES}
    return out | _agreement(ctx, done)


def _hosts(ctx: PhaseContext, site: Site, nodes: list[str], others: Results) -> Results:
    """Configure the NICs of ``nodes``, check their cables and those of ``others``, then the rails of what is right.

    Links come up with the configuration of switches and NICs, and LLDP needs links: the cables cannot be checked
    before. Rails are not: a rail over a wrong cable would only show that it reaches nobody. A dry run measures them in
    the same run, and wrong cables explain what it shows.
    """
    bad = {name for name, result in others.items() if result.outcome not in CONTINUES}
    if site.fabric.kind == "infiniband":  # ibnetdiscover tells after the subnet manager: see _agreement
        return _play(ctx, site, nodes, bad)
    out = _play(ctx, site, nodes, bad, [] if ctx.check else [NICS])
    todo = [name for name, result in (others | out).items() if ctx.check or result.outcome in CONTINUES]
    out |= {name: beside(result, (others | out)[name]) for name, result in wrong_cables(ctx, todo).items()}
    if ctx.check:
        return out
    rails = [name for name in nodes if out[name].outcome in CONTINUES]
    bad |= {name for name, result in out.items() if result.outcome not in CONTINUES}
    found = _play(ctx, site, rails, bad, [RAILS])
    return out | {
        name: with_ends(replace(result, changed=out[name].changed or result.changed), out[name])
        for name, result in found.items()
    }


def _play(
    ctx: PhaseContext, site: Site, nodes: list[str], bad: Iterable[str] = (), tags: list[str] | None = None
) -> Results:
    """Configure the nodes' NICs. Their peers are all other nodes of the site that are up, except ``bad`` ones."""
    peers = known_up(ctx, [node.name for node in site.nodes()], [*nodes, *bad])
    if site.fabric.kind == "infiniband":
        guids = port_guids(ctx, site, [*nodes, *peers])
        variables = {"opensm_port_guids": guids}
        played = with_managers(ctx, site, nodes, guids, lambda own: run_playbook(ctx, INFINIBAND, own, variables))
        return with_partitions(ctx, site, played, guids)
    return run_playbook(ctx, PLAYBOOK, nodes, {"host_roce_known_peers": peers}, tags)


def _agreement(ctx: PhaseContext, done: Results) -> Results:
    site = site_of(ctx)
    if done and site.fabric.kind == "infiniband":
        others = known_up(ctx, [node.name for node in site.nodes()], list(done))
        verified = verify_infiniband(ctx, list(done), others)
        return {
            name: proven(
                replace(found, changed=done[name].changed),
                [*done[name].data.get("unmeasured", []), *found.data.get("unmeasured", [])],
            )
            for name, found in verified.items()
        }
    verified = verify_fabric(ctx, list(done)) if done else {}
    return {
        name: with_ends(
            proven(replace(found, changed=done[name].changed), done[name].data.get("unmeasured", [])), done[name]
        )
        for name, found in verified.items()
    }


def cables(site: Site, nodes: Iterable[str]) -> dict[str, list[str]]:
    """Return node -> the switches that carry its traffic, sorted: its leafs and all above them.

    InfiniBand's need no configuration: there are none.
    """
    if site.fabric.kind == "infiniband":
        return {name: [] for name in nodes}
    leafs = {name: frozenset(nic.switch for nic in node_facts(site, name).nics if nic.switch) for name in nodes}
    above = {switches: with_uppers(site, switches) for switches in set(leafs.values())}
    return {name: above[switches] for name, switches in leafs.items()}


def run_fabric_drained(ctx: PhaseContext, nodes: list[str]) -> Results:
    """Look, plan, and carry the plan out. A dry run shows the plan.

    Where the phase would change a node in production, or a switch port of one, that node is drained and empty first.
    """
    site = site_of(ctx)
    behind = cables(site, [node.name for node in site.nodes()])
    switches = {switch for name in nodes for switch in behind[name]}
    near = [name for name in behind if name in nodes or switches & set(behind[name])]
    busy, unknown = in_production(ctx, near)
    if not busy and not unknown and not ctx.check:
        return run_fabric(ctx, nodes)
    found = plan(_seen(ctx, site, nodes, behind, busy, unknown))
    if ctx.check:
        return dry_results(found, run_fabric(ctx, nodes, previews=found.seen.switches))
    kept = take_out(ctx, found.drain)
    work = found.after(kept)
    return work.left | _run_marked(ctx, work)


def _seen(
    ctx: PhaseContext, site: Site, nodes: list[str], behind: Cables, busy: list[str], unknown: Results
) -> FabricReadings:
    """Return the dry runs of the switches, and of the NICs of nodes in production."""
    dry = replace(ctx, check=True)
    switches = sorted({switch for name in nodes for switch in behind[name]})
    previews = run_switches(dry, switches)
    nics = _play(dry, site, [name for name in nodes if name in busy])
    return FabricReadings(
        tuple(nodes),
        frozenset(_campaign_nodes(ctx) | set(nodes)),
        behind,
        tuple(busy),
        unknown,
        previews,
        _touched(ctx, site, previews),
        nics,
    )


def _run_marked(ctx: PhaseContext, work: FabricWork) -> Results:
    """Run the phase. Nodes of a later wave whose ports change are recorded as changed: their evidence is void, too."""
    with Ledger.open(EnvPaths(ctx.root, ctx.env).database) as ledger:
        tokens = [ledger.change_begins(name, "fabric") for name in work.elsewhere]
        out = run_fabric(ctx, work.run, work.same) if work.run else {}
        for token in tokens:
            ledger.done(token, {"outcome": "its switch ports were changed"})
        return out


def _touched(ctx: PhaseContext, site: Site, previews: Results) -> dict[str, list[str]]:
    """Return node -> the switches that would change something at its ports.

    The switch's driver knows the ports of a difference. A change that a killed run left open on a switch is settled by
    the next run, whatever it was: all ports of that switch count.
    """
    out: dict[str, list[str]] = {}
    with Ledger.open(EnvPaths(ctx.root, ctx.env).database) as ledger:
        for switch in sorted(previews):
            last = ledger.latest(switch, OPERATION)
            ports = {port.name: port.node for port in switch_config(site, switch).ports}
            names = (
                set(ports)
                if last is not None and last.status == "intent"
                else set(previews[switch].data.get(PORTS, ()))
            )
            for name in {ports[port] for port in names} - {""}:  # a trunk: each leaf keeps another way up
                out.setdefault(name, []).append(switch)
    return out


def _campaign_nodes(ctx: PhaseContext) -> set[str]:
    """Return all nodes of the campaign. Nodes of a later wave are handed over again when their wave comes."""
    with Ledger.open(EnvPaths(ctx.root, ctx.env).database) as ledger:
        return set(ledger.campaign_nodes(ctx.campaign))
