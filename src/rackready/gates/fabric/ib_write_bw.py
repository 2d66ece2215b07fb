"""RDMA writes between two nodes, NIC against NIC on one rail, from GPU memory to GPU memory."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from ipaddress import IPv4Address
from typing import Literal

from pydantic import Field

from rackready.design.facts import NicFacts
from rackready.gates import base
from rackready.gates.base import Command, Done, FleetMetric, Gate, GateFacts, Output, Outputs, Run, trouble
from rackready.gates.engine import nodes_without_nics, pairs
from rackready.gates.engine.pairs import attribute, retests, rounds
from rackready.gates.engine.shipped_script import command
from rackready.gates.fabric import ib_write_bw_findings as kinds
from rackready.gates.fabric import perftest_call, port_errors, rdma_port
from rackready.gates.fabric.perftest_call import FAR, judge_call, judge_model, served
from rackready.gates.fabric.port_errors import judge_errors
from rackready.gates.fabric.rdma_port import (
    AFTER,
    headers,
    judge_gids,
    judge_layer,
    judge_link,
    judge_port,
    layer,
    path_mtu,
    payload_rate,
    port_of,
)
from rackready.gates.formats import perftest
from rackready.gates.formats.error import FormatError
from rackready.gates.judging import gpu_models, pair_fleet
from rackready.gates.judging.expectation import Bound, judge
from rackready.gates.judging.judge import Judge
from rackready.gates.judging.node_topology import rail_parts
from rackready.model.outcome import Criterion, Op, Verdict
from rackready.ondevice import rdma_counters

PORT = 18515
_NEAR = r"""
near=$(cat "/sys/class/infiniband/$device/device/local_cpulist" 2>/dev/null)
taskset -c "$near" true 2>/dev/null || near=
exec ${near:+taskset -c "$near"} "$0" -d "$device" "$@"
"""
"""Starts perftest on the processors beside its NIC, as far as they are told and may be used: from another socket host memory is late, and slower than the port
(Mellanox community DOC-2491, "Understanding NUMA Node for Performance Benchmarks"; azurehpc-health-checks starts it
under numactl).
"""
_WITH_LID = f"device=$1; shift{_NEAR}"
WITH_GID = (
    r"""
device=$1 want=$2; shift 2
base=/sys/class/infiniband/$device/ports/1
gid= old=
for file in "$base"/gid_attrs/types/*; do
  index=${file##*/}
  [ "$(cat "$base/gids/$index")" = "$want" ] || continue
  if [ "$(cat "$file" 2>/dev/null)" = "RoCE v2" ]; then gid=$index; else old=yes; fi
