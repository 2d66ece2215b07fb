"""Parts that a BMC lists, compared with the platform profile.

A list over Redfish has no word for "this BMC never lists such parts". So a kind of part of which the BMC lists none, or
about which the profile says nothing, is not compared, and the note says so. GPUs and NICs whose names the profile knows
(``redfish``), and the GPUs of a board with a BMC of its own, are listed by such a BMC: there, none is a fault.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from pydantic import Field

from rackready.design.facts import NodeFacts
from rackready.format_error import FormatError
from rackready.gates import base
from rackready.gates.base import Gate, GateFacts, Outputs, Run
from rackready.gates.bmc import owner
from rackready.gates.bmc import parts_findings as kinds
from rackready.gates.bmc.documents import (
    KEY,
    BmcAnswer,
    Document,
    absent,
    ask,
    name,
    numeric,
    parse,
    parts,
    read_answer,
)
from rackready.gates.bmc.parts_seen import BARE, DIMMS, DRIVES
from rackready.gates.judging.finding_kinds import FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Verdict
from rackready.model.place import Place
from rackready.model.profile import PlatformProfile

Kind = Literal["gpus", "nics", "drives", "memory", "processors"]
PCIE = "pcie"
"""Key of the request for PCIe devices, which is only sent where no processor is a GPU."""
_PCIE_S = 300.0
"""How long a BMC may take for its PCIe devices, s. Judgement: a DGX H100 lists 126, each with its functions (mockup
nvidia_viking of NVIDIA/libredfish c094c9e6), and slow BMCs take about a second for a request."""
_PROCESSORS = "Systems/*/Processors/*"
_HOST_PROCESSORS = "Systems/*!hgx_*/Processors/*"
_FUNCTIONS = f"{_PROCESSORS}/Links.PCIeFunctions"
_ADAPTERS = "Chassis/*!hgx_*/NetworkAdapters/*"
_DEVICES = "Chassis/*!hgx_*/PCIeDevices/*"
_DEVICE_FUNCTIONS = f"{_DEVICES}/PCIeFunctions/*"
_TRAILS: Mapping[Kind, tuple[str, ...]] = {
    "gpus": (_PROCESSORS, _FUNCTIONS),
    "nics": (_ADAPTERS,),
    "drives": (DRIVES,),
    "memory": (DIMMS,),
    "processors": (_HOST_PROCESSORS,),
}
_BOARD = "/Systems/HGX_"
"""Part of the address of a GPU board's system (NVIDIA's HGX and DGX: HGX_Baseboard_0)."""
_GPU_CLASSES = frozenset({"DisplayController", "ProcessingAccelerators"})
"""DeviceClass of a GPU (DSP0268, PCIeFunction)."""
_NVIDIA = "10de"
_MIB = 1024


class PartsListed(Gate):
    """The GPUs, NICs, drives, memory and processors that the BMC lists are those of the platform profile."""

    id = "bmc/parts/sanity/inventory"
    findings = (*owner.FINDINGS, *kinds.FINDINGS)
    looks = True
    in_no_set = (
        "provision compares every node with it before anything is installed; a site that also wants it later adds it "
        "(gates.also)"
    )

    class Inputs(base.Inputs):
        """Parts to compare."""

        parts: tuple[Kind, ...] = Field(
            get_args(Kind),
            min_length=1,
            description="kinds of parts to compare; leave out those of which this server's BMC never lists all",
        )

    inputs: Inputs

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:  # noqa: ARG002 - the same on every node
        """Plan one request to each BMC, and one for its PCIe devices where no processor is a GPU."""
        return [Run.of_node(node, *self._requests(node), chained=True) for node in nodes]

    def _requests(self, node: str) -> Iterator[base.Command]:
        yield owner.ask(node, *(trail for kind in self.inputs.parts for trail in _TRAILS[kind]))
        if "gpus" in self.inputs.parts:
            yield ask(node, _DEVICES, _DEVICE_FUNCTIONS, key=PCIE, timeout_s=_PCIE_S, stage=1)

    def ended(self, run: Run, outputs: Outputs) -> bool:  # noqa: ARG002
        """Return whether the processors show where the GPUs are."""
        try:
            return not _needs_devices(parse(outputs[KEY]))
        except FormatError:
            return True

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Compare what is listed; the note tells what was compared and what was not."""
        node = facts.nodes[run.nodes[0]]
        judge = Judge()
        found = owner.server(judge, node, "parts", run, outputs, systems=True, bare=BARE)
        if found is None:
            return judge.verdict(node.node.name)
        it = _Comparison(judge, node)
        for kind in self.inputs.parts:
            if kind == "gpus":
                self._gpus(it, found, run, outputs)
            else:
                _COMPARE[kind](it, found)
        it.conclude(left_out=[kind for kind in get_args(Kind) if kind not in self.inputs.parts])
        return judge.verdict(node.node.name)

    @staticmethod
    def _gpus(it: _Comparison, found: BmcAnswer, run: Run, outputs: Outputs) -> None:
        listed = _gpu_processors(found)
        needed = _needs_devices(found)
        if needed or PCIE in outputs:
            devices = read_answer(it.judge, it.node, "PCIe devices", run, outputs, key=PCIE)
            if devices is None:
                return
            listed = _gpu_devices(devices, it.profile) if needed else listed
        _compare_gpus(it, listed, board=_has_board(found))


