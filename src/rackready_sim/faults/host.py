"""Faults of the host: processors, memory, clock, services, kernel, PCIe, drives and firmware."""

from __future__ import annotations

from rackready_sim.faults.base import NIC, Fault, FaultError, Params, State, part

DRIVE: Params = {"drive": 3}
DIMM: Params = {"dimm": 5}


def _management_down(state: State) -> None:
    state["management"]["link"] = "down"


def _nouveau(state: State) -> None:
    state["nouveau"] = True


def _member(state: State, kind: str, index: int) -> State:
    found: list[State] = state["host"][kind]
    if not 0 <= index < len(found):
        raise FaultError(
            f"{state.get('node', 'node')} {kind}",
            expected=f"0 to {len(found) - 1}",
            actual=index,
            next_step="Name a part that the node has.",
        )
    return found[index]


def _dimm_missing(state: State, dimm: int) -> None:
    _member(state, "dimms", dimm)["present"] = False


def _dimm_slow(state: State, dimm: int, speed: int) -> None:
    _member(state, "dimms", dimm)["speed"] = speed


def _corrected(state: State, dimm: int, count: int) -> None:
    _member(state, "dimms", dimm)["corrected"] += count


def _uncorrected(state: State, dimm: int, count: int) -> None:
    _member(state, "dimms", dimm)["uncorrected"] += count


def _machine_check(state: State, bank: int) -> None:
    state["host"]["machine_checks"].append(
        f"mce: [Hardware Error]: CPU 28: Machine Check Exception: 5 Bank {bank}: Uncorrected error, bd80000000100134"
    )


def _cpu_offline(state: State, cpu: int) -> None:
    state["host"]["cpu"]["offline"] = sorted({*state["host"]["cpu"]["offline"], cpu})


def _smt_off(state: State) -> None:
    state["host"]["cpu"]["threads"] = 1


def _governor(state: State, governor: str) -> None:
    state["host"]["cpu"]["governor"] = governor


def _microcode(state: State, cpu: int) -> None:
    state["host"]["cpu"]["microcode_of"] = {str(cpu): "0x2b000461"}


def _numa_merged(state: State, nodes: int) -> None:
    state["host"]["numa_nodes"] = nodes


def _nic_numa(state: State, nic: int) -> None:
    found = part(state, "nics", nic, "rail")
    found["numa"] = 1 - found["numa"]


def _clock_lost(state: State) -> None:
    state["host"]["clock"]["synchronised"] = False


def _clock_alone(state: State, seconds: float) -> None:
    """Disconnect the clock from all sources.

    The daemon continues alone and still reports that it is synchronised, while the largest error that it vouches for
    grows.
    """
    state["host"]["clock"]["dispersion_s"] = seconds


def _clock_off(state: State, seconds: float) -> None:
    state["host"]["clock"]["offset_s"] = seconds


def _service(state: State, unit: str) -> None:
    state["host"]["failed_services"].append(unit)


def _huge(state: State, pages: int) -> None:
    state["host"]["hugepages"]["2048"] = pages


def _memlock(state: State, limit: int) -> None:
    state["host"]["memlock"] = str(limit)


def _swap(state: State, device: str) -> None:
    state["host"]["swaps"].append(device)


def _acs(state: State, nic: int) -> None:
    bus = int(part(state, "nics", nic, "rail")["pci"][5:7], 16)
    next(bridge for bridge in state["host"]["bridges"] if bridge["kind"] == "downstream" and bridge["buses"][1] == bus)[
        "acs"
    ] = True


def _iommu(state: State, kind: str) -> None:
    state["host"]["iommu"] = kind


def _drive_missing(state: State, drive: int) -> None:
    _member(state, "drives", drive)["present"] = False


def _drive_worn(state: State, drive: int, percent: int) -> None:
    _member(state, "drives", drive)["percentage_used"] = percent


def _drive_media(state: State, drive: int, count: int) -> None:
    _member(state, "drives", drive)["media_errors"] = count


def _drive_warns(state: State, drive: int, mask: int) -> None:
    _member(state, "drives", drive)["critical_warning"] = mask


