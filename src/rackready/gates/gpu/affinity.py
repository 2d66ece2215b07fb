"""GPU-to-NIC affinity: each GPU shares a PCIe switch with its own NIC, where the server model has such switches."""

from __future__ import annotations

from collections.abc import Sequence

from rackready.design.facts import NodeFacts
from rackready.format_error import FormatError
from rackready.gates.base import Command, Gate, GateFacts, Outputs, Run, trouble
from rackready.gates.formats import smi_topo
from rackready.gates.formats.smi_topo import Topology
from rackready.gates.gpu import parts
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Verdict
from rackready.model.place import Place
from rackready.model.profile import PlatformNic

_KEY = "topo"
_NEAR = frozenset({"PIX", "PXB"})
_STEP = (
    "Compare the NIC's PCI address with the platform profile (`ls -l /sys/class/infiniband`); "
    "move a card that is in the wrong slot: docs/runbooks/nic.md."
)


TOPOLOGY_UNREADABLE = ErrorKind(
    "gpu-topology-unreadable",
    "topology unreadable",
    meaning="`nvidia-smi topo -m` printed something other than its matrix, so it is unknown how GPUs and NICs are "
    "attached.",
    next_step="Run `nvidia-smi topo -m` by hand.",
)
TOPOLOGY_CONTRADICTS = ErrorKind(
    "gpu-topology-exit-code",
    "nvidia-smi contradicts itself",
    meaning="nvidia-smi printed a matrix and still ended with an error, so the matrix cannot be trusted.",
    next_step="Run `nvidia-smi topo -m` by hand.",
)
TOPOLOGY_GPUS_MISSING = FailKind(
    "gpu-topology-gpus-missing",
    "GPUs in nvidia-smi topo",
    meaning="The topology lists fewer GPUs than the platform has.",
    next_step=parts.FEWER,
)
TOPOLOGY_GPUS_MORE = FailKind(
    "gpu-topology-gpus-too-many",
    "GPUs in nvidia-smi topo",
    meaning="The topology lists more GPUs than the platform has: the site file is wrong, or the output is of another "
    "node.",
    next_step=parts.MORE,
)
TOPOLOGY_NOT_DECLARED = ErrorKind(
    "gpu-topology-not-declared",
    "nothing to compare the topology with",
    meaning="The platform profile does not name the NICs or where they are, so there is nothing to compare the "
    "topology with.",
    next_step=(
        "Add them to the platform profile ({profile}.yml) with their source: `nvidia-smi topo -m` of such a "
        "server shows them. "
        "Where the server has no compute NICs, declare the gate's skip with that reason (site.yml gates.skip)."
    ),
)
NIC_FAR_FROM_GPU = FailKind(
    "nic-far-from-gpu",
    "NIC of rail {rail}",
    meaning="The GPU's own NIC is not behind the same PCIe switch. Its RDMA traffic takes a detour over the host, at a "
    "lower rate.",
    next_step=_STEP,
    runbook="docs/runbooks/nic.md",
)
NIC_NOT_LISTED = FailKind(
    "nic-not-in-topology",
    "NIC of rail {rail}",
    meaning="nvidia-smi does not list this NIC: the card is absent, or has no RDMA device of that name.",
    next_step="Compare `ls -l /sys/class/infiniband` with the platform profile; if the card is absent, reseat it: "
    "docs/runbooks/nic.md.",
    runbook="docs/runbooks/nic.md",
)

FINDINGS = (
    TOPOLOGY_UNREADABLE,
    TOPOLOGY_CONTRADICTS,
    TOPOLOGY_GPUS_MISSING,
    TOPOLOGY_GPUS_MORE,
    TOPOLOGY_NOT_DECLARED,
    NIC_FAR_FROM_GPU,
    NIC_NOT_LISTED,
)


