"""nvidia-smi -q -x: the report with the element names of the vendor's DTD (nvsmi_device_v13)."""

from __future__ import annotations

import time
from typing import Any

from .. import machine, store
from ..machine import Gpu
from . import mig
from .summary import cuda_text

Tree = dict[str, Any]
_SECTIONS = {
    "POWER": ["gpu_power_readings"],
    "CLOCK": ["clocks", "max_clocks", "applications_clocks", "default_applications_clocks"],
    "PERFORMANCE": ["performance_state", "clocks_event_reasons", "clocks_event_reasons_counters"],
    "ECC": ["ecc_mode", "ecc_errors"],
    "ROW_REMAPPER": ["remapped_rows"],
    "TEMPERATURE": ["temperature"],
    "MEMORY": ["fb_memory_usage", "bar1_memory_usage"],
    "PAGE_RETIREMENT": ["retired_pages"],
    "PIDS": ["processes"],
    "COMPUTE": ["compute_mode"],
    "UTILIZATION": ["utilization"],
    "FABRIC": ["fabric"],
}
_EVENT_BITS = {
    "gpu_idle": 0x1, "applications_clocks_setting": 0x2, "sw_power_cap": 0x4, "hw_slowdown": 0xC8,
    "hw_thermal_slowdown": 0x40, "hw_power_brake_slowdown": 0x80, "sync_boost": 0x10, "sw_thermal_slowdown": 0x20,
    "display_clocks_setting": 0x100,
}  # fmt: skip
_YES = {True: "Yes", False: "No"}


clock = time.time
"""The node's clock."""


def document(gpus: list[Gpu], sections: list[str]) -> str:
    """Return the report; ``sections`` as -d names them, none for all."""
    wanted = [name for section in sections for name in _SECTIONS[section]]
    lines = ['<?xml version="1.0" ?>', '<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">', "<nvidia_smi_log>"]
    lines += [
        f"\t<timestamp>{time.strftime('%a %b %e %H:%M:%S %Y', time.localtime(clock()))}</timestamp>",
        f"\t<driver_version>{machine.driver_version()}</driver_version>",
    ]
    lines += [f"\t<cuda_version>{cuda_text()}</cuda_version>", f"\t<attached_gpus>{len(gpus)}</attached_gpus>"]
    for gpu in gpus:
        shown = {key: value for key, value in tree(gpu).items() if not wanted or key in wanted}
        lines += [f'\t<gpu id="{gpu.bus_id}">', *_lines(shown, 2), "\t</gpu>", ""]
    return "\n".join([*lines, "</nvidia_smi_log>"]) + "\n"


def corrupt(gpus: list[Gpu]) -> list[str]:
    """Return the warning that follows a report for every GPU whose InfoROM is corrupt."""
    return [
        f"WARNING: infoROM is corrupted at gpu {gpu.bus_id}"
        for gpu in gpus
        if not gpu.part.get("inforom", {}).get("valid", True)
    ]


def tree(gpu: Gpu) -> Tree:
    """Return all elements of one GPU."""
    return {
        **_identity(gpu),
        **_bus(gpu),
        **_state(gpu),
        **_memory(gpu),
        **_errors(gpu),
        **_thermal(gpu),
        **_clocks(gpu),
        **_fabric(gpu),
        "processes": {},
    }


def _identity(gpu: Gpu) -> Tree:
    part = gpu.part
    rom = part["inforom"] if part["inforom"]["valid"] else {"image": "N/A", "ecc": "N/A"}
    return {
        "product_name": part["name"],
        "product_brand": "NVIDIA",
        "product_architecture": str(part["architecture"]).capitalize(),
        "display_active": part.get("display_active", "Disabled"),
        "persistence_mode": "Enabled" if gpu.persistence else "Disabled",
        "addressing_mode": "HMM",
        "mig_mode": {"current_mig": mig.mode(gpu).strip("[]"), "pending_mig": mig.mode(gpu).strip("[]")},
        "mig_devices": "None",
        "accounting_mode": "Disabled",
        "serial": part["serial"],
        "uuid": part["uuid"],
        "minor_number": gpu.index,
        "vbios_version": part["vbios"],
        "multigpu_board": "No",
        "board_part_number": part["board_part"],
        "gpu_part_number": f"{part['device_id'][2:6]}-885-A1",
        "platformInfo": {
            "chassis_serial_number": "N/A",
            "slot_number": "N/A",
            "tray_index": "N/A",
            "module_id": gpu.slot + 1,
        },
        "inforom_version": {
            "img_version": rom["image"],
            "oem_object": "2.1",
            "ecc_object": rom["ecc"],
            "pwr_object": "N/A",
        },
        "gpu_recovery_action": part["recovery_action"],
        "gsp_firmware_version": machine.driver_version(),
    }


