"""What an output says itself of whose it is: serials and UUIDs of GPUs, the driver, the machine's serial, the launch of NCCL that it is of.

Held against the fingerprint that was stated with it, and against what outputs of other nodes say: a file beside the
wrong node is found by it. An output that says nothing of the kind is told by nothing but its manifest; one that cannot
be read is for its gate to judge.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rackready.design.names import listed
from rackready.gates.formats import dcgm_diag, nccl_log, nccl_tests, smi_xml
from rackready.gates.formats.error import FormatError
from rackready.model.evidence import UNREAD, Fingerprint
from rackready.ondevice import containers, nvml_inventory, under_load, versions

_GPU_LINE = re.compile(
    r"^(?:GPU \d+: .*\(UUID: (?P<listed>GPU-[\w-]+)\)|\d+, *(?P<queried>GPU-[\w-]+)|\|\s*\| Device UUID: "
    r"(?P<discovered>GPU-[\w-]+)\s*\|)\s*$",
    re.MULTILINE,
)
"""As `nvidia-smi nvlink` and `-L` list GPUs, `--query-gpu=index,uuid`, and `dcgmi discovery -l`."""
_DRIVER_LINE = re.compile(r"^Driver Version: (?P<driver>[\d.]+)\s*$", re.MULTILINE)
"""As nvbandwidth's text has it."""
_RANKS = "# Using devices"
_NO_SERIAL = "<<<"
"""With what begins a word of DCGM's for a value that there is none of: <<<NULL>>>, <<<NOT_SUPPORTED>>> (dcgm_structs.h, DCGM_STR_*)."""
_SHOWN = 2
"""As many parts are named in a message."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """What an output says of one GPU; empty where it does not say it."""

    serial: str = ""
    uuid: str = ""


@dataclass(slots=True)
class OutputIdentity:
    """What one output names."""

    gpus: set[Gpu] = field(default_factory=set)
    drivers: set[str] = field(default_factory=set)
    machines: set[str] = field(default_factory=set)
    """Serial numbers of systems, of which one is the machine's (a board of GPUs has one of its own)."""
    launches: set[str] = field(default_factory=set)

    def parts(self) -> Iterator[str]:
        """Yield what only one node can have."""
        for gpu in sorted(self.gpus, key=lambda one: (one.serial, one.uuid)):
            if gpu.serial:
                yield f"GPU serial {gpu.serial}"
            if gpu.uuid:
                yield f"GPU UUID {gpu.uuid}"
        yield from (f"NCCL launch {launch}" for launch in sorted(self.launches))


def identity(text: str) -> OutputIdentity:
    """Return what an output names; nothing where it names nothing, or cannot be read."""
    found = OutputIdentity()
    if "<nvidia_smi_log" in text and not text.lstrip().startswith("{"):
        _report(found, text)
    elif "{" in text:
        _document(found, text)
    _list(found, text)
    found.drivers |= {match["driver"] for match in _DRIVER_LINE.finditer(text)}
    if _RANKS in text:
        _launch(found, text)
    return found


def _list(found: OutputIdentity, text: str) -> None:
    found.gpus |= {Gpu(uuid=match[str(match.lastgroup)]) for match in _GPU_LINE.finditer(text)}


def _report(found: OutputIdentity, text: str) -> None:
    try:
        log = smi_xml.parse(text)
    except FormatError:
        return
    found.drivers |= {log.driver} - {""}
    found.gpus |= {Gpu(gpu.text("serial") or "", gpu.text("uuid") or "") for gpu in log.gpus} - {Gpu()}


def _launch(found: OutputIdentity, text: str) -> None:
    try:
        processes = nccl_tests.parse(text).processes
    except ValueError:  # or a number of more digits than Python reads
        return
    communicators = nccl_log.communicators(text)
    found.launches |= communicators or {", ".join(f"{host} {pid}" for host, pid in sorted(processes))}


