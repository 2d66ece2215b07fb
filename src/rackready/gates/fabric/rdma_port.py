"""Checks of a NIC's port for several gates: its link, its link layer, and the payload share of its rate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rackready.design.facts import NicFacts
from rackready.format_error import FormatError
from rackready.gates.base import Output, trouble
from rackready.gates.engine.shipped_script import document
from rackready.gates.judging.expectation import Bound
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.choices import FabricKind
from rackready.model.place import Place
from rackready.model.site import Fabric
from rackready.ondevice import rdma_counters

TRANSPORT = FailKind(
    "rdma-transport",
    "transport",
    meaning="The port uses another link layer than the fabric: InfiniBand for Ethernet, or the other way round.",
    next_step="Set the port's link type: `mlxconfig -d DEVICE set LINK_TYPE_P1={link_type}`, then reset the NIC.",
)
OTHER_GIDS = ErrorKind(
    "rdma-other-gids",
    "{program} used other GIDs",
    meaning="The tool used other addresses than the rail's, so the data may have taken another way.",
    next_step=(
        "Run the gate again; for an output that was captured elsewhere, check that it belongs to this "
        "rail, and give its addresses (--address NODE:HCA=ADDRESS)."
    ),
)
LINK_STATE_UNREADABLE = ErrorKind(
    "rdma-link-state-unreadable",
    "link state unreadable",
    meaning="The state of the port cannot be read.",
    next_step="Run the gate again.",
)
NIC_MISSING = FailKind(
    "nic-missing",
    "NIC missing{when}",
    meaning="The node does not have this NIC's RDMA device: the card is gone or its driver is not loaded.",
    next_step="Check that `lspci` shows the NIC at {pci} and mlx5_core is loaded; reseat it: docs/runbooks/nic.md",
    runbook="docs/runbooks/nic.md",
)
LINK_DOWN = FailKind(
    "rdma-link-down",
    "link down{when}",
    meaning="The port has no link.",
    next_step="Check {cable} and its transceivers: docs/runbooks/link-down.md",
    runbook="docs/runbooks/link-down.md",
)
LINK_RATE = FailKind(
    "rdma-link-rate",
    "link rate{when}",
    meaning="The port runs at another rate than the NIC's.",
    next_step="Check the cable, its transceivers and the switch port's speed: docs/runbooks/link-down.md",
    runbook="docs/runbooks/link-down.md",
)
BYTES_UNREADABLE = ErrorKind(
    "rdma-bytes-unreadable",
    "byte counters unreadable",
    meaning="The document of the port's byte counters is incomplete.",
    next_step="Run the gate again.",
)
BYTES_NO_NUMBER = ErrorKind(
    "rdma-bytes-no-number",
    "byte counter",
    meaning="The port's byte counter is not a number, so it is unknown whether the data used it.",
    next_step="Check /sys/class/infiniband on the node.",
)

PORT = (NIC_MISSING, LINK_DOWN, LINK_RATE)
"""Findings of ``judge_port``."""
FINDINGS = (*PORT, TRANSPORT, OTHER_GIDS, LINK_STATE_UNREADABLE, BYTES_UNREADABLE, BYTES_NO_NUMBER)


@dataclass(frozen=True, slots=True)
class Layer:
    """A link layer, in the words of those who report it."""

    name: str
    perftest: str
    """perftest's Link type."""
    nccl: str
    """Text after a device's name in NCCL's list of HCAs (src/transport/net_ib)."""
    framing: int
    """Bytes around each packet's payload."""
    framing_source: str
    set_by: str
    """Value of mlxconfig's LINK_TYPE_P1."""


_ROCE = (
    "preamble, frame check and gap 24, Ethernet with VLAN 18, IPv4 20, UDP 8, BTH 12, ICRC 4 (IEEE 802.3; "
    "InfiniBand specification annex A17)"
)
_IB = "LRH 8, BTH 12, ICRC 4, VCRC 2 (InfiniBand specification volume 1)"
LAYERS: Mapping[FabricKind, Layer] = {
    "roce": Layer("RoCE", "Ethernet", "RoCE", 24 + 18 + 20 + 8 + 12 + 4, _ROCE, "2"),
    "infiniband": Layer("InfiniBand", "IB", "IB", 8 + 12 + 4 + 2, _IB, "1"),
}
AFTER = " after the run"
"""Title suffix for `judge_port` after a load: a port may go down under it."""
_LARGEST = 4096
"""The largest path MTU of RDMA, bytes (InfiniBand specification); InfiniBand's links have it."""


def layer(fabric: Fabric) -> Layer:
    """Return the link layer of the site's fabric."""
    return LAYERS[fabric.kind]


