"""Racks to look at in a report: a healthy one, one with eight faults, and a thousand nodes with 26 bad ones.

They are made from the product's own classes, gates and finding codes. Run it to write the three pages into a folder:
`python -m tests.unit.evidence.report_racks FOLDER`, then open them in a browser.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from rackready.evidence.node_page import node_page
from rackready.evidence.node_report import document, entry
from rackready.evidence.overview import Overview
from rackready.evidence.report import render
from rackready.evidence.report_source import LONGEST_RAW
from rackready.evidence.store import EMPTY
from rackready.gates.base import Gate
from rackready.gates.engine import registry
from rackready.ledger.store import NodeRow
from rackready.model.evidence import COVERAGE, EvidenceRecord, Fingerprint, RawOutput
from rackready.model.finding_kinds import KINDS
from rackready.model.outcome import Criterion, Finding, Metric, Op, Outcome, Verdict
from rackready.model.place import Place
from rackready.model.site import Node, Rack, Site
from rackready.model.state import NodeState
from rackready.profiles import loader
from tests.gates.stage import site_with
from tests.gates.support import text

AT = datetime(2026, 11, 22, 9, 0, tzinfo=UTC)
_OUTPUTS: dict[str, str] = {}
"""Raw outputs by hash."""
CAMPAIGN = "20261122-0900-deploy"
GEMM, COPY, REDUCE = (f"node/gpu/performance/{name}" for name in ("gemm", "nvbandwidth", "nccl-all-reduce"))
FIRMWARE, PAIR = "group/host/validation/firmware", "pair/fabric/performance/ib-write-bw"


@dataclass(frozen=True)
class Fault:
    """One fault of a node, as a gate finds it."""

    gate: str
    code: str
    part: str
    expected: str
    actual: str
    beside: str = ""
    words: Mapping[str, str] = field(default_factory=dict)

    def finding(self, node: str) -> Finding:
        """Return the gate's finding."""
        place = Place(node, self.part, self.beside)
        return KINDS[self.code].found(place, self.expected, self.actual, **self.words)


GPU = Fault("node/gpu/sanity/pcie-path", "gpu-pcie-fell-off", "gpu5", "on the bus at 0000:b4:00.0", "no device: rev ff")
NVLINK = Fault("node/gpu/sanity/nvlink", "nvlink-inactive", "gpu2", "18 links active", "17 (inactive or not listed: 4)")
MEMORY = Fault("node/host/sanity/memory-errors", "memory-errors-uncorrected", "dimm CPU1_DIMM_B2", "0", "3")
POWER = Fault("bmc/power/sanity/supplies", "psu-input-lost", "psu 2", "Normal input", "LossOfInput")
NIC = Fault("node/host/sanity/links", "link-device-missing", "mlx5_3", "NIC of rail 4", "none", beside="(rail 4)")
CABLE = Fault(
    PAIR,
    "rdma-write-slow",
    "mlx5_6",
    "at least 377.6 Gb/s",
    "201.3 Gb/s",
    beside="(rail 7)",
    words={"cable": "the cable of leaf02 swp11"},
)
DISK = Fault(
    "node/host/sanity/disks",
    "drive-warns",
    "nvme3",
    "no warning",
    "failed by its own verdict, critical warning 0x04",
    beside="(SAMSUNG MZWLJ3T8HBLS-00007, S6ZXNE0R500123)",
)
FLASH = Fault(FIRMWARE, "firmware-version", "mlx5_1", "28.43.2566", "28.39.1002", words={"kind": "NICs"})
EIGHT: Mapping[str, Sequence[Fault]] = {
    "node01": (FLASH,),
    "node02": (NVLINK, DISK),
    "node03": (GPU, MEMORY, POWER, NIC, CABLE),
}
"""Node -> its faults. The first node's is the least urgent, the third node is the worst."""


def healthy() -> Report:
    """Return the report of four good nodes."""
    return Report(_places(site_with(4)), {}).made()


def eight_faults() -> Report:
    """Return the report of four nodes with eight faults on three of them."""
    return Report(_places(site_with(4)), EIGHT).made()


