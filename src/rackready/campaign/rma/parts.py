"""The parts of a node in one list: what the node tells, what its BMC lists, and what was recorded before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rackready.campaign.rma import on_bmc, on_node
from rackready.campaign.rma.case import Case
from rackready.design.facts import NodeFacts
from rackready.gates.formats import dmidecode
from rackready.gates.gpu.parts import index_of, short

_NOTHING = frozenset(
    {"", "?", "0", "n/a", "[n/a]", "na", "none", "null", "unknown", "empty", "invalid", "default", "o.e.m."}
)
_PHRASES = (
    "not specified",
    "not available",
    "not applicable",
    "not provided",
    "not supported",
    "no dimm",
    "default string",
    "to be filled by o.e.m.",
)
_FILLERS = ("to be filled", "default string", "no serial", "serial number", "unread:")
_ROWS = ("0123456789abcdef", "1234567890")
"""Digits in a row: what firmware has where nobody wrote a number."""
_ROW = 6
_ALIKE = 3
"""Parts of one kind and node with the same number, from which on it is none of theirs. Judgement: two may be one part
that is listed twice. GPUs are left out: NVML's number is that of a board, which may have several."""
_GUID = "node GUID "
_SLOT = 9
"""dmidecode's structure of a slot (DMTF DSP0134, type 9)."""


@dataclass(frozen=True, slots=True)
class NodePart:
    """One part. ``place``: as findings name it ('gpu2'); ``slot``: as the server's label does; ``by``: who told it."""

    kind: str
    place: str
    serial: str = ""
    number: str = ""
    slot: str = ""
    firmware: str = ""
    model: str = ""
    pci: str = ""
    by: str = ""

    def also(self, other: NodePart) -> NodePart:
        """Return the part with what another reading adds."""
        added = {
            name: getattr(other, name)
            for name in ("serial", "number", "slot", "firmware", "model", "pci")
            if not getattr(self, name)
        }
        return replace(self, **added, by=f"{self.by} and {other.by}" if other.by not in self.by else self.by)


def serial(text: object) -> str:
    """Return a serial number, "" for what firmware writes where it knows none."""
    found = str(text if text is not None else "").strip()
    low = found.lower()
    empty = low in _NOTHING or low.strip("[]") in _PHRASES or any(word in low for word in _FILLERS)
    alike = not low.strip("0-. ") or (len(low) >= _ROW and (len(set(low)) == 1 or any(low in row for row in _ROWS)))
    return "" if empty or alike else found


def parts_of(case: Case, facts: NodeFacts, gpus: Iterable[str] = ()) -> list[NodePart]:
    """Return the parts of a node, in a fixed order. ``gpus``: serials by index as its evidence last recorded them."""
    slots = _slots(case.read(on_node.PARTS, "slots.txt"))
    found = [*_gpus(case, facts, slots), *_nics(case, facts, slots), *_own_numbers(_others(case))]
    here = {part.serial for part in found if part.kind == "gpu"}
    for at, known in enumerate(gpus):
        if serial(known) not in {"", *here} and not any(part.place == f"gpu{at}" and part.serial for part in found):
            found.append(NodePart("gpu", f"gpu{at}", serial(known), pci=_at(facts.platform.gpu_pci, at), by="evidence"))
    for part in _own_numbers(_listed(case, facts)):
        same = next((at for at, own in enumerate(found) if _same(own, part)), None)
        if same is None:
            found.append(part)
        else:
            found[same] = found[same].also(part)
    return sorted(
        map(_with_guid, _merged(found)), key=lambda part: (part.kind, len(part.place), part.place, part.serial)
    )


def _own_numbers(parts: Iterable[NodePart]) -> list[NodePart]:
    """Return parts without the serial numbers that several of a kind have: such a number is none of theirs."""
    listed = list(parts)
    count = Counter((part.kind, part.serial) for part in listed if part.serial and part.kind != "gpu")
    return [replace(part, serial="") if count[part.kind, part.serial] >= _ALIKE else part for part in listed]


def _with_guid(part: NodePart) -> NodePart:
    """Return a NIC that tells no serial number with its node GUID in the place of one: it changes with the NIC."""
    told = part.kind == "nic" and not part.serial and part.model.startswith(_GUID)
    return replace(part, serial=part.model.removeprefix(_GUID)) if told else part


