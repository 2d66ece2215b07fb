"""Show what the compute interfaces see by LLDP: `lldp.py INTERFACE...` prints one JSON document, and changes nothing.

lldpd listens; role host_lldp configures it. The neighbours are read from `lldpcli -f json0`, whose shape does not
depend on how many there are (lldpcli(8)).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

FORMAT = "rackready/lldp/v1"
NEIGHBOURS = ("lldpcli", "-f", "json0", "show", "neighbors", "details")
CHASSIS = ("lldpcli", "-f", "json0", "show", "chassis", "summary")
Run = Callable[..., "tuple[int, str]"]

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""lldpcli is in sbin, which not every login has on its path."""


class ShapeError(ValueError):
    """A text of lldpcli in a form that is not known: nothing may be concluded from it."""


def run_command(*argv: str) -> tuple[int, str]:
    """Run a program; return its exit code and its output. A missing program is code 127, one without an end 124."""
    try:
        done = subprocess.run(
            argv,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=30,
            check=False,
            env={**os.environ, "PATH": _PATH, "LC_ALL": "C"},
        )
    except FileNotFoundError:
        return 127, f"{argv[0]}: not installed"
    except subprocess.TimeoutExpired:
        return 124, f"{argv[0]}: no end within 30 s"
    return done.returncode, done.stdout.decode("utf-8", "replace")


def parse_neighbours(text: str) -> dict[str, list[dict[str, str]]]:
    """Return interface -> neighbours from `lldpcli -f json0 show neighbors`; without any: no interface.

    A neighbour has ``system`` (its name, may be empty), ``chassis`` (id), ``port`` (id), ``port_type`` (``ifname``,
    ``mac``, ``local``), ``description`` of that port, and ``protocol``. Raises ShapeError.
    """
    found: dict[str, list[dict[str, str]]] = {}
    for block in _blocks(text):
        for item in _list(block.get("interface", [])):
            found.setdefault(_text(item.get("name")), []).append(_neighbour(item))
    if "" in found:
        raise ShapeError("an interface without a name")
    return found


def parse_chassis(text: str) -> list[str]:
    """Return the ids and names by which neighbours know the machine, from `lldpcli -f json0 show chassis`.

    Raises ShapeError.
    """
    known = []
    for block in _blocks(text, "local-chassis"):
        for chassis in _list(block.get("chassis", [])):
            known += [value for key in ("id", "name") if (value := _value(chassis, key))]
    if not known:
        raise ShapeError("no id of its own chassis")
    return known


def _neighbour(item: dict[str, Any]) -> dict[str, str]:
    chassis, port = _only(item, "chassis"), _only(item, "port")
    number = _only(port, "id")
    if not _text(number.get("value")):
        raise ShapeError("a neighbour without a port id")
    return {
        "protocol": _text(item.get("via")),
        "system": _value(chassis, "name"),
        "chassis": _value(chassis, "id"),
        "port": _text(number.get("value")),
        "port_type": _text(number.get("type")),
        "description": _value(port, "descr"),
    }


def _blocks(text: str, key: str = "lldp") -> list[dict[str, Any]]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ShapeError(" ".join(text.split())[:200] or "no output") from error
    if not isinstance(document, dict) or key not in document:
        raise ShapeError(f"a document without `{key}`")
    return _list(document[key])


def _list(value: object) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ShapeError(f"no list of objects: {json.dumps(value)[:100]}")
    return value


def _only(parent: dict[str, Any], key: str) -> dict[str, Any]:
    items = _list(parent.get(key, []))
    if len(items) != 1:
        raise ShapeError(f"{len(items)} of `{key}`")
    return items[0]


def _value(parent: dict[str, Any], key: str) -> str:
    """Return the value of a field that may be absent: firmware agents send no system name."""
    items = _list(parent.get(key, []))
    return _text(items[0].get("value")) if items else ""


def _text(value: object) -> str:
    return "" if value is None else str(value)


def interface(netdev: str, run: Run, root: Path) -> dict[str, Any]:
    """Return an interface's link: carrier, rate in Gb/s (0 where the driver does not tell), MAC address."""
    folder = root / "sys/class/net" / netdev
    _, text = run("ethtool", netdev)
    rate = re.search(r"^\s*Speed:\s*(\d+)Mb/s", text, re.MULTILINE)
    return {
        "netdev": netdev,
        "there": folder.exists(),
        "carrier": _read(folder / "carrier") == "1",
        "rate_gbps": int(rate.group(1)) // 1000 if rate else 0,
        "address": _read(folder / "address"),
    }


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:  # a carrier cannot be read while the interface is down
        return ""


def shown(netdevs: list[str], run: Run = run_command, root: Path = Path("/")) -> dict[str, Any]:
    """Return the document. ``problem`` is why neighbours could not be read; then there are none in it."""
    document: dict[str, Any] = {"format": FORMAT, "problem": "", "known_as": [], "neighbours": {}}
    try:
        document["neighbours"] = parse_neighbours(_told(run, NEIGHBOURS))
        document["known_as"] = parse_chassis(_told(run, CHASSIS))
    except ShapeError as error:
        document |= {"problem": str(error), "neighbours": {}}
    return document | {"interfaces": [interface(name, run, root) for name in netdevs], "complete": True}


def _told(run: Run, argv: tuple[str, ...]) -> str:
    code, text = run(*argv)
    if code != 0:
        raise ShapeError(f"`{' '.join(argv)}`: exit {code}, {' '.join(text.split())[:200] or 'no output'}")
    return text


def main(argv: list[str]) -> int:
    """Print the document; the exit code is 1 when neighbours could not be read."""
    document = shown(argv[1:])
    sys.stdout.write(json.dumps(document) + "\n")
    return 1 if document["problem"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
