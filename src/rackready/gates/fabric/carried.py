"""Bytes per rail: the HCAs' byte counters before and after a run, compared with what the collective must move."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rackready.format_error import FormatError
from rackready.gates.base import Command, GateFacts, Outputs, trouble
from rackready.gates.engine.shipped_script import command, document
from rackready.gates.fabric import domains, port_errors, rdma_port
from rackready.gates.fabric.rdma_port import AFTER, judge_port
from rackready.gates.judging.expectation import Algorithm, Collective, Domain
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Criterion, Op
from rackready.model.place import Place
from rackready.ondevice import rdma_counters

_RUNBOOK = "docs/runbooks/nccl-transport.md"
_RAIL = "Check this rail's link rate, PCIe width and switch port: docs/runbooks/rail-slow.md"
_ASTRAY = (
    "The data took another way than the rails, or something else used them: check the transport, and that no job runs."
)
_SOURCE = "bytes of all launches, warm-ups and checks included (nccl-tests src/common.cu)"
_IDLE = 0.05


OUTSIDE_NVLINK = FailKind(
    "nccl-left-nvlink",
    "bytes sent over its rails",
    meaning="Nodes of one NVLink domain exchanged data over the network: NCCL did not use NVLink between them.",
    next_step="NCCL used the network instead of NVLink: check NCCL_MNNVL_ENABLE and the fabric state of "
    f"its GPUs: {_RUNBOOK}",
    runbook=_RUNBOOK,
)
BYTES_OF_NODE = FailKind(
    "nccl-node-bytes",
    "bytes sent over its rails",
    meaning="The node's rails carried another amount of data than the collective sends: the data took "
    "another way, or something else used the rails.",
    next_step=_ASTRAY,
)
BYTES_OF_ALL = FailKind(
    "nccl-all-bytes",
    "bytes sent over their rails",
    meaning="All rails together carried another amount of data than the collective sends.",
    next_step=_ASTRAY,
)
RAIL_SHARE = FailKind(
    "nccl-rail-share",
    "share of the traffic",
    meaning="This rail carries another share of the traffic than its siblings: it is slow, or NCCL does "
    "not use it evenly.",
    next_step=_RAIL,
    runbook="docs/runbooks/rail-slow.md",
)
BYTES_UNREADABLE = ErrorKind(
    "nccl-bytes-unreadable",
    "byte counters unreadable",
    meaning="The document of the ports' byte counters is incomplete.",
    next_step="Run the gate again.",
)
BYTES_WENT_BACK = ErrorKind(
    "nccl-bytes-went-back",
    "byte counter",
    meaning="A port's byte counter is missing or went back, so its traffic is unknown.",
    next_step="Check /sys/class/infiniband on the node; a NIC that was reset loses its counters.",
)
NO_BYTES = FailKind(
    "nccl-rails-not-used",
    "bytes sent over its rails",
    meaning="No rail carried anything: NCCL moved the data another way.",
    next_step=f"NCCL did not use the rails: {_RUNBOOK}",
    runbook=_RUNBOOK,
)

FINDINGS = (
    *rdma_port.PORT,
    *port_errors.FINDINGS,
    OUTSIDE_NVLINK,
    BYTES_OF_NODE,
    BYTES_OF_ALL,
    RAIL_SHARE,
    BYTES_UNREADABLE,
    BYTES_WENT_BACK,
    NO_BYTES,
)


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Tolerances for bytes, as shares."""

    total: float
    share: float


def devices(facts: GateFacts, node: str) -> list[str]:
    """Return the HCAs of a node's rails, in rail order: NCCL numbers its networks by its list of HCAs."""
    return [nic.rdma_device for nic in sorted(facts.nodes[node].nics, key=lambda nic: nic.rail)]


def readings(facts: GateFacts, nodes: Sequence[str], when: str, stage: int) -> list[Command]:
    """Return the commands that read the counters of every node."""
    return [command(f"{when}-{node}", node, rdma_counters, *devices(facts, node), stage=stage) for node in nodes]