def thousand() -> Report:
    """Return the report of 1,000 nodes in 125 racks: 24 have faults, one was never reached, one is set aside."""
    racks = [f"r{number:03}" for number in range(1, 126)]
    spread: list[tuple[Fault, int]] = [(NVLINK, 9), (GPU, 3), (DISK, 3), (CABLE, 2), (FLASH, 2), (MEMORY, 1), (NIC, 1)]
    faults: dict[str, list[Fault]] = {f"n{8 * 40 + number:04}": [POWER] for number in (2, 3, 5)}
    place = 17
    for fault, count in spread:
        for _ in range(count):
            faults[f"n{place:04}"] = [fault]
            place += 43
    faults["n0017"] += [MEMORY, DISK]
    return Report(_site(racks), faults, silent={"n0990"}, aside={"n0700"}).made()


def _places(site: Site) -> Site:
    """Return the site with its nodes at their units."""
    nodes = [node.model_copy(update={"unit": 1 + 8 * place}) for place, node in enumerate(site.racks[0].nodes)]
    return site.model_copy(update={"racks": [site.racks[0].model_copy(update={"nodes": nodes})]})


def _site(racks: Sequence[str]) -> Site:
    site = site_with(1)
    first = site.racks[0].nodes[0]

    def rack(place: int, name: str) -> Rack:
        numbers = range(8 * place + 1, 8 * place + 9)
        nodes = [_node(first, number, 1 + 6 * slot) for slot, number in enumerate(numbers)]
        return site.racks[0].model_copy(update={"name": name, "nodes": nodes})

    return site.model_copy(update={"name": "hall-b", "racks": [rack(place, name) for place, name in enumerate(racks)]})


def _node(like: Node, number: int, unit: int) -> Node:
    return like.model_copy(update={"name": f"n{number:04}", "serial": f"S{number:06}", "index": number, "unit": unit})


@cache
def _gates() -> Mapping[str, Gate]:
    return {entry.id: registry.gate(entry.id) for entry in loader.gate_set("bringup").gates}


