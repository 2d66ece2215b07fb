"""Kernel files as `grep -H` prints them, each line behind its path; and what ibstat says of them, which reads the same files (libibumad, umad.c)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from rackready.gates.formats.error import FormatError
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
"""ibstat's words by the kernel's numbers (rdma-core, infiniband-diags/ibstat.c, port_state_str and port_phy_state_str)."""
_KERNEL = ("NOP", "DOWN", "INIT", "ARMED", "ACTIVE")
"""The kernel's words (drivers/infiniband/core/sysfs.c, state_show)."""
_CA = re.compile(r"^CA '(?P<name>\S+)'$")
_FIELD = re.compile(r"^(?P<name>State|Physical state|Rate|Link layer): (?P<value>.+)$")
_PORT = re.compile(r"^Port (?P<number>\d+):$")


def listed(paths: Iterable[str]) -> Source:
    """Return the source that prints these files."""
    return Source("files", f"grep -H '' {' '.join(_braces(paths))}", begins(r"^/(?:sys|proc)/\S+:"))


def _braces(paths: Iterable[str]) -> Iterator[str]:
    """Yield paths in a shell's braces: those of one folder together, and folders with the same files."""
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
    """Return names as one word: what they have in common before and behind what differs, whole parts of a path each."""
    if len(names) == 1:
        return names[0]
    parts = [name.split("/") for name in names]
    head = _alike(parts)
    tail = _alike([part[head:][::-1] for part in parts])
    ends = [len(part) - tail for part in parts]
    middle = ",".join("/".join(part[head:end]) for part, end in zip(parts, ends, strict=True))
    return "/".join([*parts[0][:head], f"{{{middle}}}", *parts[0][ends[0] :]])


def _alike(parts: Sequence[Sequence[str]]) -> int:
    """Return how many parts all paths begin with."""
    return next((at for at, same in enumerate(zip(*parts, strict=False)) if len(set(same)) > 1), min(map(len, parts)))


def read(text: str, paths: Iterable[str]) -> dict[str, str]:
    """Return path -> text of those files that stand in the output. Raises FormatError for a file that stands there twice."""
    found: dict[str, list[str]] = {}
    lines, before = text.splitlines(), ""
    wanted = set(paths)
    for line in lines:
        path = next((line[:at] for at in _colons(line) if line[:at] in wanted), None)
        if path is None:
            before = ""
            continue
        if path in found and before != path:
            raise FormatError(f"{path} stands twice in the output")
        found.setdefault(path, []).append(line[len(path) + 1 :])
        before = path
    return {path: "\n".join(parts).strip() for path, parts in found.items()}


def _colons(line: str) -> Iterator[int]:
    """Yield where a line has a colon: PCI addresses in paths have some of their own."""
    at = line.find(":")
    while at >= 0:
        yield at
        at = line.find(":", at + 1)


def ibstat(text: str) -> dict[str, str]:
    """Return path -> text of the files of ports that ibstat tells: state, phys_state, rate and link_layer. Raises FormatError."""
    out: dict[str, str] = {}
    device = port = ""
    for line in (line.strip() for line in text.splitlines()):
        if match := _CA.match(line):
            device, port = match["name"], ""
        elif match := _PORT.match(line):
            port = match["number"]
        elif device and port and (match := _FIELD.match(line)):
            path, value = _file(match["name"], match["value"].strip())
            whole = f"/sys/class/infiniband/{device}/ports/{port}/{path}"
            if whole in out:
                raise FormatError(f"ibstat tells {device} port {port} twice")
            out[whole] = value
    if not out:
        raise FormatError("no port of a device, as ibstat prints it")
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
    raise FormatError(f"ibstat says {name}: {value[:40]}, which is not known")