def _bus(gpu: Gpu) -> Tree:
    part, pcie = gpu.part, gpu.part["pcie"]
    return {
        "pci": {
            "pci_bus": part["pci"][5:7].upper(),
            "pci_device": part["pci"][8:10].upper(),
            "pci_domain": part["pci"][:4].upper(),
            "pci_device_id": part["device_id"][2:],
            "pci_bus_id": gpu.bus_id,
            "pci_sub_system_id": part["subsystem_id"][2:],
            "pci_gpu_link_info": {
                "pcie_gen": {
                    "max_link_gen": pcie["max_gen"],
                    "current_link_gen": pcie["gen"],
                    "device_current_link_gen": pcie["gen"],
                    "max_device_link_gen": pcie["max_gen"],
                    "max_host_link_gen": "N/A",
                },
                "link_widths": {"max_link_width": f"{pcie['max_width']}x", "current_link_width": f"{pcie['width']}x"},
            },
            "replay_counter": replays(gpu),
            "replay_rollover_counter": 0,
            "tx_util": "502 KB/s",
            "rx_util": "578 KB/s",
        },
        "fan_speed": "N/A",
    }


def replays(gpu: Gpu) -> int:
    """Return the PCIe replay counter: a bad link adds to it while data moves."""
    return int(gpu.part["pcie"]["replay"] + busy_minutes(gpu) * gpu.part.get("replay_rate_per_min", 0))


def busy_minutes(gpu: Gpu) -> float:
    """Return how long this GPU was under load since power-on, as recorded by the programs that load it."""
    return float(store.runtime().get("busy_s", {}).get(gpu.part["uuid"], 0.0)) / 60


def _state(gpu: Gpu) -> Tree:
    events = gpu.events if gpu.part["clock_events"] or not gpu.loaded else 0x4
    reasons = {
        f"clocks_event_reason_{name}": "Active" if events & bit else "Not Active" for name, bit in _EVENT_BITS.items()
    }
    slow = {
        name: f"{int(busy_minutes(gpu) * 6e7) if events & bit else 0} us"
        for name, bit in (("sw_therm_slowdown", 0x20), ("hw_therm_slowdown", 0x40), ("hw_power_brake", 0x80))
    }
    counters = {
        f"clocks_event_reasons_counters_{name}": value
        for name, value in {"sw_power_cap": "7015662857 us", "sync_boost": "0 us", **slow}.items()
    }
    return {
        "performance_state": "P0",
        "clocks_event_reasons": reasons,
        "clocks_event_reasons_counters": counters,
        "sparse_operation_mode": "Disabled",
    }


def _memory(gpu: Gpu) -> Tree:
    total = gpu.part["memory_mib"]
    return {
        "fb_memory_usage": {
            "total": f"{total} MiB",
            "reserved": "480 MiB",
            "used": "0 MiB",
            "free": f"{total - 480} MiB",
        },
        "bar1_memory_usage": {"total": "131072 MiB", "used": "1 MiB", "free": "131071 MiB"},
        "compute_mode": gpu.compute_mode,
        "utilization": {
            "gpu_util": "100 %" if gpu.loaded else "0 %",
            "memory_util": "0 %",
            "encoder_util": "0 %",
            "decoder_util": "0 %",
        },
        "ecc_mode": {"current_ecc": gpu.part["ecc_mode"], "pending_ecc": gpu.part["ecc_mode"]},
    }


