"""Inventory of a node's parts from GPU driver, kernel and BMC together, and the differences between two inventories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rackready.format_error import FormatError
from rackready.gates.base import Command, Output, Outputs
from rackready.gates.bmc.documents import BmcAnswer, absent, ask, name, parse, state, strange
from rackready.gates.engine.shipped_script import command, document
from rackready.gates.formats import printed
from rackready.gates.judging.finding_kinds import FailKind
from rackready.ondevice import fingerprint, nvml_inventory, part_inventory

DIMMS, DRIVES = "Systems/*!hgx_*/Memory/*", "Systems/*!hgx_*/Storage/*/Drives/*"
BARE = ("/Storage",)
"""End of the address of a collection that a DGX H100 answers without members: its BMC lists no drives
(NVIDIA/libredfish c094c9e6, tests/mockups/nvidia_viking, Systems/DGX/Storage)."""
_STEADY = ("0x01", "0x02")
"""PCI classes of disk and network controllers: their links keep their speed. An idle GPU lowers its link speed, and
that of the ports above it."""


RMA = (
    "Power the node off, reseat the part and its cables; if it goes missing again, replace it (RMA), "
    "then its riser or board. Do not put the node into use."
)

PART_GONE = FailKind(
    "part-gone-after-cycle",
    "gone after a power cycle: {cycle}",
    meaning="A part that was there before the power cycle did not come back.",
    next_step=RMA,
)
PART_CAME = FailKind(
    "part-came-with-cycle",
    "appeared only after a power cycle: {cycle}",
    meaning="A part that was missing before came with the power cycle: it is not found at every start.",
    next_step=RMA,
)
PART_CHANGED = FailKind(
    "part-changed-with-cycle",
    "changed by a power cycle: {cycle}",
    meaning="A part reports other properties than before the power cycle.",
    next_step=RMA,
)
LINK_WIDTH_CHANGED = FailKind(
    "part-width-changed-with-cycle",
    "PCIe link width changed: {cycle}",
    meaning="A PCIe link does not come up with the same number of lanes at every start.",
    next_step=RMA,
)
LINK_SPEED_CHANGED = FailKind(
    "part-speed-changed-with-cycle",
    "PCIe link speed changed: {cycle}",
    meaning="A PCIe link does not come up at the same speed at every start.",
    next_step=RMA,
)

FINDINGS = (PART_GONE, PART_CAME, PART_CHANGED, LINK_WIDTH_CHANGED, LINK_SPEED_CHANGED)


def look(node: str, number: int, stage: int) -> tuple[Command, ...]:
    """Return the commands of one inventory of a node's parts."""
    return (
        command(f"gpus-{number}", node, nvml_inventory, timeout_s=120, stage=stage),
        command(f"nics-{number}", node, fingerprint, timeout_s=120, stage=stage),
        command(f"parts-{number}", node, part_inventory, timeout_s=120, stage=stage),
        ask(node, DIMMS, DRIVES, key=f"bmc-{number}", stage=stage),
    )


@dataclass(frozen=True, slots=True)
class BmcInventory:
    """One inventory: parts by name ("gpu 1650...": description), width and speed of their PCIe links, and the boot id.

    Width and speed read "x16" and "32.0 GT/s PCIe". ``bare``: collections of the BMC that list no members.
    """

    boot_id: str
    parts: Mapping[str, str]
    widths: Mapping[str, str]
    speeds: Mapping[str, str]
    bare: tuple[str, ...] = ()


def read_inventory(outputs: Outputs, number: int) -> BmcInventory:
    """Return one inventory. Raises FormatError when a part of it is missing or damaged."""
    gpus = _document(outputs, f"gpus-{number}", nvml_inventory.FORMAT, printed.NvmlInventory)
    nics = _document(outputs, f"nics-{number}", fingerprint.FORMAT, printed.Fingerprint)
    rest = _document(outputs, f"parts-{number}", part_inventory.FORMAT, printed.PartInventory)
    parts, widths = _gpus(gpus)
    parts |= {f"nic {nic.get('device')}": f"node GUID {nic.get('guid')}" for nic in nics["nics"]}
    pci, disks = rest["pci"], rest["disks"]
    parts |= {f"pci {address}": item["id"] for address, item in pci.items()}
    widths |= {
        f"pci {address}": f"x{item['width']}" for address, item in pci.items() if isinstance(item.get("width"), int)
    }
    speeds = {
        f"pci {address}": item["speed"]
        for address, item in pci.items()
        if item.get("speed") and str(item.get("class")).startswith(_STEADY)
    }
    # The kernel names disks in the order in which it finds them, which differs at every boot. Serial and size identify
    # a disk.
    parts |= {
        f"disk {identity}": f"{item['sectors']} sectors" if item.get("sectors") else "size not reported"
        for identity, item in disks.items()
    }
    if rest.get("memory_bytes"):
        parts["memory"] = f"{rest['memory_bytes'] / 2**30:.0f} GiB"
    told = _told(_output(outputs, f"bmc-{number}"))
    return BmcInventory(rest["boot_id"], parts | _bmc(told), widths, speeds, tuple(sorted(told.without_members(BARE))))