@dataclass(frozen=True, slots=True)
class _Comparison:
    """One node's comparison. ``same``: what is as in the profile; ``open``: what was not compared, and why."""

    judge: Judge
    facts: NodeFacts
    same: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)

    @property
    def node(self) -> str:
        return self.facts.node.name

    @property
    def profile(self) -> PlatformProfile:
        return self.facts.platform

    def count(self, metric: str, words: str, listed: Sequence[str], wanted: int, kind: FailKind) -> bool:
        """Compare the number of listed parts with the profile's; return whether it is the same."""
        self.judge.judged += 1
        self.judge.count(metric, self.node, len(listed), wanted, f"platform profile {self.profile.id}")
        if len(listed) == wanted:
            self.same.append(f"{wanted} {words}")
            self.judge.measured.add(f"{self.node}/{metric}")
            return True
        self.judge.fail(self.node, kind, f"{wanted} {words}", f"{len(listed)} ({', '.join(listed)})")
        return False

    def unknown(self, words: str) -> None:
        """Note parts about which the profile says nothing."""
        self.open.append(f"{words} (profile {self.profile.id} says nothing about them)")

    def unlisted(self, words: str) -> None:
        """Note parts of which the BMC lists none."""
        self.open.append(f"{words} (the BMC lists none)")

    def conclude(self, left_out: Sequence[str]) -> None:
        """Make the note."""
        self.open.extend(f"{words} (left out by the site)" for words in left_out)
        text = f"not compared: {', '.join(self.open)}"
        if not self.judge.judged and not self.judge.errors:
            self.judge.nothing(text)
            return
        if self.same:
            self.judge.remark(f"{', '.join(self.same)} as in profile {self.profile.id}")
        if self.open:
            self.judge.remark(text)


@dataclass(frozen=True, slots=True)
class _Gpu:
    """One listed GPU. ``device``: its PCI device id, "" if it is not reported."""

    name: str
    device: str


def _has_board(found: BmcAnswer) -> bool:
    return any(_BOARD in address for address in found.trails.get(owner.SYSTEMS, []))


def _needs_devices(found: BmcAnswer) -> bool:
    """Return whether GPUs can only be among the PCIe devices: no processor is one, and there is no board for them."""
    return not _gpu_processors(found) and not _has_board(found)


def _gpu_processors(found: BmcAnswer) -> list[_Gpu]:
    """Return the GPUs among the processors of the host and of its GPU board (DSP0268, ProcessorType)."""
    gpus = [item for item in found.at(_PROCESSORS) if item.get("ProcessorType") == "GPU" and not absent(item)]
    return [_Gpu(name(item), _device_of(item, found)) for item in gpus]


def _device_of(processor: Document, found: BmcAnswer) -> str:
    links = processor.get("Links")
    functions = parts(links, "PCIeFunctions") if isinstance(links, dict) else []
    documents = (found.documents.get(str(link.get("@odata.id")), {}) for link in functions)
    return next((device for item in documents if (device := _hex(item.get("DeviceId")))), "")