def must_leave(collective: Collective, algorithm: Algorithm, domain: Domain) -> tuple[float, float, str]:
    """Return the least and most bytes that leave one domain on average, as shares of the message, with the formula.

    A ring passes every domain once: 2 (n-1)/n of the message in all_reduce, (n-1)/n in all_gather and reduce_scatter.
    An algorithm that combines inside the domain first needs at most 2 (N-1)/N and (N-1)/N. alltoall sends g (n-g)/n
    with any algorithm.
    """
    n, g, count = domain.ranks, domain.gpus, domain.count
    if collective == "alltoall":
        share = g * (n - g) / n
        return share, share, "g (n-g)/n x message"
    twice = 2 if collective == "all_reduce" else 1
    most = twice * (n - 1) / n
    words = f"{'2 ' if twice == _BOTH else ''}(n-1)/n"
    if algorithm == "ring":
        return most, most, words
    return (
        twice * (count - 1) / count,
        most,
        f"between {words.replace('n', 'N')} (combined inside the domains first) and {words} (ring)",
    )


_BOTH = 2


def judge_bytes(
    judge: Judge,
    facts: GateFacts,
    nodes: Sequence[str],
    outputs: Outputs,
    wanted: tuple[float, float, str],
    tolerance: Tolerance,
) -> None:
    """Judge the bytes that left every domain, and every rail's share of them.

    ``wanted``: least and most bytes of one domain, and the formula.
    """
    least, most, formula = wanted
    sent = {node: found for node in nodes if (found := _sent(judge, facts, node, outputs)) is not None}
    if len(sent) != len(nodes):
        return
    parts = domains.groups(facts, nodes)
    if least == most:
        for part in parts:
            _total(judge, part, sent, wanted, tolerance.total)
    else:
        _sum(judge, parts, sent, (least, most, formula), tolerance.total)
    for part in parts:
        _shares(judge, facts, part, sent, tolerance.share)


def judge_idle(judge: Judge, facts: GateFacts, nodes: Sequence[str], outputs: Outputs, otherwise: float) -> None:
    """Judge that a run inside one NVLink domain left the rails alone.

    ``otherwise``: bytes that would leave a node over the network.
    """
    for node in nodes:
        sent = _sent(judge, facts, node, outputs, may_rest=True)
        if sent is None:
            continue
        total = sum(sent.values())
        judge.judged += 1
        judge.metric("xmit_bytes", node, total, "B")
        if total > _IDLE * otherwise:
            judge.fail(
                node,
                OUTSIDE_NVLINK,
                f"less than {_IDLE * otherwise / 1e9:.0f} GB inside an NVLink domain",
                f"{total / 1e9:.0f} GB",
            )


def _criterion(judge: Judge, op: Op, bound: float, formula: str, tolerance: float) -> None:
    judge.criterion(
        Criterion(
            metric="xmit_bytes",
            op=op,
            bound=bound,
            unit="B",
            label="identity",
            source=f"derived: {formula} x {_SOURCE}",
            derived=True,
            inputs={"tolerance": tolerance},
        )
    )


def _total(
    judge: Judge,
    part: Sequence[str],
    sent: dict[str, dict[str, float]],
    wanted: tuple[float, float, str],
    tolerance: float,
) -> None:
    """Compare one domain's bytes with the number that it must have sent."""
    _, expected, formula = wanted
    name, total = "+".join(part), sum(sum(sent[node].values()) for node in part)
    judge.judged += 1
    judge.metric("xmit_bytes", name, total, "B")
    _criterion(judge, Op.EQ, expected, formula, tolerance)
    if abs(total - expected) > tolerance * expected:
        judge.fail(name, BYTES_OF_NODE, f"{expected / 1e9:.0f} GB within {tolerance:.0%}", f"{total / 1e9:.0f} GB")


