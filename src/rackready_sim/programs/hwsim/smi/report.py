"""nvidia-smi -q: everything about each GPU, in sections; -d picks sections, -x prints XML."""

from __future__ import annotations

import sys
import time
from typing import Any

from .. import machine
from ..machine import Gpu
from . import mig
from . import xml as report_xml
from .summary import cuda_text

Tree = dict[str, Any]
_COLUMN = 42
_CORRUPT_INFOROM = 14
_SECTIONS = {
    "POWER": ["GPU Power Readings"],
    "CLOCK": ["Clocks", "Max Clocks", "Applications Clocks"],
    "PERFORMANCE": ["Performance State", "Clocks Event Reasons"],
    "ECC": ["ECC Mode", "ECC Errors"],
    "ROW_REMAPPER": ["Remapped Rows"],
    "TEMPERATURE": ["Temperature"],
    "MEMORY": ["FB Memory Usage", "BAR1 Memory Usage"],
    "PAGE_RETIREMENT": ["Retired Pages"],
    "PIDS": ["Processes"],
    "COMPUTE": ["Compute Mode"],
    "UTILIZATION": ["Utilization"],
    "FABRIC": ["Fabric"],
}


def main(gpus: list[Gpu], display: str | None, *, xml: bool) -> int:
    """Print the report; return 2 for a section that does not exist."""
    wanted = [item.strip().upper() for item in display.split(",")] if display else []
    bad = next((item for item in wanted if item not in _SECTIONS), None)
    if bad is not None:
        sys.stdout.write(f'"{bad}" is not a valid display type.\n')
        return 2
    warnings = report_xml.corrupt(gpus)
    if xml:
        sys.stdout.write(report_xml.document(gpus, wanted) + "".join(f"{line}\n" for line in warnings))
        return _CORRUPT_INFOROM if warnings else 0
    names = [name for item in wanted for name in _SECTIONS[item]]
    trees = [(gpu, {key: value for key, value in tree(gpu).items() if not names or key in names}) for gpu in gpus]
    sys.stdout.write(_text(trees) + "".join(f"{line}\n" for line in warnings))
    return _CORRUPT_INFOROM if warnings else 0


def tree(gpu: Gpu) -> Tree:
    """Return all sections of one GPU."""
    return {
        **_identity(gpu),
        **_bus(gpu),
        **_state(gpu),
        **_memory(gpu),
        **_errors(gpu),
        **_power(gpu),
        **_clocks(gpu),
        "Processes": "None",
    }


def _identity(gpu: Gpu) -> Tree:
    part = gpu.part
    state = machine.fabric_state(gpu)
    return {
        "Product Name": part["name"],
        "Product Brand": "NVIDIA",
        "Product Architecture": str(part["architecture"]).capitalize(),
        "Display Mode": "Requested functionality has been deprecated",
        "Display Active": "Disabled",
        "Persistence Mode": "Enabled" if gpu.persistence else "Disabled",
        "Addressing Mode": "None",
        "MIG Mode": {"Current": mig.mode(gpu).strip("[]"), "Pending": mig.mode(gpu).strip("[]")},
        "Accounting Mode": "Disabled",
        "Serial Number": part["serial"],
        "GPU UUID": part["uuid"],
        "Minor Number": gpu.index,
        "VBIOS Version": part["vbios"],
        "MultiGPU Board": "No",
        "Board Part Number": part["board_part"],
        "GPU Part Number": f"{part['device_id'][2:6]}-886-A1",
        "Module ID": gpu.slot + 1,
        "Inforom Version": {
            "Image Version": part["inforom"]["image"] if part["inforom"]["valid"] else "N/A",
            "OEM Object": "2.1",
            "ECC Object": "7.16",
            "Power Management Object": "N/A",
        },
        "GPU Reset Status": {
            "Reset Required": "Requested functionality has been deprecated",
            "Drain and Reset Recommended": "Requested functionality has been deprecated",
        },
        "GPU Recovery Action": part["recovery_action"],
        "GSP Firmware Version": machine.driver_version(),
        "Fabric": {
            "State": state,
            "Status": part["fabric"]["status"] if state == "Completed" else "N/A",
            "CliqueId": part["fabric"]["clique"] if state == "Completed" else "N/A",
            "ClusterUUID": part["fabric"]["cluster"] if state == "Completed" else "N/A",
            "Health": {
                "Summary": "N/A",
                "Bandwidth": "N/A",
                "Route Recovery in progress": "N/A",
                "Route Unhealthy": "N/A",
                "Access Timeout Recovery": "N/A",
            },
        },
    }


def _bus(gpu: Gpu) -> Tree:
    part, pcie = gpu.part, gpu.part["pcie"]
    return {
        "PCI": {
            "Bus": f"0x{part['pci'][5:7].upper()}",
            "Device": f"0x{part['pci'][8:10].upper()}",
            "Domain": f"0x{part['pci'][:4].upper()}",
            "Device Id": part["device_id"],
            "Bus Id": gpu.bus_id,
            "Sub System Id": part["subsystem_id"],
            "GPU Link Info": {
                "PCIe Generation": {
                    "Max": pcie["max_gen"],
                    "Current": pcie["gen"],
                    "Device Current": pcie["gen"],
                    "Device Max": pcie["max_gen"],
                    "Host Max": 5,
                },
                "Link Width": {"Max": f"{pcie['max_width']}x", "Current": f"{pcie['width']}x"},
            },
            "Replays Since Reset": report_xml.replays(gpu),
        },
        "Fan Speed": "N/A",
    }


