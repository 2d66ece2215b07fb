"""A rack that answers from a table, and the validate phase played over it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

from rackready.design.site import load_site
from rackready.drivers.remote import Answer
from rackready.evidence.store import EvidenceStore
from rackready.gates.engine.validate import Kept, Stage, gate_entries
from rackready.gates.nccl.program import collectives_run
from rackready.ledger.store import Ledger
from rackready.model.operations import DisabledGate
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult
from rackready.model.site import DeclaredSkip, Site
from rackready.paths import EnvPaths
from tests.gates.fake import FakeConnection, answered
from tests.gates.nccl_table import at
from tests.gates.support import launched, port, ports, text, wrote
from tests.gates.test_ib_write_bw import WROTE

ROOT = Path(__file__).resolve().parents[2]
PAIR = "pair/fabric/performance/ib-write-bw"
RING = "cluster/fabric/performance/nccl-all-reduce-ring"
ANSWERED = [
    "node/gpu/sanity/inventory",
    "node/gpu/sanity/versions",
    "node/gpu/validation/dcgm-r1",
    "node/gpu/validation/dcgm-r3",
    "node/gpu/performance/nccl-all-reduce",
    PAIR,
    RING,
]
"""Gates that this rack answers; together they measure every kind of part. Other gates have their own tests."""
NODES = ["node01", "node02", "node03", "node04"]
LAUNCHES = 5


@dataclass
class Rack:
    """Answers like healthy nodes, except for what a test breaks: node -> key -> answer."""

    broken: dict[str, dict[str, Answer]] = field(default_factory=dict)
    bad_links: frozenset[tuple[str, str]] = frozenset()
    bad_writes: frozenset[tuple[str, str]] = frozenset()
    dead: frozenset[str] = frozenset()
    read: dict[str, int] = field(default_factory=dict)
    ring: tuple[str, ...] = tuple(NODES)
    """Nodes over which the cluster gate runs."""
    launches: Iterator[int] = field(default_factory=count)

    def connection(self) -> FakeConnection:
        return FakeConnection(
            {
                "Print a node's identity": self._fingerprint,
                "Print NVML's inventory": self._of("inventory", answered(text("nvml/dgx_h100_healthy.json"))),
                "Print which versions": self._of("versions", answered(text("versions/dgx_h100_healthy.json"))),
                "-r 1 ": self._of("r1", answered(text("dcgm/dgx_h100_r1_dcgm4_healthy.json"))),
                "-r 3 ": self._of("r3", answered(text("dcgm/dgx_h100_r3_dcgm4_healthy.json"))),
                "Print link state": self._counters,
                "mpirun": lambda *_: self._launched(answered(self._ring_text())),
                "ib_write_bw": self._write,
                "all_reduce_perf": lambda node, argv: self._launched(
                    self._of("nccl", answered(text("nccl/dgx_h100_8_healthy.txt")))(node, argv)
                ),
            },
            dead=self.dead,
        )

    def _of(self, key: str, healthy: Answer) -> Any:  # noqa: ANN401
        return lambda node, _: self.broken.get(node, {}).get(key, healthy)

    def _launched(self, answer: Answer) -> Answer:
        """Every launch has processes of its own."""
        return replace(answer, stdout=launched(answer.stdout, next(self.launches)))

    def _fingerprint(self, node: str, _: Sequence[str]) -> Answer:
        gpus = [{"index": index, "id": f"{node}-{index}", "vbios": "96.00"} for index in range(8)]
        nics = [{"device": "mlx5_0", "guid": "0000:0000:0000:0001", "firmware": "28.43"}]
        found = {
            "format": "rackready/fingerprint/v1",
            "chassis_serial": None,
            "kernel": "6.1.0",
            "boot_id": "b1",
            "nics": nics,
            "driver": "580.173.02",
            "gpus": gpus,
            "gpu_error": None,
            "complete": True,
        }
        return self.broken.get(node, {}).get("fingerprint", answered(json.dumps(found)))

    def _counters(self, node: str, argv: Sequence[str]) -> Answer:
        ranks = 8 * len(self.ring)
        moved = 2 * (ranks - 1) / ranks * collectives_run("16G") * LAUNCHES / 8
        self.read[node] = self.read.get(node, 0) + (len(argv) == 10)
        sent = int(moved) if len(argv) == 10 and self.read[node] % 2 == 0 else 0
        if len(argv) == 3:  # one port, before and after the pair gate wrote over it
            key = f"{node} {argv[2]}"
            self.read[key] = self.read.get(key, 0) + 1
            sent = self.read[key] // 2 * WROTE
        state = {device: "1: DOWN" if (node, device) in self.bad_links else "4: ACTIVE" for device in argv[2:]}
        return answered(ports({device: port(sent, state=state[device]) for device in argv[2:]}))

    def _write(self, node: str, argv: Sequence[str]) -> Answer:
        far = next(name for number, name in enumerate(NODES, 11) if argv[-1].endswith(f".{number}"))
        slow = {(node, argv[4]), (far, argv[4])} & self.bad_writes
        name = "perftest/dgx_h100_rail1_slow.txt" if slow else "perftest/dgx_h100_rail1_healthy.txt"
        return answered(wrote(argv, name))

    def _ring_text(self) -> str:
        whole = text("nccl/2x_dgx_h100_ring_healthy.txt")
        if len(self.ring) == 2:
            return whole
        out = []
        for line in whole.splitlines():
            out.append(line)
            if "Rank" in line and "node02" in line:
                rank = int(line.split()[2])
                out += [
                    line.replace(f"Rank {rank:>2}", f"Rank {rank + 8 * extra:>2}").replace("node02", name)
                    for extra, name in enumerate(self.ring[2:], 1)
                ]
            if line.startswith("node02:"):
                out += [line.replace("node02:", f"{name}:", 1) for name in self.ring[2:]]
        return at("\n".join(out), 361.0)


@dataclass
class Played:
    results: Mapping[str, NodeResult]
    store: EvidenceStore
    ledger: Ledger
    site: Site
    paths: EnvPaths


def play(  # noqa: PLR0913 - what a test may vary
    tmp_path: Path,
    rack: Rack,
    *,
    nodes: Sequence[str] = NODES,
    skips: Sequence[DeclaredSkip] = (),
    partners: Sequence[str] = (),
    only: list[str] | None = None,
    kept: Kept | None = None,
    disabled: Sequence[DisabledGate] = (),
) -> Played:
    site = load_site("sim", site_file=ROOT / "inventories/sim/site.yml", root=ROOT)
    site = site.model_copy(
        update={"gates": site.gates.model_copy(update={"skip": list(skips), "disabled": list(disabled)})}
    )
    paths = EnvPaths(tmp_path, "sim")
    ledger = Ledger.open(paths.database)
    ledger.put_campaign("c1", env="sim", kind="validate", nodes=list(nodes), site_digest="", abi="1", status="running")
    store = EvidenceStore.open(ledger, paths.raw)
    stage = Stage.begin(site, rack.connection(), None, store, ledger, "c1", [*nodes, *partners])
    return Played(
        stage.run(
            list(nodes),
            partners,
            gate_entries(site, ANSWERED if only is None else only),
            full_set=only is None,
            kept=kept,
        ),
        store,
        ledger,
        site,
        paths,
    )


def outcomes(played: Played) -> dict[str, Outcome]:
    return {node: result.outcome for node, result in played.results.items()}
