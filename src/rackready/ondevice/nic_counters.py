"""Print the counters of RDMA ports and their network interfaces as one JSON document.

Sent to python3 on standard input; arguments: DEVICE:NETDEV. `hardware`:
/sys/class/infiniband/DEVICE/ports/1/hw_counters; `port`: its counters; `interface`: `ethtool -S NETDEV` (the mlx5
driver's names).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

FORMAT = "rackready/nic-counters/v1"


def folder(path: str) -> dict[str, int]:
    """Return the counters in a folder; files without a number are left out."""
    found = {}
    for name in sorted(os.listdir(path)) if os.path.isdir(path) else []:  # noqa: PTH112, PTH208 - as little as possible is imported on nodes
        try:
            with open(os.path.join(path, name)) as file:  # noqa: PTH118, PTH123
                text = file.read().strip()
        except OSError:
            continue
        if text.isdigit():
            found[name] = int(text)
    return found


def interface(netdev: str) -> dict[str, int]:
    """Return the driver's own counters of an interface; empty when ethtool fails."""
    environment = {**os.environ, "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            ["ethtool", "-S", netdev],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=30,
            check=False,
            env=environment,
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    found = {}
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        name, mark, value = line.strip().partition(": ")
        if mark and value.strip().isdigit():
            found[name] = int(value)
    return found


def port(device: str, netdev: str) -> dict[str, dict[str, int]]:
    """Return everything of one port."""
    base = f"/sys/class/infiniband/{device}/ports/1"
    return {
        "hardware": folder(base + "/hw_counters"),
        "port": folder(base + "/counters"),
        "interface": interface(netdev),
    }


if __name__ == "__main__":
    pairs = [word.partition(":") for word in sys.argv[1:]]
    ports = {device: port(device, netdev) for device, _, netdev in pairs}
    sys.stdout.write(json.dumps({"format": FORMAT, "ports": ports, "complete": True}, sort_keys=True) + "\n")
