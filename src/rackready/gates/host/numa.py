"""The gate on NUMA: number of NUMA nodes, and the NUMA node of every GPU and NIC."""

from __future__ import annotations

from rackready.design.facts import NodeFacts
from rackready.gates.host import cpu, reading
from rackready.gates.host.cpu import LSCPU, processors
from rackready.gates.host.reading import Answers, HostGate, WantedValues, placed
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.place import Place

_STEP = "Check the BIOS (sub-NUMA clustering, NPS, node interleaving) and that the card sits in its own slot."


NUMA_NODES = FailKind(
    "numa-nodes",
    "NUMA nodes",
    meaning="The BIOS sets up another number of NUMA nodes than the platform's.",
    next_step=_STEP,
)
NUMA_NOT_JUDGED = ErrorKind(
    "numa-not-judged",
    "NUMA layout cannot be judged",
    meaning="The platform profile has neither a number of NUMA nodes nor NICs, so there is nothing to compare with.",
    next_step="Add `host` to the platform profile ({platform}.yml), with its source.",
)
NO_AFFINITY = FailKind(
    "numa-no-affinity",
    "NUMA node",
    meaning="The BIOS does not report this device's NUMA node, so programs may run far from it.",
    next_step="Update the BIOS, and check its NUMA setting.",
)
AFFINITY_NOT_REPORTED = ErrorKind(
    "numa-not-reported",
    "NUMA node not reported",
    meaning="The kernel does not report this device's NUMA node.",
    next_step="Check whether the device is on the bus: `lspci -s {pci}`.",
)
AFFINITY = FailKind(
    "numa-other-node",
    "NUMA node",
    meaning="This device is on another NUMA node than the platform profile says.",
    next_step=_STEP,
)

FINDINGS = (NUMA_NODES, NUMA_NOT_JUDGED, NO_AFFINITY, AFFINITY_NOT_REPORTED, AFFINITY)


def expected(facts: NodeFacts) -> dict[str, tuple[str, int]]:
    """Return PCI address -> (part, NUMA node) of every NIC, and of every GPU that shares a PCIe switch with one."""
    out = {nic.pci: (nic.rdma_device, nic.numa) for nic in facts.nics if nic.pci}
    for nic in facts.nics:
        if nic.gpu < len(facts.platform.gpu_pci):
            out[facts.platform.gpu_pci[nic.gpu]] = (f"gpu{nic.gpu}", nic.numa)
    return out


class Numa(HostGate):
    """The node has its platform's NUMA nodes, and every GPU and NIC is on the NUMA node to which it is wired."""

    id = "node/host/sanity/numa"
    findings = (*reading.FINDINGS, reading.PARTS_NOT_PLACED, cpu.LSCPU_UNREADABLE, *FINDINGS)
    looks = True
    what = "NUMA layout"

    def wanted(self, facts: NodeFacts) -> WantedValues:
        """Return lscpu and the NUMA node of every GPU and NIC."""
        return WantedValues((LSCPU,), tuple(sorted(_numa_file(pci) for pci in expected(facts))))

    def judge_node(self, judge: Judge, facts: NodeFacts, found: Answers) -> None:
        """Compare the layout with the platform profile."""
        node, parts = facts.node.name, facts.platform.host
        if not placed(judge, facts):
            return
        cpus = processors(judge, found)
        if cpus is not None and parts is not None:
            judge.equal(node, NUMA_NODES, parts.numa_nodes, cpus.numa_nodes)
        if parts is None and not expected(facts):
            judge.judged += 1
            judge.error(
                node,
                NUMA_NOT_JUDGED,
                "a number of NUMA nodes, or compute NICs, in the platform profile",
                "neither",
                platform=facts.platform.id,
            )
        for pci, (part, wanted) in sorted(expected(facts).items(), key=lambda item: item[1]):
            text = found.one(_numa_file(pci))
            where = Place(node, part)
            if text == "-1":
                judge.judged += 1
                judge.fail(where, NO_AFFINITY, wanted, "none (-1)")
            elif text is None or not text.isdigit():
                judge.judged += 1
                judge.error(where, AFFINITY_NOT_REPORTED, wanted, text or f"no {_numa_file(pci)}", pci=pci)
            else:
                judge.equal(where, AFFINITY, wanted, int(text))


def _numa_file(pci: str) -> str:
    return f"/sys/bus/pci/devices/{pci}/numa_node"
