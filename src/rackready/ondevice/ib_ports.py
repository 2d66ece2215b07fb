"""InfiniBand ports of one node: `ib_ports.py read DEVICE...`, `ib_ports.py reach` (a request on standard input).

``read`` prints what the kernel and the port itself hold. ``reach`` asks HCAs for their node records by LID: the way
there and back goes through the switches' forwarding tables. Files: the kernel's drivers/infiniband/core/sysfs.c.
Programs: infiniband-diags (linux-rdma/rdma-core @44.0, infiniband-diags/smpquery.c); ``-D ... 0`` is the port itself.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

FORMAT = "rackready/ib-ports/1"
_TIMEOUT_S = 60
_KEYS = re.compile(r"^\s*\d+:((?: 0x[0-9a-f]{4})+)\s*$", re.MULTILINE)
_KEY = re.compile(r"^0x[0-9a-f]{4}$")
_GUID = re.compile(r"^PortGuid:\.*0x([0-9a-f]+)\s*$", re.MULTILINE)
Run = Callable[..., "tuple[int, str]"]


def run(*argv: str) -> tuple[int, str]:
    """Run a program; return its exit code and its output. A missing program is code 127, a late one 124."""
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=_TIMEOUT_S, check=False)
    except FileNotFoundError:
        return 127, f"{argv[0]}: not installed"
    except subprocess.TimeoutExpired:
        return 124, f"{argv[0]}: no end within {_TIMEOUT_S} s"
    return done.returncode, done.stdout.decode("utf-8", "replace")


def read_port(device: str, start: Run = run, root: Path = Path("/")) -> dict[str, object]:
    """Return the first port of an HCA: the kernel's words, its port GUID, and its partition keys.

    ``first_key`` is that at index 0, 0x0000 for an empty place. ``problem`` says what could not be read; then the other
    values are not whole.
    """
    top = root / "sys/class/infiniband" / device
    port = top / "ports/1"
    if not port.is_dir():
        return {"problem": f"no {top}"}
    found: dict[str, object] = {
        name: _text(port / name) for name in ("link_layer", "state", "phys_state", "rate", "lid", "sm_lid")
    }
    found["node_desc"] = _text(top / "node_desc")
    found["port_guid"] = _text(port / "gids/0").replace(":", "")[16:]
    found["keys"], found["first_key"], found["problem"] = [], "", ""
    if found["link_layer"] == "InfiniBand":
        table, found["problem"] = _keys(device, start, port / "pkeys")
        found["keys"] = [key for key in table if int(key, 16) & 0x7FFF]
        found["first_key"] = table[0] if table else ""
    return found


def _keys(device: str, start: Run, table: Path) -> tuple[list[str], str]:
    """Return the partition keys of a port, empty places included, and why they are not readable.

    A subnet manager with M_Key protection 2 (opensm(8): m_key_protection_level) has the port refuse the question. The
    kernel's own copy of the table (sysfs.c: show_port_pkey) then tells.
    """
    code, text = start("smpquery", "-C", device, "-P", "1", "-D", "pkeys", "0")
    rows = _KEYS.findall(text)
    keys = [key for row in rows for key in row.split()] if not code else []
    keys = keys or [_text(path) for path in sorted(table.glob("[0-9]*"), key=lambda path: int(path.name))]
    if not keys or not all(map(_KEY.match, keys)):
        return [], f"smpquery pkeys exit {code}: {' '.join(text.split())[:200] or 'no output'}"
    return keys, ""


def reach(request: list[dict[str, object]], start: Run = run) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Return the peers that did not answer, and those that could not be asked.

    One entry of the request: device, lid and port_guid of the peer, and ``shares_key``: whether both ports have one
    partition key at index 0.
    """
    missed, unasked = [], []
    for item in request:
        argv = ("-C", str(item["device"]), "-P", "1")
        code, text = start("smpquery", *argv, "nodeinfo", str(item["lid"]))
        found = _GUID.search(text)
        answered = found is not None and int(found[1], 16) == int(str(item["port_guid"]), 16)
        if code and item["shares_key"]:
            # Refused by M_Key protection, or not reached: counters have no such key, and go the same way.
            answered = start("perfquery", *argv, str(item["lid"]), "1")[0] == 0
        elif code and start("smpquery", *argv, "-D", "nodeinfo", "0")[0]:
            # The port itself refuses the question as well: M_Key protection. Counters are read within a partition only.
            unasked.append({"peer": str(item["peer"]), "device": str(item["device"])})
            continue
        if not answered:
            said = f"port GUID 0x{found[1]}" if found and not code else " ".join(text.split())[-200:] or "no output"
            missed.append({"peer": str(item["peer"]), "device": str(item["device"]), "said": said})
    return missed, unasked


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def main(argv: list[str]) -> int:
    """Print one document."""
    if argv[1] == "read":
        found: object = {device: read_port(device) for device in argv[2:]}
        print(json.dumps({"format": FORMAT, "ports": found, "complete": True}))  # noqa: T201 - a program's output
        return 0
    request = json.load(sys.stdin)
    missed, unasked = reach(request)
    found = {"asked": len(request), "missed": missed, "unasked": unasked}
    print(json.dumps({"format": FORMAT, **found, "complete": True}))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