def _gpu_devices(found: BmcAnswer, profile: PlatformProfile) -> list[_Gpu]:
    """Return the GPUs among the PCIe devices: those that the profile names, and NVIDIA's."""
    known = profile.redfish.gpus if profile.redfish is not None else ()
    functions: dict[str, list[Document]] = {}
    for item in found.at(_DEVICE_FUNCTIONS):
        functions.setdefault(str(item.get("@odata.id")).rpartition("/PCIeFunctions/")[0], []).append(item)
    out = []
    for device in found.at(_DEVICES):
        own = [item for item in functions.get(str(device["@odata.id"]), []) if item.get("DeviceClass") in _GPU_CLASSES]
        nvidias = [item for item in own if _hex(item.get("VendorId")) == _NVIDIA]
        if not absent(device) and (nvidias or name(device) in known):
            out.append(_Gpu(name(device), next(filter(None, (_hex(item.get("DeviceId")) for item in nvidias)), "")))
    return out


def _hex(value: object) -> str:
    """Return a PCI id without 0x, "" for one that is not reported so: HPE writes decimals, Supermicro 0x0000."""
    text = str(value).strip().lower()
    return text.removeprefix("0x") if text.startswith("0x") and text != "0x0000" else ""


def _compare_gpus(it: _Comparison, listed: Sequence[_Gpu], *, board: bool) -> None:
    profile = it.profile
    known = profile.redfish.gpus if profile.redfish is not None else []
    if not listed and not known and not board:
        it.open.append(f"GPUs (the BMC lists none, and profile {profile.id} does not name them as a BMC would)")
        return
    names = [gpu.name for gpu in listed]
    it.judge.judged += 1
    it.judge.count("gpus", it.node, len(listed), profile.gpus, f"platform profile {profile.id}")
    if len(listed) < profile.gpus:
        it.judge.fail(it.node, kinds.GPUS_MISSING, f"{profile.gpus} GPUs", _places_without(names, known))
    elif len(listed) > profile.gpus:
        it.judge.fail(it.node, kinds.GPUS_TOO_MANY, f"{profile.gpus} GPUs", f"{len(listed)} ({', '.join(names)})")
    else:
        it.same.append(f"{profile.gpus} GPUs")
    _models(it, listed)


def _places_without(names: Sequence[str], known: Sequence[str]) -> str:
    """Return how many GPUs there are, and the places without one: without names that fit, those that are there."""
    if not names or set(names) & set(known):
        missing = ", ".join(item for item in known if item not in names)
        return f"{len(names)}, none at {missing}" if missing else str(len(names))
    return f"{len(names)} ({', '.join(names)})"


def _models(it: _Comparison, listed: Sequence[_Gpu]) -> None:
    """Compare PCI device ids: vendors write the names of one model differently."""
    wanted = it.facts.gpu
    for gpu in listed:
        if gpu.device and gpu.device != wanted.pci_device_id:
            expected = f"PCI device {wanted.pci_device_id} ({wanted.product_name})"
            it.judge.fail(Place(it.node, gpu.name), kinds.GPU_MODEL, expected, f"PCI device {gpu.device}")
        elif gpu.device:
            it.judge.measured.add(f"{it.node}/{gpu.name}")
    silent = sum(not gpu.device for gpu in listed)
    if silent:
        it.open.append(f"model of {silent} GPUs (the BMC reports no PCI device id of them)")


def _compare_nics(it: _Comparison, found: BmcAnswer) -> None:
    names = it.profile.redfish
    if not it.profile.nics:
        it.unknown("NICs")
        return
    if names is None or not names.nics:
        it.open.append(f"slots of NICs (profile {it.profile.id} does not name them as its BMC does)")
        return
    listed = [(name(item), _device_links(item)) for item in found.at(_ADAPTERS) if not absent(item)]
    filled = {place for _, places in listed for place in places}
    others = [
        f"{adapter} at {place}"
        for adapter, places in listed
        for place in dict.fromkeys(places)
        if place not in {*names.nics, *names.other_nics}
    ]
    empty = 0
    for nic, place in zip(it.profile.nics, names.nics, strict=True):
        it.judge.judged += 1
        if place in filled:
            it.judge.measured.add(f"{it.node}/{nic.rdma_device or place}")
            continue
        empty += 1
        where = Place(it.node, nic.rdma_device or f"NIC of rail {nic.rail}", f"(rail {nic.rail})")
        elsewhere = f", but {', '.join(others)}, where the profile has none" if others else ""
        it.judge.fail(where, kinds.NIC_NOT_THERE, f"a NIC at {place} (PCI {nic.pci})", f"none there{elsewhere}")
    if not empty:
        it.same.append(f"{len(names.nics)} NICs")


