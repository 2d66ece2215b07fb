"""Counters of InfiniBand ports, and of the switch ports at the other ends of their cables, as one JSON document.

Sent to python3 on standard input; arguments: devices. Programs: infiniband-diags (linux-rdma/rdma-core @44.0,
infiniband-diags/perfquery.c and smpquery.c). ``-D ... 0,1`` is the node one hop away through port 1: its LocalPort is
the port at which the request arrived, so the one at the cable. Nothing is cleared.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

FORMAT = "rackready/ib-counters/1"
_TIMEOUT_S = 30
_TYPE = re.compile(r"^NodeType:\.*(.*)$", re.MULTILINE)
_GUID = re.compile(r"^Guid:\.*(0x[0-9a-f]+)$", re.MULTILINE)
_PORT = re.compile(r"^LocalPort:\.*(\d+)$", re.MULTILINE)
_LID = re.compile(r"^Lid:\.*(\d+)$", re.MULTILINE)
_KEY = re.compile(r"^0x[0-9a-f]{4}$")
_DEFAULT = 0x7FFF
"""Key of the default partition, without the membership bit."""
Run = Callable[..., "tuple[int, str]"]
Ask = Callable[[str], "str | None"]


def run(*argv: str) -> tuple[int, str]:
    """Run a program; return its exit code and its output. A missing program is code 127, a late one 124."""
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=_TIMEOUT_S, check=False)
    except FileNotFoundError:
        return 127, f"{argv[0]}: not installed"
    except subprocess.TimeoutExpired:
        return 124, f"{argv[0]}: no end within {_TIMEOUT_S} s"
    return done.returncode, done.stdout.decode("utf-8", "replace")


def read(path: str) -> str | None:
    """Return a small file's text, None when it cannot be read."""
    try:
        with open(path) as file:  # noqa: PTH123 - also where pathlib is slow to load
            return file.read().strip()
    except OSError:
        return None


def counters(device: str, where: tuple[str, ...], start: Run) -> tuple[dict[str, str], str]:
    """Return the texts of both queries of a port, and why one failed. ``where``: LID and port; empty: the own port."""
    found = {}
    for name, more in (("plain", ()), ("extended", ("-x",))):
        code, text = start("perfquery", *more, "-C", device, "-P", "1", *where)
        if code:
            return {}, f"perfquery exit {code}: {' '.join(text.split())[:200] or 'no output'}"
        found[name] = text
    return found, ""


def peer(device: str, start: Run) -> tuple[dict[str, Any], str]:
    """Return the switch port at a port's cable: its node's GUID, LID and number; and why it is not known."""
    ask = ("smpquery", "-C", device, "-P", "1", "-D")
    code, node = start(*ask, "nodeinfo", "0,1")
    kind, guid, port = (pattern.search(node) for pattern in (_TYPE, _GUID, _PORT))
    if code or kind is None or guid is None or port is None:
        return {}, f"smpquery nodeinfo exit {code}: {' '.join(node.split())[:200] or 'no output'}"
    if kind[1].strip() != "Switch":
        return {}, f"the node at the other end is no switch: {kind[1].strip()}"
    code, info = start(*ask, "portinfo", "0,1", "0")
    lid = _LID.search(info)
    if code or lid is None or lid[1] == "0":
        return {}, f"smpquery portinfo exit {code}: {' '.join(info.split())[:200] or 'no output'}"
    return {"guid": guid[1], "port": int(port[1]), "lid": int(lid[1])}, ""


def device(name: str, start: Run = run, ask: Ask = read) -> dict[str, Any]:
    """Return one device, port 1. ``problem`` says why values are missing; empty: all are there."""
    base = f"/sys/class/infiniband/{name}/ports/1"
    found: dict[str, Any] = {"rate": ask(f"{base}/rate"), "state": ask(f"{base}/state"), "uptime": ask("/proc/uptime")}
    found["own"], problem = counters(name, (), start)
    found["peer"], lost = peer(name, start)
    if found["peer"]:
        where = (str(found["peer"]["lid"]), str(found["peer"]["port"]))
        read_there, lost = counters(name, where, start)
        found["peer"].update(read_there)
        lost += _of_tenant(ask(f"{base}/pkeys/0")) if lost else ""
    found["problem"] = problem or lost
    return found


def _of_tenant(first_key: str | None) -> str:
    """Return why a switch did not answer a port whose first partition key is a tenant's; else ""."""
    if first_key is None or not _KEY.match(first_key) or int(first_key, 16) & _DEFAULT == _DEFAULT:
        return ""
    return f"; key {first_key} at index 0: a switch answers the default partition only, so ask from a node of no tenant"


if __name__ == "__main__":
    sys.stdout.write(
        json.dumps(
            {
                "format": FORMAT,
                "boot_id": read("/proc/sys/kernel/random/boot_id"),
                "devices": {name: device(name) for name in sys.argv[1:]},
                "complete": True,
            },
            sort_keys=True,
        )
        + "\n"
    )
