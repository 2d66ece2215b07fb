"""Comparison of both ends of every cable; switches and nodes are read, nothing is changed."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from rackready.design.pinned import site_of
from rackready.design.switches import PortConfig, SwitchConfig, switch_config
from rackready.drivers.process import check_stop
from rackready.drivers.remote import Answer, Remote
from rackready.drivers.ssh.target import node_target
from rackready.drivers.switch import findings as kinds
from rackready.drivers.switch.base import SwitchDriver, SwitchState
from rackready.drivers.switch.configure import open_driver
from rackready.drivers.switch.trunks import verify_trunks
from rackready.drivers.switch.verify import HostQos, verify_agreement, verify_links
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
_SESSIONS_S = 30.0
"""Our choice: three attempts to connect, which FRR makes 10 s apart in a data center (its profile datacenter)."""


@dataclass(frozen=True, slots=True)
class _End:
    """One switch as declared and as it is; ``trouble`` is why it could not be read.

    ``trunks``: what is wrong with its cables to other switches. ``leafs``: those whose traffic passes it.
    """

    config: SwitchConfig
    state: SwitchState | None
    trouble: str = ""
    trunks: tuple[Finding, ...] = ()
    leafs: frozenset[str] = frozenset()


def verify_fabric(ctx: PhaseContext, nodes: list[str]) -> dict[str, NodeResult]:
    """Return, per node, whether every cable has its link and both of its ends agree on PFC, DSCP, trust and MTU."""
    site = site_of(ctx)
    paths = EnvPaths(ctx.root, ctx.env)
    configs = [switch_config(site, switch.name) for switch in site.switches]
    leafs = [config.name for config in configs if any(port.node in nodes for port in config.ports)]
    names = with_uppers(site, leafs)
    wanted = [config for config in configs if config.name in names]
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        ends = list(pool.map(lambda config: _read_switch(site, paths, config), wanted))
        hosts = dict(zip(nodes, pool.map(lambda node: _read_host(site, paths, node), nodes), strict=True))
    return {node: judge(node, ends, hosts[node], site.fabric.mtu) for node in nodes}


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
        if not trunks or time.monotonic() > deadline:
            return _End(config, state, "", tuple(trunks), frozenset(lower_leafs(site, config.name)))
        check_stop()
        time.sleep(2.0)


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
    return HostQos(str(state["trust"]), frozenset(state["pfc"]), int(state["mtu"]), mapping, bool(state["pause"]))


def judge(node: str, ends: list[_End], host: dict[str, HostQos] | Finding, host_mtu: int) -> NodeResult:
    """Return a node's result from both ends of its cables: pure."""
    if isinstance(host, Finding):
        return NodeResult(Outcome.ERROR, str(host), data={FINDINGS: finding_documents([host])})
    mine = [(end, [port for port in end.config.ports if port.node == node]) for end in ends]
    own = {end.config.name for end, ports in mine if ports}
    troubles = [end.trouble for end, ports in mine if (ports or own & end.leafs) and end.state is None]
    findings = [finding for end, _ in mine if own & end.leafs for finding in end.trunks] + [
        finding
        for end, ports in mine
        if end.state is not None
        for finding in _cables(node, end.config, end.state, ports, host, host_mtu)
    ]
    if findings:
        words = "; ".join([*(str(finding) for finding in findings), *troubles])
        return NodeResult(Outcome.FAIL, words, data={FINDINGS: finding_documents(findings)})
    if troubles:
        return NodeResult(Outcome.ERROR, "; ".join(troubles))
    if not any(ports for _, ports in mine):
        none = kinds.NO_CABLE.found(node, "one at least", "none in the site")
        return NodeResult(Outcome.ERROR, str(none), data={FINDINGS: finding_documents([none])})
    return NodeResult(Outcome.PASS, f"{node}: every cable has its link and both ends agree")


def _cables(
    node: str,
    config: SwitchConfig,
    state: SwitchState,
    ports: list[PortConfig],
    host: dict[str, HostQos],
    host_mtu: int,
) -> list[Finding]:
    out = verify_links(config, state, {node})
    for port in ports:
        if port.netdev in host:
            out += verify_agreement(config.name, state, port, host[port.netdev], host_mtu)
        else:
            where = Place(node, port.netdev)
            out.append(kinds.INTERFACE_MISSING.found(where, "its state", "the interface is not there"))
    return out