done
[ -n "$gid" ] || { echo "rackready: no RoCE v2 GID $want on $device${old:+, RoCE v1 only}" >&2; exit 66; }
set -- -x "$gid" "$@"
"""
    + _NEAR
)
_PAIR = re.compile(r" address:.* QPN (0x[0-9a-f]+) PSN (0x[0-9a-f]+)", re.IGNORECASE)
_NO_GID = 66
_UNREACHABLE = re.compile(
    r"Couldn't connect to|Unable to (?:open|init) the socket|No route to host|Connection (?:refused|timed "
    r"out)|Failed to exchange",
    re.IGNORECASE,
)
_NO_GPUDIRECT = re.compile(
    r"(?:Couldn't register MR|Failed to create MR|ibv_reg_dmabuf_mr failed)[^\n]*", re.IGNORECASE
)
_REFUSED_OPTION = re.compile(r"(unrecognized option|invalid option)[^\n]*", re.IGNORECASE)
_LOOK = (
    "Which of its two NICs is not told by one pair: measure each with another partner (`rackready gate run`, twice "
    "`--node`), "
    "compare both cables, PCIe widths and the errors of both ports with those of a good rail"
)


class IbWriteBw(Gate):
    """Each NIC writes to and is written by a partner on its rail at the rate of its port, GPU memory to GPU memory."""

    id = "pair/fabric/performance/ib-write-bw"
    findings = (
        *rdma_port.FINDINGS,
        *port_errors.FINDINGS,
        *perftest_call.FINDINGS,
        *pairs.FINDINGS,
        *gpu_models.FINDINGS,
        *kinds.FINDINGS,
    )
    after_fail = True
    covers = frozenset({"nic", "rail", "cable"})
    fleet = (FleetMetric("bw_average", effect=0.03, of="run", look=_LOOK),)
    """One direction from NIC to NIC is one unit: its figure is that of both ends, and a third partner tells which of them is slow."""
    min_nodes = 2

    class Inputs(base.Inputs):
        """How perftest is run and what part of the port's rate is enough."""

        size: int = Field(8388608, ge=65536, le=1 << 30, description="message size, bytes; at most 1 GiB (judgement)")
        iterations: int = Field(
            2000, ge=100, le=100_000_000, description="messages per direction; at most 10^8 (judgement)"
        )
        gpu_memory: bool = Field(True, description="write from and to GPU memory (GPUDirect RDMA over dma-buf)")  # noqa: FBT003
        gpudirect: Literal["dmabuf", "peermem"] = Field(
            "dmabuf", description="how the NIC reaches GPU memory: dma-buf, or the module nvidia_peermem"
        )
        bytes_tolerance: float = Field(
            0.05, gt=0, lt=1, description="how far the bytes that left a port may be from those that were written"
        )
        floor_share: float = Field(
            0.95, gt=0, le=1, description="share of the derived payload rate below which a NIC fails"
        )

    inputs: Inputs

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:
        """Pair nodes so that every one is measured; each rail of a pair is a run of its own, both directions."""
        able, bare = nodes_without_nics.split_nodes(facts, nodes)
        pairs = [pair for pairing in rounds(able) for pair in pairing]
        return [
            *(
                self._run(facts, first, second, rail)
                for first, second in pairs
                for rail in rails_of(facts, first, second)
            ),
            *bare,
        ]

    def follow_up(self, facts: GateFacts, done: Sequence[Done]) -> list[Run]:
        """Measure both ends of a run that failed, or that falls behind its fleet, with a third partner: that tells which end is bad."""
        measured, _ = nodes_without_nics.split_runs(done)
        return [
            self._run(facts, first, second, rail, again=True)
            for first, second, rail in retests(pair_fleet.suspected(self, facts, measured))
        ]

    def acquitted(self, runs: Mapping[str, Collection[str]], slow: Collection[str]) -> frozenset[tuple[str, str]]:
        """Acquit a NIC that is right with another partner, where its partner is not."""
        return pair_fleet.acquitted(runs, slow)

    def attribute(self, facts: GateFacts, done: Sequence[Done]) -> dict[str, list[Verdict]]:
        """Blame the end that fails with two partners; acquit the one that passes with another."""
        measured, bare = nodes_without_nics.split_runs(done)
        return nodes_without_nics.too_few(self, facts) | attribute(measured) | bare

    def _run(self, facts: GateFacts, first: str, second: str, rail: int, *, again: bool = False) -> Run:
        near, far = nic_of(facts, first, rail), nic_of(facts, second, rail)
        target = f"{first}+{second}/rail{rail}"
        commands = (
            command("link-first", first, rdma_counters, near.rdma_device),
            command("link-second", second, rdma_counters, far.rdma_device),
            self._server(facts, "server-forth", second, far, 1),
            self._client(facts, "client-forth", (first, second), rail, 2),
            self._server(facts, "server-back", first, near, 3),
            self._client(facts, "client-back", (second, first), rail, 4),
            command("after-first", first, rdma_counters, near.rdma_device, stage=5),
            command("after-second", second, rdma_counters, far.rdma_device, stage=5),
        )
        claims = frozenset({f"{first}/{near.rdma_device}", f"{second}/{far.rdma_device}"})
        about = {"rail": str(rail), "first": first, "second": second, "again": "yes" if again else ""}
        return Run(
            id=target + ("/again" if again else ""),
            target=target,
            nodes=(first, second),
            commands=commands,
            claims=claims,
            about=about,
        )

    def _options(self, nic: NicFacts) -> tuple[str, ...]:
        dmabuf = ("--use_cuda_dmabuf",) if self.inputs.gpudirect == "dmabuf" else ()
        gpu = (f"--use_cuda={nic.gpu}", *dmabuf) if self.inputs.gpu_memory else ()
        return (
            "-p",
            str(PORT + nic.rail),
            "-s",
            str(self.inputs.size),
            "-n",
            str(self.inputs.iterations),
            "-F",
            "--report_gbits",
            *gpu,
        )

    def _argv(self, facts: GateFacts, nic: NicFacts) -> tuple[str, ...]:
        return (*program(facts, "ib_write_bw", nic), *self._options(nic))

    def _server(self, facts: GateFacts, key: str, node: str, nic: NicFacts, stage: int) -> Command:
        return Command(
            key=key,
            node=node,
            argv=self._argv(facts, nic),
            env=ENV,
            timeout_s=300,
            stage=stage,
            role="server",
            ready_port=PORT + nic.rail,
        )

    def _client(self, facts: GateFacts, key: str, ends: tuple[str, str], rail: int, stage: int) -> Command:
        node, far = ends
        argv = (*self._argv(facts, nic_of(facts, node, rail)), meets(facts, far, nic_of(facts, far, rail)))
        return Command(key=key, node=node, argv=argv, env=ENV, timeout_s=180, stage=stage)

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Judge link state, transport and bandwidth of both directions."""
        if (verdict := nodes_without_nics.nothing_to_judge(facts, run)) is not None:
            return verdict
        gathered = Judge()
        rail = int(run.about["rail"])
        first, second = run.about["first"], run.about["second"]
        near, far = nic_of(facts, first, rail), nic_of(facts, second, rail)
        up = [
            judge_link(gathered, outputs.get("link-first"), first, near),
            judge_link(gathered, outputs.get("link-second"), second, far),
        ]
        if all(up):
            self._direction(gathered, facts, outputs, "forth", (first, near), (second, far))
            self._direction(gathered, facts, outputs, "back", (second, far), (first, near))
        if not gathered.fails and not gathered.errors:
            each_way(gathered, run.target, "ib_write_bw", (outputs.get("client-forth"), outputs.get("client-back")))
        if not gathered.fails and not gathered.errors:
            for end, node, nic in (("first", first, near), ("second", second, far)):
                self._carried(gathered, outputs, end, (node, nic), self.inputs.bytes_tolerance + headers(facts.fabric))
        if not gathered.fails and not gathered.errors:
            gathered.measured.update((*rail_parts(first, near), *rail_parts(second, far)))
        return gathered.verdict(run.target)

    def _direction(
        self,
        gathered: Judge,
        facts: GateFacts,
        outputs: Outputs,
        name: str,
        sender: tuple[str, NicFacts],
        receiver: tuple[str, NicFacts],
    ) -> None:
        where = (
            f"{sender[0]} {sender[1].rdma_device} -> {receiver[0]} {receiver[1].rdma_device} (rail {sender[1].rail})"
        )
        client = client_of(
            gathered, where, (outputs.get(f"server-{name}"), outputs.get(f"client-{name}")), sender, receiver
        )
        if client is None:
            return
        try:
            result = perftest.parse(client.stdout)
        except FormatError as error:
            gathered.error(where, kinds.WRITE_UNREADABLE, "one result block in Gb/sec", f"{error} (exit code 0)")
            return
        before = len(gathered.errors)
        far = served(gathered, where, "ib_write_bw", outputs.get(f"server-{name}"))
        judge_call(gathered, where, "ib_write_bw", result.call)
        for node, used in ((sender[0], result.memory), (receiver[0], far)):
            if used is not None:
                judge_model(gathered, facts, where, "ib_write_bw", node, used)
        told = (
            self._transport(gathered, facts, where, (sender[1], receiver[1]), result) and len(gathered.errors) == before
        )
        if told and self._far_memory(gathered, where, receiver[1], far):
            self.judge_bandwidth(
                gathered, where, sender[1], payload_rate(sender[1].rate, result.mtu, layer(facts.fabric)), result
            )

    def _transport(
        self,
        gathered: Judge,
        facts: GateFacts,
        where: str,
        ends: tuple[NicFacts, NicFacts],
        result: perftest.WriteBandwidth,
    ) -> bool:
        before, nic = len(gathered.fails) + len(gathered.errors), ends[0]
        gathered.judged += 1
        asked = (nic.rdma_device, self.inputs.iterations, self.inputs.size)
        if (result.device, result.iterations, result.size) != asked:
            expected, actual = (
                f"{device}, {count} x {size} bytes"
                for device, count, size in (asked, (result.device, result.iterations, result.size))
            )
            gathered.error(where, kinds.WRITE_SOMETHING_ELSE, expected, actual)
        if result.peak <= 0 and self.inputs.iterations <= perftest.NO_PEAK:
            expected = f"a peak of at least the average, {result.average:.2f} Gb/s"
            gathered.error(where, kinds.WRITE_NO_PEAK, expected, f"{result.peak:.2f} Gb/s")
        if judge_layer(gathered, where, facts.fabric, result.link_type) and facts.fabric.kind == "roce":
            judge_gids(gathered, where, "ib_write_bw", ends, (result.local, result.remote))
        self._memory(gathered, where, nic, result.memory)
        wanted = path_mtu(facts.fabric)
        if result.mtu != wanted:
            gathered.fail(where, kinds.PATH_MTU, wanted, result.mtu)
        gathered.transport = f"{layer(facts.fabric).name}, {nic.rdma_device}, GPU memory by {result.memory.reach}"
        return len(gathered.fails) + len(gathered.errors) == before

    def _memory(self, gathered: Judge, where: str, nic: NicFacts, used: perftest.Memory, end: str = "") -> None:
        """Hold the memory of one end, and how its NIC reached it, against what was asked for. ``end``: words behind what is wrong."""
        asked = self.inputs.gpudirect if self.inputs.gpu_memory else "none"
        if self.inputs.gpu_memory and used.reach == "none":
            gathered.error(where, kinds.GPU_MEMORY_NOT_USED, "GPUDirect RDMA (dma-buf)", "host memory", end=end)
        elif used.reach != asked:
            words = {
                "dmabuf": "GPU memory by dma-buf",
                "peermem": "GPU memory by nvidia_peermem",
                "none": "host memory",
            }
            gathered.error(where, kinds.OTHER_MEMORY, words[asked], words[used.reach], end=end)
        elif self.inputs.gpu_memory and used.gpu not in {None, nic.gpu}:
            gathered.error(where, kinds.OTHER_GPU, f"gpu{nic.gpu}", f"gpu{used.gpu}", end=end)

    def _far_memory(self, gathered: Judge, where: str, nic: NicFacts, used: perftest.Memory | None) -> bool:
        """Hold the receiver's memory, as far as its server says which it is, against what was asked for."""
        before = len(gathered.errors)
        if used is not None:
            self._memory(gathered, where, nic, used, FAR)
        return len(gathered.errors) == before

    def _carried(self, gathered: Judge, outputs: Outputs, end: str, of: tuple[str, NicFacts], tolerance: float) -> None:
        """Hold the port's own count of bytes sent against what perftest wrote, within a share: the data went over this port and no other."""
        node, nic = of
        where = f"{node} {nic.rdma_device} (rail {nic.rail})"
        found = [port_of(gathered, outputs.get(f"{when}-{end}"), where, nic) for when in ("link", "after")]
        before, after = found
        if before is None or after is None or not judge_port(gathered, after, node, nic, AFTER):
            return
        judge_errors(gathered, node, {where: (before, after)})
        expected, moved = self.inputs.size * self.inputs.iterations, after["xmit_bytes"] - before["xmit_bytes"]
        gathered.judged += 1
        gathered.metric("xmit_bytes", f"{node}/{nic.rdma_device}", float(moved), "B")
        source = f"derived: size x iterations, within {tolerance:.0%} (packet headers take 2 % of a path MTU of 4096)"
        gathered.criterion(
            Criterion(
                metric="xmit_bytes", op=Op.EQ, bound=expected, unit="B", label="identity", source=source, derived=True
            )
        )
        if abs(moved - expected) > tolerance * expected:
            gathered.fail(
                where,
                kinds.WRITE_OTHER_PORT,
                f"{expected / 1e9:.1f} GB within {tolerance:.0%}",
                f"{moved / 1e9:.1f} GB",
            )

    def judge_bandwidth(
        self, gathered: Judge, where: str, nic: NicFacts, expected: Bound, result: perftest.WriteBandwidth
    ) -> None:
        """Hold a direction's bandwidth between its floor and the port's rate. ``expected``: what of that rate is left for payload, Gb/s."""
        lower = Bound(
            self.inputs.floor_share * expected.value,
            f"{self.inputs.floor_share} x payload rate; published marks of 400 Gb/s NICs are 380 "
            "(azurehpc-health-checks, H100) and 384 (oci-hpc)",
            inputs={"reference": expected.value, "share": self.inputs.floor_share},
        )
        upper = Bound(float(nic.rate), "port rate", derived=False, inputs={"rate": float(nic.rate)})
        verdict = judge("bw_average", result.average, "Gb/s", upper=upper, expected=expected, lower=lower)
        gathered.metric("bw_average", where, result.average, "Gb/s")
        gathered.criteria.extend(verdict.criteria)
        cable = f"cable {nic.switch} {nic.port}" if nic.switch else "its cable"
        if verdict.outcome == "fail":
            gathered.fail(where, kinds.WRITE_SLOW, verdict.expected, f"{result.average:.1f} Gb/s", cable=cable)
        elif verdict.outcome == "error":
            gathered.error(where, kinds.WRITE_IMPLAUSIBLE, verdict.expected, f"{result.average:.1f} Gb/s")


