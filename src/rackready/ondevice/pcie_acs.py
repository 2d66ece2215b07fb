"""Access control (ACS) of PCIe switch ports above GPUs and network cards: read from sysfs, turned off with setpci.

A port with ACS redirects requests between devices below the same switch to the root complex, so that the IOMMU can
judge them: peer-to-peer transfers are slow, or fail. NCCL user guide, troubleshooting, "PCI Access Control Services":
`setpci -s BDF ECAP_ACS+0x6.w=0000` on the bridges, at each boot. Registers: pciutils, lib/header.h (PCI_EXT_CAP_ID_ACS,
PCI_ACS_CTRL, PCI_EXP_TYPE_DOWNSTREAM).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from .command import NodeProblem, Run
from .difference import Difference
from .whole_file import replace_file

REGISTER = "ECAP_ACS+0x6.w"
REDIRECTS = 0x000D
"""Source validation, request redirect and completion redirect."""
_DEVICES, _VFIO = "sys/bus/pci/devices", "sys/bus/pci/drivers/vfio-pci"
_RECORD = "pcie-acs.json"
"""What the ports had before: they get it back when the site no longer wants ACS off."""
_BRIDGE = "0x0604"
_PARTS = (("0x10de", "0x03"), ("0x15b3", "0x02"))
"""Vendor and start of the class of GPUs (NVIDIA) and network cards (Mellanox, now NVIDIA)."""
_EXPRESS, _DOWNSTREAM, _ACS = 0x10, 6, 0x000D
_EXTENDED, _MOST = 0x100, 64
_OFFSET = 6


def ports(root: Path) -> dict[str, int]:
    """Return the control word of each switch port with ACS above a GPU or network card, by its address."""
    devices = sorted((root / _DEVICES).glob("*"))
    parts = [path.name for path in devices if _is_part(path)]
    found = {}
    for path in devices:
        if not _read(path / "class").startswith(_BRIDGE):
            continue
        space = (path / "config").read_bytes()
        control = _control(space)
        if control is not None and _is_downstream(space) and any(_above(path.name, space, part) for part in parts):
            found[path.name] = control
    return found


def refuse_guests(root: Path) -> None:
    """Raise NodeProblem if a device is given to virtual machines: their isolation rests on ACS."""
    given = sorted(path.name for path in (root / _VFIO).glob("*:*:*.*"))
    if given:
        step = "Set base_pcie_acs_off: false for this node: without ACS, a guest's device reaches those of others."
        raise NodeProblem("no device for virtual machines (vfio-pci) on a node with ACS off", ", ".join(given), step)


def differences(root: Path, folder: Path, off: Sequence[str]) -> list[Difference]:
    """Return the ports that redirect though they must not, and those that must have their own value again."""
    seen = ports(root)
    found = [
        Difference("part", f"{address} ACS control", "0000", f"{seen[address]:04x}")
        for address in off
        if seen.get(address, 0) & REDIRECTS
    ]
    return found + [
        Difference("part", f"{address} ACS control", value, f"{seen[address]:04x}")
        for address, value in sorted(before(folder).items())
        if address not in off and address in seen and seen[address] != int(value, 16)
    ]


def before(folder: Path) -> dict[str, str]:
    """Return the ports that rackready changed, with the value that each had, four hexadecimal digits."""
    try:
        found = json.loads((folder / _RECORD).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write(found: Sequence[Difference], folder: Path, off: Sequence[str], run: Run) -> None:
    """Write the wanted values, and remember what the ports had. Raises NodeProblem."""
    record = before(folder)
    changes = {item.name.split()[0]: item for item in found if item.kind == "part"}
    new = {address: item.actual for address, item in changes.items() if address in off and address not in record}
    if new:
        _remember(folder, {**record, **new})
    for address, item in changes.items():
        argv = ["setpci", "-s", address, f"{REGISTER}={item.expected}"]
        done = run(argv)
        if done.returncode != 0:
            said = next((line.strip() for line in done.out.splitlines() if line.strip()), "no output")
            step = f"Run `{' '.join(argv)}` on the node; if the kernel refuses it, turn ACS off in the BIOS."
            raise NodeProblem(f"`{' '.join(argv)}` succeeds", f"exit {done.returncode}: {said}", step)
    kept = {address: value for address, value in before(folder).items() if address in off}
    if kept != before(folder):
        _remember(folder, kept)


def _remember(folder: Path, record: Mapping[str, str]) -> None:
    replace_file(folder / _RECORD, json.dumps(record, sort_keys=True) + "\n")


def _is_part(path: Path) -> bool:
    vendor, kind = _read(path / "vendor"), _read(path / "class")
    return any(vendor == maker and kind.startswith(start) for maker, start in _PARTS)


def _above(bridge: str, space: bytes, part: str) -> bool:
    domain, bus, _ = part.split(":")
    return bridge.startswith(f"{domain}:") and space[0x19] <= int(bus, 16) <= space[0x1A]


def _is_downstream(space: bytes) -> bool:
    return any(
        space[place] == _EXPRESS and struct.unpack_from("<H", space, place + 2)[0] >> 4 & 0xF == _DOWNSTREAM
        for place in _capabilities(space)
    )


def _capabilities(space: bytes) -> Iterator[int]:
    place = space[0x34] & 0xFC
    for _ in range(_MOST):
        if not place or place + 4 > len(space):
            return
        yield place
        place = space[place + 1] & 0xFC


def _control(space: bytes) -> int | None:
    """Return the control word of access control; None without that capability, and without the right to read it."""
    place = _EXTENDED
    for _ in range(_MOST):
        if place < _EXTENDED or place + _OFFSET + 2 > len(space):
            return None
        (head,) = struct.unpack_from("<I", space, place)
        if head & 0xFFFF == _ACS:
            return int(struct.unpack_from("<H", space, place + _OFFSET)[0])
        place = head >> 20 & 0xFFC
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""
