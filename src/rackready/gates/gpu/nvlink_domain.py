"""NVLink domains that span servers (NVL72): cluster and clique, fabric health, and IMEX between all nodes."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Mapping, Sequence

from pydantic import Field

from rackready.format_error import FormatError
from rackready.gates import base
from rackready.gates.base import Command, FinishedRun, Gate, GateFacts, Output, Outputs, Run, trouble
from rackready.gates.engine.recorder import not_run
from rackready.gates.fabric import domains
from rackready.gates.formats import imex
from rackready.gates.formats.imex import ImexNode
from rackready.gates.formats.smi_xml import SmiLog
from rackready.gates.gpu import fabric, imex_channel, parts, smi
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Verdict
from rackready.model.place import Place

_RUNBOOK = "docs/runbooks/nvlink-down.md"
_NO_CLUSTER = "00000000-0000-0000-0000-000000000000"
_STEP = (
    "Power on the NVLink switch trays before the compute trays, check that NMX-C is configured, then restart the "
    f"tray's driver: {_RUNBOOK}."
)
_IMEX_STEP = (
    "Compare /etc/nvidia-imex/nodes_config.cfg on all nodes of the domain, then restart nvidia-imex on all of them "
    "(it reads the list only when it starts)."
)


DOMAIN_NOT_WHOLE = ErrorKind(
    "nvlink-domain-not-whole",
    "NVLink domain incomplete",
    meaning="Only a part of the NVLink domain was measured, so the domain as a whole is not proven.",
    next_step="Run the gate on the whole domain, or declare a smaller one (site.yml nvlink_domains).",
)
DOMAIN_HEALTH_NOT_REPORTED = ErrorKind(
    "nvlink-domain-health-not-reported",
    "fabric health not reported",
    meaning="The driver does not report the health mask, so a degraded link or route of the domain would not be seen.",
    next_step="Update the driver.",
)
NOT_IN_DOMAIN = FailKind(
    "nvlink-domain-not-joined",
    "not in an NVLink domain",
    meaning="This GPU has not joined an NVLink domain: it cannot reach GPUs of other nodes over NVLink.",
    next_step=_STEP,
    runbook=_RUNBOOK,
)
GPU_TWICE = ErrorKind(
    "nvlink-domain-gpu-twice",
    "one GPU on several nodes",
    meaning="Several nodes report the same GPU: their outputs were mixed up.",
    next_step="Run the gate again. For captured outputs: give each node its own report.",
)
NO_MAJORITY = FailKind(
    "nvlink-domain-split",
    "no NVLink domain has most of the GPUs",
    meaning="The domain's GPUs are split over several and none has most of them.",
    next_step=_STEP,
    runbook=_RUNBOOK,
)
OTHER_DOMAIN = FailKind(
    "nvlink-domain-other",
    "another NVLink domain than most of {rack}",
    meaning="This GPU is in another NVLink domain than most of its peers, so it reaches them over the network only.",
    next_step=_STEP,
    runbook=_RUNBOOK,
)
ADDRESSES_UNREADABLE = ErrorKind(
    "imex-addresses-unreadable",
    "node addresses unreadable",
    meaning="The node does not report its own addresses, so its place in the IMEX domain is unknown.",
    next_step="Run `hostname -I` on the node.",
)
IMEX_FOREIGN = FailKind(
    "imex-members-other",
    "members of the IMEX domain are not the nodes of {target}",
    meaning="The IMEX domain consists of other nodes than those of this NVLink domain.",
    next_step=_IMEX_STEP,
)
IMEX_UNREADABLE = ErrorKind(
    "imex-unreadable",
    "IMEX unreadable",
    meaning="IMEX did not answer, so it is unknown whether nodes can share memory.",
    next_step="Install package nvidia-imex of the driver's version, and check `systemctl status nvidia-imex`.",
)
IMEX_EXIT_CODE = ErrorKind(
    "imex-exit-code",
    "IMEX contradicts itself",
    meaning="IMEX described its domain and still ended with an error.",
    next_step=_IMEX_STEP,
)
IMEX_DOWN = FailKind(
    "imex-down",
    "IMEX domain",
    meaning="The IMEX domain is not up: nodes cannot share memory.",
    next_step=_IMEX_STEP,
)
IMEX_MEMBERS = FailKind(
    "imex-members-missing",
    "members of the IMEX domain",
    meaning="The IMEX domain has another number of members than the NVLink domain has nodes.",
    next_step=_IMEX_STEP,
)
IMEX_MEMBER = FailKind(
    "imex-member-not-ready",
    "IMEX member {host}",
    meaning="A member of the IMEX domain is not ready.",
    next_step=_IMEX_STEP,
)
IMEX_CONNECTIONS = FailKind(
    "imex-not-connected",
    "IMEX connections of {host}",
    meaning="A member of the IMEX domain is not connected to all others.",
    next_step=_IMEX_STEP,
)
IMEX_VERSION_UNKNOWN = ErrorKind(
    "imex-version-not-reported",
    "IMEX version of {host} not reported",
    meaning="A member of the IMEX domain does not report its IMEX version.",
    next_step="Update nvidia-imex on both ends to the driver's version.",
)
IMEX_VERSION = FailKind(
    "imex-version",
    "IMEX version of {host}",
    meaning="A member's IMEX version differs from its driver's: the domain may not come up.",
    next_step="Run install again: IMEX must be exactly the driver's version.",
)

FINDINGS = (
    DOMAIN_NOT_WHOLE,
    DOMAIN_HEALTH_NOT_REPORTED,
    NOT_IN_DOMAIN,
    GPU_TWICE,
    NO_MAJORITY,
    OTHER_DOMAIN,
    ADDRESSES_UNREADABLE,
    IMEX_FOREIGN,
    IMEX_UNREADABLE,
    IMEX_EXIT_CODE,
    IMEX_DOWN,
    IMEX_MEMBERS,
    IMEX_MEMBER,
    IMEX_CONNECTIONS,
    IMEX_VERSION_UNKNOWN,
    IMEX_VERSION,
    imex_channel.CHANNEL_ABSENT,
)


class NvLinkDomain(Gate):
    """All nodes of an NVLink domain form one (ClusterUUID, clique), it is healthy, and IMEX daemons are connected."""

    id = "rack/gpu/validation/nvlink-domain"
    findings = (*smi.REPORT, *fabric.STATE, *FINDINGS)
    covers = frozenset({"gpu"})
    min_nodes = 2
    in_no_set = (
        "only racks whose NVLink domain spans servers (NVL72) need it; sites with such racks add it to their set"
    )

    class Inputs(base.Inputs):
        """Size of the domain."""

        nodes: int | None = Field(
            None,
            ge=2,
            le=144,
            description="nodes of one domain; null: those that the site file puts in it (nvlink_domains), "
            "else the platform's NVLink domain / its GPUs (NVL72: 18)",
        )

    inputs: Inputs

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:
        """Return one run per NVLink domain that spans servers."""
        found: dict[tuple[str, str], list[str]] = {}
        for node in nodes:
            if facts.nodes[node].platform.nvlink_domain is not None:
                found.setdefault(domains.name(facts.nodes[node]), []).append(node)
        return [self._run(facts, *name, members) for name, members in found.items()]

    @staticmethod
    def _run(facts: GateFacts, kind: str, name: str, members: list[str]) -> Run:
        ask = tuple(smi.command(node, f"smi-{node}") for node in members)
        status = tuple(
            Command(key=f"imex-{node}", node=node, argv=("nvidia-imex-ctl", "-N", "-j"), timeout_s=60)
            for node in members
        )
        own = tuple(
            Command(key=f"address-{node}", node=node, argv=("hostname", "-I"), timeout_s=60) for node in members
        )
        own += imex_channel.commands(facts, members)
        run_id = name if kind == "rack" else f"{kind} {name}"  # a domain may have another rack's name
        return Run(id=run_id, target=name, nodes=tuple(members), commands=(*ask, *status, *own))

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Judge each GPU's fabric, then that all GPUs agree, then IMEX as each node sees it."""
        judge = Judge()
        wanted, source = domains.size(facts.nodes[run.nodes[0]])
        if self.inputs.nodes is not None:
            wanted, source = self.inputs.nodes, "gate set: input nodes"
        judge.judged += 1
        judge.count("nodes_of_the_domain", run.target, len(run.nodes), wanted, source)
        if len(run.nodes) != wanted:
            judge.error(run.target, DOMAIN_NOT_WHOLE, f"{wanted}", f"{len(run.nodes)}")
        seen: dict[str, tuple[str, str]] = {}
        logs = {node: smi.read(judge, outputs.get(f"smi-{node}"), node) for node in run.nodes}
        for node, log in logs.items():
            if log is not None:
                seen |= _gpus(judge, facts, node, log)
        _no_shared_gpus(judge, {node: log for node, log in logs.items() if log is not None})
        _agree(judge, run.target, seen)
        for node in run.nodes:
            imex_channel.judge_channel(judge, facts, node, outputs)
        lists = {node: _imex(judge, node, outputs, wanted, facts.nodes[node].driver) for node in run.nodes}
        if len(run.nodes) == wanted:
            _members(
                judge, run, lists, {node: _addresses(judge, node, outputs.get(f"address-{node}")) for node in run.nodes}
            )
        judge.blamed |= {finding.node for finding in judge.fails} & set(run.nodes)
        return judge.verdict(run.target)

    def attribute(self, facts: GateFacts, done: Sequence[FinishedRun]) -> dict[str, list[Verdict]]:
        """Return the verdicts of each node.

        A fail belongs to the nodes that it names, and the others of their domain did not run; if it names none, it
        belongs to all. A server whose NVLinks end inside it has nothing to judge.
        """
        out: dict[str, list[Verdict]] = {}
        for node, known in facts.nodes.items():
            if known.platform.nvlink_domain is None:
                judge = Judge()
                judge.nothing("its NVLinks end inside the server: nothing to judge")
                out[node] = [judge.verdict(node)]
        for item in done:
            bad = item.verdict.blamed
            reason = f"{', '.join(bad)} of its NVLink domain did not pass"
            for node in item.run.nodes:
                mine = item.verdict if not bad or node in bad else not_run(node, self.id, reason, "Repair that first.")
                out.setdefault(node, []).append(mine)
        return out


