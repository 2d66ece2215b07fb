"""smartctl 7.3: list drives and print each one's health, as JSON."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from .tools import drives

_FAILING, _NO_DEVICE = 8, 2


def main(argv: list[str]) -> int:
    """Scan for drives, or print all facts of one."""
    if "--scan-open" in argv or "--scan" in argv:
        devices = [
            {"name": _name(drive), "info_name": _name(drive), "type": "nvme", "protocol": "NVMe"} for drive in drives()
        ]
        _print(argv, 0, {"devices": devices} if devices else {})
        return 0
    drive = next((item for item in drives() if argv and argv[-1] in {_name(item), f"{_name(item)}n1"}), None)
    if drive is None:
        message = {
            "string": f"Smartctl open device: {argv[-1] if argv else ''} failed: No such device",
            "severity": "error",
        }
        _print(argv, _NO_DEVICE, {}, [message])
        return _NO_DEVICE
    code = _FAILING if drive["critical_warning"] else 0
    _print(argv, code, _health(drive))
    return code


def _name(drive: dict[str, Any]) -> str:
    return f"/dev/{drive['name']}"


def _print(argv: list[str], code: int, document: dict[str, Any], messages: list[dict[str, str]] | None = None) -> None:
    about = {"version": [7, 3], "svn_revision": "5338", "argv": ["smartctl", *argv], "exit_status": code}
    head = {"json_format_version": [1, 0], "smartctl": {**about, **({"messages": messages} if messages else {})}}
    sys.stdout.write(json.dumps({**head, **document}, indent=2) + "\n")


def _health(drive: dict[str, Any]) -> dict[str, Any]:
    """Return all facts of a drive.

    Like smartctl, it puts the local time among the drive's facts (nvmeprint.cpp, print_drive_info).
    """
    now = time.time()
    return {
        "device": {"name": _name(drive), "info_name": _name(drive), "type": "nvme", "protocol": "NVMe"},
        "model_name": drive["model"],
        "serial_number": drive["serial"],
        "firmware_version": drive["firmware"],
        "nvme_total_capacity": drive["bytes"],
        "user_capacity": {"blocks": drive["bytes"] // 512, "bytes": drive["bytes"]},
        "logical_block_size": 512,
        "local_time": {"time_t": int(now), "asctime": time.strftime("%a %b %e %H:%M:%S %Y %Z", time.localtime(now))},
        "smart_status": {"passed": not drive["critical_warning"], "nvme": {"value": drive["critical_warning"]}},
        "nvme_smart_health_information_log": {
            "critical_warning": drive["critical_warning"],
            "temperature": 38,
            "available_spare": drive["available_spare"],
            "available_spare_threshold": 10,
            "percentage_used": drive["percentage_used"],
            "data_units_read": 182731,
            "data_units_written": 93122,
            "power_cycles": 41,
            "power_on_hours": 912,
            "unsafe_shutdowns": 7,
            "media_errors": drive["media_errors"],
            "num_err_log_entries": drive["media_errors"],
            "warning_temp_time": 0,
            "critical_comp_time": 0,
        },
        "temperature": {"current": 38},
        "power_cycle_count": 41,
        "power_on_time": {"hours": 912},
    }
