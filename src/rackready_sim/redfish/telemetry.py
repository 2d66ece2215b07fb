"""Resources that sushy-tools lacks: power, cooling, sensors, logs, BIOS and parts of the asked node.

Resources follow DMTF's schemas (DSP0268) and are computed from the hardware state at every request. ``schema`` in the
state chooses between the current PowerSubsystem, ThermalSubsystem and Sensors, and the older Power and Thermal that
many servers still have.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from rackready_sim.redfish import parts
from rackready_sim.redfish.resources import Document, collection, resource, status
from rackready_sim.redfish.sensors import sensors, thermal

State = dict[str, Any]
_GRADES = ("OK", "Warning", "Critical")


def documents(state: State, system: str, chassis: str, manager: str) -> dict[str, Document]:
    """Return address -> resource, for the addresses of the node's system, chassis and manager."""
    bmc = state.get("bmc")
    if bmc is None:
        return {}
    found: dict[str, Document] = {}
    older = bmc["schema"] == "legacy"
    for part in (_power_older(bmc, chassis) if older else _power(bmc, chassis), {} if older else thermal(bmc, chassis)):
        found |= part
    if older:
        found |= _thermal_older(bmc, chassis)
    else:
        found |= sensors(bmc, chassis)
    return (
        found | _log(bmc, manager) | _faults(bmc, system) | _bios(bmc, system) | parts.documents(state, system, chassis)
    )


def links(state: State, system: str, chassis: str, manager: str) -> tuple[Document, Document, Document]:
    """Return additions to sushy-tools' system, chassis and manager resources: links, and their health."""
    bmc = state.get("bmc")
    if bmc is None:
        return {}, {}, {}
    names = (
        ("Power", "Thermal")
        if bmc["schema"] == "legacy"
        else ("PowerSubsystem", "ThermalSubsystem", "EnvironmentMetrics", "Sensors")
    )
    worst = max((_GRADES.index(psu["health"]) for psu in bmc["psus"]), default=0)
    summed = (
        _GRADES[max(worst, _GRADES.index(bmc["health"]["chassis"]))] if bmc["health"].get("follows", True) else "OK"
    )
    of_chassis: Document = {name: {"@odata.id": f"{chassis}/{name}"} for name in (*names, *parts.OF_CHASSIS)}
    of_chassis["Status"] = {"State": "Enabled", "Health": bmc["health"]["chassis"], "HealthRollup": summed}
    of_system: Document = {
        name: {"@odata.id": f"{system}/{name}"} for name in ("Bios", "LogServices", *parts.OF_SYSTEM)
    }
    of_system["Status"] = {
        "State": "Enabled",
        "Health": bmc["health"]["system"],
        "HealthRollup": bmc["health"]["system"],
    }
    clock = datetime.now(UTC).isoformat(timespec="seconds")
    return (
        of_system,
        of_chassis,
        {"LogServices": {"@odata.id": f"{manager}/LogServices"}, "DateTime": clock, "Status": status("Enabled", "OK")},
    )