def payload_rate(rate: int, mtu: int, of: Layer) -> Bound:
    """Return the payload share of a port's rate, Gb/s.

    RETH is left out: only the first packet of a message has it.
    """
    source = f"derived: port rate x mtu / (mtu + {of.framing} bytes of framing): {of.framing_source}"
    return Bound(rate * mtu / (mtu + of.framing), source, inputs={"rate": float(rate), "mtu": float(mtu)})


def path_mtu(fabric: Fabric) -> int:
    """Return the RDMA path MTU, bytes.

    On Ethernet: the largest power of two that fits its MTU beside IP, UDP and RDMA headers. On InfiniBand: the largest.
    """
    if fabric.kind == "infiniband":
        return _LARGEST
    return max(size for size in (256, 512, 1024, 2048, _LARGEST) if size + 64 <= fabric.mtu)


def headers(fabric: Fabric) -> float:
    """Return how much headers add to a port's count, as a share of the payload.

    Beyond the headers at the largest path MTU: the tolerances allow for those. Counters count whole packets without
    their delimiters (InfiniBand specification, PortXmitData).
    """
    framing = layer(fabric).framing
    return framing / path_mtu(fabric) - framing / _LARGEST


def judge_layer(gathered: Judge, where: str, fabric: Fabric, link_type: str) -> bool:
    """Compare perftest's link type with the site's fabric."""
    wanted = layer(fabric)
    if link_type != wanted.perftest:
        gathered.fail(
            where,
            TRANSPORT,
            f"{wanted.name} (link type {wanted.perftest})",
            f"link type {link_type}",
            link_type=wanted.set_by,
        )
    return link_type == wanted.perftest


def judge_gids(
    gathered: Judge,
    where: str,
    program: str,
    ends: tuple[NicFacts, NicFacts],
    found: tuple[frozenset[str], frozenset[str]],
) -> None:
    """Compare the addresses of perftest's GIDs, at both ends, with the rail's.

    RDMA over Ethernet uses these addresses, whatever address the server was first contacted at.
    """
    if found != tuple(frozenset({nic.address}) for nic in ends):
        expected = f"{ends[0].address} to {ends[1].address}"
        actual = " to ".join(", ".join(sorted(one)) or "none" for one in found)
        gathered.error(where, OTHER_GIDS, expected, actual, program=program)


def judge_link(gathered: Judge, output: Output | None, node: str, nic: NicFacts) -> bool:
    """Judge one end's link: an inactive link is the fault of that node alone."""
    where = Place(node, nic.rdma_device, f"(rail {nic.rail})")
    if gathered.trouble(trouble(output, where, "link state")) or output is None:
        return False
    try:
        found = document(output, rdma_counters.FORMAT)["devices"][nic.rdma_device]
    except (FormatError, KeyError, TypeError) as error:
        gathered.error(where, LINK_STATE_UNREADABLE, "state of the port", error)
        return False
    return judge_port(gathered, found, node, nic)


def judge_port(gathered: Judge, found: object, node: str, nic: NicFacts, when: str = "") -> bool:
    """Judge one reading of a port by `rdma_counters`: present, active, and at its rate.

    ``when``: suffix of the titles.
    """
    where = Place(node, nic.rdma_device, f"(rail {nic.rail})")
    if not isinstance(found, dict) or found.get("state") is None:
        gathered.fail(
            where, NIC_MISSING, f"{nic.rdma_device} under /sys/class/infiniband", "nothing", when=when, pci=nic.pci
        )
        gathered.blamed.add(node)
        return False
    gathered.judged += 1
    state = str(found["state"]).split(":")[-1].strip()
    if state != "ACTIVE":
        cable = f"the cable to {nic.switch} {nic.port}" if nic.switch else "its cable"
        gathered.fail(where, LINK_DOWN, "port ACTIVE", f"port {state}", when=when, cable=cable)
        gathered.blamed.add(node)
        return False
    rate = str(found.get("rate") or "").split(" ")[0]
    if rate != str(nic.rate):
        gathered.fail(where, LINK_RATE, f"{nic.rate} Gb/s", f"{found.get('rate') or 'not reported'}", when=when)
        gathered.blamed.add(node)
        return False
    return True


def port_of(gathered: Judge, output: Output | None, where: str, nic: NicFacts) -> dict[str, Any] | None:
    """Return a port's reading with its count of bytes sent; report any problem with it."""
    if gathered.trouble(trouble(output, where, "reading of byte counters")) or output is None:
        return None
    try:
        port: dict[str, Any] = document(output, rdma_counters.FORMAT)["devices"][nic.rdma_device]
        value = port["xmit_bytes"]
    except (FormatError, KeyError, TypeError) as error:
        gathered.error(where, BYTES_UNREADABLE, "a complete document", error)
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        gathered.error(where, BYTES_NO_NUMBER, "a number", value)
        return None
    return port
