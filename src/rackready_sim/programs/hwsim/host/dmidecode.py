"""dmidecode 3.4: BIOS, system, board, chassis and memory of the SMBIOS table."""

from __future__ import annotations

import sys
from typing import Any

from .. import machine, store

_TYPES = {"bios": (0,), "system": (1,), "baseboard": (2,), "chassis": (3,), "slot": (9,), "memory": (16, 17)}


def main(argv: list[str]) -> int:
    """Print the structures of the requested types; without -t all known ones."""
    if "--version" in argv or "-V" in argv:
        sys.stdout.write("3.4\n")
        return 0
    at = next((place for place, word in enumerate(argv) if word in {"-t", "--type"}), None)
    word = argv[at + 1] if at is not None else ""
    kinds = _TYPES.get(word) or ((int(word),) if word.isdigit() else (0, 1, 2, 3, 16, 17))
    state = store.hardware()
    sys.stdout.write("# dmidecode 3.4\nGetting SMBIOS data from sysfs.\nSMBIOS 3.5.0 present.\n\n")
    for kind in kinds:
        for number, (title, fields) in enumerate(_structures(kind, state)):
            sys.stdout.write(
                f"Handle 0x{kind * 0x100 + number:04X}, DMI type {kind}, {26 if kind == 0 else 92} bytes\n{title}\n"
            )
            sys.stdout.write("".join(f"\t{name}: {value}\n" for name, value in fields.items()) + "\n")
    return 0


def _board(chassis: dict[str, Any]) -> list[tuple[str, dict[str, object]]]:
    return [("Base Board Information", {"Serial Number": chassis.get("board_serial") or chassis["serial"]})]


def _chassis(chassis: dict[str, Any]) -> list[tuple[str, dict[str, object]]]:
    height = f"{chassis['units']} U" if chassis.get("units") else "Unspecified"
    return [("Chassis Information", {"Serial Number": chassis["serial"], "Height": height})]


def _slots(_chassis: dict[str, Any]) -> list[tuple[str, dict[str, object]]]:
    return []  # this firmware lists none


_PLACES = {2: _board, 3: _chassis, 9: _slots}
"""Structures by SMBIOS type."""


def _structures(kind: int, state: dict[str, Any]) -> list[tuple[str, dict[str, object]]]:
    host, chassis = state["host"], state["chassis"]
    if kind == 0:
        bios = host["bios"]
        return [
            (
                "BIOS Information",
                {
                    "Vendor": bios["vendor"],
                    "Version": bios["version"],
                    "Release Date": bios["date"],
                    "ROM Size": "64 MB",
                },
            )
        ]
    if kind in _PLACES:
        return _PLACES[kind](chassis)
    if kind == 1:
        fields = {
            "Manufacturer": chassis["manufacturer"],
            "Product Name": chassis["product"],
            "Serial Number": chassis["serial"],
        }
        return [("System Information", fields)]
    if kind == 16:  # noqa: PLR2004 - SMBIOS type
        return [
            (
                "Physical Memory Array",
                {
                    "Location": "System Board Or Motherboard",
                    "Use": "System Memory",
                    "Number Of Devices": len(host["dimms"]),
                },
            )
        ]
    return [("Memory Device", _module(dimm, present=machine.present(dimm, state))) for dimm in host["dimms"]]


def _module(dimm: dict[str, Any], *, present: bool) -> dict[str, object]:
    place = {"Array Handle": "0x1000", "Error Information Handle": "Not Provided"}
    if not present:
        empty = {
            "Total Width": "Unknown",
            "Data Width": "Unknown",
            "Size": "No Module Installed",
            "Form Factor": "Unknown",
            "Set": "None",
        }
        return {**place, **empty, "Locator": dimm["locator"], "Bank Locator": "NODE 1", "Type": "Unknown"}
    return {
        **place,
        "Total Width": "80 bits",
        "Data Width": "64 bits",
        "Size": f"{dimm['size_gb']} GB",
        "Form Factor": "DIMM",
        "Set": "None",
        "Locator": dimm["locator"],
        "Bank Locator": "NODE 1",
        "Type": "DDR5",
        "Type Detail": "Synchronous Registered (Buffered)",
        "Speed": "4800 MT/s",
        "Manufacturer": "Micron Technology",
        "Serial Number": dimm["serial"],
        "Asset Tag": "Not Specified",
        "Part Number": dimm["part"],
        "Rank": 2,
        "Configured Memory Speed": f"{dimm['speed']} MT/s",
        "Minimum Voltage": "1.1 V",
    }
