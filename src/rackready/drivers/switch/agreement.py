"""Comparison of both ends of every cable; switches and nodes are read, nothing is changed."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from rackready.design.facts import node_facts, switch_facts
from rackready.design.pinned import site_of
from rackready.design.qos import qos_facts
from rackready.design.switches import PortConfig, SwitchConfig, switch_config
from rackready.drivers.process import check_stop
from rackready.drivers.remote import Answer, Remote
from rackready.drivers.ssh.target import node_target
from rackready.drivers.switch import findings as kinds
from rackready.drivers.switch.base import SwitchDriver, SwitchState
from rackready.drivers.switch.configure import open_driver
from rackready.drivers.switch.ends import HostQos, Intent, Setting, settings
from rackready.drivers.switch.trunks import verify_announced, verify_trunks
from rackready.drivers.switch.verify import verify_links
from rackready.drivers.switch.waves import lower_leafs, with_uppers
from rackready.model.outcome import Finding, Outcome
from rackready.model.phase import FINDINGS, NodeResult, PhaseContext, finding_documents
from rackready.model.place import Place
from rackready.model.problems import RackreadyError
from rackready.model.site import Site
from rackready.ondevice.roce import FORMAT
from rackready.paths import EnvPaths

_READ = ("python3", "/usr/local/lib/rackready/roce.py", "verify", "/etc/rackready/roce.json")
_TIMEOUT_S = 240.0
"""A reading starts several programs for every interface: it takes seconds, and minutes on a busy node."""
_AT_ONCE = 16
_SESSIONS_S = 60.0
"""Our choice: three attempts to connect, which FRR makes 10 s apart in a data center (its profile datacenter), after a
start of SONiC's container `bgp`, whose bgpcfgd waits 20 s for the daemons."""


@dataclass(frozen=True, slots=True)
class _End:
    """One switch as declared and as it is; ``trouble`` is why it could not be read.

    ``trunks``: what is wrong with its cables to other switches, each with the leafs below that cable: their nodes lose
    paths. ``leafs``: those whose traffic passes the switch.
    """

    config: SwitchConfig
    state: SwitchState | None
    trouble: str = ""
    trunks: tuple[tuple[Finding, frozenset[str]], ...] = ()
    leafs: frozenset[str] = frozenset()


def verify_fabric(ctx: PhaseContext, nodes: list[str]) -> dict[str, NodeResult]:
    """Return, per node, whether every cable has its link and both ends are as the site wants and as each other.

    What an end does not report is named in the result.
    """
    site = site_of(ctx)
    paths = EnvPaths(ctx.root, ctx.env)
    configs = [switch_config(site, switch.name) for switch in site.switches]
    leafs = [config.name for config in configs if any(port.node in nodes for port in config.ports)]
    names = with_uppers(site, leafs)
    wanted = [config for config in configs if config.name in names]
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        ends = list(pool.map(lambda config: _read_switch(site, paths, config), wanted))
        hosts = dict(zip(nodes, pool.map(lambda node: _read_host(site, paths, node), nodes), strict=True))
    return {node: judge(node, ends, hosts[node], intents(site, node)) for node in nodes}


def _read_switch(site: Site, paths: EnvPaths, config: SwitchConfig) -> _End:
    try:
        driver, _ = open_driver(site, paths, config.name)
        try:
            return _read_end(site, driver, config)
        finally:
            driver.close()
    except RackreadyError as error:
        return _End(config, None, str(error), leafs=frozenset(lower_leafs(site, config.name)))


def _read_end(site: Site, driver: SwitchDriver, config: SwitchConfig) -> _End:
    """Read a switch; its BGP sessions get ``_SESSIONS_S`` seconds to come up."""
    deadline = time.monotonic() + _SESSIONS_S
    while True:
        state = driver.read_back()
        trunks = verify_trunks(config, state, driver.sessions() if config.routing is not None else {})
        if config.routing is not None:
            trunks += verify_announced(config, driver.announced())
        if not trunks or time.monotonic() > deadline:
            below = tuple((finding, _below(site, config, finding)) for finding in trunks)
            return _End(config, state, "", below, frozenset(lower_leafs(site, config.name)))
        check_stop()
        time.sleep(2.0)


def _below(site: Site, config: SwitchConfig, finding: Finding) -> frozenset[str]:
    """Return the leafs below a cable between switches: those of its lower end. Other findings are of all its leafs."""
    peer = next((port.peer for port in config.ports if port.name == finding.part), "")
    ours = lower_leafs(site, config.name)
    if not peer:
        return frozenset(ours)
    theirs = lower_leafs(site, peer)
    return frozenset(ours if len(ours) <= len(theirs) else theirs)


def _read_host(site: Site, paths: EnvPaths, node: str) -> dict[str, HostQos] | Finding:
    remote = Remote({node: node_target(site, node, paths.known_hosts)})
    try:
        return parse_host(node, remote.run(node, _READ, timeout_s=_TIMEOUT_S))
    finally:
        remote.close()