def _power(bmc: State, chassis: str) -> dict[str, Document]:
    base = f"{chassis}/PowerSubsystem"
    supplies: dict[str, Document] = {}
    metrics: dict[str, Document] = {}
    for psu in bmc["psus"]:
        if psu["state"] == "Removed":
            continue
        at = f"{base}/PowerSupplies/{psu['id']}"
        facts = {
            "SerialNumber": psu["serial"],
            "PowerCapacityWatts": psu["capacity_w"],
            "LineInputStatus": psu["input"],
            "PowerSupplyType": "AC",
        }
        supplies[at] = resource(
            at,
            "PowerSupply",
            "v1_5_0",
            Status=status(psu["state"], psu["health"]),
            Metrics={"@odata.id": f"{at}/Metrics"},
            **facts,
        )
        metrics[f"{at}/Metrics"] = resource(
            f"{at}/Metrics", "PowerSupplyMetrics", "v1_1_0", InputVoltage={"Reading": psu["volts"]}
        )
    group = {
        "MaxSupportedInGroup": len(bmc["psus"]),
        "MinNeededInGroup": 4,
        "RedundancyType": "NPlusM",
        "RedundancyGroup": [{"@odata.id": at} for at in supplies],
    }
    top = resource(
        base,
        "PowerSubsystem",
        "v1_1_0",
        Status=status("Enabled", "OK"),
        PowerSupplies={"@odata.id": f"{base}/PowerSupplies"},
    )
    top["PowerSupplyRedundancy"] = [{**group, "Status": status("Enabled", bmc["psu_redundancy"])}]
    limit = bmc["power_limit_w"]
    cap = {
        "SetPoint": limit or bmc["max_power_w"],
        "AllowableMax": bmc["max_power_w"],
        "DefaultSetPoint": bmc["max_power_w"],
        "ControlMode": "Automatic",
    }
    env = resource(
        f"{chassis}/EnvironmentMetrics",
        "EnvironmentMetrics",
        "v1_3_0",
        PowerLimitWatts=cap,
        PowerWatts={"Reading": bmc["consumed_w"]},
    )
    return {
        base: top,
        f"{chassis}/EnvironmentMetrics": env,
        **collection(f"{base}/PowerSupplies", "PowerSupply", supplies),
        **metrics,
    }


def _power_older(bmc: State, chassis: str) -> dict[str, Document]:
    """Return the older resource. Shapes: NVIDIA/libredfish c094c9e6, tests/mockups/supermicro, Chassis/1/Power.

    Modules with fans stand there among the supplies: in use and well, and every figure null.
    """
    at = f"{chassis}/Power"
    there = [(index, psu) for index, psu in enumerate(bmc["psus"]) if psu["state"] != "Removed"]
    supplies = [_supply_older(at, index, _figures(psu)) for index, psu in there]
    modules = range(len(bmc["psus"]), len(bmc["psus"]) + bmc.get("fan_modules", 0))
    supplies += [_supply_older(at, index, _FAN_MODULE) for index in modules]
    control = {
        "@odata.id": f"{at}#/PowerControl/0",
        "MemberId": "0",
        "PowerConsumedWatts": bmc["consumed_w"],
        "PowerLimit": {"LimitInWatts": bmc["power_limit_w"]},
    }
    redundancy = {
        "@odata.id": f"{at}#/Redundancy/0",
        "MemberId": "0",
        "Mode": "N+m",
        "Status": status("Enabled", bmc["psu_redundancy"]),
    }
    return {
        at: resource(at, "Power", "v1_7_1", PowerSupplies=supplies, PowerControl=[control], Redundancy=[redundancy])
    }


_FAN_MODULE: Document = {
    "Model": "PWS-DF009-2F",
    "LineInputVoltage": None,
    "PowerCapacityWatts": None,
    "PowerInputWatts": None,
    "PowerOutputWatts": None,
    "Status": status("Enabled", "OK"),
}


def _figures(psu: State) -> Document:
    return {
        "Model": "PWS-3K06G-2R",
        "SerialNumber": psu["serial"],
        "LineInputVoltage": psu["volts"] if psu["input"] == "Normal" else 0,
        "PowerCapacityWatts": psu["capacity_w"],
        "Status": status(psu["state"], psu["health"]),
    }


def _supply_older(at: str, index: int, figures: Document) -> Document:
    return {
        "@odata.id": f"{at}#/PowerSupplies/{index}",
        "MemberId": str(index),
        "Name": "Power Supply",
        **figures,
    }


def _thermal_older(bmc: State, chassis: str) -> dict[str, Document]:
    at = f"{chassis}/Thermal"
    fans = [
        {
            "MemberId": str(i),
            "Name": fan["id"],
            "Reading": fan["rpm"],
            "ReadingUnits": "RPM",
            "LowerThresholdCritical": fan["low_critical"],
        }
        | {"Status": status("Enabled", fan["health"])}
        for i, fan in enumerate(bmc["fans"])
    ]
    readings = [
        {"MemberId": str(i), "Name": item["id"], "ReadingCelsius": item["reading"], "PhysicalContext": item["context"]}
        | {
            f"UpperThreshold{word}": value
            for word, value in zip(("NonCritical", "Critical", "Fatal"), item["thresholds"], strict=True)
        }
        | {"Status": status(item["state"], item["health"])}
        for i, item in enumerate(bmc["temperatures"])
    ]
    return {at: resource(at, "Thermal", "v1_7_1", Fans=fans, Temperatures=readings)}


