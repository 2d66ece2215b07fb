"""Reader of dmidecode's text: structures of one or more types, each a handle line, a title and indented fields."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rackready.format_error import TWICE, FormatError

_HANDLE = re.compile(r"^Handle (?P<handle>0x[0-9A-F]+), DMI type (?P<kind>\d+), \d+ bytes$")
_SIZE = re.compile(r"^(\d+) (kB|MB|GB|TB)$")
_SCALE = {"kB": 1 / 1024**2, "MB": 1 / 1024, "GB": 1, "TB": 1024}
_SPEED = re.compile(r"^(\d+) (?:MT/s|MHz)$")
_UNKNOWN = "Unknown"
"""dmidecode's word if the firmware reports no speed (dmi_memory_device_speed)."""


@dataclass(frozen=True, slots=True)
class Module:
    """One memory slot. ``size_gib``: 0 if it is empty. ``speed``: configured speed, MT/s; None if unknown."""

    locator: str
    size_gib: float
    speed: int | None
    part: str
    serial: str


def structures(text: str, kind: int) -> list[dict[str, str]]:
    """Return the fields of every structure of one DMI type. Raise FormatError if this is not dmidecode's output."""
    if not text.strip():
        raise FormatError("empty output")
    lines = text.splitlines()
    if "dmidecode" not in lines[0]:
        raise FormatError("no line '# dmidecode VERSION' at the top: not dmidecode's output, or cut off")
    handles = [match["handle"] for line in lines if (match := _HANDLE.match(line.rstrip()))]
    if len(set(handles)) != len(handles):
        raise FormatError(f"a structure is there twice: {TWICE}")
    found: list[dict[str, str]] = []
    current: dict[str, str] | None = None
    for line in lines:
        if line.startswith("\t"):
            if current is not None and not line.startswith("\t\t"):
                name, mark, value = line.partition(":")
                if mark:
                    current[name.strip()] = value.strip()
        elif match := _HANDLE.match(line.rstrip()):
            current = {} if int(match["kind"]) == kind else None
            if current is not None:
                found.append(current)
    return found


def memory(text: str) -> list[Module]:
    """Return every memory slot (DMI type 17). Raise FormatError."""
    modules = [_module(fields) for fields in structures(text, 17)]
    if not modules:
        raise FormatError("no Memory Device structure (DMI type 17)")
    return modules


def _module(fields: dict[str, str]) -> Module:
    missing = [name for name in ("Size", "Locator") if not fields.get(name)]
    if missing:
        raise FormatError(f"a Memory Device without {' and '.join(missing)}: the output is cut off")
    size = fields["Size"]
    if size in {"No Module Installed", "Not Installed"}:
        return Module(fields["Locator"], 0.0, None, "", "")
    match = _SIZE.match(size)
    if match is None:
        raise FormatError(f"size {size!r} of {fields['Locator']} is not understood")
    configured = fields.get("Configured Memory Speed", _UNKNOWN)
    speed = _SPEED.match(configured)
    if speed is None and configured != _UNKNOWN:
        raise FormatError(f"speed {configured!r} of {fields['Locator']} is not understood")
    return Module(
        fields["Locator"],
        int(match[1]) * _SCALE[match[2]],
        int(speed[1]) if speed else None,
        fields.get("Part Number", ""),
        fields.get("Serial Number", ""),
    )


def bios_version(text: str) -> str:
    """Return the BIOS version (DMI type 0). Raise FormatError."""
    found = structures(text, 0)
    if len(found) != 1 or not found[0].get("Version"):
        raise FormatError("no BIOS Information structure with a Version (DMI type 0)")
    return found[0]["Version"]
