"""Print the PCIe links of every NVIDIA GPU and of each bridge up to the root port, as one JSON document.

Everything comes from sysfs. Sent to the node's python3 on standard input. A value that sysfs does not give is null: the
reader decides what null means.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

FORMAT = "rackready/pcie-path/v1"
DEVICES = "/sys/bus/pci/devices"
_NVIDIA = "0x10de"
_CONTROLLERS = ("0x030000", "0x030200")
"""VGA and 3D controllers: the classes of GPUs."""
_ADDRESS = re.compile(r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")
_SPEED = re.compile(r"^(\d+(?:\.\d+)?) GT/s")
_LEAVES = ("current_link_speed", "max_link_speed", "current_link_width", "max_link_width")


def main(root: str = DEVICES) -> int:
    """Print the document; exit 1 when sysfs cannot be read at all (the document then carries "error")."""
    try:
        gpus = [path for path in sorted(Path(root).iterdir()) if is_gpu(path)]
    except OSError as error:
        sys.stdout.write(json.dumps({"format": FORMAT, "error": f"sysfs: {error}"}) + "\n")
        return 1
    document = {"format": FORMAT, "gpus": [one(path) for path in gpus], "complete": True}
    sys.stdout.write(json.dumps(document, sort_keys=True) + "\n")
    return 0


def is_gpu(path: Path) -> bool:
    """Return whether a PCI device is an NVIDIA GPU."""
    return text(path / "vendor") == _NVIDIA and text(path / "class") in _CONTROLLERS


def one(path: Path) -> dict[str, Any]:
    """Return one GPU with its links, the GPU first and the root port last."""
    chain = [part for part in Path(os.path.realpath(path)).parts if _ADDRESS.match(part)]
    return {
        "pci": path.name,
        "revision": text(path / "revision"),
        "links": [link(Path(path).parent / name) for name in reversed(chain)],
    }


def link(path: Path) -> dict[str, Any]:
    """Return one end of a link from sysfs: speeds in GT/s, widths in lanes."""
    values = {name: text(path / name) for name in _LEAVES}
    numbers = {name: number(value) for name, value in values.items()}
    return {
        "pci": path.name,
        "vendor": text(path / "vendor"),
        **numbers,
        "correctable": total(path / "aer_dev_correctable"),
    }


def number(value: str | None) -> float | None:
    """Return the number of a speed or a width; None for one that the kernel does not know."""
    if value is None:
        return None
    found = _SPEED.match(value)
    if found:
        return float(found.group(1))
    return float(value) if value.isdigit() and value not in ("0", "255") else None


def total(path: Path) -> int | None:
    """Return the sum of corrected errors (AER); None where the device does not count them."""
    for line in (text(path) or "").splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == "TOTAL_ERR_COR" and words[1].isdigit():  # noqa: PLR2004 - name and value
            return int(words[1])
    return None


def text(path: Path) -> str | None:
    """Return a file's text; None when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
