"""Which NIC sits beside which GPU."""

from __future__ import annotations

from collections.abc import Sequence

from rackready.design.facts import NodeFacts
from rackready.gates.base import Command, Gate, GateFacts, Outputs, Run, trouble
from rackready.gates.formats import smi_topo
from rackready.gates.formats.error import FormatError
from rackready.gates.formats.smi_topo import Topology
from rackready.gates.gpu import parts
from rackready.gates.judge import Judge
from rackready.model.outcome import Verdict

_KEY = "topo"
_NEAR = frozenset({"PIX", "PXB"})
_STEP = "Compare the NIC's PCI address with the platform profile (`ls -l /sys/class/infiniband`); a card in another slot is put back: docs/runbooks/nic.md."


class Affinity(Gate):
    """Every GPU has its NIC of the platform behind the same PCIe switch (PIX or PXB), and no other NIC in its place."""

    id = "node/gpu/sanity/affinity"
    looks = True
    covers = frozenset({"gpu", "nic"})

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:  # noqa: ARG002 - the same for all
        """One command per node."""
        return [Run.of_node(node, Command(key=_KEY, node=node, argv=("nvidia-smi", "topo", "-m"), timeout_s=60)) for node in nodes]

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Hold the matrix against the platform profile."""
        node = run.nodes[0]
        judge = Judge()
        output = outputs.get(_KEY)
        if judge.trouble(trouble(output, node, "nvidia-smi topo -m")) or output is None:
            return judge.verdict(node)
        try:
            found = smi_topo.parse(output.stdout)
        except FormatError as error:
            judge.error(
                node, "topology unreadable", "the matrix of nvidia-smi topo -m", f"{error} (exit code {output.exit_code})", "Run `nvidia-smi topo -m` by hand."
            )
            return judge.verdict(node)
        if output.exit_code != 0:
            judge.error(
                node, "nvidia-smi contradicts itself", "exit code 0 with a matrix", f"exit code {output.exit_code}", "Run `nvidia-smi topo -m` by hand."
            )
        self._judge(judge, facts.nodes[node], node, found)
        return judge.verdict(node)

    def _judge(self, judge: Judge, facts: NodeFacts, node: str, found: Topology) -> None:
        judge.judged += 1
        if len(found.gpus) != facts.platform.gpus:
            step = parts.count_step(len(found.gpus), facts.platform.gpus)
            judge.fail(node, "GPUs in nvidia-smi topo", f"{facts.platform.gpus}", f"{len(found.gpus)}", step)
        nics = [nic for nic in facts.platform.nics if nic.rdma_device]
        if len(nics) < max(1, len(facts.platform.nics)):
            _nothing_declared(judge, facts, node)
        for nic in nics:
            _pair(judge, node, nic.gpu, nic.rdma_device, nic.rail, found)


def _nothing_declared(judge: Judge, facts: NodeFacts, node: str) -> None:
    """A matrix that is compared with nothing measures nothing."""
    profile = facts.platform.id
    names = f"the device names of its {len(facts.platform.nics)} compute NICs (`rdma_device`)" if facts.platform.nics else "its compute NICs (`nics`)"
    step = (
        f"Add them to the platform's profile ({profile}.yml) with their source: `nvidia-smi topo -m` of such a server shows them. "
        "Where the server has no compute NICs, declare the gate's skip with that reason (site.yml gates.skip)."
    )
    judge.error(node, "nothing to compare the topology with", f"{names} in the profile {profile}", "not declared", step)


def _pair(judge: Judge, node: str, gpu: int, device: str, rail: int, found: Topology) -> None:
    where = f"{node} gpu{gpu}"
    judge.judged += 1
    actual = found.distance.get((gpu, device))
    near = sorted(name for (of, name), word in found.distance.items() if of == gpu and word in _NEAR)
    if actual is None:
        judge.fail(where, f"NIC of rail {rail}", f"{device} at PIX or PXB", f"no {device}; beside it: {', '.join(near) or 'none'}", _STEP)
    elif actual not in _NEAR:
        judge.fail(where, f"NIC of rail {rail}", f"{device} at PIX or PXB", f"{device} at {actual}; beside it: {', '.join(near) or 'none'}", _STEP)
    else:
        judge.measured.update({f"{node}/gpu{gpu}", f"{node}/{device}"})