def _drive_slow(state: State, drive: int, factor: float) -> None:
    found = _member(state, "drives", drive)
    found["read_gb_s"] = round(found["read_gb_s"] * factor, 3)


def _nic_firmware(state: State, nic: int, version: str) -> None:
    part(state, "nics", nic, "rail")["fw"] = version


def _bios(state: State, version: str) -> None:
    state["host"]["bios"]["version"] = version
    state["chassis"]["bios"] = version


def _foreign(state: State, path: str, text: str, *, more: bool = False) -> None:
    """Write a foreign text in place of a file, or after its content."""
    state["host"].setdefault("foreign_files", {})[path] = {"text": text.replace("\\n", "\n"), "more": more}


def _program(state: State, path: str) -> None:
    _foreign(state, path, "#!/bin/sh\nexit 0\n")


def _nccl_conf(state: State, setting: str) -> None:
    _foreign(state, "/etc/nccl.conf", f"{setting}\n")


def _poisoned(state: State, name: str, address: str) -> None:
    _foreign(state, "/etc/hosts", f"{address} {name}\n", more=True)


def _dns(state: State, server: str) -> None:
    _foreign(state, "/etc/resolv.conf", f"nameserver {server}\n")


def _dimm_other(state: State, dimm: int, serial: str) -> None:
    _member(state, "dimms", dimm)["serial"] = serial


def _aer(state: State, gpu: int, count: int) -> None:
    state["host"]["under_load"]["aer"][part(state, "gpus", gpu)["pci"]] = count


_CPU, _MODULES, _ERRORS = "node/host/sanity/cpu", "node/host/sanity/memory-modules", "node/host/sanity/memory-errors"
_NUMA, _CLOCK, _SERVICES, _KERNEL = (
    "node/host/sanity/numa",
    "node/host/sanity/clock",
    "node/host/sanity/services",
    "node/host/sanity/kernel-settings",
)
_DISKS, _FIRMWARE = "node/host/sanity/disks", "group/host/validation/firmware"
_DELTAS = "node/host/stress/counter-deltas"

_PROGRAMS, _ENVIRONMENT, _NAMES = "node/host/sanity/programs", "node/host/sanity/environment", "node/host/sanity/names"