def _gpus(judge: Judge, facts: GateFacts, node: str, log: SmiLog) -> dict[str, tuple[str, str]]:
    """Judge every GPU's fabric. Return 'node02 gpu1' -> (cluster, clique) of each GPU that has joined one."""
    smi.same_gpus(judge, facts.nodes[node], node, log)
    found: dict[str, tuple[str, str]] = {}
    for gpu in log.gpus:
        part = parts.name(facts.nodes[node], gpu.pci, gpu.position)
        where, before = Place(node, part), len(judge.fails) + len(judge.errors)
        fabric.state(judge, facts.nodes[node], where, gpu)
        if gpu.text("fabric/health/summary") is None and gpu.text("fabric/health/bandwidth") is None:
            judge.error(where, DOMAIN_HEALTH_NOT_REPORTED, "the health mask of its NVLink domain", "nothing")
        judge.judged += 1
        cluster, clique = gpu.text("fabric/clusterUuid"), gpu.text("fabric/cliqueId")
        if cluster is None or clique is None or cluster == _NO_CLUSTER:
            judge.fail(
                where,
                NOT_IN_DOMAIN,
                "a ClusterUUID and a clique",
                f"{cluster or 'none'}, clique {clique or 'none'}",
            )
            continue
        found[where] = (cluster, clique)
        if len(judge.fails) + len(judge.errors) == before:
            judge.measured.add(where.unit)
    return found


