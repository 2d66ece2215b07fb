"""Kernel files in the output of `grep -H`, or of ibstat, which reads the same files (libibumad, umad.c)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from rackready.format_error import FormatError
from rackready.gates.plain.source import Source, begins

IBSTAT = Source("ibstat", "ibstat", begins(r"^CA '\S+'$"), needed=False)
_STATES = ("???", "Down", "Initializing", "Armed", "Active")
_PHYSICAL = (
    "No state change",
    "Sleep",
    "Polling",
    "Disabled",
    "PortConfigurationTraining",
    "LinkUp",
    "LinkErrorRecovery",
    "PhyTest",
)
"""ibstat's words by the kernel's numbers (infiniband-diags/ibstat.c, port_state_str, port_phy_state_str)."""
_KERNEL = ("NOP", "DOWN", "INIT", "ARMED", "ACTIVE")
"""The kernel's words (drivers/infiniband/core/sysfs.c, state_show)."""
_CA = re.compile(r"^CA '(?P<name>\S+)'$")
_FIELD = re.compile(r"^(?P<name>State|Physical state|Rate|Link layer): (?P<value>.+)$")
_PORT = re.compile(r"^Port (?P<number>\d+):$")


def listed(paths: Iterable[str]) -> Source:
    """Return the source that prints these files."""
    return Source("files", f"grep -H '' {' '.join(_braces(paths))}", begins(r"^/(?:sys|proc)/\S+:"))


def _braces(paths: Iterable[str]) -> Iterator[str]:
    """Yield the paths with shell braces: files of one folder together, and folders with the same files."""
    leaves: dict[str, list[str]] = {}
    for path in paths:
        folder, _, leaf = path.rpartition("/")
        leaves.setdefault(folder, []).append(leaf)
    folders: dict[tuple[str, ...], list[str]] = {}
    for folder, names in leaves.items():
        folders.setdefault(tuple(names), []).append(folder)
    for files, alike in folders.items():
        yield f"{_joined(alike)}/{_joined(files)}"


def _joined(names: Sequence[str]) -> str:
    """Return names as one word with braces around the parts of the path that differ."""
    if len(names) == 1:
        return names[0]
    parts = [name.split("/") for name in names]
    head = _alike(parts)
    tail = _alike([part[head:][::-1] for part in parts])
    ends = [len(part) - tail for part in parts]
    middle = ",".join("/".join(part[head:end]) for part, end in zip(parts, ends, strict=True))
    return "/".join([*parts[0][:head], f"{{{middle}}}", *parts[0][ends[0] :]])


def _alike(parts: Sequence[Sequence[str]]) -> int:
    """Return the number of leading parts that all paths share."""
    return next((at for at, same in enumerate(zip(*parts, strict=False)) if len(set(same)) > 1), min(map(len, parts)))


def read(text: str, paths: Iterable[str]) -> dict[str, str]:
    """Return path -> text of the files in the output. Raise FormatError for a file that is there twice."""
    found: dict[str, list[str]] = {}
    lines, before = text.splitlines(), ""
    wanted = set(paths)
    for line in lines:
        path = next((line[:at] for at in _colons(line) if line[:at] in wanted), None)
        if path is None:
            before = ""
            continue
        if path in found and before != path:
            raise FormatError(f"{path} is in the output twice")
        found.setdefault(path, []).append(line[len(path) + 1 :])
        before = path
    return {path: "\n".join(parts).strip() for path, parts in found.items()}


def _colons(line: str) -> Iterator[int]:
    """Yield the positions of a line's colons; PCI addresses in paths contain colons too."""
    at = line.find(":")
    while at >= 0:
        yield at
        at = line.find(":", at + 1)


def ibstat(text: str) -> dict[str, str]:
    """Return path -> text of ports' files by ibstat: state, phys_state, rate, link_layer. Raise FormatError."""
    out: dict[str, str] = {}
    device = port = ""
    for line in (line.strip() for line in text.splitlines()):
        if match := _CA.match(line):
            device, port = match["name"], ""
        elif match := _PORT.match(line):
            port = match["number"]
        elif device and port and (match := _FIELD.match(line)):
            path, value = _file(match["name"], match["value"].strip())
            full = f"/sys/class/infiniband/{device}/ports/{port}/{path}"
            if full in out:
                raise FormatError(f"ibstat shows {device} port {port} twice")
            out[full] = value
    if not out:
        raise FormatError("no port of a device in the form of ibstat")
    return out


def _file(name: str, value: str) -> tuple[str, str]:
    if name == "State" and value in _STATES[1:]:
        return "state", f"{_STATES.index(value)}: {_KERNEL[_STATES.index(value)]}"
    if name == "Physical state" and value in _PHYSICAL:
        return "phys_state", f"{_PHYSICAL.index(value)}: {value}"
    if name == "Rate" and re.fullmatch(r"\d+(\.\d+)?", value):
        return "rate", f"{value} Gb/sec"
    if name == "Link layer":
        return "link_layer", value
    raise FormatError(f"ibstat shows {name}: {value[:40]}, which is unknown")