def _log(bmc: State, manager: str) -> dict[str, Document]:
    base = f"{manager}/LogServices"
    at = f"{base}/SEL"
    log = bmc["log"]
    entries = {}
    for number, item in enumerate(log["entries"], 1):
        where = f"{at}/Entries/{number}"
        fields = {
            "EntryType": "SEL",
            "Severity": item["severity"],
            "SensorType": item["sensor"],
            "Message": item["message"],
            "Created": item["at"],
        }
        entries[where] = resource(where, "LogEntry", "v1_15_0", Name=f"SEL {number}", **fields)
    service = resource(
        at,
        "LogService",
        "v1_4_0",
        Name="IPMI SEL",
        LogEntryType="SEL",
        MaxNumberOfRecords=log["size"],
        OverWritePolicy=log["policy"],
        ServiceEnabled=True,
        DateTime=datetime.now(UTC).isoformat(timespec="seconds"),
        Status=status("Enabled", "OK"),
        Entries={"@odata.id": f"{at}/Entries"},
    )
    return {**collection(base, "LogService", {at: service}), **collection(f"{at}/Entries", "LogEntry", entries)}


def _faults(bmc: State, system: str) -> dict[str, Document]:
    """Return the log of hardware errors (CPER) of NVIDIA's boards.

    Its collection has members without Severity and Message; each entry has both. As a GH200's BMC answers
    (NVIDIA/bare-metal-manager-core 7778162, bmc-mock's gh200.tar.gz: HGX_Baseboard_0's FaultLog; NVIDIA/bmcweb,
    redfish-core/lib/log_services.hpp), an entry's own severity is OK, whatever that of the record.
    """
    base = f"{system}/LogServices"
    at = f"{base}/FaultLog"
    copies, entries = [], {}
    for number, item in enumerate(bmc["log"]["errors"], 1):
        where = f"{at}/Entries/{number}"
        record = {
            "NvIpSignature": item["signature"],
            "SectionType": "NVIDIA CPER Error Section",
            "Severity": item["severity"],
        }
        fields = {
            "Created": item["at"],
            "DiagnosticDataType": "CPER",
            "EntryType": "Event",
            "AdditionalDataURI": f"{where}/attachment",
        }
        own = resource(where, "LogEntry", "v1_15_0", Name="FaultLog Dump Entry", **fields)
        copies.append({**own, "CPER": {"Oem": {"Nvidia": {"@odata.type": "#NvidiaLogEntry.v1_0_0.CPER", **record}}}})
        entries[where] = {**own, "CPER": {"Oem": record}, "Message": "", "Severity": "OK"}
    service = resource(
        at,
        "LogService",
        "v1_2_0",
        Name="FaultLog LogService",
        OverWritePolicy="WrapsWhenFull",
        Entries={"@odata.id": f"{at}/Entries"},
    )
    service["DateTime"] = datetime.now(UTC).isoformat(timespec="seconds")
    listed = collection(f"{at}/Entries", "LogEntry", entries)
    listed[f"{at}/Entries"]["Members"] = copies
    return {**collection(base, "LogService", {at: service}), **listed}


def _bios(bmc: State, system: str) -> dict[str, Document]:
    at = f"{system}/Bios"
    settings = {"@odata.type": "#Settings.v1_3_5.Settings", "SettingsObject": {"@odata.id": f"{at}/SD"}}
    now = resource(at, "Bios", "v1_2_0", Attributes=bmc["bios"], AttributeRegistry="BiosAttributeRegistry.1.0.0")
    return {
        at: {**now, "@Redfish.Settings": settings},
        f"{at}/SD": resource(f"{at}/SD", "Bios", "v1_2_0", Attributes=bmc["bios_pending"]),
    }
