"""Types of those Redfish properties that gates read (DMTF DSP0268). A value of another type is no answer: it is neither good nor nothing.

A property may lack, or be null: then the service does not know it. What vendors add of their own (Oem) and the names of BIOS settings
(Attributes) are not looked at.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

_NUMBERS = frozenset(
    {
        *("Reading", "ReadingCelsius", "SetPoint", "DefaultSetPoint", "AllowableMax", "LimitInWatts", "LineInputVoltage", "MaxNumberOfRecords"),
        *("PowerConsumedWatts", "AverageConsumedWatts", "MaxConsumedWatts", "MinNeededInGroup", "MinNumNeeded", "PowerCapacityWatts"),
        *("UpperThresholdNonCritical", "UpperThresholdCritical", "UpperThresholdFatal"),
        *("LowerThresholdNonCritical", "LowerThresholdCritical", "LowerThresholdFatal"),
    }
)
_WORDS = frozenset(
    {
        *("@odata.id", "State", "Health", "HealthRollup", "HealthRollUp", "Severity", "MessageSeverity", "Created", "EventTimestamp"),
        *(
            "OverWritePolicy",
            "ControlMode",
            "ControlType",
            "ChassisType",
            "DetectorState",
            "BreakerState",
            "LineInputStatus",
            "RedundancyType",
            "ReadingType",
            "ReadingUnits",
            "PhysicalContext",
        ),
    }
)
_OBJECTS = frozenset(
    {
        *("Status", "Links", "ContainedBy", "Attributes", "PowerLimitWatts", "PowerLimit", "PowerMetrics", "Thresholds", "InputVoltage", "Metrics"),
        *("UpperCaution", "UpperCritical", "UpperFatal", "LowerCaution", "LowerCritical", "LowerFatal"),
    }
)
_LISTS = frozenset(
    {
        *("PowerControl", "PowerSupplies", "Fans", "Temperatures", "Voltages", "Redundancy", "Conditions"),
        *("PowerSupplyRedundancy", "FanRedundancy", "PumpRedundancy", "LeakDetectorGroups", "Detectors"),
    }
)
_LINKS = frozenset({"ComputerSystems"})
_READ = _NUMBERS | _WORDS | _OBJECTS | _LISTS | _LINKS
_UNSEEN = frozenset({"Oem", "Attributes"})
_HOLDS = (dict, list)


def odd(document: Mapping[str, Any]) -> str:
    """Return the first property that is not of its type, in words; empty when every one is. ``document``: as it was read from JSON."""
    for key, value in document.items():
        if key in _READ and value is not None and (wanted := _wanted(key, value)):
            return f"{key} is {str(value)[:40]!r}, not {wanted}"
        # A BMC's answer has thousands of properties: only those that hold others are looked into.
        if isinstance(value, _HOLDS) and key not in _UNSEEN:
            for item in value if isinstance(value, list) else (value,):
                if isinstance(item, dict) and (found := odd(item)):
                    return found
    return ""


def _wanted(key: str, value: Any) -> str:  # noqa: ANN401 - JSON
    """Return what a property that gates read must be; empty when it is."""
    if key in _NUMBERS:
        number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        return "" if number else "a number"
    if key in _WORDS:
        return "" if isinstance(value, str) else "a word"
    if key in _OBJECTS:
        return "" if isinstance(value, dict) else "an object"
    if key in _LINKS:
        return "" if isinstance(value, list) and all(map(_is_link, value)) else "a list of links"
    # The older Power and Thermal list parts where the newer subsystems link to a collection of them.
    if isinstance(value, list) and not all(isinstance(item, dict) for item in value):
        return "a list of objects"
    return "" if isinstance(value, list) or _is_link(value) else "a list"


def _is_link(value: Any) -> bool:  # noqa: ANN401 - JSON
    return isinstance(value, dict) and isinstance(value.get("@odata.id"), str)