def _merged(found: list[NodePart]) -> list[NodePart]:
    """Return the list with one entry for each place."""
    out: dict[tuple[str, str], NodePart] = {}
    for part in found:
        key = (part.kind, part.place)
        out[key] = out[key].also(part) if key in out and not _differ(out[key], part) else part
    return list(out.values())


def _differ(one: NodePart, other: NodePart) -> bool:
    return bool(one.serial and other.serial and one.serial != other.serial)


def _same(own: NodePart, other: NodePart) -> bool:
    if own.kind != other.kind:
        return False
    if own.serial and other.serial:
        return own.serial == other.serial
    return own.place == other.place


def _slots(text: str) -> dict[str, str]:
    """Return PCI address -> the label of its slot, as the firmware tells it."""
    try:
        found = dmidecode.structures(text, _SLOT) if text else []
    except ValueError:
        return {}
    return {
        short(fields["Bus Address"]): fields.get("Designation", "")
        for fields in found
        if ":" in fields.get("Bus Address", "") and not fields["Bus Address"].startswith("ff")
    }


def _at(known: Iterable[str], place: int) -> str:
    return next((item for at, item in enumerate(known) if at == place), "")


def _gpus(case: Case, facts: NodeFacts, slots: Mapping[str, str]) -> Iterator[NodePart]:
    for gpu in case.document(on_node.PARTS, "gpus.json").get("gpus") or []:
        pci = str(gpu.get("pci") or "")
        index = index_of(facts, pci) if pci else None
        place = f"gpu{index if index is not None else gpu.get('index')}"
        if gpu.get("lost") and index is None:
            continue  # NVML's numbers close up around a lost GPU: it is known by its PCI address or not at all
        yield NodePart(
            "gpu",
            place,
            serial(gpu.get("serial")) or serial(gpu.get("uuid")),
            serial(gpu.get("board_part")),
            slots.get(short(pci), "") if pci else "",
            str(gpu.get("vbios") or ""),
            str(gpu.get("name") or ""),
            short(pci) if pci else "",
            "NVML",
        )


def _nics(case: Case, facts: NodeFacts, slots: Mapping[str, str]) -> Iterator[NodePart]:
    wired = {nic.rdma_device: nic for nic in facts.nics}
    for nic in case.document(on_node.PARTS, "identity.json").get("nics") or []:
        name = str(nic.get("device"))
        pci = wired[name].pci if name in wired else ""
        yield NodePart(
            "nic",
            name,
            slot=slots.get(short(pci), "") if pci else "",
            firmware=str(nic.get("firmware") or ""),
            model=f"{_GUID}{nic.get('guid')}" if nic.get("guid") else "",
            pci=short(pci) if pci else "",
            by="sysfs",
        )


def _others(case: Case) -> Iterator[NodePart]:
    """Yield memory modules, drives and modules of ports by the numbers that ondevice/node_parts.py prints.

    What an earlier release gathered has them in words alone: which word is which is unknown.
    """
    numbers = case.document(on_node.PARTS, "parts.json").get("numbers", {})
    for kind, named in numbers.items() if isinstance(numbers, dict) else ():
        for name, item in named.items() if isinstance(named, dict) else ():
            told = {key: str(value) for key, value in item.items()} if isinstance(item, dict) else {}
            number, part = serial(told.get("serial")), serial(told.get("part"))
            if kind == "memory modules":
                slot = told.get("slot", "")
                yield NodePart("memory module", slot, number, part, slot, model=told.get("size", ""), by="DMI")
            elif kind == "drives":
                yield NodePart("drive", told.get("serial", ""), number, model=told.get("model", ""), by="lsblk")
            else:
                yield NodePart("module", str(name), number, part, model=told.get("vendor", ""), by="mlxlink")


