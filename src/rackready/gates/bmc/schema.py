"""Types of the Redfish properties that gates read (DMTF DSP0268); a value of another type is not an answer.

A property may be missing or null: then the service does not know it. Vendor additions (Oem) and the names of BIOS
settings (Attributes) are not checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

_NUMBERS = frozenset(
    {
        *(
            "Reading",
            "ReadingCelsius",
            "SetPoint",
            "DefaultSetPoint",
            "AllowableMax",
            "LimitInWatts",
            "LineInputVoltage",
            "MaxNumberOfRecords",
        ),
        *(
            "PowerConsumedWatts",
            "AverageConsumedWatts",
            "MaxConsumedWatts",
            "MinNeededInGroup",
            "MinNumNeeded",
            "PowerCapacityWatts",
            "Count",
        ),
        *("UpperThresholdNonCritical", "UpperThresholdCritical", "UpperThresholdFatal"),
        *("LowerThresholdNonCritical", "LowerThresholdCritical", "LowerThresholdFatal"),
    }
)
_WORDS = frozenset(
    {
        *(
            "@odata.id",
            "State",
            "Health",
            "HealthRollup",
            "HealthRollUp",
            "Severity",
            "MessageSeverity",
            "Created",
            "EventTimestamp",
        ),
        *(
            "OverWritePolicy",
            "ControlMode",
            "ControlType",
            "ChassisType",
            "Mode",
            "DetectorState",
            "BreakerState",
            "LineInputStatus",
            "SetPointUnits",
            "SystemType",
            "RedundancyType",
            "ReadingType",
            "ReadingUnits",
            "PhysicalContext",
        ),
    }
)
_OBJECTS = frozenset(
    {
        *(
            "Status",
            "Links",
            "ContainedBy",
            "Attributes",
            "PowerLimitWatts",
            "PowerLimit",
            "PowerMetrics",
            "Thresholds",
            "InputVoltage",
            "ProcessorSummary",
        ),
        *("UpperCaution", "UpperCritical", "UpperFatal", "LowerCaution", "LowerCritical", "LowerFatal"),
    }
)
_LISTS = frozenset(
    {
        *("PowerControl", "PowerSupplies", "Fans", "Temperatures", "Voltages", "Redundancy", "Conditions"),
        *("PowerSupplyRedundancy", "FanRedundancy", "PumpRedundancy", "LeakDetectorGroups", "Detectors"),
    }
)
_FLAGS = frozenset({"ServiceEnabled", "Resolved"})
_UNSEEN = frozenset({"Oem", "Attributes"})
_HOLDS = (dict, list)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_link(value: object) -> bool:
    return isinstance(value, dict) and isinstance(address := value.get("@odata.id"), str) and address.startswith("/")


def _is_parts(value: object) -> bool:
    """The older Power and Thermal list parts; the newer subsystems link to a collection of them instead."""
    return all(isinstance(item, dict) for item in value) if isinstance(value, list) else _is_link(value)


_READ: Mapping[str, tuple[str, Callable[[object], bool]]] = {
    **dict.fromkeys(_NUMBERS, ("a number", _is_number)),
    **dict.fromkeys(_WORDS, ("a word", lambda value: isinstance(value, str))),
    **dict.fromkeys(_OBJECTS, ("an object", lambda value: isinstance(value, dict))),
    **dict.fromkeys(_LISTS, ("a list of objects", _is_parts)),
    "ComputerSystems": ("a list of links", lambda value: isinstance(value, list) and all(map(_is_link, value))),
    "Metrics": ("a link", _is_link),
    "DataSourceUri": ("an address", lambda value: isinstance(value, str) and value.startswith("/")),
    **dict.fromkeys(_FLAGS, ("true or false", lambda value: isinstance(value, bool))),
}
"""Property -> what it must be, in words, and the check of a value."""


def odd(document: Mapping[str, Any]) -> str:
    """Return the first property that is not of its type, in words, or an empty text.

    ``document``: as read from JSON.
    """
    for key, value in document.items():
        if value is not None and (wanted := _READ.get(key)) is not None and not wanted[1](value):
            return f"{key} is {str(value)[:40]!r}, not {wanted[0]}"
        # An answer has thousands of properties: only look into those that contain others.
        if isinstance(value, _HOLDS) and key not in _UNSEEN:
            for item in value if isinstance(value, list) else (value,):
                if isinstance(item, dict) and (found := odd(item)):
                    return found
    return ""
