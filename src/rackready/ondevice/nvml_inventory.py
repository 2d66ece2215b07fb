"""Print NVML's inventory of a node's GPUs as one JSON document.

Sent to the node's python3 on standard input. A value that the driver does not give is null with its reason under
"unread": the reader decides what null means.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

LIBRARY = "/opt/rackready/lib"
"""Where the provisioning of a node puts pynvml.py (nvidia-ml-py)."""
FORMAT = "rackready/nvml-inventory/v2"


def main() -> int:
    """Print the document; exit 1 when NVML cannot be asked at all (the document then carries "error")."""
    sys.path.insert(0, LIBRARY)
    try:
        import pynvml  # noqa: PLC0415
    except ImportError as error:
        return give_up(f"pynvml is not installed in {LIBRARY}: {error}")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return give_up(f"NVML: {error}")
    try:
        document = collect(pynvml)
    except pynvml.NVMLError as error:
        return give_up(f"NVML: {error}")
    finally:
        pynvml.nvmlShutdown()
    sys.stdout.write(json.dumps(document, sort_keys=True) + "\n")
    return 0


def give_up(reason: str) -> int:
    """Print why there is no inventory."""
    sys.stdout.write(json.dumps({"format": FORMAT, "error": reason}) + "\n")
    return 1


def collect(nvml: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return the document of all GPUs."""
    count = nvml.nvmlDeviceGetCount()
    cuda = nvml.nvmlSystemGetCudaDriverVersion()
    return {
        "format": FORMAT,
        "driver": text(nvml.nvmlSystemGetDriverVersion()),
        "cuda_driver": f"{cuda // 1000}.{cuda % 1000 // 10}",
        "count": count,
        "gpus": [one(nvml, index) for index in range(count)],
        "complete": True,
    }


def one(nvml: Any, index: int) -> dict[str, Any]:  # noqa: ANN401
    """Return one GPU; one that cannot be opened (fallen off the bus) carries "lost"."""
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
    except nvml.NVMLError as error:
        return {"index": index, "lost": str(error)}
    unread = {}

    def ask(name: str, question: Callable[[], Any]) -> Any:  # noqa: ANN401
        try:
            return question()
        except nvml.NVMLError as error:
            unread[name] = str(error)
            return None

    gpu = {
        "index": index,
        "name": ask("name", lambda: text(nvml.nvmlDeviceGetName(handle))),
        "uuid": ask("uuid", lambda: text(nvml.nvmlDeviceGetUUID(handle))),
        "serial": ask("serial", lambda: text(nvml.nvmlDeviceGetSerial(handle))),
        "vbios": ask("vbios", lambda: text(nvml.nvmlDeviceGetVbiosVersion(handle))),
        "board_part": ask("board_part", lambda: text(nvml.nvmlDeviceGetBoardPartNumber(handle))),
        "device_id": ask(
            "device_id", lambda: f"{nvml.nvmlDeviceGetPciInfo(handle).pciDeviceId >> 16:04x}"
        ),  # the vendor's id is the lower half
        "memory_mib": ask("memory_mib", lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).total) // (1 << 20)),
        "pci": ask("pci", lambda: text(nvml.nvmlDeviceGetPciInfo(handle).busId)),
        "pcie_width": ask("pcie_width", lambda: nvml.nvmlDeviceGetCurrPcieLinkWidth(handle)),
        "pcie_width_max": ask("pcie_width_max", lambda: nvml.nvmlDeviceGetMaxPcieLinkWidth(handle)),
        "pcie_gen": ask("pcie_gen", lambda: nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle)),
        "pcie_gen_max": ask("pcie_gen_max", lambda: nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle)),
        "persistence": ask(
            "persistence", lambda: nvml.nvmlDeviceGetPersistenceMode(handle) == nvml.NVML_FEATURE_ENABLED
        ),
        "ecc": ask("ecc", lambda: nvml.nvmlDeviceGetEccMode(handle)[0] == nvml.NVML_FEATURE_ENABLED),
        "nvlinks": links(nvml, handle, unread),
    }
    gpu["unread"] = unread
    return gpu


def links(nvml: Any, handle: Any, unread: dict[str, str]) -> dict[str, bool]:  # noqa: ANN401
    """Return the state of every NVLink: link number (text) -> active or not.

    After the last one NVML reports "invalid".
    """
    states = {}
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            states[str(link)] = nvml.nvmlDeviceGetNvLinkState(handle, link) == nvml.NVML_FEATURE_ENABLED
        except nvml.NVMLError as error:
            if error.value not in (nvml.NVML_ERROR_INVALID_ARGUMENT, nvml.NVML_ERROR_NOT_SUPPORTED):
                unread[f"nvlink{link}"] = str(error)
            else:
                break
    return states


def text(value: str | bytes) -> str:
    """Return text: older bindings give bytes."""
    return value.decode() if isinstance(value, bytes) else value


if __name__ == "__main__":
    sys.exit(main())
