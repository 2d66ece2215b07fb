"""GPU inventory and versions from `nvidia-smi -q -x` and other tools."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rackready.design.facts import NodeFacts
from rackready.format_error import FormatError
from rackready.gates.base import Command
from rackready.gates.formats import smi_nvlink, smi_xml
from rackready.gates.plain.source import Given, LackError, Source, begins, document, lack, only
from rackready.gates.records.offline import Captured
from rackready.ondevice import nvml_inventory, versions

SMI = Source(
    "smi",
    "nvidia-smi -q -x",
    begins(r"<nvidia_smi_log\b|^NVIDIA-SMI has failed|^Unable to determine the device handle"),
)
NVLINK = Source(
    "nvlink",
    "nvidia-smi nvlink -s",
    begins(r"^\s+Link \d+: (?:[\d.]+ GB/s|<inactive>)\s*$|Unable to retrieve NVLink information"),
)
_EXPLAINED = {14: "corrupt_inforom", 15: "lost"}
"""Exit codes of nvidia-smi that its report explains (its manual): a corrupt InfoROM, a lost GPU."""


def report(facts: NodeFacts, given: Given, facts_in_it: str) -> smi_xml.SmiLog:
    """Return nvidia-smi's report. Raise LackError if it was not given, or FormatError."""
    found = only(given, SMI)
    if found is None:
        raise LackError([lack(facts.node.name, facts_in_it, SMI)])
    log = smi_xml.parse(found.text)
    if found.exit_code != 0 and not getattr(log, _EXPLAINED.get(found.exit_code or 0, ""), ()):
        raise FormatError(f"a report of nvidia-smi, but exit code {found.exit_code}")
    return log


class Inventory:
    """Maker of ``nvml_inventory``'s document: the report has every fact except the NVLinks' states."""

    def sources(self, facts: NodeFacts, command: Command) -> Sequence[Source]:  # noqa: ARG002 - the same for all
        """Return the report, and the NVLinks if the GPU has any."""
        return (SMI, NVLINK) if facts.gpu.nvlink is not None else (SMI,)

    def make(self, facts: NodeFacts, command: Command, given: Given) -> Captured:  # noqa: ARG002 - the same for all
        """Return the document."""
        log = report(facts, given, "GPUs")
        nvlink = only(given, NVLINK)
        states = None if nvlink is None else _states(nvlink, log)
        gpus = [_gpu(gpu, states) for gpu in log.gpus]
        gpus += [_lost(name, len(log.gpus) + at) for at, name in enumerate(log.lost)]
        return document(nvml_inventory.FORMAT, driver=log.driver, count=len(gpus), gpus=gpus)


def _gpu(gpu: smi_xml.SmiGpu, states: Mapping[str, Mapping[str, bool]] | None) -> dict[str, Any]:
    """Return one GPU in the inventory's form; a value that the driver does not report is null, as with NVML."""
    device, unread = gpu.text("pci/pci_device_id"), {}
    uuid = gpu.text("uuid") or ""
    if states is None:
        unread["nvlinks"] = "nvidia-smi -q -x does not contain it"
    elif uuid not in states:
        unread["nvlinks"] = f"nvidia-smi nvlink -s does not list {uuid}"
    link = "pci/pci_gpu_link_info"
    return {
        "index": gpu.position,
        "name": gpu.text("product_name"),
        "uuid": uuid or None,
        "serial": gpu.text("serial"),
        "vbios": gpu.text("vbios_version"),
        "board_part": gpu.text("board_part_number"),
        "device_id": device[:4].lower()
        if device and re.fullmatch(r"[0-9A-Fa-f]{4}10DE", device, re.IGNORECASE)
        else device,
        "memory_mib": _integer(gpu, "fb_memory_usage/total"),
        "pci": gpu.text("pci/pci_bus_id") or gpu.pci,
        "pcie_width": _lanes(gpu, f"{link}/link_widths/current_link_width"),
        "pcie_width_max": _lanes(gpu, f"{link}/link_widths/max_link_width"),
        "pcie_gen": _integer(gpu, f"{link}/pcie_gen/current_link_gen"),
        "pcie_gen_max": _integer(gpu, f"{link}/pcie_gen/max_link_gen"),
        "nvlinks": None if states is None or uuid not in states else dict(states[uuid]),
        "unread": unread,
    }


def _lost(name: str, index: int) -> dict[str, Any]:
    """Return a lost GPU. Older drivers name it by its address, newer ones by its number."""
    where: dict[str, Any] = {"index": int(name)} if name.isdigit() else {"index": index, "pci": name}
    return {**where, "lost": f"nvidia-smi: GPU {name} is lost"}


def _integer(gpu: smi_xml.SmiGpu, path: str) -> int | None:
    value = gpu.number(path)
    return None if value is None else int(value)


def _lanes(gpu: smi_xml.SmiGpu, path: str) -> int | None:
    """Return the lanes of ``16x``."""
    value = gpu.text(path)
    return int(value[:-1]) if value and re.fullmatch(r"\d{1,2}x", value) else None


