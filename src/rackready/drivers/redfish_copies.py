"""Completeness of the copies of resources that a Redfish collection carries.

A service may put its members into a collection (DSP0266, $expand). Some do so unasked, with less in the copy: NVIDIA's
BMCs leave Severity and Message out of the members of a FaultLog, while each entry by itself has both
(NVIDIA/bmcweb, redfish-core/lib/log_services.hpp: getDumpEntryCollection and getDumpEntryById;
NVIDIA/bare-metal-manager-core, bmc-mock's capture of a GH200).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_RESOURCE = ("@odata.id", "@odata.type", "Id", "Name")
"""Properties that every resource must have (DSP0266, Required properties); otherwise it is a link, or a part of one."""
_STATUS = (("Status",),)
_READ: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "LogEntry": (("Severity", "MessageSeverity"), ("Created", "EventTimestamp")),
    "LogService": (("Entries",),),
    "LeakDetector": (("DetectorState",), *_STATUS),
    "Sensor": (("Reading",),),
    "SoftwareInventory": (("Version",),),
    **dict.fromkeys(("ComputerSystem", "Chassis", "Manager", "Processor", "Memory", "Storage", "Drive"), _STATUS),
    **dict.fromkeys(
        (
            "PowerSupply",
            "Fan",
            "Pump",
            "Reservoir",
            "Circuit",
            "Outlet",
            "PowerDistribution",
            "CoolingUnit",
            "CoolantConnector",
        ),
        _STATUS,
    ),
}
"""Kind of resource -> properties that gates read; of each group one is enough."""


def is_complete(copy: Mapping[str, Any]) -> bool:
    """Return whether a copy has the required properties and those that gates read; null counts as missing."""
    if any(copy.get(key) is None for key in _RESOURCE):
        return False
    kind = str(copy["@odata.type"]).removeprefix("#").split(".", 1)[0]
    return all(any(copy.get(key) is not None for key in group) for group in _READ.get(kind, ()))