@dataclass
class Report:
    """A site's report. ``silent``: nodes that no gate reached; ``aside``: nodes that passed and are set aside."""

    site: Site
    faults: Mapping[str, Sequence[Fault]]
    silent: Collection[str] = ()
    aside: Collection[str] = ()
    document: dict[str, Any] = field(default_factory=dict)
    raw: dict[str, str] = field(default_factory=dict)

    def html(self) -> str:
        """Return the page."""
        return render(self.document, self.raw)

    def made(self) -> Report:
        """Make the document and return it."""
        nodes = [self._node(node) for node in self.site.nodes()]
        runs = list(self._runs())
        overview = Overview(len(nodes))
        for node in nodes:
            overview.node(node_page(node, small=overview.small))
        for run in runs:
            overview.run(run)
        self.raw = {digest: _OUTPUTS[digest] for digest in overview.wanted()}
        ended = AT + timedelta(hours=3)
        self.document = {
            "schema": "rackready/report/v1",
            "rackready": "0.1.0",
            "env": "sim",
            "site": self.site.name,
            "campaign": {
                "id": CAMPAIGN,
                "kind": "deploy",
                "status": "ended",
                "begun": _time(AT),
                "ended": _time(ended),
            },
            "generated": _time(ended),
            "summary": overview.summary(),
            "racks": overview.racks(self.site),
            "nodes": nodes,
            "runs": runs,
            "declared_skips": [],
            "gate_set": "bringup",
            "unseen": [item.model_dump() for item in loader.gate_set("bringup").unseen],
            "warnings": [],
            "events": [],
        }
        return self

    def _node(self, node: Node) -> dict[str, Any]:
        faults = self.faults.get(node.name, ())
        if node.name in self.silent:
            return document(node, _row(node.name, NodeState.STUCK, "its BMC does not answer since the power-on"), {})
        newest = {gate: self._record(gate, node.name, faults) for gate in _gates()}
        newest[COVERAGE] = _coverage(node.name, faults)
        state, reason = NodeState.READY, ""
        if node.name in self.aside:
            state, reason = NodeState.REPAIR, "its fans are being replaced"
        if faults:
            state, reason = NodeState.QUARANTINED, f"{faults[0].gate}: {faults[0].finding(node.name).what}"
        return document(node, _row(node.name, state, reason), newest)

    def _record(self, gate: str, node: str, faults: Sequence[Fault]) -> EvidenceRecord:
        findings = [fault.finding(node) for fault in faults if fault.gate == gate]
        raw = [] if gate in {PAIR, FIRMWARE} else [_raw(gate, node)]
        if gate in {GEMM, COPY, REDUCE} and GPU in faults:
            why = f"{GPU.gate} did not pass"
            step = f"Repair what {GPU.gate} reports, then run `rackready validate --limit {node}`."
            told = KINDS["gate-not-run"].found(node, "a measurement", why, gate=gate, step=step)
            return _made(gate, node, [node], Verdict(outcome=Outcome.NOT_RUN, findings=[told]))
        outcome = Outcome.FAIL if findings else Outcome.PASS
        verdict = Verdict(outcome=outcome, findings=findings, metrics=_metrics(gate, node), criteria=_criteria(gate))
        return _made(gate, node, [node], verdict, raw)

    def _runs(self) -> Iterator[dict[str, Any]]:
        """Yield pair runs: each node with the next one, and in a small rack with every other, on each rail."""
        names = [node.name for node in self.site.nodes() if node.name not in self.silent]
        near = len(names) if len(names) < 16 else 2
        for place, first in enumerate(names):
            for second in names[place + 1 : place + near]:
                yield from (entry(self._run(first, second, rail)) for rail in range(1, 9))

    def _run(self, first: str, second: str, rail: int) -> EvidenceRecord:
        bad = next((node for node in (first, second) if rail == 7 and CABLE in self.faults.get(node, ())), None)
        value = 201.3 if bad else 388.0 + _noise(first, second, rail) * 6
        pair = f"{first}/mlx5_{rail - 1}->{second}/mlx5_{rail - 1}"
        metrics = [
            _metric("port_errors", f"{first}/mlx5_{rail - 1}", 0, "1"),
            _metric("bw_average", pair, value, "Gb/s"),
        ]
        verdict = Verdict(
            outcome=Outcome.FAIL if bad else Outcome.PASS,
            findings=[CABLE.finding(bad)] if bad else [],
            metrics=metrics,
            criteria=_bandwidth(),
            blamed=[bad] if bad else [],
            transport="RoCE v2",
        )
        return _made(PAIR, f"{first}+{second}/rail{rail}", [first, second], verdict)


def _raw(gate: str, node: str) -> RawOutput:
    """Return a raw output. Gates of GPUs share the longest one: nvidia-smi's."""
    shared = gate.startswith("node/gpu/sanity")
    output = f"{node}\n{_smi()}" if shared else f"{node} {gate}\n" + "one line\n" * 40
    digest = sha256(output.encode()).hexdigest()
    _OUTPUTS[digest] = output
    return RawOutput(
        host=node,
        command="nvidia-smi -q -x" if shared else "cat /proc/meminfo",
        exit_code=0,
        stdout_sha256=digest,
        stderr_sha256=EMPTY,
        seconds=1.2,
        key="out",
    )


def _row(name: str, state: NodeState, reason: str) -> NodeRow:
    return NodeRow(name, state, reason, "validate", CAMPAIGN, 1, AT.timestamp())


def _made(gate: str, target: str, nodes: list[str], verdict: Verdict, raw: Iterable[RawOutput] = ()) -> EvidenceRecord:
    finished = AT + timedelta(seconds=12.5)
    return EvidenceRecord(
        id=f"{AT:%Y%m%dT%H%M%S}-{sha256(f'{gate} {target}'.encode()).hexdigest()[:8]}",
        campaign=CAMPAIGN,
        gate=gate,
        target=target,
        nodes=nodes,
        fingerprints=[_fingerprint(node) for node in nodes if gate.startswith("node/gpu/sanity/inventory")],
        inputs={"title": _gates()[gate].title()} if gate in _gates() else {},
        verdict=verdict,
        raw=list(raw),
        rackready_version="0.1.0",
        started=AT,
        finished=finished,
    )