def _sum(
    judge: Judge,
    parts: Sequence[Sequence[str]],
    sent: dict[str, dict[str, float]],
    wanted: tuple[float, float, str],
    tolerance: float,
) -> None:
    """Judge the bytes of all domains together: a tree loads its nodes unevenly, and NCCL chooses the algorithm."""
    least, most, formula = wanted
    for part in parts:
        judge.metric("xmit_bytes", "+".join(part), sum(sum(sent[node].values()) for node in part), "B")
    total, low, high = sum(sum(rails.values()) for rails in sent.values()), least * len(parts), most * len(parts)
    judge.judged += 1
    _criterion(judge, Op.GE, low, formula, tolerance)
    _criterion(judge, Op.LE, high, formula, tolerance)
    if not low * (1 - tolerance) <= total <= high * (1 + tolerance):
        wanted_text = f"{low / 1e9:.0f} to {high / 1e9:.0f} GB within {tolerance:.0%}"
        judge.fail("all nodes", BYTES_OF_ALL, wanted_text, f"{total / 1e9:.0f} GB")


def _shares(
    judge: Judge, facts: GateFacts, part: Sequence[str], sent: dict[str, dict[str, float]], tolerance: float
) -> None:
    total = sum(sum(sent[node].values()) for node in part)
    count = sum(len(sent[node]) for node in part)
    for node in part:
        for nic in facts.nodes[node].nics:
            share = sent[node][nic.rdma_device] / total * count
            judge.metric("rail_share", f"{node}/{nic.rdma_device}", share, "1")
            if abs(share - 1) > tolerance:
                where = Place(node, nic.rdma_device, f"(rail {nic.rail})")
                judge.fail(where, RAIL_SHARE, f"1.0 within {tolerance:.0%}", f"{share:.2f}")


def _sent(
    judge: Judge, facts: GateFacts, node: str, outputs: Outputs, *, may_rest: bool = False
) -> dict[str, float] | None:
    """Return bytes sent by HCA, or None when a counter cannot be used."""
    found: list[dict[str, Any]] = []
    for key in (f"before-{node}", f"after-{node}"):
        output = outputs.get(key)
        if judge.trouble(trouble(output, node, "reading of byte counters")) or output is None:
            return None
        try:
            found.append(document(output, rdma_counters.FORMAT)["devices"])
        except (FormatError, KeyError) as error:
            judge.error(node, BYTES_UNREADABLE, "a complete document", error)
            return None
    names = {nic.rdma_device: f"{node} {nic.rdma_device} (rail {nic.rail})" for nic in facts.nodes[node].nics}
    ports = {device: (_port(found[0], device), _port(found[1], device)) for device in names}
    sent: dict[str, float] = {}
    for device, both in ports.items():
        before, after = map(_bytes, both)
        if before is None or after is None or after < before:
            judge.error(Place(node, device), BYTES_WENT_BACK, "a number that grows", f"{before} then {after}")
            return None
        sent[device] = float(after - before)
    if not may_rest:
        _links(judge, facts, node, ports)
    port_errors.judge_errors(judge, node, {where: ports[device] for device, where in names.items()})
    if not may_rest and not sum(sent.values()):
        judge.fail(node, NO_BYTES, "traffic on every rail", "0 bytes")
        return None
    return sent


def _links(
    judge: Judge, facts: GateFacts, node: str, ports: Mapping[str, tuple[dict[str, Any], dict[str, Any]]]
) -> None:
    """Judge that every port that carried data was up at its rate, and still is.

    EFA's driver reports 4X EDR for every device (kernel drivers/infiniband/hw/efa/efa_verbs.c, efa_query_port), so the
    rate says nothing there.
    """
    for nic in facts.nodes[node].nics:
        before, after = ports[nic.rdma_device]
        if facts.fabric.nccl_net == "ofi":
            before, after = ({**port, "rate": f"{nic.rate} Gb/sec"} for port in (before, after))
        if judge_port(judge, before, node, nic):
            judge_port(judge, after, node, nic, AFTER)


def _port(reading: object, device: str) -> dict[str, Any]:
    port = reading.get(device) if isinstance(reading, dict) else None
    return port if isinstance(port, dict) else {}


def _bytes(port: dict[str, Any]) -> int | None:
    value = port.get("xmit_bytes")
    return value if isinstance(value, int) and not isinstance(value, bool) else None
