"""Judging an output that somebody else captured: no site, no connection, only a platform profile."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network

from rackready.design.facts import NicFacts, NodeFacts
from rackready.gates.base import Gate, GateFacts, Output, Run
from rackready.model.base import SecretRef
from rackready.model.outcome import Verdict
from rackready.model.problems import RackreadyError
from rackready.model.site import Bmc, Fabric, Node, Rail
from rackready.profiles import loader

_BMCS = IPv4Address("198.18.0.0")
_HOSTS = IPv4Address("198.19.0.0")
_MOST = 240
"""Nodes that fit a rail's /24."""
_SOFTWARE = "hgx-r580-debian12"


def facts(platform_id: str, nodes: int = 1, software_id: str = _SOFTWARE) -> GateFacts:
    """Return facts of nodes named node01... of a platform, at addresses of a benchmarking network. Raises UnknownProfileError."""
    if nodes > _MOST:
        raise RackreadyError(f"{nodes} nodes - Expected: at most {_MOST}. Judge a part of them.")
    platform = loader.platform(platform_id)
    rails = [Rail(rail=nic.rail, vlan=900 + nic.rail, subnet=IPv4Network(f"192.168.{nic.rail}.0/24")) for nic in platform.nics]
    return GateFacts(
        nodes={f"node{index:02}": _node(index, platform_id, software_id) for index in range(1, nodes + 1)}, fabric=Fabric(kind="roce", rails=rails), fleet=nodes
    )


def _node(index: int, platform_id: str, software_id: str) -> NodeFacts:
    platform = loader.platform(platform_id)
    software = loader.software(software_id)
    name = f"node{index:02}"
    bmc = Bmc(address=_BMCS + index, password=SecretRef(env="NONE"))
    node = Node(name=name, platform=platform_id, serial="unknown", unit=1, address=_HOSTS + index, bmc=bmc)
    nics = tuple(
        NicFacts(nic.rail, nic.rdma_device, nic.netdev, nic.pci, nic.gpu, nic.numa, nic.rate, f"192.168.{nic.rail}.{10 + index}", 24, 900 + nic.rail, "", "")
        for nic in platform.nics
    )
    return NodeFacts(node, "rack", index, platform, loader.gpu(platform.gpu), software, software.driver[software.default_branch], nics, platform.baseline)


def evaluate(gate: Gate, facts_: GateFacts, run: Run, texts: Mapping[str, str], exit_code: int) -> Verdict:
    """Judge captured texts by command key."""
    nodes = {command.key: command.node for command in run.commands}
    outputs = {key: Output(key=key, node=nodes.get(key, run.nodes[0]), command="captured", exit_code=exit_code, stdout=text) for key, text in texts.items()}
    return gate.evaluate(facts_, run, outputs)