def _gpus(found: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    rows = found["gpus"]
    lost = [row for row in rows if row.get("lost") or not (row.get("serial") or row.get("uuid"))]
    if lost:
        message = f"gpu{lost[0].get('index')} does not report its identity: {lost[0].get('lost') or 'no serial'}"
        raise FormatError(message)
    names = {f"gpu {row.get('serial') or row.get('uuid')}": row for row in rows}
    told = {key: f"{row.get('name')} at {row.get('pci')}, {_links(row)} NVLinks active" for key, row in names.items()}
    return told, {key: f"x{row['pcie_width']}" for key, row in names.items() if isinstance(row.get("pcie_width"), int)}


def _links(row: Mapping[str, Any]) -> int:
    links = row.get("nvlinks")
    return sum(1 for state in links.values() if state is True) if isinstance(links, dict) else 0


def _told(output: Output) -> BmcAnswer:
    """Return the BMC's answer. Raises FormatError where a part of it could not be read."""
    if output.failure or output.timed_out:
        message = f"the BMC did not report its parts: {output.failure or 'no end in time'}"
        raise FormatError(message)
    told = parse(output)
    bare = told.without_members(BARE)
    for address, why in told.unread.items():
        if address not in bare:
            message = f"the BMC did not report its parts: {address}: {why}"
            raise FormatError(message)
    return told


def _bmc(told: BmcAnswer) -> dict[str, str]:
    """Return the DIMMs and drives that the BMC lists; absent ones are empty slots."""
    found = {}
    for trail, kind in ((DIMMS, "dimm"), (DRIVES, "drive")):
        for item in told.at(trail):
            if not absent(item):
                if strange(item):
                    message = (
                        f"the BMC reports a state of {kind} {name(item)} that Redfish does not define: {state(item)}"
                    )
                    raise FormatError(message)
                found[f"{kind} {name(item)}"] = str(
                    item.get("SerialNumber") or item.get("PartNumber") or "no serial"
                ).strip()
    return found


def _output(outputs: Outputs, key: str) -> Output:
    if key not in outputs:
        message = f"{key} was not run"
        raise FormatError(message)
    return outputs[key]


def _document(outputs: Outputs, key: str, wanted: str, shape: type[printed.Shape]) -> dict[str, Any]:
    output = _output(outputs, key)
    if output.failure or output.timed_out:
        message = f"{key}: {output.failure or 'no end in time'}"
        raise FormatError(message)
    found = document(output, wanted, shape)
    if "error" in found:
        message = f"{key}: {found['error']}"
        raise FormatError(message)
    return found


@dataclass(frozen=True, slots=True)
class PartDifference:
    """One difference between the first inventory and a later one."""

    part: str
    kind: FailKind
    before: str
    after: str


def differences(first: BmcInventory, later: BmcInventory) -> list[PartDifference]:
    """Return what is gone, new, changed, or linked with another width or speed.

    A link that no longer reports either is down.
    """
    found = [
        PartDifference(part, PART_GONE, what, "not there")
        for part, what in first.parts.items()
        if part not in later.parts
    ]
    found += [
        PartDifference(part, PART_CAME, "not there", what)
        for part, what in later.parts.items()
        if part not in first.parts
    ]
    found += [
        PartDifference(part, PART_CHANGED, what, later.parts[part])
        for part, what in first.parts.items()
        if later.parts.get(part, what) != what
    ]
    for kind, before, after in (
        (LINK_WIDTH_CHANGED, first.widths, later.widths),
        (LINK_SPEED_CHANGED, first.speeds, later.speeds),
    ):
        found += [
            PartDifference(part, kind, value, after.get(part, "none reported"))
            for part, value in before.items()
            if part in later.parts and after.get(part) != value
        ]
    return found