def _document(found: OutputIdentity, text: str) -> None:
    """Take in what documents of our scripts, of DCGM, nvbandwidth, nccl-tests and Redfish name."""
    try:
        document = json.loads(text[text.index("{") :])
    except (ValueError, RecursionError):
        return
    if not isinstance(document, dict):
        return
    if "format" in document:
        _ours(found, document)
    elif "nvbandwidth" in document:
        found.drivers |= {_word(document["nvbandwidth"], "Driver Version")} - {""}
    elif "DCGM Diagnostic" in document or "DCGM GPU Diagnostic" in document:
        _diagnostic(found, text)
    elif "devices" in document and "results" in document:
        _launch(found, text)


def _ours(found: OutputIdentity, document: dict[str, Any]) -> None:
    """Take in what a document of one of our scripts names; those of BMCs say what they are by what is in them."""
    kind = document["format"]
    if kind == under_load.FORMAT:
        _report(found, str(document.get("last") or ""))
    elif kind == nvml_inventory.FORMAT:
        rows = document.get("gpus")
        found.gpus |= {
            Gpu(_word(row, "serial"), _word(row, "uuid")) for row in (rows if isinstance(rows, list) else [])
        } - {Gpu()}
        found.drivers |= {_word(document, "driver")} - {""}
    elif kind == containers.FORMAT:
        _list(found, _word(document.get("gpus"), "out"))
    elif kind == versions.FORMAT:
        found.drivers |= {_word(document.get("nvml"), "driver")} - {""}
    elif isinstance(document.get("documents"), dict):
        found.machines |= {
            _word(item, "SerialNumber").strip() for item in document["documents"].values() if _system(item)
        } - {""}


def _diagnostic(found: OutputIdentity, text: str) -> None:
    try:
        diagnostic = dcgm_diag.parse(text)
    except FormatError:
        return
    found.gpus |= {Gpu(serial) for serial in diagnostic.serials if serial and not serial.startswith(_NO_SERIAL)}
    found.drivers |= {diagnostic.driver} - {""}


def _system(item: object) -> bool:
    return _word(item, "@odata.type").startswith("#ComputerSystem.")


def _word(item: object, key: str) -> str:
    value: Any = item.get(key) if isinstance(item, dict) else None
    return value if isinstance(value, str) else ""


# against what was stated ---------------------------------------------------------------------------------------------


def contradictions(said: OutputIdentity, stated: Fingerprint, of_node: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield (Expected, Actual) of what an output names and the fingerprint does not.

    ``of_node``: UUID -> serial of the GPUs of which the node's outputs say both: a fingerprint has serials where the
    board has them.
    """
    strange = sorted({gpu.serial or gpu.uuid for gpu in said.gpus if not _is_of(gpu, stated, of_node)})
    if len(strange) > len(stated.unread):
        own = [gpu for gpu in stated.gpus if not gpu.startswith(UNREAD)]
        yield f"the GPUs of its fingerprint ({listed(own, _SHOWN)})", listed(strange, _SHOWN)
    if others := sorted(said.drivers - {stated.driver}):
        yield f"driver {stated.driver}, as in its fingerprint", ", ".join(others)
    if said.machines and stated.chassis_serial not in said.machines:
        yield f"the machine of its fingerprint, serial {stated.chassis_serial}", ", ".join(sorted(said.machines))


def _is_of(gpu: Gpu, stated: Fingerprint, of_node: Mapping[str, str]) -> bool:
    """Say whether a GPU is one of the fingerprint's, or cannot be told: a UUID alone says nothing while not every serial's UUID is known."""
    if gpu.serial in stated.gpus or gpu.uuid in stated.gpus:
        return True
    if gpu.serial:
        return False
    if gpu.uuid in of_node:
        return of_node[gpu.uuid] in stated.gpus
    known = {uuid for uuid, serial in of_node.items() if serial in stated.gpus}
    return len(known) < len(stated.gpus) and not all(one.startswith("GPU-") for one in stated.gpus)
