"""Fans, sensors and leak detectors of the simulated BMC in current schemas: ThermalSubsystem, Sensor, LeakDetection."""

from __future__ import annotations

from typing import Any

from rackready_sim.redfish.resources import Document, collection, resource, status

State = dict[str, Any]


def thermal(bmc: State, chassis: str) -> dict[str, Document]:
    """Return the ThermalSubsystem with its fans, and with leak detection if liquid cools the node."""
    base = f"{chassis}/ThermalSubsystem"
    fans = {}
    for fan in bmc["fans"]:
        at = f"{base}/Fans/{fan['id']}"
        speed = {
            "DataSourceUri": f"{chassis}/Sensors/{fan['id']}",
            "SpeedRPM": fan["rpm"],
            "Reading": round(fan["rpm"] / 14790 * 100),
        }
        fans[at] = resource(
            at, "Fan", "v1_5_0", PhysicalContext="Fan", SpeedPercent=speed, Status=status("Enabled", fan["health"])
        )
    top = resource(
        base, "ThermalSubsystem", "v1_3_0", Fans={"@odata.id": f"{base}/Fans"}, Status=status("Enabled", "OK")
    )
    found = {base: top, **collection(f"{base}/Fans", "Fan", fans)}
    if bmc["leaks"]:
        top["LeakDetection"] = {"@odata.id": f"{base}/LeakDetection"}
        found |= _leaks(bmc, f"{base}/LeakDetection")
    return found


def _leaks(bmc: State, base: str) -> dict[str, Document]:
    detectors = {}
    for leak in bmc["leaks"]:
        at = f"{base}/LeakDetectors/{leak['id']}"
        health = "OK" if leak["state"] == "OK" else leak["state"]
        detectors[at] = resource(
            at,
            "LeakDetector",
            "v1_1_0",
            DetectorState=leak["state"],
            LeakDetectorType=leak["type"],
            Status=status("Enabled", health),
        )
    worst = next((leak["state"] for leak in bmc["leaks"] if leak["state"] != "OK"), "OK")
    top = resource(
        base,
        "LeakDetection",
        "v1_0_1",
        LeakDetectors={"@odata.id": f"{base}/LeakDetectors"},
        Status=status("Enabled", worst),
    )
    return {base: top, **collection(f"{base}/LeakDetectors", "LeakDetector", detectors)}


def sensors(bmc: State, chassis: str) -> dict[str, Document]:
    """Return the sensors: temperatures with their upper thresholds, fans with their lower one, and the supplies'."""
    found = _of_supplies(bmc, chassis)
    for item in bmc["temperatures"]:
        at = f"{chassis}/Sensors/{item['id']}"
        limits = {
            f"Upper{word}": {"Reading": value}
            for word, value in zip(("Caution", "Critical", "Fatal"), item["thresholds"], strict=True)
        }
        fields = {
            "ReadingType": "Temperature",
            "ReadingUnits": "Cel",
            "PhysicalContext": item["context"],
            "Reading": item["reading"],
            "Thresholds": limits,
        }
        found[at] = resource(at, "Sensor", "v1_7_0", Status=status(item["state"], item["health"]), **fields)
    for fan in bmc["fans"]:
        at = f"{chassis}/Sensors/{fan['id']}"
        fields = {"ReadingType": "Rotational", "ReadingUnits": "RPM", "PhysicalContext": "Fan", "Reading": fan["rpm"]}
        found[at] = resource(
            at,
            "Sensor",
            "v1_7_0",
            Status=status("Enabled", fan["health"]),
            Thresholds={"LowerCritical": {"Reading": fan["low_critical"]}},
            **fields,
        )
    return collection(f"{chassis}/Sensors", "Sensor", found)


def _of_supplies(bmc: State, chassis: str) -> dict[str, Document]:
    """Return two sensors of each supply: the power that it draws, and a discrete one without type, unit and health.

    Shapes: NVIDIA/libredfish c094c9e6, tests/mockups/nvidia_viking, Chassis/DGX/Sensors: PWR_PSU0 and STATUS_PSU0.
    """
    there = [psu for psu in bmc["psus"] if psu["state"] != "Removed"]
    at_work = [psu for psu in there if psu["state"] == "Enabled" and psu["input"] == "Normal"]
    found = {}
    for psu in there:
        watts = round(bmc["consumed_w"] / len(at_work)) if psu in at_work else 0
        at = f"{chassis}/Sensors/PWR_{psu['id']}"
        fields = {"ReadingType": "Power", "PhysicalContext": "VoltageRegulator", "Reading": watts}
        found[at] = resource(at, "Sensor", "v1_0_2", Status=status("Enabled", "OK"), **fields)
        at = f"{chassis}/Sensors/STATUS_{psu['id']}"
        fields = {"ReadingType": None, "ReadingUnits": None, "PhysicalContext": None, "Reading": 0}
        found[at] = resource(at, "Sensor", "v1_0_2", Status=status("Enabled", None), **fields)
    return found