def _errors(gpu: Gpu) -> Tree:
    part, rows = gpu.part, gpu.part["remapped_rows"]
    errors: Tree = {}
    for period in ("volatile", "aggregate"):
        sram, dram = part["sram"][period], part["ecc"][period]
        errors[period] = {
            "sram_correctable": sram["correctable"],
            "sram_uncorrectable_parity": sram["parity"],
            "sram_uncorrectable_secded": sram["secded"],
            "dram_correctable": int(dram["corrected"] + busy_minutes(gpu) * part["ecc_rate_per_min"]),
            "dram_uncorrectable": dram["uncorrected"],
        }
    errors["aggregate"]["sram_threshold_exceeded"] = _YES[part["sram_threshold_exceeded"]]
    errors["aggregate_uncorrectable_sram_sources"] = dict.fromkeys(
        ("sram_l2", "sram_sm", "sram_microcontroller", "sram_pcie", "sram_other"), 0
    )
    errors.update({name: _YES[value] for name, value in part["repairs"].items()})
    histogram = {f"row_remapper_histogram_{name}": f"{value} bank(s)" for name, value in part["histogram"].items()}
    return {
        "ecc_errors": errors,
        "retired_pages": {"pending_blacklist": "N/A", "pending_retirement": "N/A"},
        "remapped_rows": {
            "remapped_row_corr": rows["correctable"],
            "remapped_row_unc": rows["uncorrectable"],
            "remapped_row_pending": _YES[bool(rows["pending"])],
            "remapped_row_failure": _YES[bool(rows["failure"])],
            "row_remapper_histogram": histogram,
        },
    }


def _thermal(gpu: Gpu) -> Tree:
    limits, now = gpu.part["thermal"], gpu.temperature
    power = gpu.part["power"]
    draw = gpu.power_limit * 0.97 if gpu.loaded else gpu.power_draw
    return {
        "temperature": {
            "gpu_temp": f"{now} C",
            "gpu_temp_tlimit": f"{limits['zero_margin_c'] - now} C",
            "gpu_temp_max_tlimit_threshold": f"{limits['shutdown_margin_c']} C",
            "gpu_temp_slow_tlimit_threshold": f"{limits['slow_margin_c']} C",
            "gpu_temp_max_gpu_tlimit_threshold": "0 C",
            "gpu_target_temperature": "N/A",
            "memory_temp": f"{now + 8} C",
        },
        "gpu_power_readings": {
            "power_state": "P0",
            "average_power_draw": f"{draw:.2f} W",
            "instant_power_draw": f"{draw:.2f} W",
            "current_power_limit": f"{gpu.power_limit:.2f} W",
            "requested_power_limit": f"{gpu.power_limit:.2f} W",
            "default_power_limit": f"{power['default_w']:.2f} W",
            "min_power_limit": f"{power['min_w']:.2f} W",
            "max_power_limit": f"{power['max_w']:.2f} W",
        },
    }


def _clocks(gpu: Gpu) -> Tree:
    clocks = gpu.part["clocks"]
    top, memory = f"{clocks['sm_max_mhz']} MHz", f"{clocks['memory_mhz']} MHz"
    now = gpu.loaded_clock if gpu.loaded else gpu.sm_clock
    return {
        "clocks": {
            "graphics_clock": f"{now} MHz",
            "sm_clock": f"{now} MHz",
            "mem_clock": memory,
            "video_clock": "765 MHz",
        },
        "applications_clocks": {"graphics_clock": top, "mem_clock": memory},
        "default_applications_clocks": {"graphics_clock": top, "mem_clock": memory},
        "max_clocks": {"graphics_clock": top, "sm_clock": top, "mem_clock": memory, "video_clock": "1545 MHz"},
    }


def _fabric(gpu: Gpu) -> Tree:
    state, own = machine.fabric_state(gpu), gpu.part["fabric"]
    done = state == "Completed"
    health = own["health"] or dict.fromkeys(
        (
            "summary",
            "bandwidth",
            "route_recovery_in_progress",
            "route_unhealthy",
            "access_timeout_recovery",
            "incorrect_configuration",
        ),
        "N/A",
    )
    return {
        "fabric": {
            "state": state,
            "status": own["status"] if done else "N/A",
            "cliqueId": own["clique"] if done else "N/A",
            "clusterUuid": own["cluster"] if done else "N/A",
            "health": health,
        }
    }


def _lines(elements: Tree, depth: int) -> list[str]:
    lines, pad = [], "\t" * depth
    for tag, value in elements.items():
        if isinstance(value, dict):
            lines += [f"{pad}<{tag}>", *_lines(value, depth + 1), f"{pad}</{tag}>"]
        else:
            lines.append(f"{pad}<{tag}>{_escaped(str(value))}</{tag}>")
    return lines


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