FAULTS = (
    Fault(
        "program-replaced",
        "software",
        "a program that gates trust is another file",
        _program,
        {"path": "/usr/bin/all_reduce_perf"},
        _PROGRAMS,
    ),
    Fault(
        "nccl-conf",
        "software",
        "somebody wrote /etc/nccl.conf",
        _nccl_conf,
        {"setting": "NCCL_NET=Socket"},
        _ENVIRONMENT,
    ),
    Fault(
        "hosts-poisoned",
        "software",
        "/etc/hosts has another address of a node",
        _poisoned,
        {"name": "node02", "address": "192.0.2.99"},
        _NAMES,
    ),
    Fault("dns-broken", "software", "the name server does not answer", _dns, {"server": "192.0.2.53"}, _NAMES),
    Fault(
        "dimm-other",
        "memory",
        "a memory module was swapped for another of the same kind",
        _dimm_other,
        {**DIMM, "serial": "80CE0BAD"},
    ),
    Fault(
        "host-unreachable",
        "management",
        "the cable of the host's management network is unplugged: the host boots, but is unreachable",
        _management_down,
    ),
    Fault(
        "nouveau-loaded",
        "driver",
        "nouveau binds at boot unless it is denied: install denies it",
        _nouveau,
        at_boot=True,
    ),
    Fault("cpu-offline", "cpu", "a hardware thread is offline", _cpu_offline, {"cpu": 17}, _CPU),
    Fault("smt-off", "cpu", "hyper-threading is switched off in the BIOS", _smt_off, {}, _CPU),
    Fault("cpu-governor", "cpu", "the frequency governor saves power", _governor, {"governor": "powersave"}, _CPU),
    Fault("microcode-mixed", "cpu", "one CPU runs older microcode", _microcode, {"cpu": 60}, _CPU),
    Fault(
        "numa-nodes",
        "cpu",
        "the BIOS splits sockets into other NUMA nodes than the platform's",
        _numa_merged,
        {"nodes": 4},
        _NUMA,
    ),
    Fault("nic-numa", "pcie", "a NIC sits on the wrong socket", _nic_numa, NIC, _NUMA),
    Fault("dimm-missing", "memory", "a memory module is not seen", _dimm_missing, DIMM, _MODULES),
    Fault(
        "dimm-slow",
        "memory",
        "a memory module trained at a lower speed, MT/s",
        _dimm_slow,
        {"dimm": 5, "speed": 4000},
        _MODULES,
    ),
    Fault(
        "memory-corrected", "memory", "a module corrects many errors", _corrected, {"dimm": 5, "count": 240}, _ERRORS
    ),
    Fault(
        "memory-uncorrected",
        "memory",
        "a module had an uncorrectable error",
        _uncorrected,
        {"dimm": 5, "count": 1},
        _ERRORS,
    ),
    Fault(
        "machine-check",
        "cpu",
        "the processor reports an uncorrected machine check",
        _machine_check,
        {"bank": 7},
        _ERRORS,
        at_boot=True,
    ),
    Fault("clock-unsynchronised", "clock", "no time server is reached", _clock_lost, {}, _CLOCK),
    Fault(
        "clock-unsure",
        "clock",
        "the time servers are silent, and the clock may be off by so many seconds",
        _clock_alone,
        {"seconds": 3.6},
        _CLOCK,
    ),
    Fault("clock-offset", "clock", "the clock is off by so many seconds", _clock_off, {"seconds": 0.42}, _CLOCK),
    Fault("service-failed", "services", "a service fails", _service, {"unit": "node-agent.service"}, _SERVICES),
    Fault(
        "hugepages-missing", "kernel", "fewer huge pages than the command line asks for", _huge, {"pages": 611}, _KERNEL
    ),
    Fault("memlock-limited", "kernel", "locked memory is limited, bytes", _memlock, {"limit": 67108864}, _KERNEL),
    Fault("swap-on", "kernel", "swap is on", _swap, {"device": "/dev/nvme0n1p3"}, _KERNEL),
    Fault(
        "acs-on", "pcie", "access control is on at the switch port above a NIC", _acs, NIC, "node/host/sanity/pcie-acs"
    ),
    Fault(
        "iommu-translates",
        "pcie",
        "the IOMMU translates instead of passing through",
        _iommu,
        {"kind": "DMA-FQ"},
        "node/host/sanity/iommu",
    ),
    Fault("drive-missing", "storage", "a drive is not seen", _drive_missing, DRIVE, _DISKS),
    Fault(
        "drive-worn",
        "storage",
        "a drive has used up its rated endurance, percent",
        _drive_worn,
        {"drive": 3, "percent": 104},
        _DISKS,
    ),
    Fault("drive-media-errors", "storage", "a drive lost data", _drive_media, {"drive": 3, "count": 12}, _DISKS),
    Fault(
        "drive-warns",
        "storage",
        "a drive raises a critical warning (bit mask)",
        _drive_warns,
        {"drive": 3, "mask": 4},
        _DISKS,
    ),
    Fault(
        "drive-slow",
        "storage",
        "a drive reads at a fraction of its rate",
        _drive_slow,
        {"drive": 3, "factor": 0.6},
        "node/host/performance/disk-bandwidth",
    ),
    Fault(
        "nic-firmware",
        "firmware",
        "a NIC has other firmware than its siblings",
        _nic_firmware,
        {"nic": 1, "version": "28.39.3004"},
        _FIRMWARE,
    ),
    Fault(
        "bios-version",
        "firmware",
        "the BIOS is older than that of identical nodes",
        _bios,
        {"version": "1.5.3"},
        _FIRMWARE,
    ),
    Fault(
        "aer-under-load",
        "pcie",
        "a GPU's PCIe link makes corrected errors under load",
        _aer,
        {"gpu": 0, "count": 48000},
        _DELTAS,
    ),
)
