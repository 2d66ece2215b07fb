"""The fabric of an InfiniBand site against its plan: subnet managers, cables, ports, then the ways of each rail."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rackready.design.facts import NicFacts, node_facts
from rackready.design.infiniband import ManagedSubnet, subnets
from rackready.design.names import listed
from rackready.design.pinned import site_of
from rackready.drivers.ib.foreign_keys import foreign_remarks, judge_foreign
from rackready.drivers.ib.partitions import first_key, judge_keys, judge_place, keys_of_port, may_talk
from rackready.drivers.ib_fabric import findings as kinds
from rackready.drivers.ib_fabric.cables import Cables, compare
from rackready.drivers.ib_fabric.guids import kept_guids
from rackready.drivers.ib_fabric.reading import ManagerReading, NodeReading, Reader, SubnetReading
from rackready.drivers.ufm import findings as ufm_kinds
from rackready.drivers.ufm.findings import UNREAD
from rackready.drivers.ufm.reading import UfmReading, read_ufm
from rackready.model.finding_kinds import KINDS
from rackready.model.outcome import Finding, Outcome
from rackready.model.phase import FINDINGS, NodeResult, PhaseContext, finding_documents
from rackready.model.place import Place
from rackready.model.site import Site
from rackready.paths import EnvPaths

UNMEASURED = "unmeasured"
"""In a result's data: rails on which no peer could be asked."""
_PEERS = 8
"""Peers that a port asks on its rail, as role host_roce pings them."""
_TRIES = 3
"""Ports from which a subnet is tried to be read, or its manager to be asked."""
_NO_LINK = "no port of a node that is up has a link in it"


def verify_infiniband(ctx: PhaseContext, nodes: list[str], others: list[str]) -> dict[str, NodeResult]:
    """Return, per node, whether its ports, cables and ways are as planned. ``others``: nodes that are up, too.

    Cables come before ways: a wrong cable explains peers that do not answer.
    """
    site = site_of(ctx)
    reader = Reader(site, EnvPaths(ctx.root, ctx.env), [*nodes, *others])
    try:
        ports = reader.ports([*nodes, *others])
        known = {name: reading for name, reading in ports.items() if not reading.trouble}
        ufm = _ufm(site)
        seen = [
            _subnet(reader, site, subnet, known) if ufm is None else subnet_of_ufm(reader, site, subnet, known, ufm)
            for subnet in subnets(site)
        ]
        cables = compare(site, [*nodes, *others], ports, seen, kept_guids(EnvPaths(ctx.root, ctx.env), site))
        found = judge_fabric(site, [*nodes, *others], ports, seen, ufm, cables)
        # A node with a finding is no peer: its own cable or port says why it does not answer.
        sound = {node: reading for node, reading in known.items() if not found[node]}
        missed, unmeasured = _ways(reader, site, [node for node in nodes if node in sound], sound)
    finally:
        reader.close()
    return {
        node: result(
            node,
            [*found[node], *missed.get(node, [])],
            unmeasured.get(node, []),
            [*cables.remarks(node), *key_remarks(site, ports[node])],
        )
        for node in nodes
    }


def result(
    node: str, findings: Sequence[Finding], unmeasured: Sequence[str] = (), remarks: Sequence[str] = ()
) -> NodeResult:
    """Return a node's result: fail where something measured differs, else error, else pass. ``remarks``: not judged."""
    noted = f"; noted: {'; '.join(remarks)}" if remarks else ""
    if not findings:
        text = f"{node}: every cable is as planned, and every port Active{noted}"
        return NodeResult(Outcome.PASS, text, data={UNMEASURED: list(unmeasured)} if unmeasured else {})
    fails = any(KINDS[finding.code].outcome is Outcome.FAIL for finding in findings)
    words = "; ".join(str(finding) for finding in findings) + noted
    return NodeResult(Outcome.FAIL if fails else Outcome.ERROR, words, data={FINDINGS: finding_documents(findings)})


def _ufm(site: Site) -> UfmReading | None:
    """Return what UFM tells; None where the site has none."""
    own = site.fabric.infiniband
    return read_ufm(own.ufm) if own is not None and own.ufm is not None else None


def subnet_of_ufm(
    reader: Reader, site: Site, subnet: ManagedSubnet, known: Mapping[str, NodeReading], ufm: UfmReading
) -> SubnetReading:
    """Return a subnet as UFM sees it, and what its ports learn of its manager.

    UFM answers while its opensm is down, and a port keeps the LID of a manager that died: only an answer of the manager
    itself proves one.
    """
    out = SubnetReading(subnet.switches, ufm.fabric, trouble=ufm.trouble, source="UFM", unread=UNREAD)
    if ufm.fabric is not None:
        out.has_master, out.said, out.unasked = _manager(reader, site, subnet, known)
    return out


def _manager(reader: Reader, site: Site, subnet: ManagedSubnet, known: Mapping[str, NodeReading]) -> ManagerReading:
    """Return what the first of some ports that can ask learns of the subnet's manager."""
    out = ManagerReading(has_master=False, unasked=_NO_LINK)
    for node, nic in list(_attached(site, subnet, known))[:_TRIES]:
        out = reader.manager(node, nic)
        if not out.unasked:
            break
    return out