class Affinity(Gate):
    """Every GPU has its own NIC behind the same PCIe switch (PIX or PXB), and no other NIC in its place.

    Where GPUs and NICs have root ports of their own (GB200), every distance is the same: it requires that the NIC is
    listed, and ``node/host/sanity/numa`` judges where it is.
    """

    id = "node/gpu/sanity/affinity"
    findings = FINDINGS
    looks = True
    covers = frozenset({"gpu", "nic"})

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:  # noqa: ARG002 - the same for all
        """Return one command per node."""
        return [
            Run.of_node(node, Command(key=_KEY, node=node, argv=("nvidia-smi", "topo", "-m"), timeout_s=60))
            for node in nodes
        ]

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Compare the matrix with the platform profile."""
        node = run.nodes[0]
        judge = Judge()
        output = outputs.get(_KEY)
        if judge.trouble(trouble(output, node, "nvidia-smi topo -m")) or output is None:
            return judge.verdict(node)
        try:
            found = smi_topo.parse(output.stdout)
        except FormatError as error:
            judge.error(
                node, TOPOLOGY_UNREADABLE, "the matrix of nvidia-smi topo -m", f"{error} (exit code {output.exit_code})"
            )
            return judge.verdict(node)
        if output.exit_code != 0:
            judge.error(node, TOPOLOGY_CONTRADICTS, "exit code 0 with a matrix", f"exit code {output.exit_code}")
        self._judge(judge, facts.nodes[node], node, found)
        return judge.verdict(node)

    def _judge(self, judge: Judge, facts: NodeFacts, node: str, found: Topology) -> None:
        judge.judged += 1
        if len(found.gpus) != facts.platform.gpus:
            judge.fail(
                node,
                TOPOLOGY_GPUS_MISSING if len(found.gpus) < facts.platform.gpus else TOPOLOGY_GPUS_MORE,
                f"{facts.platform.gpus}",
                f"{len(found.gpus)}",
            )
        nics = [nic for nic in facts.platform.nics if nic.rdma_device]
        if len(nics) < max(1, len(facts.platform.nics)):
            _nothing_declared(judge, facts, node)
        check = _check_listed if facts.platform.nic_path == "root_ports" else _check_nic
        for nic in nics:
            check(judge, node, nic, found)


def _nothing_declared(judge: Judge, facts: NodeFacts, node: str) -> None:
    """Add an error: a matrix that is compared with nothing measures nothing."""
    profile = facts.platform.id
    names = (
        f"the device names of its {len(facts.platform.nics)} compute NICs (`rdma_device`)"
        if facts.platform.nics
        else "its compute NICs (`nics`)"
    )
    judge.error(node, TOPOLOGY_NOT_DECLARED, f"{names} in the profile {profile}", "not declared", profile=profile)


def _check_listed(judge: Judge, node: str, nic: PlatformNic, found: Topology) -> None:
    gpu, device = nic.gpu, nic.rdma_device
    judge.judged += 1
    if (gpu, device) in found.distance:
        judge.measured.update({f"{node}/gpu{gpu}", f"{node}/{device}"})
    elif gpu in found.gpus:  # a GPU that is not there has a finding of its own
        actual = ", ".join(found.devices) or "no NIC"
        judge.fail(Place(node, f"gpu{gpu}"), NIC_NOT_LISTED, f"{device} in the matrix", actual, rail=nic.rail)


def _check_nic(judge: Judge, node: str, nic: PlatformNic, found: Topology) -> None:
    gpu, device, rail = nic.gpu, nic.rdma_device, nic.rail
    where = Place(node, f"gpu{gpu}")
    judge.judged += 1
    actual = found.distance.get((gpu, device))
    near = sorted(name for (of, name), word in found.distance.items() if of == gpu and word in _NEAR)
    if actual in _NEAR:
        judge.measured.update({f"{node}/gpu{gpu}", f"{node}/{device}"})
        return
    found_at = f"no {device}" if actual is None else f"{device} at {actual}"
    judge.fail(
        where,
        NIC_FAR_FROM_GPU,
        f"{device} at PIX or PXB",
        f"{found_at}; beside it: {', '.join(near) or 'none'}",
        rail=rail,
    )