def parse_host(node: str, answer: Answer) -> dict[str, HostQos] | Finding:
    """Return interface -> its QoS settings, or why they could not be read."""
    try:
        document = json.loads(answer.stdout)
    except ValueError:
        document = {}
    if document.get("format") != FORMAT or document.get("complete") is not True:
        late = f"no answer within {_TIMEOUT_S:.0f} s" if answer.timed_out else ""
        said = (
            late or answer.failure or answer.stderr.strip() or answer.stdout.strip()[:200] or f"exit {answer.exit_code}"
        )
        return kinds.NODE_UNREAD.found(node, "a whole document of roce.py", said)
    return {str(item["netdev"]): _host(item["state"]) for item in document["interfaces"] if item["state"]}


def _host(state: Mapping[str, Any]) -> HostQos:
    mapping = {int(dscp): int(priority) for dscp, priority in state["dscp_priority"].items()}
    return HostQos(
        str(state["trust"]),
        frozenset(state["pfc"]),
        int(state["mtu"]),
        mapping,
        bool(state["pause"]),
        ecn=state["ecn"],
        speed=state["rate_gbps"],
        fec=state["fec"],
        cm_version=None if state["cm_mode"] == "unknown" else str(state["cm_mode"]),
        cm_tos=int(state["cm_tos"]),
        verbs_tos=state["traffic_class"],
        gid_types=tuple(state["gid_types"]),
        gid_index=state["gid_index"],
        unread=str(state.get("unread", "")),
    )


def intents(site: Site, node: str) -> dict[str, Intent]:
    """Return interface -> what both ends of its cable should have."""
    facts, qos = node_facts(site, node), qos_facts(site.fabric.qos)
    index = site.fabric.nccl.of(facts.platform.id).get("NCCL_IB_GID_INDEX")
    gid = None if index is None else int(index)
    most = {name: switch_facts(site, name).profile.rate for name in {nic.switch for nic in facts.nics if nic.switch}}
    rates = {nic.netdev: min(nic.rate, most.get(nic.switch, nic.rate)) for nic in facts.nics}
    return {netdev: Intent(qos, site.fabric.mtu, rate, gid) for netdev, rate in rates.items()}


def judge(
    node: str, ends: list[_End], host: dict[str, HostQos] | Finding, intended: Mapping[str, Intent]
) -> NodeResult:
    """Return a node's result from both ends of its cables: pure. ``intended``: interface -> what both should have."""
    if isinstance(host, Finding):
        return NodeResult(Outcome.ERROR, str(host), data={FINDINGS: finding_documents([host])})
    mine = [(end, [port for port in end.config.ports if port.node == node]) for end in ends]
    own = {end.config.name for end, ports in mine if ports}
    troubles = [end.trouble for end, ports in mine if (ports or own & end.leafs) and end.state is None]
    findings = [finding for end in ends for finding, leafs in end.trunks if own & leafs]
    unknown: list[str] = []
    for end, ports in mine:
        if end.state is not None:
            findings += verify_links(end.config, end.state, {node})
            cables = [(port, host.get(port.netdev)) for port in ports]
            wrong, unread = compare(node, end.config, end.state, cables, intended)
            findings += wrong
            unknown += unread
    if findings:
        words = "; ".join([*(str(finding) for finding in findings), *troubles])
        return NodeResult(Outcome.FAIL, words, data={FINDINGS: finding_documents(findings)})
    if troubles:
        return NodeResult(Outcome.ERROR, "; ".join(troubles))
    if not any(ports for _, ports in mine):
        none = kinds.NO_CABLE.found(node, "one at least", "none in the site")
        return NodeResult(Outcome.ERROR, str(none), data={FINDINGS: finding_documents([none])})
    note = f"; not reported: {', '.join(dict.fromkeys(unknown))}" if unknown else ""
    return NodeResult(Outcome.PASS, f"{node}: every cable has its link and both ends agree{note}")


def compare(
    node: str,
    config: SwitchConfig,
    state: SwitchState,
    cables: Sequence[tuple[PortConfig, HostQos | None]],
    intended: Mapping[str, Intent],
) -> tuple[list[Finding], list[str]]:
    """Return findings of a node's cables to one switch, and the settings that an end does not report, in words.

    A setting that is wrong on the whole switch is one finding.
    """
    findings: list[Finding] = []
    read: list[tuple[PortConfig, Setting]] = []
    for port, host in cables:
        if host is None:
            where = Place(node, port.netdev)
            findings.append(kinds.INTERFACE_MISSING.found(where, "its state", "the interface is not there"))
        else:
            wanted = intended[port.netdev]
            wanted = replace(wanted, speed=port.speed or wanted.speed)
            read += [(port, setting) for setting in settings(state, port, host, wanted)]
    told: set[Setting] = set()
    common = Counter(one for port, one in read if one.of_switch and port.name not in state.port_roce)
    for port, one in read:
        count = common.pop(one, 0)
        if count > 1:
            findings += _found(one, Place(config.name, "", f"and its {count} cables to {node}", nodes=[node]))
            told.add(one)
        elif one not in told:
            findings += _found(one, Place(node, port.netdev, f"and {config.name} {port.name}"))
    names = {"host": node, "switch": config.name}
    unknown = [f"{one.name} of {names[end]}" for _, one in read for end in one.unknown()]
    unknown += [f"on {node} {host.unread}" for _, host in cables if host is not None and host.unread]
    return findings, list(dict.fromkeys(unknown))


def _found(setting: Setting, where: Place) -> list[Finding]:
    found = setting.found(where)
    return [] if found is None else [found]