def _states(output: Captured, log: smi_xml.SmiLog) -> dict[str, dict[str, bool]]:
    """Return UUID -> link -> active. Raise FormatError for GPUs of another machine."""
    if output.exit_code != 0:
        raise FormatError(f"nvidia-smi nvlink -s ended with exit code {output.exit_code}")
    found = smi_nvlink.status(output.text)
    known = {gpu.text("uuid") for gpu in log.gpus}
    strange = sorted(gpu.uuid for gpu in found.gpus.values() if gpu.uuid not in known)
    if strange and not log.lost:
        raise FormatError(
            f"nvidia-smi nvlink -s lists {strange[0]}, which nvidia-smi -q -x does not: they are from two machines"
        )
    return {
        gpu.uuid: {str(link): speed is not None for link, speed in gpu.speeds.items()} for gpu in found.gpus.values()
    }


_LIST = "dpkg-query -W -f '${db:Status-Status} ${Package} ${Version}\\n'"
MODULE = Source("module", "cat /proc/driver/nvidia/version", begins(r"^NVRM version:"))
PACKAGES = Source("packages", _LIST, begins(r"^(?:installed|not-installed|config-files) \S+|^ii  \S+"))
SERVICES = Source(
    "services",
    "systemctl list-units --all --plain --no-legend --type=service",
    begins(r"^[\s\u25cf*]*\S+\.service +(?:loaded|not-found|masked) +\w+ +\S+"),
)
MANAGER = Source("fabric-manager", "nv-fabricmanager --version", begins(r"^Fabric Manager version is"))
_MODULE = re.compile(r"Kernel Module(?: for \S+)?\s+([0-9][0-9.]+)")
_CUDA = re.compile(r"<cuda_version>([0-9]+\.[0-9]+)</cuda_version>")
_VERSION = re.compile(r"([0-9]+\.[0-9]+(?:\.[0-9]+)?)")
_PACKAGE = re.compile(
    r"^(?:(?P<status>installed|not-installed|config-files|half-\w+|unpacked|triggers-\w+)|(?P<short>[a-z][a-zA-Z]) "
    r") *(?P<name>\S+) +(?P<version>\S+)"
)
_UNIT = re.compile(r"^[\s\u25cf*]*(?P<name>\S+\.service) +\S+ +(?P<active>[a-z]+) ", re.MULTILINE)
_MODINFO = re.compile(r"^filename:\s", re.MULTILINE)


class VersionsMaker:
    """Maker of ``versions``' document. modinfo is not a source: it shows the module on disk, not the loaded one."""

    def sources(self, facts: NodeFacts, command: Command) -> Sequence[Source]:  # noqa: ARG002 - the same for all
        """Return the report, loaded module, packages, services, and fabric manager if the server runs one."""
        return (SMI, MODULE, PACKAGES, SERVICES, *((MANAGER,) if facts.platform.runs_fabric_manager else ()))

    def make(self, facts: NodeFacts, command: Command, given: Given) -> Captured:
        """Return the document."""
        names = {
            SMI: "driver and its CUDA version",
            MODULE: "loaded kernel module",
            PACKAGES: "installed packages",
            SERVICES: "state of services",
        }
        names[MANAGER] = "version of the fabric manager"
        lacking = [
            lack(facts.node.name, names[source], source)
            for source in self.sources(facts, command)
            if only(given, source) is None
        ]
        if lacking:
            raise LackError(lacking)
        log, manager = report(facts, given, names[SMI]), only(given, MANAGER)
        cuda = _CUDA.search(given[SMI.key][0].text)
        fabric_manager = None if manager is None else _VERSION.search(_text(manager, MANAGER))
        return document(
            versions.FORMAT,
            nvml={"driver": log.driver or None, "cuda": cuda[1] if cuda else None},
            driver_module=_module(_text(given[MODULE.key][0], MODULE)),
            fabric_manager=fabric_manager[1] if fabric_manager else None,
            packages=_packages(_text(given[PACKAGES.key][0], PACKAGES), command.argv[2:]),
            services=_services(_text(given[SERVICES.key][0], SERVICES)),
        )


def _text(output: Captured, source: Source) -> str:
    if output.exit_code != 0:
        raise FormatError(f"`{source.gives}` ended with exit code {output.exit_code}")
    return output.text


def _module(text: str) -> str:
    if _MODINFO.search(text):
        raise FormatError(
            "modinfo shows the module on disk, not the loaded one; `cat /proc/driver/nvidia/version` shows that"
        )
    match = _MODULE.search(text)
    if match is None:
        raise FormatError("no version of a kernel module in /proc/driver/nvidia/version")
    return match[1]


def _packages(text: str, names: Sequence[str]) -> dict[str, str | None]:
    """Return the version of each requested package; None if the list lacks it.

    Raise FormatError for a list without states.
    """
    found: dict[str, str | None] = dict.fromkeys(names)
    lines = [match for line in text.splitlines() if (match := _PACKAGE.match(line))]
    if not lines:
        raise FormatError(f"no list of packages with states in the form of `{_LIST}` or `dpkg -l`")
    for match in lines:
        name = match["name"].split(":", 1)[0]
        if name in found and (match["status"] == "installed" or (match["short"] or "").endswith("i")):
            found[name] = match["version"]
    return found


def _services(text: str) -> dict[str, str]:
    """Return unit -> state. A unit that systemd does not list is inactive, as `systemctl is-active` reports it."""
    found = {match["name"]: match["active"] for match in _UNIT.finditer(text)}
    if not found:
        raise FormatError("no list of services in the form of `systemctl list-units`")
    return {name: found.get(name, "inactive") for name in versions.SERVICES}
