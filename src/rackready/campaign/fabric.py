"""The fabric phase: switches, then the nodes' NICs, then both ends of every cable; nodes in production are held where their end changes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from rackready.campaign.hold import Results, reason, settled
from rackready.campaign.rails import clear_idle, known_up, proven
from rackready.design.facts import node_facts
from rackready.design.site import load_site
from rackready.design.switches import switch_config
from rackready.drivers.ansible import run_playbook
from rackready.drivers.switch.agreement import verify_fabric
from rackready.drivers.switch.apply import OPERATION
from rackready.drivers.switch.phase import run_switches
from rackready.handover.production import UNTOUCHED, changes_words, in_production, take_out
from rackready.ledger.store import Ledger
from rackready.model.base import expand_range
from rackready.model.outcome import CONTINUES, Outcome
from rackready.model.phase import NodeResult, PhaseContext
from rackready.model.site import Site
from rackready.paths import EnvPaths

PLAYBOOK = "fabric.yml"
Cables = Mapping[str, list[str]]
"""Node -> the switches that it is cabled to."""


def run_fabric(ctx: PhaseContext, nodes: list[str], same: Results | None = None) -> Results:
    """Configure the switches that these nodes are cabled to, then the nodes' NICs, then hold both ends of every cable against each other.

    A bad switch spoils only the nodes behind it. ``same``: results of nodes on which, and on whose ports, nothing is to change:
    their NICs are not done again.
    """
    same = same or {}
    site = load_site(ctx.env, root=ctx.root)
    behind = cables(site, nodes)
    switches = run_switches(ctx, sorted({switch for names in behind.values() for switch in names}))
    clear_idle(ctx, site)
    out: Results = {}
    for name in nodes:
        bad = [switches[switch] for switch in behind[name] if switches[switch].outcome is not Outcome.PASS]
        if bad:
            out[name] = NodeResult(Outcome.ERROR, bad[0].message)
    hosts = _play(ctx, site, [name for name in nodes if name not in out and name not in same], set(out))
    out |= {name: replace(result, changed=result.changed or any(switches[switch].changed for switch in behind[name])) for name, result in hosts.items()}
    out |= {name: result for name, result in same.items() if name in nodes and name not in out}
    if ctx.check:
        return out
    done = {name: out[name] for name in nodes if name in out and out[name].outcome in CONTINUES}
    return out | _agreement(ctx, done)


def _play(ctx: PhaseContext, site: Site, nodes: list[str], bad: Iterable[str] = ()) -> Results:
    """Do the nodes' NICs. All others of the site that are up stand in as peers, but those that are ``bad`` now."""
    peers = known_up(ctx, [node.name for node in site.nodes()], [*nodes, *bad])
    return run_playbook(ctx, PLAYBOOK, nodes, {"host_roce_known_peers": peers})


def _agreement(ctx: PhaseContext, done: Results) -> Results:
    verified = verify_fabric(ctx, list(done)) if done else {}
    return {name: proven(replace(found, changed=done[name].changed), done[name].data.get("unmeasured", [])) for name, found in verified.items()}


def cables(site: Site, nodes: Iterable[str]) -> dict[str, list[str]]:
    """Return node -> the switches that it is cabled to, sorted."""
    return {name: sorted({nic.switch for nic in node_facts(site, name).nics if nic.switch}) for name in nodes}


def run_fabric_held(ctx: PhaseContext, nodes: list[str]) -> Results:
    """Run the phase; where it would change a node in production, or a switch port of one, that node is emptied of jobs first.

    A switch is not changed while a node keeps jobs whose port it would change: every node behind it waits for that.
    """
    if ctx.check:
        return run_fabric(ctx, nodes)
    site = load_site(ctx.env, root=ctx.root)
    behind = cables(site, [node.name for node in site.nodes()])
    switches = {switch for name in nodes for switch in behind[name]}
    near = [name for name in behind if name in nodes or switches & set(behind[name])]
    busy, unknown = in_production(ctx, near)
    if not busy and not unknown:
        return run_fabric(ctx, nodes)
    asked, previews = nodes, run_switches(replace(ctx, check=True), sorted(switches))
    unseen = _unseen(previews, behind, [*busy, *unknown])
    nodes = [name for name in asked if not unseen.keys() & set(behind[name])]
    switches = {switch for name in nodes for switch in behind[name]}
    touched = _touched(ctx, site, sorted(switches), previews)
    looked = _play(replace(ctx, check=True), site, [name for name in nodes if name in busy])
    same = {name: result for name, result in settled(looked).items() if name not in touched}
    wanted = {name: _reason(touched.get(name, []), looked.get(name)) for name in busy if name in touched or (name in nodes and name not in same)}
    ours = _campaign_nodes(ctx) | set(asked)
    kept = take_out(ctx, {name: words for name, words in wanted.items() if name in ours})
    keeping = {name for name in touched if name in kept or name in unknown or (name in wanted and name not in ours)}
    blocked = {switch for name in keeping for switch in touched[name]}
    out = {name: unseen[next(switch for switch in behind[name] if switch in unseen)] for name in asked if name not in nodes}
    out |= {name: unknown[name] for name in asked if name in unknown} | {name: kept[name] for name in asked if name in kept}
    out |= {name: result for name, result in same.items() if result.outcome not in CONTINUES}
    out |= {name: _blocked(blocked & set(behind[name]), keeping, ours) for name in nodes if name not in out and blocked & set(behind[name])}
    elsewhere = [name for name in wanted if name in ours and name not in asked and name not in kept]
    able = [name for name in nodes if name not in out]
    ran = {switch for name in able for switch in behind[name]}
    out |= {name: _changed_after_all(out[name]) for name in out if name not in kept and ran & set(touched.get(name, []))}
    return out | _run_marked(ctx, able, same, elsewhere)