def _fingerprint(node: str) -> Fingerprint:
    return Fingerprint(
        node=node,
        chassis_serial=f"SIM-{node}",
        gpus=[f"16532230{gpu:05}" for gpu in range(8)],
        nics=[f"mlx5_{nic}=946dae0300fb{nic:04x}" for nic in range(8)],
        driver="580.173.02",
        vbios=["96.00.99.00.01"] * 8,
        nic_firmware=["28.43.2566"] * 8,
        kernel="6.1.0-40-amd64",
        desired_digest="d" * 64,
    )


def _coverage(node: str, faults: Sequence[Fault]) -> EvidenceRecord:
    lost = [f"{node}/gpu5", *(f"{node}/gpu5/nvlink{link}" for link in range(18))] if GPU in faults else []
    lost += [f"{node}/gpu2/nvlink4"] if NVLINK in faults else []
    links = 144 - sum("nvlink" in part for part in lost)
    counts = {"node": [1, 1], "gpu": [8 - (GPU in faults), 8], "nvlink": [links, 144], "nic": [8, 8], "rail": [8, 8]}
    record = _made(COVERAGE, node, [node], Verdict(outcome=Outcome.ERROR if lost else Outcome.PASS))
    inputs = {"counts": counts, "unmeasured": lost, "skipped": {}, "measured_by": {}}
    return record.model_copy(update={"inputs": inputs})


def _noise(*about: object) -> float:
    """Return a number from 0 to 1 that is the same in every run."""
    return int.from_bytes(sha256(repr(about).encode()).digest()[:4], "big") / 2**32


def _metric(name: str, target: str, value: float, unit: str) -> Metric:
    return Metric(name=name, target=target, value=round(value, 2), unit=unit)


def _metrics(gate: str, node: str) -> list[Metric]:
    gpus = [(f"{node}/gpu{gpu}", _noise(gate, node, gpu)) for gpu in range(8)]
    if gate == GEMM:
        return [_metric("gemm_bf16", gpu, 705 + noise * 30, "TFLOP/s") for gpu, noise in gpus]
    if gate == COPY:
        names = ("host_to_device_memcpy_ce", "device_to_host_memcpy_ce")
        return [_metric(name, gpu, 54.6 + noise, "GB/s") for name in names for gpu, noise in gpus]
    return [_metric("busbw", node, 476 + _noise(gate, node) * 6, "GB/s")] if gate == REDUCE else []


def _criterion(metric: str, op: Op, bound: float, unit: str, label: str, source: str) -> Criterion:
    return Criterion(metric=metric, op=op, bound=bound, unit=unit, label=label, source=source)


def _criteria(gate: str) -> list[Criterion]:
    if gate == GEMM:
        sheet = "NVIDIA H100 data sheet: 989.4 TFLOP/s dense BF16"
        return [
            _criterion("gemm_bf16", Op.GE, 642, "TFLOP/s", "floor", "65 % of the peak rate; " + sheet),
            _criterion("gemm_bf16", Op.LE, 989.4, "TFLOP/s", "ceiling", sheet),
        ]
    if gate == COPY:
        source = "NVIDIA nvbandwidth README, DGX H100: 55 GB/s over PCIe 5.0 x16"
        names = ("host_to_device_memcpy_ce", "device_to_host_memcpy_ce")
        return [_criterion(name, Op.GE, 49.5, "GB/s", "floor", source) for name in names]
    if gate == REDUCE:
        return [_criterion("busbw", Op.GE, 456, "GB/s", "floor", "DGX H100: 480 GB/s measured by NVIDIA, less 5 %")]
    return []


@cache
def _bandwidth() -> list[Criterion]:
    return [
        _criterion("port_errors", Op.EQ, 0, "1", "identity", "no error of the port under load"),
        _criterion("bw_average", Op.GE, 377.6, "Gb/s", "floor", "94.4 % of 400 Gb/s: perftest's headers at MTU 4096"),
        _criterion("bw_average", Op.LE, 400, "Gb/s", "ceiling", "NDR port, 4 lanes of 100 Gb/s"),
    ]


@cache
def _smi() -> str:
    return text("smi/dgx_h100_healthy.xml")[:LONGEST_RAW]


def _time(at: datetime) -> str:
    return at.isoformat(timespec="seconds")


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for make in (healthy, eight_faults, thousand):
        (folder / f"{make.__name__}.html").write_text(make().html(), encoding="utf-8")
