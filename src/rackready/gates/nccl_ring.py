"""All-reduce over all nodes, forced onto rings, with the proof that it went over every rail."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Network, collapse_addresses
from statistics import median
from typing import Any

from pydantic import Field

from rackready.gates import base, hardware
from rackready.gates.base import Command, Done, Gate, GateFacts, Outputs, Run, trouble
from rackready.gates.expectation import FLEET_PENDING, Efficiency, ceiling, floor, judge, launches, reference
from rackready.gates.formats import nccl_log
from rackready.gates.formats.error import FormatError
from rackready.gates.judge import Judge
from rackready.gates.nccl import Launch, argv, collectives_run, read_launch, tool_versions
from rackready.gates.shipped import command, document
from rackready.model.outcome import Criterion, Op, Verdict
from rackready.ondevice import rdma_counters

ROCE = Efficiency(0.92, "46-48 of 50 GB/s per NIC on NDR InfiniBand (NVIDIA/nccl-tests issue 290), taken for RoCE for want of a measurement", measured=False)
_PAIR = 2


class NcclAllReduceRing(Gate):
    """All GPUs of all nodes reduce together over every rail at the bandwidth that NICs and NVLinks give (forced ring)."""

    id = "cluster/fabric/performance/nccl-all-reduce-ring"
    covers = frozenset({"gpu", "nic", "rail"})
    min_nodes = 2

    class Inputs(base.Inputs):
        """How the launches are made and how evenly the rails must carry."""

        binary: str = Field("all_reduce_perf", description="nccl-tests program built with MPI, on every node's PATH or its full path")
        size: str = Field("16G", pattern=r"^\d+[KMG]$", description="largest message")
        launches: int | None = Field(None, ge=1, le=50, description="launches whose median is judged; from the number of nodes when absent")
        bytes_tolerance: float = Field(0.05, gt=0, lt=1, description="how far the bytes that left a node may be from what the collective must move")
        share_tolerance: float = Field(0.2, gt=0, lt=1, description="how far a rail may be from its even share")

    inputs: Inputs

    def _launches(self, facts: GateFacts) -> int:
        return self.inputs.launches or launches(facts.fleet)

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:
        """Counters of every node, the launches from the first node, counters again."""
        return [self._run(facts, nodes, "cluster")]

    def follow_up(self, facts: GateFacts, done: Sequence[Done]) -> list[Run]:
        """Where the failed run names some nodes as the ones at fault, run over the others: they are not to wait for them."""
        for item in done:
            rest = [node for node in item.run.nodes if node not in item.verdict.blamed]
            if item.verdict.blamed and len(rest) >= self.min_nodes:
                return [self._run(facts, rest, f"cluster/without {'+'.join(item.verdict.blamed)}")]
        return []

    def attribute(self, facts: GateFacts, done: Sequence[Done]) -> dict[str, list[Verdict]]:  # noqa: ARG002
        """A node that was named gets what was found on it; every other gets the verdict of the last run that it took part in."""
        out: dict[str, list[Verdict]] = {}
        for item in done:
            for node in item.run.nodes:
                mine = [finding for finding in item.verdict.findings if _named(finding.where, node)]
                out[node] = [item.verdict.model_copy(update={"findings": mine}) if mine else item.verdict]
        return out

    def _run(self, facts: GateFacts, nodes: Sequence[str], name: str) -> Run:
        count = self._launches(facts)
        line = self._mpirun(facts, nodes)
        commands = [command(f"before-{node}", node, rdma_counters, *_devices(facts, node)) for node in nodes]
        commands += [Command(key=f"launch{number}", node=nodes[0], argv=line, timeout_s=1800, stage=1 + number) for number in range(count)]
        commands += [command(f"after-{node}", node, rdma_counters, *_devices(facts, node), stage=1 + count) for node in nodes]
        return Run(id=name, target=name, nodes=tuple(nodes), commands=tuple(commands), claims=frozenset(nodes), launch_from=nodes[0])

    def _mpirun(self, facts: GateFacts, nodes: Sequence[str]) -> tuple[str, ...]:
        """Open MPI starts one process per GPU; it talks over the in-band network only, NCCL over the rails."""
        per_node = facts.nodes[nodes[0]].platform.gpus
        hosts = ",".join(f"{facts.nodes[node].node.address}:{per_node}" for node in nodes)
        inband = common_network([str(facts.nodes[node].node.address) for node in nodes])
        wanted = ",".join(_devices(facts, nodes[0]))
        environment = {
            "NCCL_ALGO": "RING",
            "NCCL_DEBUG": "INFO",
            "NCCL_DEBUG_SUBSYS": "INIT,NET,GRAPH",
            "NCCL_IB_HCA": f"={wanted}",
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        }
        exported = [word for name, value in environment.items() for word in ("-x", f"{name}={value}")]
        # NCCL carries the data: a rank that waits in MPI gives way to it instead of spinning.
        mca = [
            "--mca",
            "mpi_yield_when_idle",
            "1",
            "--mca",
            "pml",
            "ob1",
            "--mca",
            "btl",
            "tcp,self",
            "--mca",
            "btl_tcp_if_include",
            inband,
            "--mca",
            "oob_tcp_if_include",
            inband,
        ]
        tests = argv(self.inputs.binary, self.inputs.size, gpus_per_process=1)
        return ("mpirun", "--allow-run-as-root", "-np", str(per_node * len(nodes)), "-H", hosts, "--bind-to", "none", *mca, *exported, *tests)

    def tools(self, outputs: Outputs) -> dict[str, str]:
        """Return the versions of nccl-tests and NCCL."""
        return tool_versions(outputs)

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Judge the median busbw, the transport that NCCL chose, and what every rail carried."""
        gathered = Judge()
        ranks = sum(facts.nodes[node].platform.gpus for node in run.nodes)
        wanted = Launch(self.inputs.size, ranks, run.nodes)
        found = [read_launch(gathered, outputs.get(f"launch{number}"), "cluster", number, wanted) for number in range(self._launches(facts))]
        values = [value for value in found if value is not None]
        if gathered.errors or gathered.fails or len(values) != self._launches(facts):
            return gathered.verdict("cluster")
        self._transport(gathered, facts, run, "".join(outputs[f"launch{number}"].stdout for number in range(self._launches(facts))))
        for node in run.nodes:
            self._bytes(gathered, facts, run, node, outputs)
        self._bandwidth(gathered, facts, run, values)
        if not gathered.fails and not gathered.errors:
            for node in run.nodes:
                of_node = facts.nodes[node]
                gathered.measured.update(f"{node}/gpu{index}" for index in range(of_node.platform.gpus))
                gathered.measured.update(part for nic in of_node.nics for part in (f"{node}/{nic.rdma_device}", f"{node}/rail{nic.rail}"))
        named = {node for node in run.nodes for finding in gathered.fails if _named(finding.where, node)}
        gathered.blamed |= named if named != set(run.nodes) else set()
        return gathered.verdict("cluster")

    @staticmethod
    def _transport(gathered: Judge, facts: GateFacts, run: Run, text: str) -> None:
        """NET/IB with GPUDirect RDMA on exactly the NICs of the platform, and no socket anywhere."""
        said = nccl_log.parse(text)
        gathered.transport = "NET/IB, GPUDirect RDMA"
        for node in run.nodes:
            gathered.judged += 1
            host = next((name for name in said.networks if name.split(".")[0] == node), node)
            expected = set(_devices(facts, node))
            networks = said.networks.get(host, frozenset())
            channels = said.channels.get(host, ())
            if not networks or not channels:
                gathered.error(
                    node,
                    "NCCL did not say which transport it used",
                    "NCCL INFO lines of every node",
                    "none of this node",
                    "Run with NCCL_DEBUG=INFO; /etc/nccl.conf may redirect it (NCCL_DEBUG_FILE).",
                )
                continue
            sockets = sorted({net for net, _, _ in channels if net != "NET/IB"} | {name for name in networks if name != "IB"})
            if sockets:
                gathered.transport = ", ".join(sockets)
                gathered.fail(
                    node,
                    "NCCL transport",
                    "NET/IB",
                    ", ".join(sockets),
                    "RDMA was not used: check that the HCAs are ACTIVE and have RoCE v2 GIDs: docs/runbooks/nccl-transport.md",
                )
            elif not all(direct for _, _, direct in channels):
                gathered.transport = "NET/IB without GPUDirect RDMA"
                gathered.fail(
                    node,
                    "GPUDirect RDMA",
                    "every channel via NET/IB/.../GDRDMA",
                    "channels without GDRDMA",
                    "Check ACS (`lspci -vvv | grep ACSCtl`), dma-buf and the IOMMU: docs/runbooks/nccl-transport.md",
                )
            elif said.used(host) != expected:
                gathered.fail(
                    node,
                    "HCAs used by NCCL",
                    ", ".join(sorted(expected)),
                    ", ".join(sorted(said.used(host))) or "none",
                    "Check the state of the missing HCAs and NCCL_IB_HCA in /etc/nccl.conf.",
                )

    def _bytes(self, gathered: Judge, facts: GateFacts, run: Run, node: str, outputs: Outputs) -> None:
        """Hold what left a node against what a ring must send out of it: 2 (n-1)/n of all bytes reduced, over all rails alike."""
        sent = self._sent(gathered, facts, node, outputs)
        if sent is None:
            return
        ranks = sum(facts.nodes[name].platform.gpus for name in run.nodes)
        expected = 2 * (ranks - 1) / ranks * collectives_run(self.inputs.size) * self._launches(facts)
        total = sum(sent.values())
        gathered.judged += 1
        gathered.metric("xmit_bytes", node, total, "B")
        source = "derived: 2 (n-1)/n x bytes reduced by all launches, warm-ups and checks included (nccl-tests src/common.cu)"
        gathered.criterion(
            Criterion(
                metric="xmit_bytes",
                op=Op.EQ,
                bound=expected,
                unit="B",
                label="identity",
                source=source,
                derived=True,
                inputs={"n": ranks, "tolerance": self.inputs.bytes_tolerance},
            )
        )
        if abs(total - expected) > self.inputs.bytes_tolerance * expected:
            step = "The data went another way than over the rails, or something else used them: check the transport and that no job runs."
            gathered.fail(node, "bytes sent over its rails", f"{expected / 1e9:.0f} GB within {self.inputs.bytes_tolerance:.0%}", f"{total / 1e9:.0f} GB", step)
            return
        for nic in facts.nodes[node].nics:
            share = sent[nic.rdma_device] / total * len(sent)
            gathered.metric("rail_share", f"{node}/{nic.rdma_device}", share, "1")
            if abs(share - 1) > self.inputs.share_tolerance:
                gathered.fail(
                    f"{node} {nic.rdma_device} (rail {nic.rail})",
                    "share of the traffic",
                    f"1.0 within {self.inputs.share_tolerance:.0%}",
                    f"{share:.2f}",
                    "Check this rail's link rate, PCIe width and switch port: docs/runbooks/rail-slow.md",
                )

    @staticmethod
    def _sent(gathered: Judge, facts: GateFacts, node: str, outputs: Outputs) -> dict[str, float] | None:
        readings: list[dict[str, Any]] = []
        for key in (f"before-{node}", f"after-{node}"):
            output = outputs.get(key)
            if gathered.trouble(trouble(output, node, "reading of byte counters")) or output is None:
                return None
            try:
                readings.append(document(output, rdma_counters.FORMAT)["devices"])
            except (FormatError, KeyError) as error:
                gathered.error(node, "byte counters unreadable", "a complete document", error, "Run the gate again.")
                return None
        sent = {}
        for device in _devices(facts, node):
            before, after = (reading.get(device, {}).get("xmit_bytes") for reading in readings)
            if not isinstance(before, int) or not isinstance(after, int) or after < before:
                gathered.error(
                    f"{node} {device}",
                    "byte counter",
                    "a number that grows",
                    f"{before} then {after}",
                    "Check /sys/class/infiniband on the node; a NIC that was reset loses its counters.",
                )
                return None
            sent[device] = float(after - before)
        if not sum(sent.values()):
            gathered.fail(node, "bytes sent over its rails", "traffic on every rail", "0 bytes", "NCCL did not use the rails: docs/runbooks/nccl-transport.md")
            return None
        return sent

    def _bandwidth(self, gathered: Judge, facts: GateFacts, run: Run, values: list[float]) -> None:
        where = hardware.domain(facts.nodes[run.nodes[0]], len(run.nodes))
        published = hardware.published(facts.nodes[run.nodes[0]], "all_reduce", where.ranks, "ring")
        expected = reference(where, "all_reduce", "ring", published=published, efficiency=ROCE)
        value = median(values)
        lower = floor(expected, where, single=len(run.nodes) <= _PAIR)
        result = judge("busbw", value, "GB/s", upper=ceiling(where, "all_reduce", "ring"), expected=expected, lower=lower)
        gathered.judged += 1
        gathered.metric("busbw", "cluster", value, "GB/s")
        gathered.criteria.extend(result.criteria)
        spread = f"{value:.1f} GB/s (median of {len(values)}: {', '.join(f'{one:.1f}' for one in values)})"
        what = f"all-reduce of {where.ranks} GPUs on {len(run.nodes)} nodes"
        if result.outcome == "fail":
            gathered.fail(
                "cluster",
                f"{what} is slow",
                result.expected,
                spread,
                "Which node is not told by this gate: look at the rails' shares and the pair gate's figures: docs/runbooks/nccl-slow.md",
            )
        elif result.outcome == "error":
            gathered.error(
                "cluster", f"{what} is implausible", result.expected, spread, "Check the platform profile: topology or units are not what they seem."
            )
        else:
            gathered.note = FLEET_PENDING if result.pending else None


def _named(where: str, node: str) -> bool:
    return where.split(" ", 1)[0] == node


def _devices(facts: GateFacts, node: str) -> list[str]:
    return [nic.rdma_device for nic in facts.nodes[node].nics]


def common_network(addresses: Sequence[str]) -> str:
    """Return the smallest IPv4 network that holds all addresses, in CIDR notation."""
    network = IPv4Network(f"{addresses[0]}/32")
    for address in addresses[1:]:
        while IPv4Network(f"{address}/32").network_address not in network:
            network = network.supernet()
    return str(next(iter(collapse_addresses([network]))))