def _no_shared_gpus(judge: Judge, logs: Mapping[str, SmiLog]) -> None:
    """Add an error for GPUs that several nodes report: one report was given for two nodes."""
    owners: dict[str, list[str]] = {}
    for node, log in logs.items():
        for uuid in {gpu.text("uuid") for gpu in log.gpus} - {None}:
            owners.setdefault(str(uuid), []).append(node)
    judge.judged += 1
    shared = {uuid: nodes for uuid, nodes in owners.items() if len(nodes) > 1}
    for nodes in dict.fromkeys(tuple(nodes) for nodes in shared.values()):
        same = sorted(uuid for uuid, of in shared.items() if tuple(of) == nodes)
        more = f" and {len(same) - 1} more" if len(same) > 1 else ""
        judge.error(", ".join(nodes), GPU_TWICE, "different GPUs on every node", f"{same[0]}{more} on each of them")
        judge.measured -= {item for item in judge.measured if item.split("/", 1)[0] in nodes}


def _agree(judge: Judge, domain: str, seen: Mapping[str, tuple[str, str]]) -> None:
    """Fail every GPU whose (cluster, clique) differs from most of the domain; without a majority, fail the domain.

    ``seen``: 'node02 gpu1' -> (cluster, clique).
    """
    judge.judged += 1
    counts = Counter(seen.values())
    if len(counts) <= 1:
        return
    most, times = counts.most_common(1)[0]
    if times * 2 <= len(seen):
        actual = "; ".join(
            f"{number} in ClusterUUID {cluster}, clique {clique}"
            for (cluster, clique), number in sorted(counts.items())
        )
        judge.fail(domain, NO_MAJORITY, f"{len(seen)} GPUs in one", actual)
        return
    for where, pair in seen.items():
        if pair != most:
            expected = f"ClusterUUID {most[0]}, clique {most[1]}"
            judge.fail(where, OTHER_DOMAIN, expected, f"{pair[0]}, clique {pair[1]}", rack=domain)