def _subnet(reader: Reader, site: Site, subnet: ManagedSubnet, known: Mapping[str, NodeReading]) -> SubnetReading:
    """Return a subnet as the first of some ports with a link sees it."""
    out = SubnetReading(subnet.switches, trouble=_NO_LINK)
    for node, nic in list(_attached(site, subnet, known))[:_TRIES]:
        out = reader.subnet(node, nic, subnet.switches)
        if out.fabric is not None:
            break
    return out


def _attached(site: Site, subnet: ManagedSubnet, known: Mapping[str, NodeReading]) -> Iterator[tuple[str, NicFacts]]:
    """Return ports that the plan has in a subnet, and that have a link: Active ones first, of other nodes first."""
    ports = []
    for node, reading in known.items():
        own = [nic for nic in node_facts(site, node).nics if nic.switch in subnet.switches]
        for place, nic in enumerate(own):
            port = reading.ports.get(nic.rdma_device, {})
            if str(port.get("phys_state", "")).endswith("LinkUp"):
                ports.append((str(port.get("state", "")).endswith("ACTIVE"), place, node, nic))
    for _, _, node, nic in sorted(ports, key=lambda item: (not item[0], item[1])):
        yield node, nic


def judge_fabric(
    site: Site,
    nodes: Sequence[str],
    ports: Mapping[str, NodeReading],
    seen: Sequence[SubnetReading],
    ufm: UfmReading | None = None,
    cables: Cables | None = None,
) -> dict[str, list[Finding]]:
    """Return the findings of each node from what was read: pure. ``ufm``: of a site whose subnet UFM manages.

    ``cables``: the comparison of the cables of the same readings, if it is there.
    """
    out: dict[str, list[Finding]] = {node: [] for node in nodes}
    for node in nodes:
        if ports[node].trouble:
            out[node].append(kinds.PORTS_UNREAD.found(node, "a whole document of ib_ports.py", ports[node].trouble))
    cables = cables or compare(site, nodes, ports, seen)
    for node in nodes:
        out[node] += cables.of(node)
        out[node] += _subnets_of(site, node, seen)
        if not ports[node].trouble:
            out[node] += _ports(site, node, ports[node], out[node])
        if ufm is not None:
            out[node] += _of_ufm(site, node, ports[node], ufm)
    return out


def _of_ufm(site: Site, node: str, reading: NodeReading, ufm: UfmReading) -> Iterator[Finding]:
    """Return what UFM says against a node: its default partition, where there are tenants, and critical alarms."""
    if ufm.default_open and any(tenant.pkey is not None for tenant in site.tenants):
        yield ufm_kinds.OPEN.found(node, "limited members of 0x7fff", "full members")
    for nic in node_facts(site, node).nics:
        guid = int(str(reading.ports.get(nic.rdma_device, {}).get("port_guid") or "0"), 16)
        for alarm in ufm.alarms.get(guid, ()):
            where = Place(node, nic.rdma_device, f"(rail {nic.rail}, {nic.switch} {nic.port})")
            yield ufm_kinds.ALARM.found(where, "no critical alarm", f"{alarm.name}: {alarm.reason}")


def _subnets_of(site: Site, node: str, seen: Sequence[SubnetReading]) -> list[Finding]:
    own = {nic.switch for nic in node_facts(site, node).nics}
    out = []
    for reading in seen:
        if not own & set(reading.switches):
            continue
        where = Place(node, "", f"(subnet of {', '.join(reading.switches)})")
        if reading.fabric is None:
            out.append(reading.unread.found(where, "the subnet's switches and ports", reading.trouble))
        elif reading.unasked:
            out.append(kinds.MANAGER_UNASKED.found(where, "an answer of the master subnet manager", reading.unasked))
        elif not reading.has_master:
            out.append(kinds.NO_MANAGER.found(where, "a master subnet manager", reading.said))
    return out


def _ports(site: Site, node: str, reading: NodeReading, before: Sequence[Finding]) -> list[Finding]:
    """Return findings of a node's own ports. A port whose cable is wrong is reported by its cable."""
    told = {finding.part for finding in before if finding.node == node}
    out: list[Finding] = []
    for nic in node_facts(site, node).nics:
        port = reading.ports.get(nic.rdma_device, {})
        where = Place(node, nic.rdma_device, f"(rail {nic.rail})")
        state = str(port.get("state") or "not there").split(":")[-1].strip()
        if state != "ACTIVE":
            if nic.rdma_device not in told and str(port.get("phys_state", "")).endswith("LinkUp"):
                out.append(kinds.PORT_STATE.found(where, f"Active at {nic.switch} {nic.port}", state))
            continue
        out += _keys(site, where, node, nic, port)
    return out


def _keys(site: Site, where: Place, node: str, nic: NicFacts, port: Mapping[str, Any]) -> list[Finding]:
    """Judge a port's partition keys. A standby manager's port is as any other until its opensm is the master."""
    held, problem = _held(port), str(port.get("problem") or "")
    found = _keys_held(site, where, node, nic, port)
    if found or problem or not held:
        return found
    return judge_place(where, first_key(site, node), str(port["first_key"]))


