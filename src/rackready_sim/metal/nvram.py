"""Variables in the firmware's flash file, read and changed while the machine is off, as a BMC does.

Layout: UEFI Platform Initialization specification 1.7, volume 3, 3.2 (firmware volume), and EDK II's
MdeModulePkg/Include/Guid/VariableFormat.h (AUTHENTICATED_VARIABLE_HEADER, 60 bytes, variables aligned to 4).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rackready_sim.errors import describe

_FV_HEADER_LENGTH_AT = 48
_STORE_HEADER = 28
_HEADER = struct.Struct("<HBBIQ16sIII16s")
_START = 0x55AA
_VALID = (0x3F, 0x3E)
"""VAR_ADDED, and the same in transition to deleted: still valid until its successor is complete."""
_DELETED = 0xFD
_HTTP = re.compile(r"UEFI HTTPv[46]")
_BOOT = re.compile(r"Boot[0-9A-F]{4}")
_DESCRIPTION_AT = 6
"""EFI_LOAD_OPTION: attributes (4 bytes), length of the path list (2), then the description."""


@dataclass(frozen=True, slots=True)
class Variable:
    """One valid variable, and where its state and its value are in the file."""

    name: str
    state_at: int
    value_at: int
    value: bytes


def variables(flash: bytes, where: str) -> Iterator[Variable]:
    """Yield the valid variables of a flash file. Raise SimError if it holds no variable store."""
    if flash[40:44] != b"_FVH":
        hint = "Remove it while the node is off; the next start makes a new one."
        raise describe(where, "a firmware volume with variables", "another content", hint)
    at = struct.unpack_from("<H", flash, _FV_HEADER_LENGTH_AT)[0]
    at += _STORE_HEADER
    while at + _HEADER.size <= len(flash):
        start, state, _, _, _, _, _, name_size, value_size, _ = _HEADER.unpack_from(flash, at)
        if start != _START:
            return
        name_at = at + _HEADER.size
        value_at = name_at + name_size
        if state in _VALID:
            name = flash[name_at:value_at].decode("utf-16-le", errors="replace").rstrip("\0")
            yield Variable(name, at + 2, value_at, flash[value_at : value_at + value_size])
        at = (value_at + value_size + 3) & ~3


def secure_boot(path: Path) -> bool:
    """Return whether the firmware's setting for Secure Boot is on."""
    return any(
        item.value == b"\1" for item in variables(path.read_bytes(), str(path)) if item.name == "SecureBootEnable"
    )


def set_secure_boot(path: Path, *, enabled: bool) -> None:
    """Switch the firmware's setting for Secure Boot. Raise SimError if the firmware has no such setting."""
    flash = bytearray(path.read_bytes())
    found = [item for item in variables(bytes(flash), str(path)) if item.name == "SecureBootEnable"]
    if not found:
        raise describe(str(path), "a setting SecureBootEnable", "none", "Use a flash file with enrolled keys.")
    for item in found:
        flash[item.value_at] = int(enabled)
    path.write_bytes(flash)


def forget_http_entries(path: Path) -> int:
    """Delete the boot entries for HTTP boot, so that the firmware lists them after those for PXE; return how many.

    OVMF puts entries of one network card in the order in which it made them. QEMU names a card, not a protocol.
    """
    flash = bytearray(path.read_bytes())
    found = [
        item
        for item in variables(bytes(flash), str(path))
        if _BOOT.fullmatch(item.name) and _HTTP.match(item.value[_DESCRIPTION_AT:].decode("utf-16-le", "replace"))
    ]
    for item in found:
        flash[item.state_at] &= _DELETED
    path.write_bytes(flash)
    return len(found)