def _device_links(adapter: Document) -> list[str]:
    """Return the last word of each PCIe device to which an adapter's controllers link."""
    controllers = [item.get("Links") for item in parts(adapter, "Controllers")]
    links = [link for item in controllers if isinstance(item, dict) for link in parts(item, "PCIeDevices")]
    return [str(link.get("@odata.id", "")).rstrip("/").rpartition("/")[2] for link in links]


def _compare_drives(it: _Comparison, found: BmcAnswer) -> None:
    listed = [name(item) for item in found.at(DRIVES) if not absent(item) and not _on_usb(item)]
    if it.profile.host is None:
        it.unknown("drives")
    elif not listed:
        it.unlisted("drives")
    else:
        it.count("drives", "drives", listed, it.profile.host.drives, kinds.DRIVES)


def _on_usb(drive: Document) -> bool:
    """Return whether a drive is on USB, so not the host's: a DGX H100 lists USB_Device2_PortA (nvidia_viking)."""
    return drive.get("Protocol") == "USB" or name(drive).startswith("USB_")


def _compare_memory(it: _Comparison, found: BmcAnswer) -> None:
    host = it.profile.host
    listed = [item for item in found.at(DIMMS) if not absent(item)]
    if host is None:
        it.unknown("memory")
        return
    if not listed:
        it.unlisted("memory")
        return
    if host.dimms:
        it.count("memory_modules", "memory modules", [name(item) for item in listed], host.dimms, kinds.MODULES)
    sizes = [numeric(item.get("CapacityMiB")) for item in listed]
    if None in sizes:
        it.open.append("size of the memory (the BMC does not report that of every module)")
        return
    total = sum(size for size in sizes if size is not None) / _MIB
    it.judge.judged += 1
    it.judge.metric("memory", it.node, total, "GiB")
    if total < host.memory_gib:
        it.judge.fail(it.node, kinds.MEMORY, f"at least {host.memory_gib} GiB", f"{total:g} GiB")
    else:
        it.same.append(f"{total:g} GiB of memory")


def _compare_processors(it: _Comparison, found: BmcAnswer) -> None:
    host = it.profile.host
    listed = [item for item in found.at(_HOST_PROCESSORS) if _is_cpu(item)]
    if host is None:
        it.unknown("processors")
        return
    if not listed:
        it.unlisted("processors")
        return
    it.count("processors", "processors", [name(item) for item in listed], host.sockets, kinds.PROCESSORS)
    for item in listed:
        where, cores = Place(it.node, f"processor {name(item)}"), item.get("TotalCores")
        if isinstance(cores, int) and not isinstance(cores, bool):
            it.judge.equal(where, kinds.PROCESSOR_CORES, host.cores, cores)
        if item.get("Model") and host.cpu_model not in str(item["Model"]):
            it.judge.fail(where, kinds.PROCESSOR_MODEL, host.cpu_model, item["Model"])
    without = Counter(key for item in listed for key in ("Model", "TotalCores") if item.get(key) is None)
    if without["Model"]:
        it.open.append("model of the processors (the BMC does not report it)")
    if without["TotalCores"]:
        it.open.append("cores of the processors (the BMC does not report them)")


def _is_cpu(item: Document) -> bool:
    return item.get("ProcessorType") in (None, "CPU") and not absent(
        item
    )  # no set: a BMC may answer what cannot be hashed


_COMPARE = {
    "nics": _compare_nics,
    "drives": _compare_drives,
    "memory": _compare_memory,
    "processors": _compare_processors,
}
