"""mlxlink of MFT 4.33: link, bit error rates and module of one port, as JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

from .. import machine
from ..nic.tools import by_device, by_netdev


def main(argv: list[str]) -> int:
    """Print one port; -d accepts an RDMA device, a network interface or a PCI address."""
    at = next((place for place, word in enumerate(argv) if word in {"-d", "--device"}), None)
    name = argv[at + 1] if at is not None and at + 1 < len(argv) else ""
    nic = (
        by_device(name)
        or by_netdev(name)
        or next((item for item in machine.nics() if name and item["pci"].endswith(name)), None)
    )
    if nic is None:
        return _say({"result": {"output": {}}, "status": {"code": 1, "message": f"Failed to open device: {name}"}}, 1)
    up = machine.carrier(nic)
    output = {**_link(nic, up=up), **_counters(nic, up=up), **_module(nic["module"])}
    return _say({"result": {"output": output}, "status": {"code": 0, "message": "success"}}, 0)


def _say(document: dict[str, Any], code: int) -> int:
    sys.stdout.write(json.dumps(document, indent=4) + "\n")
    return code


def _link(nic: dict[str, Any], *, up: bool) -> dict[str, Any]:
    bad = up and _bad(nic["module"])
    words = "Bad signal integrity" if bad else "No issue was observed" if up else "Cable is unplugged"
    return {
        "Operational Info": {
            "State": "Active" if up else "Disable",
            "Physical state": "ETH_AN_FSM_ENABLE" if up else "Disabled",
            "Speed": f"{nic['rate_gbps']}G" if up else "N/A",
            "Width": "4x" if up else "N/A",
            "FEC": nic["module"]["fec"] if up else "N/A",
            "Loopback Mode": "No Loopback",
            "Auto Negotiation": "ON",
        },
        "Troubleshooting Info": {
            "Status Opcode": "15" if bad else "0" if up else "1024",
            "Group Opcode": "PHY FW" if bad else "N/A",
            "Recommendation": words,
        },
        "Tool Information": {"Firmware Version": nic["fw"], "amBER Version": "3.2", "MFT Version": "mft 4.33.0-169"},
    }


def _bad(module: dict[str, Any]) -> bool:
    return float(module["effective_ber"]) > 1e-12  # noqa: PLR2004 - where the firmware calls the signal bad


def _counters(nic: dict[str, Any], *, up: bool) -> dict[str, Any]:
    module = nic["module"]
    errors = "0" if module["effective_ber"] == "15E-255" else "48211"
    found = {
        "Time Since Last Clear [Min]": "1184.5",
        "Effective Physical Errors": errors,
        "Effective Physical BER": module["effective_ber"],
        "Raw Physical Errors Per Lane": {"values": ["121733", "98844", "130551", "87120"]},
        "Raw Physical BER Per Lane": {"values": [module["raw_ber"]] * 4},
        "Raw Physical BER": module["raw_ber"],
        "Link Down Counter": str(module["flaps"]),
        "Link Error Recovery Counter": "0",
    }
    return {"Physical Counters and BER Info": found if up else {key: "N/A" for key in found}}  # noqa: C420 - the tool prints it for each


def _module(module: dict[str, Any]) -> dict[str, Any]:
    rx, tx = (",".join(f"{value:g}" for value in module[way]) for way in ("rx_dbm", "tx_dbm"))
    return {
        "Module Info": {
            "Identifier": "OSFP",
            "Compliance": "400GBASE-SR4",
            "Cable Technology": "850 nm VCSEL",
            "Cable Type": "Optical Module (separated)",
            "OUI": "Other",
            "Vendor Name": module["vendor"],
            "Vendor Part Number": module["part"],
            "Vendor Serial Number": module["serial"],
            "Rev": "A2",
            "Wavelength [nm]": "850",
            "Transfer Distance [m]": "50",
            "FW Version": "46.120.281",
            "Digital Diagnostic Monitoring": "Yes",
            "Power Class": "8.5 W max",
            "Temperature [C]": f"{module['temperature_c']} [-10..80]",
            "Voltage [mV]": "3271.5 [2900..3700]",
            "Bias Current [mA]": "7.312,7.312,7.404,7.290 [2..15]",
            "Rx Power Current [dBm]": f"{rx} [-8.5..5]",
            "Tx Power Current [dBm]": f"{tx} [-6.5..5]",
        }
    }