def _addresses(judge: Judge, node: str, output: Output | None) -> frozenset[str]:
    """Return a node's name and the addresses that it reports; empty, with an error, if it reports none."""
    if judge.trouble(trouble(output, node, "reading of the node's addresses")) or output is None:
        return frozenset()
    try:
        found = {_short(str(ipaddress.ip_address(word))) for word in output.stdout.split()}
    except ValueError:
        found = set()
    if not found or output.exit_code != 0:
        actual = f"{output.stdout.strip()[:80] or 'nothing'} (exit code {output.exit_code})"
        judge.error(node, ADDRESSES_UNREADABLE, "addresses", actual)
        return frozenset()
    return frozenset({node, *found})


def _short(host: str) -> str:
    """Return an address in its short form, or a host name without its domain."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host.split(".", 1)[0]


def _members(judge: Judge, run: Run, lists: Mapping[str, frozenset[str]], own: Mapping[str, frozenset[str]]) -> None:
    """Compare the members that each daemon lists with the nodes of the domain."""
    if not all(own.values()):
        return
    for node, hosts in lists.items():
        if not hosts:
            continue
        judge.judged += 1
        foreign = [
            f"{host} is none of them"
            for host in sorted(hosts)
            if not any(_short(host) in names for names in own.values())
        ]
        absent = [f"none is {name}" for name, names in own.items() if not any(_short(host) in names for host in hosts)]
        if foreign or absent:
            judge.fail(node, IMEX_FOREIGN, ", ".join(run.nodes), ", ".join([*foreign, *absent]), target=run.target)


def _imex(judge: Judge, node: str, outputs: Outputs, wanted: int, driver: str) -> frozenset[str]:
    """Judge the domain as one node's daemon sees it. Return the hosts of its members.

    It must be up and of the wanted size, with every member ready and connected to every other.
    """
    output = outputs.get(f"imex-{node}")
    if judge.trouble(trouble(output, node, "nvidia-imex-ctl")) or output is None:
        return frozenset()
    judge.judged += 1
    try:
        found = imex.parse(output.stdout)
    except FormatError as error:
        judge.error(node, IMEX_UNREADABLE, "JSON of nvidia-imex-ctl -N -j", f"{error} (exit code {output.exit_code})")
        return frozenset()
    if output.exit_code != 0:
        judge.error(node, IMEX_EXIT_CODE, "exit code 0 with a domain", f"exit code {output.exit_code}")
    if found.status != "UP":
        judge.fail(node, IMEX_DOWN, "UP", found.status)
    hosts = {member.host for member in found.nodes}
    if len(hosts) != wanted or len(found.nodes) != wanted:
        judge.fail(node, IMEX_MEMBERS, f"{wanted}", f"{min(len(hosts), len(found.nodes))}")
    for member in found.nodes:
        if member.status != "READY":
            judge.fail(node, IMEX_MEMBER, "READY", member.status, host=member.host)
        _version(judge, node, member, driver)
        ends = dict.fromkeys(hosts - {member.host}, "none") | member.connections
        bad = {host: state for host, state in ends.items() if state != "CONNECTED"}
        if bad:
            judge.fail(
                node,
                IMEX_CONNECTIONS,
                "CONNECTED to every member",
                ", ".join(f"{host}: {state}" for host, state in sorted(bad.items())),
                host=member.host,
            )
    return frozenset(hosts)


def _version(judge: Judge, node: str, member: ImexNode, driver: str) -> None:
    if not member.version:
        judge.error(node, IMEX_VERSION_UNKNOWN, driver, "nothing", host=member.host)
    elif member.version != driver:
        judge.fail(node, IMEX_VERSION, driver, member.version, host=member.host)
