"""Gates on PCIe between GPUs and NICs: access control (ACS) off, and an IOMMU that does not translate."""

from __future__ import annotations

from rackready.design.facts import NodeFacts
from rackready.format_error import FormatError
from rackready.gates.formats import lspci
from rackready.gates.host import reading
from rackready.gates.host.reading import AGAIN, Answers, HostGate, Tool, WantedValues, placed
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.place import Place

BRIDGES = Tool("lspci", ("lspci", "-D", "-vvv", "-d", "::0604"), "pciutils")
_REDIRECTS = frozenset({"SrcValid", "ReqRedir", "CmpltRedir"})
"""NCCL's guide checks SrcValid+; the redirects send peer-to-peer traffic up (PCI Express, access control services)."""
_VIRTUAL = (
    "virtual machine: its host needs access control services and the NIC address translation (ATS); not judged here"
)


LSPCI_UNREADABLE = ErrorKind(
    "lspci-unreadable",
    "lspci's output is not understood",
    meaning="lspci printed something other than bridges with their capabilities.",
    next_step=AGAIN,
)
PATH_NOT_FOUND = ErrorKind(
    "pcie-way-not-found",
    "path to a GPU or NIC not found",
    meaning="No bridge is listed above a GPU or NIC, so its path cannot be judged.",
    next_step="Check with `lspci -t` that the device is on the bus, and check its address in the platform profile.",
)
PORT_KIND_UNKNOWN = ErrorKind(
    "pcie-port-kind-unknown",
    "kind of PCIe port not reported",
    meaning="lspci does not report what kind of port a bridge is.",
    next_step="Run `lspci -vvv -s {address}` as root.",
)
ACS_ON = FailKind(
    "acs-on",
    "access control services",
    meaning="Access control sends traffic between GPU and NIC through the processor: GPUDirect RDMA is slow.",
    next_step="Set `base_pcie_acs_off: true` in the group_vars of the environment and run install, or turn ACS off in "
    "the BIOS; `lspci -vvv -s {address}` shows it: docs/howto/node-settings.md.",
    runbook="docs/runbooks/nccl-transport.md",
)
DEVICE_NOT_FOUND = ErrorKind(
    "pci-device-not-found",
    "PCI device not found",
    meaning="A GPU or NIC is not at its PCI address.",
    next_step="Check whether the device is on the bus: `lspci -s {pci}`.",
)
IOMMU_TRANSLATES = FailKind(
    "iommu-translates",
    "IOMMU",
    meaning="The IOMMU translates addresses of a GPU or NIC: transfers between them are slower.",
    next_step="Add iommu=pt (arm64: iommu.passthrough=1) to `base_kernel_options` and run install, which reboots the "
    "node (nvidia-tuned sets the same).",
)

FINDINGS = (LSPCI_UNREADABLE, PATH_NOT_FOUND, PORT_KIND_UNKNOWN, ACS_ON, DEVICE_NOT_FOUND, IOMMU_TRANSLATES)


def parts(facts: NodeFacts) -> dict[str, str]:
    """Return PCI address -> name of every GPU and compute NIC with an address in the profile."""
    gpus = {pci: f"gpu{index}" for index, pci in enumerate(facts.platform.gpu_pci)}
    return {**gpus, **{nic.pci: nic.rdma_device for nic in facts.nics if nic.pci}}


class AccessControl(HostGate):
    """No PCIe switch between a GPU and a NIC redirects their traffic to the processor (ACS is off)."""

    id = "node/host/sanity/pcie-acs"
    findings = (
        *reading.FINDINGS,
        reading.PARTS_NOT_PLACED,
        LSPCI_UNREADABLE,
        PATH_NOT_FOUND,
        PORT_KIND_UNKNOWN,
        ACS_ON,
    )
    looks = True
    what = "PCIe bridges"

    def wanted(self, facts: NodeFacts) -> WantedValues:  # noqa: ARG002 - the same on every node
        """Return the list of all PCI bridges."""
        return WantedValues((BRIDGES,))

    def judge_node(self, judge: Judge, facts: NodeFacts, found: Answers) -> None:
        """Judge every switch port on the path to a GPU or NIC."""
        node = facts.node.name
        if facts.node.kind == "virtual":
            judge.nothing(_VIRTUAL)
            return
        text = found.text("lspci") if placed(judge, facts) else None
        if text is None:
            return
        try:
            bridges = lspci.parse(text)
        except FormatError as error:
            judge.error(node, LSPCI_UNREADABLE, "PCI bridges with their capabilities", error)
            return
        self._ports(judge, facts, bridges)

    @staticmethod
    def _ports(judge: Judge, facts: NodeFacts, bridges: list[lspci.Bridge]) -> None:
        node, below = facts.node.name, parts(facts)
        lost = [name for pci, name in below.items() if not any(bridge.above(pci) for bridge in bridges)]
        judge.judged += 1
        if lost:
            judge.error(node, PATH_NOT_FOUND, "a bridge above each", f"none above {', '.join(lost)}")
        for bridge in bridges:
            under = [name for pci, name in below.items() if bridge.above(pci)]
            on = (bridge.acs or frozenset()) & _REDIRECTS
            if under and not bridge.port:
                judge.error(
                    Place(node, bridge.address),
                    PORT_KIND_UNKNOWN,
                    "root, upstream or downstream port",
                    "nothing",
                    address=bridge.address,
                )
            if under and on and bridge.port == "Downstream Port":
                where, actual = (
                    Place(node, bridge.address, f"(above {', '.join(under)})"),
                    " ".join(f"{flag}+" for flag in sorted(on)),
                )
                judge.fail(where, ACS_ON, "off on switch ports above GPUs and NICs", actual, address=bridge.address)


class Iommu(HostGate):
    """The IOMMU is off or passes GPU and NIC traffic through without translation."""

    id = "node/host/sanity/iommu"
    findings = (*reading.FINDINGS, reading.PARTS_NOT_PLACED, DEVICE_NOT_FOUND, IOMMU_TRANSLATES)
    looks = True
    what = "IOMMU"

    def wanted(self, facts: NodeFacts) -> WantedValues:
        """Return the type of every GPU's and NIC's IOMMU group."""
        return WantedValues(
            files=tuple(sorted(name for pci in parts(facts) for name in (_group_file(pci), _vendor_file(pci))))
        )

    def judge_node(self, judge: Judge, facts: NodeFacts, found: Answers) -> None:
        """Fail for every device whose group is not pass-through (identity); no group means that the IOMMU is off."""
        node = facts.node.name
        if facts.node.kind == "virtual":
            judge.nothing(_VIRTUAL)
            return
        if not placed(judge, facts):
            return
        wrong: dict[str, list[str]] = {}
        for pci, name in sorted(parts(facts).items(), key=lambda item: item[1]):
            judge.judged += 1
            if found.one(_vendor_file(pci)) is None:
                judge.error(Place(node, name), DEVICE_NOT_FOUND, _vendor_file(pci), "nothing", pci=pci)
                continue
            for kind in found.matching(_group_file(pci)).values():  # a group whose type cannot be read is an error
                if kind != "identity":
                    wrong.setdefault(kind, []).append(name)
        for kind, names in wrong.items():
            judge.fail(Place(node, ", ".join(names)), IOMMU_TRANSLATES, "identity (pass-through), or off", kind)


def _group_file(pci: str) -> str:
    return f"/sys/bus/pci/devices/{pci}/iommu_group/type"


def _vendor_file(pci: str) -> str:
    return f"/sys/bus/pci/devices/{pci}/vendor"
