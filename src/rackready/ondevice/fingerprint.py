"""Print a node's identity (serials, firmware, kernel, boot, driver) as one JSON document.

Sent to the node's python3 on standard input. Everything comes from sysfs, uname and NVML. A value that cannot be read
is null, and makes the fingerprint incomplete.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

FORMAT = "rackready/fingerprint/v1"
SERIALS = ("product_serial", "product_sku", "chassis_serial", "board_serial")
"""Files of the kernel's DMI table (drivers/firmware/dmi-id.c); those with serials are readable by root alone."""
LIBRARY = "/opt/rackready/lib"


def main() -> int:
    """Print the document; always exit 0: missing values are in it."""
    document: dict[str, Any] = {
        "format": FORMAT,
        "chassis_serial": read("/sys/class/dmi/id/product_serial"),
        "serials": {name: read(f"/sys/class/dmi/id/{name}") for name in SERIALS},
        "kernel": os.uname().release,
        "nics": nics(),
    }
    document["boot_id"] = read("/proc/sys/kernel/random/boot_id")
    document.update(gpus())
    document["complete"] = True
    sys.stdout.write(json.dumps(document, sort_keys=True) + "\n")
    return 0


def read(path: str) -> str | None:
    """Return a small file's text, None when it cannot be read or is empty."""
    try:
        with open(path) as file:  # noqa: PTH123
            return file.read().strip() or None
    except OSError:
        return None


def nics() -> list[dict[str, Any]]:
    """Return every RDMA device with its node GUID and firmware."""
    base = "/sys/class/infiniband"
    names = sorted(os.listdir(base)) if os.path.isdir(base) else []  # noqa: PTH112, PTH208
    return [
        {"device": name, "guid": read(f"{base}/{name}/node_guid"), "firmware": read(f"{base}/{name}/fw_ver")}
        for name in names
    ]


def gpus() -> dict[str, Any]:
    """Return the driver's version and every GPU's identity; "gpu_error" gives the reason why there is none."""
    sys.path.insert(0, LIBRARY)
    try:
        import pynvml  # noqa: PLC0415
    except ImportError as error:
        return {"driver": None, "gpus": [], "gpu_error": str(error)}
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return {"driver": None, "gpus": [], "gpu_error": str(error)}
    try:
        found = [one(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())]
        return {"driver": text(pynvml.nvmlSystemGetDriverVersion()), "gpus": found, "gpu_error": None}
    except pynvml.NVMLError as error:
        return {"driver": None, "gpus": [], "gpu_error": str(error)}
    finally:
        pynvml.nvmlShutdown()


def one(nvml: Any, index: int) -> dict[str, Any]:  # noqa: ANN401
    """Return one GPU's serial (its UUID where the board has none) and VBIOS version."""
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        uuid = text(nvml.nvmlDeviceGetUUID(handle))
        vbios = text(nvml.nvmlDeviceGetVbiosVersion(handle))
    except nvml.NVMLError as error:
        return {"index": index, "id": None, "vbios": None, "error": str(error)}
    try:
        serial = text(nvml.nvmlDeviceGetSerial(handle))
    except nvml.NVMLError:
        serial = uuid
    return {"index": index, "id": serial, "vbios": vbios}


def text(value: str | bytes) -> str:
    """Return text: older bindings give bytes."""
    return value.decode() if isinstance(value, bytes) else value


if __name__ == "__main__":
    sys.exit(main())