class IbWriteBwHost(IbWriteBw):
    """Each NIC writes to and is written by a partner on its rail at the rate of its port, host memory to host memory."""

    id = "pair/fabric/performance/ib-write-bw-host"

    class Inputs(IbWriteBw.Inputs):
        """How perftest is run and what part of the port's rate is enough."""

        gpu_memory: bool = Field(
            False,  # noqa: FBT003
            description="write from and to GPU memory: this gate is about host memory, which tells GPU paths from NICs",
        )

    inputs: Inputs


ENV = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def gid_text(address: str) -> str:
    """Return an IPv4 address as sysfs prints its GID."""
    number = int(IPv4Address(address)) if address else 0
    return f"0000:0000:0000:0000:0000:ffff:{number >> 16:04x}:{number & 0xFFFF:04x}"


def program(facts: GateFacts, name: str, nic: NicFacts) -> tuple[str, ...]:
    """Return a program of perftest on a NIC and the processors beside it: on RoCE with the index of the GID that its address has, on InfiniBand by its LID."""
    if facts.fabric.kind == "infiniband":
        return ("bash", "-c", _WITH_LID, name, nic.rdma_device)
    return ("bash", "-c", WITH_GID, name, nic.rdma_device, gid_text(nic.address))


def meets(facts: GateFacts, node: str, nic: NicFacts) -> str:
    """Return the address at which a server of perftest is met before data flow: the rail's own on RoCE, the node's where rails have none."""
    return str(facts.nodes[node].node.address) if facts.fabric.kind == "infiniband" else nic.address