def _unseen(previews: Results, behind: Cables, busy: Iterable[str]) -> Results:
    """Return the switches of which nobody can say what would change, while somebody behind them is in production: they are left as they are."""
    in_use = {switch for name in busy for switch in behind[name]}
    bad = {switch: found.message for switch, found in previews.items() if found.outcome is not Outcome.PASS and switch in in_use}
    return {switch: NodeResult(Outcome.ERROR, text, data={UNTOUCHED: True}, touched=False) for switch, text in bad.items()}


def _changed_after_all(result: NodeResult) -> NodeResult:
    """A node that is left alone because of one switch, and whose ports another one changes for its neighbours, is not as it was."""
    return replace(result, touched=True, data={key: value for key, value in result.data.items() if key != UNTOUCHED})


def _run_marked(ctx: PhaseContext, nodes: list[str], same: Results, elsewhere: list[str]) -> Results:
    """Run the phase. Nodes of a later wave whose ports are changed by it are recorded as changed: their evidence is void as well."""
    with Ledger.open(EnvPaths(ctx.root, ctx.env).database) as ledger:
        tokens = [ledger.change_begins(name, "fabric") for name in elsewhere] if nodes else []
        out = run_fabric(ctx, nodes, same) if nodes else {}
        for token in tokens:
            ledger.done(token, {"outcome": "its switch ports were changed"})
        return out


def _touched(ctx: PhaseContext, site: Site, switches: list[str], previews: Results) -> dict[str, list[str]]:
    """Return node -> the switches that would change something at its ports: those named by the difference, or all when it names none.

    A change that a killed run left open on a switch is settled by the next one, whatever it was: all its ports count.
    """
    out: dict[str, list[str]] = {}
    with Ledger.open(EnvPaths(ctx.root, ctx.env).database) as ledger:
        for switch in switches:
            last = ledger.latest(switch, OPERATION)
            ports = {port.name: port.node for port in switch_config(site, switch).ports}
            names = set(ports) if last is not None and last.status == "intent" else ports_changed(str(previews[switch].data.get("diff", "")), set(ports))
            for name in {ports[port] for port in names}:
                out.setdefault(name, []).append(switch)
    return out


def ports_changed(diff: str, ports: set[str]) -> set[str]:
    """Return the site's ports that a switch's difference is about.

    A line that names none of them (QoS, VLANs of the bridge) is about all; one that clears an interface which the site no longer
    names is about none.
    """
    out: set[str] = set()
    for line in diff.splitlines():
        out |= (_named(line) & ports) or (set() if _CLEARED.search(line) else ports)
    return out


_CLEARED = re.compile(r"\bnv unset interface [A-Za-z]")


def _named(line: str) -> set[str]:
    """Return the ports that a line names: swp1, swp1-4, swp1,swp3."""
    found = set()
    for word in re.split(r"[\s,]+", line):
        try:
            found |= {name for name in expand_range(word) if not name.isdigit()}
        except ValueError:
            continue
    return found


def _reason(switches: list[str], looked: NodeResult | None) -> str:
    if not switches and looked is not None:
        return reason("fabric", looked)
    return changes_words("fabric", [f"its ports on {switch}" for switch in switches] + list(looked.data.get("changes", []) if looked else []))


def _campaign_nodes(ctx: PhaseContext) -> set[str]:
    """Return all nodes of the campaign: those of a later wave are handed over again when their wave comes."""
    with Ledger.open(EnvPaths(ctx.root, ctx.env).database) as ledger:
        return {name for row in ledger.campaigns() if row["id"] == ctx.campaign for name in row["nodes"]}


def _blocked(switches: set[str], keeping: set[str], ours: set[str]) -> NodeResult:
    """Say why a switch is not changed now: somebody behind it keeps jobs, or is in production and was not asked for."""
    names, where = ", ".join(sorted(keeping)), ", ".join(sorted(switches))
    step = "Nothing was touched: run again when their jobs have ended."
    if not keeping <= ours:
        step = "Nothing was touched: run it for them too (--limit), or for the whole site."
    text = f"{where}: a change of ports is due - Expected: no node in production behind them that is not held Actual: {names}. {step}"
    return NodeResult(Outcome.ERROR, text, data={UNTOUCHED: True}, touched=False)
