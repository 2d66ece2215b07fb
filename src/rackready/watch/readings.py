"""Polled values of a node: which conditions a reading shows. Pure functions of the reading and of what is planned."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from rackready.design.facts import NicFacts, NodeFacts
from rackready.design.monitoring.conditions import by_id
from rackready.format_error import FormatError
from rackready.gates.formats import smi_nvlink
from rackready.gates.gpu import parts
from rackready.gates.gpu.recovery import ACTIONS
from rackready.model.evidence import Fingerprint
from rackready.watch.sighting import Sighting

Reading = Mapping[str, Any]

_NO_DRIVER = re.compile(r"couldn't communicate with the NVIDIA driver|Failed to initialize NVML|No devices were found")
_MISMATCH = "Driver/library version mismatch"
"""NVML's words for NVML_ERROR_LIB_RM_VERSION_MISMATCH: packages were changed under a loaded driver. No GPU is lost."""
_RATE = re.compile(r"^(?P<rate>\d+(?:\.\d+)?) Gb/sec")
"""Linux, drivers/infiniband/core/sysfs.c, rate_show: '400 Gb/sec (4X NDR)'."""
_ACTIVE = "4: ACTIVE"
"""Linux, drivers/infiniband/core/sysfs.c, state_show."""


def _held(condition: str, part: str, actual: str, slot: str = "") -> Sighting:
    """Return a sighting that counts when it holds as long as its condition asks for."""
    about = by_id()[condition]
    return Sighting(condition, part, actual, slot, about.hold_s or about.for_s)


def of_gpus(facts: NodeFacts, reading: Reading, certified: Fingerprint | None) -> Iterator[Sighting]:
    """Yield what the values of `nvidia-smi -q -x` show."""
    found = list(reading["gpus"])
    if not found and _MISMATCH in reading.get("problem", ""):
        yield Sighting("NodeDrifted", "node", str(reading["problem"]))
        return
    if unread(reading):
        return
    if len(found) < facts.platform.gpus:
        missing = facts.platform.gpus - len(found)
        empty = parts.empty_places(facts, [gpu["pci"] for gpu in found]) if found else ""
        said = reading.get("said") or reading.get("problem") or ""
        yield _held("GpusMissing", _missing(facts, found), f"{missing} missing{empty}{f': {said}' if said else ''}")
    for gpu in found:
        yield from _of_gpu(facts, gpu)
    if certified is not None and found:
        yield from _drift(reading, certified)


def unread(reading: Reading) -> str:
    """Return why a reading tells nothing about the GPUs, "" where it does: a missing or late nvidia-smi is no fault."""
    if reading["gpus"] or _no_gpus(reading) or _MISMATCH in reading.get("problem", ""):
        return ""
    return f"GPUs not read: {reading.get('problem') or 'nvidia-smi names none'}"


def _no_gpus(reading: Reading) -> bool:
    """Return whether nvidia-smi answered, and answered that it has no GPU."""
    problem = reading.get("problem", "")
    return reading["code"] != 0 and ("device handle" in problem or _NO_DRIVER.search(problem) is not None)


def _missing(facts: NodeFacts, found: list[Reading]) -> str:
    """Return the GPU that is missing, when it is one of a known place."""
    there = {parts.short(gpu["pci"]) for gpu in found}
    gone = [at for at, pci in enumerate(facts.platform.gpu_pci) if parts.short(pci) not in there]
    return f"gpu{gone[0]}" if len(gone) == 1 and found else "node"


def _of_gpu(facts: NodeFacts, gpu: Reading) -> Iterator[Sighting]:
    part, slot = parts.name(facts, gpu["pci"]), parts.short(gpu["pci"])
    if gpu["uncorrected"]:
        yield Sighting("GpuEccUncorrected", part, f"{gpu['uncorrected']} uncorrected errors", slot)
    if gpu["threshold"] == "Yes":
        yield Sighting("GpuSramThreshold", part, "SRAM threshold exceeded", slot)
    if gpu["remap_failed"] == "Yes":
        yield Sighting("GpuRowRemapFailed", part, "row remapping failed", slot)
    if gpu["remap_pending"] == "Yes":
        yield Sighting("GpuRowRemapPending", part, "a row waits to be remapped", slot)
    if gpu["recovery"] in ACTIONS:
        yield Sighting("GpuRecoveryAction", part, gpu["recovery"], slot)
    if gpu["hot"] == "Active":
        yield _held("GpuThermalSlowdown", part, "hardware thermal slowdown", slot)


def _drift(reading: Reading, certified: Fingerprint) -> Iterator[Sighting]:
    if reading["driver"] != certified.driver:
        yield Sighting("NodeDrifted", "node", f"driver {reading['driver']}, certified with {certified.driver}")
    names = {*certified.gpus}
    for gpu in reading["gpus"]:
        own = {gpu["serial"], gpu["uuid"]} - {"", "N/A", "0"}
        if own and not own & names and not any(name.startswith("unread:") for name in names):
            yield Sighting("NodeDrifted", f"GPU at {parts.short(gpu['pci'])}", f"GPU {min(own)} is new", gpu["pci"])


def of_links(facts: NodeFacts, reading: Reading, gpus: Reading | None) -> Iterator[Sighting]:
    """Yield GPUs whose NVLinks are not all active. ``gpus``: the reading of GPUs, which tells where each one is."""
    wanted = facts.gpu.nvlink.links if facts.gpu.nvlink else 0
    if not wanted or reading["code"] not in {0, 15}:
        return
    try:
        report = smi_nvlink.status(reading["text"])
    except FormatError:
        return
    places = {gpu["uuid"]: gpu["pci"] for gpu in (gpus or {}).get("gpus", [])}
    for gpu in report.gpus.values():
        pci = places.get(gpu.uuid, "")
        part = parts.name(facts, pci) if pci else f"GPU {gpu.uuid}"
        active = sum(speed is not None for speed in gpu.speeds.values())
        if active < wanted:
            off = ", ".join(str(link) for link, speed in gpu.speeds.items() if speed is None)
            why = f" (inactive: {off})" if off else f" ({gpu.refused})" if gpu.refused else ""
            slot = parts.short(pci) if pci else ""
            yield _held("NvlinkInactive", part, f"{active} of {wanted} links active{why}", slot)


def of_ports(facts: NodeFacts, reading: Reading, before: Reading | None) -> Iterator[Sighting]:
    """Yield rails without a link, without a device, too slow, or that went down since the reading before."""
    for nic in facts.nics:
        if not nic.rdma_device or nic.rdma_device not in reading:
            continue
        port = reading[nic.rdma_device]
        slot = f"{nic.switch} {nic.port}".strip()
        if port is None:
            yield _held("RailMissing", nic.rdma_device, f"no device for rail {nic.rail}", slot)
            continue
        yield from _of_port(nic, port, slot)
        old = (before or {}).get(nic.rdma_device)
        if old is not None and port["downed"] > old["downed"]:
            yield Sighting("RailFlapping", nic.rdma_device, f"link of rail {nic.rail} went down", slot)


def _of_port(nic: NicFacts, port: Reading, slot: str) -> Iterator[Sighting]:
    if port["state"] and port["state"] != _ACTIVE:
        yield _held("RailDown", nic.rdma_device, f"rail {nic.rail} is {port['state']}", slot)
        return
    rate = _RATE.match(port["rate"])
    if rate and float(rate["rate"]) < nic.rate:
        yield _held("RailSlow", nic.rdma_device, f"rail {nic.rail} at {rate['rate']} of {nic.rate} Gb/s", slot)
