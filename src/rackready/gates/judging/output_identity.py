"""Identity that an output contains: serials and UUIDs of GPUs, the driver, the machine's serial, the NCCL launch.

It is compared with the fingerprint in the manifest and with the outputs of other nodes, to find a file that is listed
for the wrong node. For an output without such values only the manifest counts; an output that cannot be read is left to
its gate.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rackready.design.names import listed
from rackready.format_error import FormatError
from rackready.gates.formats import dcgm_diag, nccl_log, nccl_tests, smi_xml
from rackready.model.evidence import UNREAD, Fingerprint
from rackready.ondevice import containers, nvml_inventory, under_load, versions

_GPU_LINE = re.compile(
    r"^(?:GPU \d+: .*\(UUID: (?P<listed>GPU-[\w-]+)\)|\d+, *(?P<queried>GPU-[\w-]+)|\|\s*\| Device UUID: "
    r"(?P<discovered>GPU-[\w-]+)\s*\|)\s*$",
    re.MULTILINE,
)
"""As `nvidia-smi nvlink` and `-L` list GPUs, `--query-gpu=index,uuid`, and `dcgmi discovery -l`."""
_DRIVER_LINE = re.compile(r"^Driver Version: (?P<driver>[\d.]+)\s*$", re.MULTILINE)
"""As nvbandwidth's text prints it."""
_RANKS = "# Using devices"
_NO_SERIAL = "<<<"
"""Start of DCGM's words for a missing value: <<<NULL>>>, <<<NOT_SUPPORTED>>> (dcgm_structs.h, DCGM_STR_*)."""
_SHOWN = 2
"""Number of parts that a message names."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """Serial and UUID of one GPU in an output; empty if the output lacks it."""

    serial: str = ""
    uuid: str = ""


@dataclass(slots=True)
class OutputIdentity:
    """Identity that one output contains."""

    gpus: set[Gpu] = field(default_factory=set)
    drivers: set[str] = field(default_factory=set)
    machines: set[str] = field(default_factory=set)
    """Serial numbers of systems; one is the machine's (a GPU board has its own)."""
    launches: set[str] = field(default_factory=set)

    def parts(self) -> Iterator[str]:
        """Yield the values that only one node can have."""
        for gpu in sorted(self.gpus, key=lambda one: (one.serial, one.uuid)):
            if gpu.serial:
                yield f"GPU serial {gpu.serial}"
            if gpu.uuid:
                yield f"GPU UUID {gpu.uuid}"
        yield from (f"NCCL launch {launch}" for launch in sorted(self.launches))


def identity(text: str) -> OutputIdentity:
    """Return the identity that an output contains; empty if it has none or cannot be read."""
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
    """Add the values in documents of our scripts, DCGM, nvbandwidth, nccl-tests and Redfish."""
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
    """Add the values in a document of one of our scripts; those of BMCs are known by their contents."""
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
        systems = [item for item in document["documents"].values() if _system(item)]
        # Dell's Service Tag, which its operating system gives as the serial, is the SKU in Redfish.
        found.machines |= {_word(item, key).strip() for item in systems for key in ("SerialNumber", "SKU")} - {""}


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


# compared with the manifest's fingerprint ---------------------------------------------------------------------------


def contradictions(found: OutputIdentity, stated: Fingerprint, of_node: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield (Expected, Actual) for each value of an output that contradicts the fingerprint.

    ``of_node``: UUID -> serial of GPUs for which the node's outputs contain both. A fingerprint has serials if the
    board reports them.
    """
    strange = sorted({gpu.serial or gpu.uuid for gpu in found.gpus if not _is_of(gpu, stated, of_node)})
    if len(strange) > len(stated.unread):
        own = [gpu for gpu in stated.gpus if not gpu.startswith(UNREAD)]
        yield f"the GPUs of its fingerprint ({listed(own, _SHOWN)})", listed(strange, _SHOWN)
    if others := sorted(found.drivers - {stated.driver}):
        yield f"driver {stated.driver}, as in its fingerprint", ", ".join(others)
    if found.machines and stated.chassis_serial not in found.machines:
        yield f"the machine of its fingerprint, serial {stated.chassis_serial}", ", ".join(sorted(found.machines))


def _is_of(gpu: Gpu, stated: Fingerprint, of_node: Mapping[str, str]) -> bool:
    """Return whether a GPU is, or may be, one of the fingerprint's.

    A UUID alone proves nothing until the UUID of every serial is known.
    """
    if gpu.serial in stated.gpus or gpu.uuid in stated.gpus:
        return True
    if gpu.serial:
        return False
    if gpu.uuid in of_node:
        return of_node[gpu.uuid] in stated.gpus
    known = {uuid for uuid, serial in of_node.items() if serial in stated.gpus}
    return len(known) < len(stated.gpus) and not all(one.startswith("GPU-") for one in stated.gpus)
