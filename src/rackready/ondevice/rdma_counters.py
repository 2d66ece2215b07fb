"""Print link state, byte counters and error counters of RDMA devices as one JSON document.

Sent to python3 on standard input; arguments: devices. port_xmit_data and port_rcv_data count words of 4 bytes
(InfiniBand specification, PortCounters); here they are bytes. An EFA device has no such counters, but tx_bytes and
rx_bytes among its hardware counters (kernel drivers/infiniband/hw/efa/efa_verbs.c), which count bytes. It has no error
counters at all, which is an empty table here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

FORMAT = "rackready/rdma-counters/v2"
WORD = 4
ERRORS = (
    "link_downed",
    "link_error_recovery",
    "symbol_error",
    "port_rcv_errors",
    "port_xmit_discards",
    "local_link_integrity_errors",
)


def read(path: str) -> str | None:
    """Return a small file's text, None when it cannot be read."""
    try:
        with open(path) as file:  # noqa: PTH123
            return file.read().strip()
    except OSError:
        return None


def count(base: str, words: str, plain: str, ask: Callable[[str], str | None] = read) -> int | None:
    """Return a counter in bytes, None when it cannot be read.

    From words of 4 bytes where the port has them, or else from plain bytes.
    """
    for path, unit in ((base + "/counters/" + words, WORD), (base + "/hw_counters/" + plain, 1)):
        value = ask(path)
        if value is not None and value.isdigit():
            return int(value) * unit
    return None


def errors(base: str, ask: Callable[[str], str | None] = read) -> dict[str, int | None]:
    """Return the error counters, None for one that cannot be read; empty for a device that has none."""
    if ask(base + "/counters/port_xmit_data") is None and ask(base + "/hw_counters/tx_bytes") is not None:
        return {}
    values = {name: ask(base + "/counters/" + name) or "" for name in ERRORS}
    return {name: int(value) if value.isdigit() else None for name, value in values.items()}


def device(name: str, ask: Callable[[str], str | None] = read) -> dict[str, Any]:
    """Return one device, port 1. ``ask``: returns a file's text by its path."""
    base = f"/sys/class/infiniband/{name}/ports/1"
    return {
        "state": ask(base + "/state"),
        "link_layer": ask(base + "/link_layer"),
        "rate": ask(base + "/rate"),
        "xmit_bytes": count(base, "port_xmit_data", "tx_bytes", ask),
        "rcv_bytes": count(base, "port_rcv_data", "rx_bytes", ask),
        "errors": errors(base, ask),
    }


if __name__ == "__main__":
    sys.stdout.write(
        json.dumps(
            {"format": FORMAT, "devices": {name: device(name) for name in sys.argv[1:]}, "complete": True},
            sort_keys=True,
        )
        + "\n"
    )
