"""Proof of the transport: the ways that NCCL chose, compared with those that site and platform require.

A figure without this proof does not count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rackready.design.facts import NodeFacts
from rackready.gates.base import GateFacts
from rackready.gates.fabric.rdma_port import layer
from rackready.gates.formats import nccl_log
from rackready.gates.formats.nccl_log import HostLog
from rackready.gates.judging.expectation import Algorithm, Collective, Domain
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.site import Fabric

RUNBOOK = "docs/runbooks/nccl-transport.md"
PLUGINS: dict[str, tuple[str, tuple[str, ...]]] = {
    "ib": ("NET/IB", ("IB",)),
    "ibext": ("NET/IBext", ("IBext", "NCCL RDMA Plugin")),
    "ofi": ("NET/OFI", ("AWS Libfabric", "Libfabric")),
}
"""Values of fabric.nccl_net in site.yml: their name for people, and the start of the network's name in NCCL's log
(NCCL itself; nccl-rdma-sharp-plugins; aws-ofi-nccl). NCCL's own is called IB and nothing more: the plugin's name
starts like it (IBext_v10)."""
_NVLINK_PATHS = frozenset({"NVL", "LOC"})
"""Kinds of path in NCCL's src/graph/topo.cc that are NVLink alone; NVB goes through another GPU, PIX to SYS over
PCIe."""
_SILENT = "Run with NCCL_DEBUG=INFO; /etc/nccl.conf may redirect it (NCCL_DEBUG_FILE)."
_SUBSYSTEMS = (
    "Run with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,ENV,NET,P2P,GRAPH: NET logs the HCAs, P2P the channels "
    "between GPUs, GRAPH the kinds of their paths."
)
"""NCCL's default is INIT, BOOTSTRAP and ENV (NCCL's manual, NCCL_DEBUG_SUBSYS)."""
_TWO = 2


HCAS_NOT_FOUND = FailKind(
    "nccl-hcas-not-found",
    "HCAs found by NCCL",
    meaning="NCCL did not find all of the node's HCAs, and continues without them.",
    next_step=f"Check the state of {{missing}} (ibv_devinfo) and NCCL_IB_HCA in /etc/nccl.conf: {RUNBOOK}",
    runbook=RUNBOOK,
)
TRANSPORT_NOT_TOLD = ErrorKind(
    "nccl-transport-not-told",
    "NCCL did not report its transport",
    meaning="NCCL did not report its transport, so a rate may not be that of the fabric.",
    next_step=_SILENT,
)
CHANNEL_UNKNOWN = ErrorKind(
    "nccl-channel-unknown",
    "unknown form of an NCCL channel",
    meaning="NCCL names a channel in a form that rackready does not know.",
    next_step="Read NCCL's release notes, and update rackready.",
)
NOT_ALL_NVLINK = FailKind(
    "nccl-not-all-nvlink",
    "NVLink domain",
    meaning="Some channels inside the NVLink domain do not use NVLink.",
    next_step=f"Check the fabric state of its GPUs and IMEX (`nvidia-imex-ctl -N`): {RUNBOOK}",
    runbook=RUNBOOK,
)
RDMA_NOT_SOUGHT = FailKind(
    "nccl-rdma-not-sought",
    "NCCL transport",
    meaning="NCCL was told not to look for HCAs, and used another transport.",
    next_step="NCCL did not look for HCAs: remove NCCL_NET and NCCL_IB_DISABLE from /etc/nccl.conf, "
    f"~/.nccl.conf and the environment: {RUNBOOK}",
    runbook=RUNBOOK,
)
RDMA_NOT_USED = FailKind(
    "nccl-rdma-not-used",
    "NCCL transport",
    meaning="NCCL looked for HCAs, but used sockets, which are many times slower.",
    next_step=f"RDMA was not used: check that the HCAs are ACTIVE and have RoCE v2 GIDs: {RUNBOOK}",
    runbook=RUNBOOK,
)
OTHER_TRANSPORT = FailKind(
    "nccl-other-transport",
    "NCCL transport",
    meaning="NCCL used another network plugin than the site declares.",
    next_step=f"Correct fabric.nccl_net in site.yml, or NCCL_NET_PLUGIN in /etc/nccl.conf: {RUNBOOK}",
    runbook=RUNBOOK,
)
NO_GPUDIRECT = FailKind(
    "nccl-no-gpudirect",
    "GPUDirect RDMA",
    meaning="NCCL moves data through host memory, because the NICs cannot reach GPU memory.",
    next_step=f"Check ACS (`lspci -vvv | grep ACSCtl`), dma-buf and the IOMMU: {RUNBOOK}",
    runbook=RUNBOOK,
)
PROVIDER_NOT_TOLD = ErrorKind(
    "nccl-provider-not-told",
    "libfabric's provider not reported",
    meaning="NCCL's plugin did not report its libfabric provider.",
    next_step=_SILENT,
)
OTHER_PROVIDER = FailKind(
    "nccl-other-provider",
    "libfabric's provider",
    meaning="libfabric uses another provider than EFA, which is much slower.",
    next_step="Install the EFA driver and libfabric with EFA; unset FI_PROVIDER.",
)
OTHER_HCAS = FailKind(
    "nccl-other-hcas",
    "HCAs used by NCCL",
    meaning="NCCL used other HCAs than those of the compute fabric.",
    next_step="Check the state of the missing HCAs and NCCL_IB_HCA in /etc/nccl.conf.",
)
HCAS_NOT_NAMED = ErrorKind(
    "nccl-hcas-not-named",
    "HCAs of NCCL's channels",
    meaning="NCCL's log does not name the HCAs of a channel, so it does not show which rails it used.",
    next_step=_SUBSYSTEMS,
)
LINK_LAYER = FailKind(
    "nccl-link-layer",
    "link layer of its HCAs",
    meaning="NCCL's HCAs use another link layer than the site's fabric.",
    next_step="Set the ports' link type: `mlxconfig -d DEVICE set LINK_TYPE_P1={link_type}`, then reset the NICs; "
    "or correct fabric.kind in site.yml.",
)
PATHS_NOT_TOLD = ErrorKind(
    "nccl-paths-not-told",
    "NCCL did not report how its GPUs talk",
    meaning="NCCL did not report the kind of path between the node's GPUs.",
    next_step=_SUBSYSTEMS,
)
NO_NVLINK_BETWEEN_GPUS = FailKind(
    "nccl-no-nvlink",
    "NVLink between its GPUs",
    meaning="GPUs of the node do not talk over NVLink.",
    next_step="Check NVLinks (`nvidia-smi nvlink -s`), fabric manager and NCCL_P2P_DISABLE, NCCL_P2P_LEVEL in "
    f"/etc/nccl.conf: {RUNBOOK}",
    runbook=RUNBOOK,
)
NOT_ALL_GPUS_TOLD = ErrorKind(
    "nccl-gpus-not-told",
    "NCCL did not report how all its GPUs talk",
    meaning="NCCL did not name channels of all GPUs.",
    next_step=_SILENT,
)
NO_NVLINK_ACROSS = FailKind(
    "nccl-no-nvlink-across-nodes",
    "NVLink across nodes",
    meaning="Nodes of one NVLink domain do not talk over NVLink.",
    next_step="Check IMEX (`nvidia-imex-ctl -N`) and its channel (`ls /dev/nvidia-caps-imex-channels`), one "
    f"ClusterUUID and clique, and NCCL_MNNVL_ENABLE in /etc/nccl.conf: {RUNBOOK}",
    runbook=RUNBOOK,
)
NO_NVLS = FailKind(
    "nccl-no-nvls",
    "NVLS (reduction in the NVSwitches)",
    meaning="The NVSwitches do not reduce for the GPUs, so reductions are slower.",
    next_step=f"Check the fabric manager and its log, and NCCL_NVLS_ENABLE in /etc/nccl.conf: {RUNBOOK}",
    runbook=RUNBOOK,
)

FINDINGS = (
    TRANSPORT_NOT_TOLD,
    CHANNEL_UNKNOWN,
    NOT_ALL_NVLINK,
    RDMA_NOT_SOUGHT,
    RDMA_NOT_USED,
    OTHER_TRANSPORT,
    NO_GPUDIRECT,
    PROVIDER_NOT_TOLD,
    OTHER_PROVIDER,
    OTHER_HCAS,
    HCAS_NOT_NAMED,
    LINK_LAYER,
    PATHS_NOT_TOLD,
    NO_NVLINK_BETWEEN_GPUS,
    NOT_ALL_GPUS_TOLD,
    NO_NVLINK_ACROSS,
    NO_NVLS,
)
"""Findings of the NCCL INFO lines of a launch."""


@dataclass(frozen=True, slots=True)
class WantedTransport:
    """The launches that were made: nodes, their domains, and the collective."""

    nodes: tuple[str, ...]
    collective: Collective
    algorithm: Algorithm
    domain: Domain | None

    @property
    def network(self) -> bool:
        """Return whether data must leave an NVLink domain."""
        return self.domain is None or self.domain.count > 1

    @property
    def multicast(self) -> bool:
        """Return whether the NVSwitches must reduce.

        Only where the default algorithm reduces among more than two GPUs of a domain that can.
        """
        return (
            self.domain is not None
            and self.domain.nvls
            and self.domain.gpus > _TWO
            and self.collective == "all_reduce"
            and self.algorithm == "default"
        )


def prove(judge: Judge, facts: GateFacts, wanted: WantedTransport, texts: Sequence[str]) -> None:
    """Compare every launch of every node with the required ways; a finding of several launches is reported once."""
    ways: set[str] = set()
    for node in wanted.nodes:
        judge.judged += 1
        seen: dict[str, None] = {}
        for text in texts:
            hosts = nccl_log.parse(text)
            log = (
                next(iter(hosts.values())) if len(hosts) == len(wanted.nodes) == 1 else _of(hosts, node)
            )  # alone on a node, it may report any network
            trial = Judge()
            _node(trial, facts, wanted, node, log)
            ways |= _ways(log)
            for found, into in ((trial.fails, judge.fails), (trial.errors, judge.errors)):
                for finding in found:
                    if str(finding) not in seen:
                        seen[str(finding)] = None
                        into.append(finding)
    judge.transport = ", ".join(sorted(ways)) or None


def unseen(judge: Judge, facts: GateFacts, nodes: Sequence[str], texts: Sequence[str]) -> None:
    """Name the HCAs that NCCL did not find, in launches without a result.

    NCCL goes on without them silently, and fails elsewhere. A node whose log ends before NCCL chose its network is left
    out.
    """
    for node in nodes:
        expected = {nic.rdma_device for nic in facts.nodes[node].nics}
        logs = [log for text in texts if (log := _of(nccl_log.parse(text), node)).networks and log.devices]
        lists = {frozenset(name for name, _ in log.devices.values()) for log in logs}
        for found in sorted(lists, key=sorted):
            if missing := sorted(expected - found):
                judge.fail(
                    node,
                    HCAS_NOT_FOUND,
                    ", ".join(sorted(expected)),
                    ", ".join(sorted(found)),
                    missing=", ".join(missing),
                )


def _of(hosts: Mapping[str, HostLog], node: str) -> HostLog:
    return next((log for name, log in hosts.items() if name.split(".")[0] == node), HostLog())


def _ways(log: HostLog) -> set[str]:
    """Return in words what the node used, for the evidence."""
    found = {
        f"NET/{net}{', GPUDirect RDMA' if direct else ' without GPUDirect RDMA'}" for net, _, direct in log.channels
    }
    return found | {way.split("/read")[0] for way in log.inside} | ({"NVLS"} if log.multicast else set())


def _node(judge: Judge, facts: GateFacts, wanted: WantedTransport, node: str, log: HostLog) -> None:
    of_node = facts.nodes[node]
    if not log.networks and not log.channels and not log.inside:
        judge.error(node, TRANSPORT_NOT_TOLD, "NCCL INFO lines of every node", "none of this node")
        return
    for line in sorted(log.unread)[:1]:
        judge.error(node, CHANNEL_UNKNOWN, "a channel via NET, P2P or SHM", line)
    if wanted.network:
        _network(judge, facts.fabric, of_node, node, log)
    elif log.channels:
        said = ", ".join(sorted({f"NET/{net}" for net, _, _ in log.channels}))
        judge.fail(node, NOT_ALL_NVLINK, "all channels over NVLink", said)
    if wanted.domain is not None and wanted.domain.gpus > 1:
        _inside(judge, wanted, of_node, node, log)


def _network(judge: Judge, fabric: Fabric, of_node: NodeFacts, node: str, log: HostLog) -> None:
    plugin = fabric.nccl_net
    name, starts = PLUGINS[plugin]
    if not log.networks or not log.channels:
        judge.error(node, TRANSPORT_NOT_TOLD, "NCCL INFO lines of every node", "none of this node")
        return
    others = sorted(
        {f"NET/{net}" for net, _, _ in log.channels if not _is(net, starts)}
        | {net for net in log.networks if not _is(net, starts)}
    )
    if others:
        if plugin == "ib" and not log.sought_rdma:
            judge.fail(node, RDMA_NOT_SOUGHT, name, ", ".join(others))
        elif any("Socket" in other for other in others):
            judge.fail(node, RDMA_NOT_USED, name, ", ".join(others))
        else:
            judge.fail(node, OTHER_TRANSPORT, name, ", ".join(others))
    elif not all(direct for _, _, direct in log.channels):
        judge.fail(node, NO_GPUDIRECT, f"every channel via {name}/.../GDRDMA", "channels without GDRDMA")
    elif plugin == "ofi":
        _provider(judge, node, log)
    else:
        _devices(judge, fabric, of_node, node, log)


def _is(net: str, starts: tuple[str, ...]) -> bool:
    return net in starts if starts == PLUGINS["ib"][1] else net.startswith(starts)


def _provider(judge: Judge, node: str, log: HostLog) -> None:
    """Judge aws-ofi-nccl: it numbers its rails and names no device, but it logs which provider moves the data."""
    if not log.providers:
        judge.error(node, PROVIDER_NOT_TOLD, "NET/OFI Selected provider is efa", "no such line")
    elif not all("efa" in provider for provider in log.providers):
        judge.fail(node, OTHER_PROVIDER, "efa", ", ".join(sorted(log.providers)))


def _devices(judge: Judge, fabric: Fabric, of_node: NodeFacts, node: str, log: HostLog) -> None:
    expected = {nic.rdma_device for nic in of_node.nics}
    if unnamed := log.unnamed():
        actual = ", ".join(f"NET/{device}" for device in sorted(unnamed))
        judge.error(node, HCAS_NOT_NAMED, "each channel over HCAs that NCCL names", actual)
    elif log.used() != expected:
        actual = ", ".join(sorted(log.used())) or "none"
        judge.fail(node, OTHER_HCAS, ", ".join(sorted(expected)), actual)
    wanted = layer(fabric)
    others = sorted(f"{name}/{link}" for name, link in log.devices.values() if name in expected and link != wanted.nccl)
    if others:
        judge.fail(node, LINK_LAYER, f"{wanted.name} ({wanted.nccl})", ", ".join(others), link_type=wanted.set_by)


def _inside(judge: Judge, wanted: WantedTransport, of_node: NodeFacts, node: str, log: HostLog) -> None:
    """Judge the ways between the GPUs of one domain; without NVLink there is no requirement.

    Every GPU sends to another of its domain. Across the network, one GPU of a node may only send out, where all of its
    channels leave by one NIC.
    """
    if of_node.gpu.nvlink is None or wanted.domain is None:
        return
    if not log.inside or not log.paths:
        missing = "channels between its GPUs" if not log.inside else "kind of path (subsystem GRAPH)"
        judge.error(node, PATHS_NOT_TOLD, "channels between GPUs and the kind of their path", f"no {missing}")
        return
    slow = sorted(way for way in log.inside if not way.startswith("P2P/")) + sorted(log.paths - _NVLINK_PATHS)
    if slow:
        judge.fail(node, NO_NVLINK_BETWEEN_GPUS, "P2P channels over paths of type NVL", ", ".join(slow))
    count = of_node.platform.gpus
    if len(log.senders) < count - wanted.network:
        silent = f"{count}{' (but one)' if wanted.network else ''}"
        judge.error(node, NOT_ALL_GPUS_TOLD, f"channels to another GPU from {silent} GPUs", f"from {len(log.senders)}")
    if wanted.domain.boards > 1:
        _across_nodes(judge, wanted.domain, node, log)
    if wanted.multicast:
        _multicast(judge, of_node, node, log)


def _across_nodes(judge: Judge, domain: Domain, node: str, log: HostLog) -> None:
    used = any(way.startswith("P2P/MNNVL") for way in log.inside)
    if not used or log.clique != domain.gpus:
        actual = f"{'P2P/MNNVL' if used else 'no such channel'}, clique of {log.clique}"
        judge.fail(node, NO_NVLINK_ACROSS, f"P2P/MNNVL channels, a clique of {domain.gpus} GPUs", actual)


def _multicast(judge: Judge, of_node: NodeFacts, node: str, log: HostLog) -> None:
    count = of_node.platform.gpus
    have = log.multicast - log.no_multicast
    if len(have) != count:
        judge.fail(node, NO_NVLS, f"available on {count} GPUs", f"on {len(have)}")