def _keys_held(site: Site, where: Place, node: str, nic: NicFacts, port: Mapping[str, Any]) -> list[Finding]:
    held, problem = _held(port), str(port.get("problem") or "")
    if _foreign(site):
        return judge_foreign(where, site, node, held, problem)
    guid = int(str(port.get("port_guid") or "0"), 16)
    wanted = keys_of_port(site, node, guid)
    if problem or not held:
        return judge_keys(where, wanted, None, problem or "none")
    manages = any((name, own.rail) == (node, nic.rail) for subnet in subnets(site) for name, own in subnet.managers)
    if manages and held == keys_of_port(site, node, guid, manager=True):
        return []
    return judge_keys(where, wanted, held)


def _held(port: Mapping[str, Any]) -> frozenset[int]:
    return frozenset(int(key, 16) for key in port.get("keys") or [])


def _foreign(site: Site) -> bool:
    """Return whether somebody else's manager makes the partitions, and so knows some that the site does not."""
    own = site.fabric.infiniband
    return own is not None and own.subnet_manager != "opensm"


def key_remarks(site: Site, reading: NodeReading) -> list[str]:
    """Return what is noted of the keys of a node's Active ports: those that the site does not explain."""
    if not _foreign(site):
        return []
    active = {device: port for device, port in reading.ports.items() if str(port.get("state", "")).endswith("ACTIVE")}
    return foreign_remarks(site, {device: _held(port) for device, port in active.items()})


def _ways(
    reader: Reader, site: Site, nodes: Sequence[str], known: Mapping[str, NodeReading]
) -> tuple[dict[str, list[Finding]], dict[str, list[str]]]:
    """Return the findings about ways, and the rails that had no peer to ask, per node."""
    requests = {node: way_request(site, node, known) for node in nodes}
    with ThreadPoolExecutor(max_workers=8) as pool:
        answers = dict(zip(nodes, pool.map(lambda node: reader.reach(node, requests[node][0]), nodes), strict=True))
    found = {node: list(_missed(site, node, answers[node], requests[node][0])) for node in nodes}
    return found, {node: [*requests[node][1], *_unasked(site, node, answers[node])] for node in nodes}


def _unasked(site: Site, node: str, answer: NodeReading) -> Iterator[str]:
    """Yield, in words, each rail with peers that the node cannot ask."""
    for nic in node_facts(site, node).nics:
        if peers := [item["peer"] for item in answer.unasked if item["device"] == nic.rdma_device]:
            why = "M_Key protection, and no partition key in common"
            yield f"rail {nic.rail}: {listed(peers)} not asked: {why}"


def way_request(site: Site, node: str, known: Mapping[str, NodeReading]) -> tuple[list[dict[str, object]], list[str]]:
    """Return what a node's ports ask, and, in words, each rail without a peer: no problem there proves nothing."""
    request: list[dict[str, object]] = []
    unmeasured = []
    for nic in node_facts(site, node).nics:
        peers = list(_peers(site, node, nic, known))[:_PEERS]
        request += peers
        if not peers:
            unmeasured.append(f"rail {nic.rail}: no other node in this run to reach")
    return request, unmeasured


def _peers(site: Site, node: str, nic: NicFacts, known: Mapping[str, NodeReading]) -> Iterator[dict[str, object]]:
    """Return the Active ports of a rail at other nodes: of its own tenant first, then those after this node."""
    names = sorted(known)
    at = names.index(node) if node in names else 0
    others = [*names[at + 1 :], *names[:at]]
    for peer in sorted(others, key=lambda name: not may_talk(site, node, name)):
        for theirs in node_facts(site, peer).nics:
            port = known[peer].ports.get(theirs.rdma_device, {})
            lid = int(str(port.get("lid") or "0x0"), 16)
            if theirs.rail == nic.rail and theirs.switch == nic.switch and lid:
                yield {
                    "peer": f"{peer} {theirs.rdma_device}",
                    "device": nic.rdma_device,
                    "lid": lid,
                    "port_guid": str(port["port_guid"]),
                    "shares_key": may_talk(site, node, peer),
                }


def _missed(site: Site, node: str, answer: NodeReading, request: Sequence[Mapping[str, object]]) -> Iterator[Finding]:
    if answer.trouble:
        yield kinds.PORTS_UNREAD.found(node, f"answers of {len(request)} peers", answer.trouble)
    for nic in node_facts(site, node).nics:
        missed = [item for item in answer.missed if item["device"] == nic.rdma_device]
        if missed:
            asked = sum(1 for item in request if item["device"] == nic.rdma_device)
            said = "; ".join(f"{item['peer']}: {item['said']}" for item in missed)
            where = Place(node, nic.rdma_device, f"(rail {nic.rail}, {nic.switch} {nic.port})")
            yield kinds.PEER_UNREACHED.found(where, f"answers of {asked} peers", said, count=len(missed))