def _flat(kinds: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for parts in kinds.values():
        if isinstance(parts, dict):
            yield from ((str(name), str(told)) for name, told in parts.items())


def _listed(case: Case, facts: NodeFacts) -> Iterator[NodePart]:
    """Yield the parts that the BMC lists."""
    found = case.document(on_bmc.PARTS, "parts.json")
    documents, seen = found.get("documents", {}), set[str]()
    for trail, addresses in found.get("trails", {}).items():
        for address in addresses:
            document = documents.get(address)
            if isinstance(document, dict) and address not in seen:
                seen.add(address)
                yield from _of_document(trail, document, facts)


_KINDS = (
    ("/Memory/", "memory module"),
    ("/Drives/", "drive"),
    ("/NetworkAdapters/", "nic"),
    ("/PowerSupplies/", "psu"),
    ("/Fans/", "fan"),
    ("/PCIeDevices/", "pcie device"),
)


def _of_document(trail: str, document: Mapping[str, Any], facts: NodeFacts) -> Iterator[NodePart]:
    for name, kind in (("PowerSupplies", "psu"), ("Fans", "fan")):  # embedded in Power and Thermal
        told = document.get(name)
        for item in told if isinstance(told, list) else []:
            if isinstance(item, dict) and "SerialNumber" in item:
                yield _part(kind, item)
    kind = next((kind for mark, kind in _KINDS if mark in f"{trail}/"), "")
    if trail.endswith("/Processors/*"):
        kind = "gpu" if document.get("ProcessorType") == "GPU" else "cpu"
    elif trail in {"Systems/*", "Chassis/*"}:
        kind = "system" if trail == "Systems/*" else "chassis"
    state = document.get("Status")
    if not kind or (isinstance(state, dict) and state.get("State") == "Absent"):
        return
    part = _part(kind, document)
    if kind in {"pcie device", "chassis", "system", "cpu"} and not part.serial:
        return
    yield replace(part, place=_nic_name(document, facts) or part.place) if kind == "nic" else part


def _part(kind: str, item: Mapping[str, Any]) -> NodePart:
    location = item.get("Location")
    label = location.get("PartLocation") if isinstance(location, dict) else None
    slot = label.get("ServiceLabel") if isinstance(label, dict) else ""
    name = str(item.get("Id") or item.get("MemberId") or item.get("Name") or "")
    return NodePart(
        kind,
        f"{kind} {name}" if kind in {"psu", "fan"} else name,
        serial(item.get("SerialNumber")),
        serial(item.get("PartNumber")),
        str(slot or item.get("DeviceLocator") or name),
        str(item.get("FirmwareVersion") or item.get("Version") or item.get("Revision") or ""),
        str(item.get("Model") or ""),
        by="BMC",
    )


def _nic_name(document: Mapping[str, Any], facts: NodeFacts) -> str:
    """Return the RDMA device of an adapter that the profile names, "" for another: platform profile, redfish.nics."""
    known = facts.platform.redfish.nics if facts.platform.redfish is not None else []
    for controller in document.get("Controllers") or []:
        links = controller.get("Links") if isinstance(controller, dict) else None
        for link in (links.get("PCIeDevices") or []) if isinstance(links, dict) else []:
            last = str(link.get("@odata.id", "")).rsplit("/", 1)[-1] if isinstance(link, dict) else ""
            if last in known:
                return facts.platform.nics[known.index(last)].rdma_device
    return ""


def versions(case: Case) -> dict[str, str]:
    """Return what runs on the node: driver, VBIOS, NIC firmware, BIOS, BMC, and the BMC's list of firmware."""
    identity = case.document(on_node.PARTS, "identity.json")
    out = {name: str(identity[name]) for name in ("driver", "kernel") if identity.get(name)}
    for name, values in (
        ("VBIOS", [gpu.get("vbios") for gpu in identity.get("gpus") or []]),
        ("NIC firmware", [nic.get("firmware") for nic in identity.get("nics") or []]),
    ):
        told = sorted({str(value) for value in values if value})
        if told:
            out[name] = ", ".join(told)
    parts = case.document(on_node.PARTS, "parts.json").get("parts", {})
    out |= dict(_flat({key: parts.get(key) for key in ("BIOS", "BMC")}))
    documents = case.document(on_bmc.PARTS, "parts.json").get("documents", {})
    for address, item in sorted(documents.items()):
        if "/FirmwareInventory/" in address and item.get("Version"):
            out[f"firmware {item.get('Id') or address.rsplit('/', 1)[-1]}"] = str(item["Version"])
    return out