def _state(gpu: Gpu) -> Tree:
    bits = {"Idle": 0x1, "Applications Clocks Setting": 0x2, "SW Power Cap": 0x4, "HW Slowdown": 0x8}
    reasons: Tree = {key: _active(gpu.events & bit) for key, bit in bits.items()}
    reasons["HW Slowdown"] = _active(gpu.events & 0xC8)
    reasons["HW Thermal Slowdown"] = _active(gpu.events & 0x40)
    reasons["HW Power Brake Slowdown"] = _active(gpu.events & 0x80)
    reasons["Sync Boost"] = "Not Active"
    reasons["SW Thermal Slowdown"] = _active(gpu.events & 0x20)
    return {"Performance State": "P0", "Clocks Event Reasons": reasons}


def _memory(gpu: Gpu) -> Tree:
    total = gpu.part["memory_mib"]
    return {
        "FB Memory Usage": {
            "Total": f"{total} MiB",
            "Reserved": "636 MiB",
            "Used": "0 MiB",
            "Free": f"{total - 636} MiB",
        },
        "BAR1 Memory Usage": {"Total": "131072 MiB", "Used": "1 MiB", "Free": "131071 MiB"},
        "Compute Mode": gpu.compute_mode,
        "Utilization": {"GPU": "0 %", "Memory": "0 %", "Encoder": "0 %", "Decoder": "0 %"},
        "ECC Mode": {"Current": gpu.part["ecc_mode"], "Pending": gpu.part["ecc_mode"]},
    }


def _errors(gpu: Gpu) -> Tree:
    ecc, rows = gpu.part["ecc"], gpu.part["remapped_rows"]
    errors = {}
    for period in ("volatile", "aggregate"):
        errors[period.capitalize()] = {
            "SRAM Correctable": gpu.part["sram"][period]["correctable"],
            "SRAM Uncorrectable Parity": gpu.part["sram"][period]["parity"],
            "SRAM Uncorrectable SEC-DED": gpu.part["sram"][period]["secded"],
            "DRAM Correctable": ecc[period]["corrected"],
            "DRAM Uncorrectable": ecc[period]["uncorrected"],
        }
    return {
        "ECC Errors": errors,
        "Retired Pages": {"Single Bit ECC": "N/A", "Double Bit ECC": "N/A", "Pending Page Blacklist": "N/A"},
        "Remapped Rows": {
            "Correctable Error": rows["correctable"],
            "Uncorrectable Error": rows["uncorrectable"],
            "Pending": "Yes" if rows["pending"] else "No",
            "Remapping Failure Occurred": "Yes" if rows["failure"] else "No",
        },
        "Temperature": {
            "GPU Current Temp": f"{gpu.temperature} C",
            "GPU T.Limit Temp": f"{gpu.part['thermal']['zero_margin_c'] - gpu.temperature} C",
            "GPU Shutdown T.Limit Temp": "-8 C",
            "GPU Slowdown T.Limit Temp": "-2 C",
            "GPU Max Operating T.Limit Temp": "0 C",
            "Memory Current Temp": f"{gpu.temperature + 8} C",
        },
    }


def _power(gpu: Gpu) -> Tree:
    power = gpu.part["power"]
    return {
        "GPU Power Readings": {
            "Average Power Draw": f"{gpu.power_draw:.2f} W",
            "Instantaneous Power Draw": f"{gpu.power_draw:.2f} W",
            "Current Power Limit": f"{gpu.power_limit:.2f} W",
            "Requested Power Limit": f"{gpu.power_limit:.2f} W",
            "Default Power Limit": f"{power['default_w']:.2f} W",
            "Min Power Limit": f"{power['min_w']:.2f} W",
            "Max Power Limit": f"{power['max_w']:.2f} W",
        }
    }


def _clocks(gpu: Gpu) -> Tree:
    clocks = gpu.part["clocks"]
    top, memory = f"{clocks['sm_max_mhz']} MHz", f"{clocks['memory_mhz']} MHz"
    return {
        "Clocks": {
            "Graphics": f"{gpu.sm_clock} MHz",
            "SM": f"{gpu.sm_clock} MHz",
            "Memory": memory,
            "Video": "765 MHz",
        },
        "Applications Clocks": {
            "Graphics": "Requested functionality has been deprecated",
            "Memory": "Requested functionality has been deprecated",
        },
        "Max Clocks": {"Graphics": top, "SM": top, "Memory": memory, "Video": "1830 MHz"},
    }


def _active(value: int) -> str:
    return "Active" if value else "Not Active"


def _text(trees: list[tuple[Gpu, Tree]]) -> str:
    lines = ["", "==============NVSMI LOG==============", ""]
    head = {
        "Timestamp": time.strftime("%a %b %e %H:%M:%S %Y"),
        "Driver Version": machine.driver_version(),
        "CUDA Version": cuda_text(),
    }
    lines += [f"{key:<{_COLUMN}}: {value}" for key, value in head.items()]
    lines += ["", f"{'Attached GPUs':<{_COLUMN}}: {len(trees)}"]
    for gpu, sections in trees:
        lines.append(f"GPU {gpu.bus_id}")
        lines += _lines(sections, 4)
        lines.append("")
    return "\n".join(lines) + "\n"


def _lines(sections: Tree, depth: int) -> list[str]:
    lines = []
    for key, value in sections.items():
        if isinstance(value, dict):
            lines += [f"{' ' * depth}{key}", *_lines(value, depth + 4)]
        else:
            lines.append(f"{' ' * depth + key:<{_COLUMN}}: {value}")
    return lines
