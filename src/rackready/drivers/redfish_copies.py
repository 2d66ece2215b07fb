"""Tells whether the copy of a resource that a collection carries says what the resource itself says.

A service may put its members into a collection (DSP0266, $expand), and some do so unasked, with less in the copy:
NVIDIA's BMCs leave Severity and Message out of the members of a FaultLog, and each entry by itself has both
(NVIDIA/bmcweb, redfish-core/lib/log_services.hpp: getDumpEntryCollection and getDumpEntryById;
NVIDIA/bare-metal-manager-core, bmc-mock's capture of a GH200).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_RESOURCE = ("@odata.id", "@odata.type", "Id", "Name")
"""Properties that every resource must have (DSP0266, Required properties): what lacks one is a link, or a part of a resource."""
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
"""Kind of resource -> what gates read of it; of each group one property is enough."""


def whole(copy: Mapping[str, Any]) -> bool:
    """Return whether a copy has what every resource must have, and what gates read of its kind. A property that is null is none."""
    if any(copy.get(key) is None for key in _RESOURCE):
        return False
    kind = str(copy["@odata.type"]).removeprefix("#").split(".", 1)[0]
    return all(any(copy.get(key) is not None for key in group) for group in _READ.get(kind, ()))