def nic_of(facts: GateFacts, node: str, rail: int) -> NicFacts:
    """Return the NIC of a node on a rail; StopIteration when it has none."""
    return next(nic for nic in facts.nodes[node].nics if nic.rail == rail)


def rails_of(facts: GateFacts, first: str, second: str) -> list[int]:
    """Return the rails that both nodes have."""
    return sorted({nic.rail for nic in facts.nodes[first].nics} & {nic.rail for nic in facts.nodes[second].nics})


def each_way(gathered: Judge, where: str, program: str, ways: tuple[Output | None, Output | None]) -> None:
    """Hold that two directions have an output each: one that is given for both says nothing of the other.

    A connection is known by the numbers of its queue pairs and by those of their first packets, which perftest draws
    from 2^24 (perftest_communication.c).
    """
    forth, back = ways
    if (
        forth is not None
        and back is not None
        and (
            forth.stdout.strip() == back.stdout.strip()
            or set(_PAIR.findall(forth.stdout)) & set(_PAIR.findall(back.stdout))
        )
    ):
        gathered.error(where, kinds.ONE_OUTPUT_BOTH_WAYS, "one of each", "the same output", program=program)


def client_of(
    gathered: Judge,
    where: str,
    ends: tuple[Output | None, Output | None],
    sender: tuple[str, NicFacts],
    receiver: tuple[str, NicFacts],
    program: str = "ib_write_bw",
) -> Output | None:
    """Return the client's output of a server and its client that both ran to their end and say of no failure; what is wrong goes to the judge."""
    server, client = ends
    if server is not None and server.failure and gathered.trouble(trouble(server, where, f"{program} server")):
        return None
    if gathered.trouble(trouble(client, where, program)) or client is None:
        return None
    if client.exit_code != 0:
        _client_failed(gathered, where, sender, receiver, client, program)
        return None
    if said := perftest.failure(
        *(text for end in (client, server) if end is not None for text in (end.stderr, end.stdout))
    ):
        gathered.error(where, kinds.TOOL_CONTRADICTS, "exit code 0 and no word of a failure", said, program=program)
        return None
    return client


def _client_failed(
    gathered: Judge,
    where: str,
    sender: tuple[str, NicFacts],
    receiver: tuple[str, NicFacts],
    client: Output,
    program: str,
) -> None:
    """Say why a client ended badly: what it printed tells a fault of the node from one of the rail, and from a missing tool."""
    said = client.stderr + client.stdout
    option = _REFUSED_OPTION.search(said)
    if option:
        gathered.error(
            where, kinds.TOOL_LACKS_OPTION, "a perftest built with CUDA and dma-buf", option[0].strip(), program=program
        )
    elif client.exit_code == _NO_GID and "no RoCE v2 GID" in said:
        if "RoCE v1 only" in said:
            gathered.fail(
                where,
                kinds.ROCE_VERSION,
                f"a RoCE v2 GID for {sender[1].address}",
                "RoCE v1 only",
                device=sender[1].rdma_device,
            )
        else:
            text = f"no RoCE v2 GID for {sender[1].address}"
            gathered.fail(where, kinds.RAIL_ADDRESS_MISSING, f"{sender[1].address} on {sender[1].netdev}", text)
        gathered.blamed.add(sender[0])
    elif refused := _NO_GPUDIRECT.search(said):
        gathered.judged += 1
        gathered.fail(where, kinds.GPUDIRECT_REFUSED, "GPU memory registered with the NIC", refused[0].strip())
    elif _UNREACHABLE.search(said):
        actual = next((line.strip() for line in said.splitlines() if _UNREACHABLE.search(line)), "no connection")
        gathered.judged += 1
        gathered.fail(
            where,
            kinds.RAIL_NOT_REACHABLE,
            f"{receiver[1].address} answers on port {PORT + sender[1].rail}",
            actual,
            vlan=sender[1].vlan,
            switch=sender[1].switch,
            port=sender[1].port,
            far_switch=receiver[1].switch,
            far_port=receiver[1].port,
        )
    else:
        last = said.strip().splitlines()[-1].strip() if said.strip() else "nothing said"
        gathered.error(
            where, kinds.TOOL_FAILED, "exit code 0", f"exit code {client.exit_code}: {last}", program=program
        )
