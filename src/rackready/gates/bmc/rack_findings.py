"""Findings of the gates on rack devices."""

from __future__ import annotations

from dataclasses import dataclass

from rackready.gates.judging.finding_kinds import ErrorKind, FailKind

_UNWATCHED = (
    "Set it up in the device or update its firmware; if that is not possible, watch it by other means "
    "and declare the gate's skip with that reason."
)
_FACILITY = "Inform the facility's operator; do not power up further nodes of this rack before."
_LOAD = "Check the supply, breaker or outlet that it names; move load or repair before further nodes are powered up."
NO_POWER_EQUIPMENT = ErrorKind(
    "rack-no-power-equipment",
    "no power equipment",
    meaning="The device shows no PDU or power shelf, so its kind or address in the site file is wrong.",
    next_step="Correct the device's kind or bmc in the site file.",
)
NO_CDU = ErrorKind(
    "rack-no-cdu",
    "no coolant distribution unit",
    meaning="The device shows no coolant distribution unit, so its kind or address in the site file is wrong.",
    next_step="Correct the device's kind or bmc in the site file.",
)
NO_PUMP = ErrorKind(
    "rack-no-pump",
    "no pump",
    meaning="The coolant distribution unit shows no pump, so nobody sees whether coolant flows.",
    next_step=_UNWATCHED,
)
CDU_NO_LEAK_DETECTOR = ErrorKind(
    "rack-no-leak-detector",
    "no leak detector",
    meaning="The coolant distribution unit shows no leak detector: a leak would not be seen.",
    next_step=_UNWATCHED,
)
BREAKER = FailKind(
    "rack-breaker",
    "breaker",
    meaning="A breaker is not closed: what it feeds has no power, or will lose it soon.",
    next_step=_LOAD,
)
SENSOR_NOT_READ = ErrorKind(
    "rack-sensor-not-read",
    "not read",
    meaning="A sensor with thresholds has no reading, so nothing monitors its value.",
    next_step="Restart the device's controller; check the sensor's cable.",
)
NOT_WATCHED = ErrorKind(
    "rack-not-watched",
    "{what} not monitored",
    meaning="The device has no threshold for coolant flow or temperature, so it would not warn.",
    next_step=_UNWATCHED,
)
POWER_PART = FailKind(
    "rack-power-part-not-working",
    "{part} not working",
    meaning="A part of the rack's power equipment is broken: nodes may lose power.",
    next_step=_LOAD,
)
POWER_TOO_FEW = FailKind(
    "rack-power-too-few-at-work",
    "too few psus in use",
    meaning="Fewer power supplies are in use than the device needs.",
    next_step=_LOAD,
)
POWER_REDUNDANCY = FailKind(
    "rack-power-redundancy-lost",
    "redundancy not working",
    meaning="The parts are no longer redundant: if one more fails, the device stops.",
    next_step=_LOAD,
)
POWER_THRESHOLDS = FailKind(
    "rack-power-out-of-thresholds",
    "outside its thresholds",
    meaning="A reading is beyond a threshold of the device itself.",
    next_step=_LOAD,
)
POWER_SENSOR = FailKind(
    "rack-power-sensor-health",
    "sensor health",
    meaning="The device reports that what this sensor measures is unhealthy, or that the sensor is broken.",
    next_step=_LOAD,
)
COOLING_PART = FailKind(
    "rack-cooling-part-not-working",
    "{part} not working",
    meaning="A part of the rack's cooling is broken: nodes may overheat.",
    next_step=_FACILITY,
)
COOLING_TOO_FEW = FailKind(
    "rack-cooling-too-few-at-work",
    "too few pumps in use",
    meaning="Fewer pumps are in use than the device needs.",
    next_step=_FACILITY,
)
COOLING_REDUNDANCY = FailKind(
    "rack-cooling-redundancy-lost",
    "redundancy not working",
    meaning="The parts are no longer redundant: if one more fails, the device stops.",
    next_step=_FACILITY,
)
COOLING_THRESHOLDS = FailKind(
    "rack-cooling-out-of-thresholds",
    "outside its thresholds",
    meaning="A reading is beyond a threshold of the device itself.",
    next_step=_FACILITY,
)
COOLING_SENSOR = FailKind(
    "rack-cooling-sensor-health",
    "sensor health",
    meaning="The device reports that what this sensor measures is unhealthy, or that the sensor is broken.",
    next_step=_FACILITY,
)


@dataclass(frozen=True, slots=True)
class Faults:
    """The findings about one sort of device."""

    part: FailKind
    too_few: FailKind
    redundancy: FailKind
    thresholds: FailKind
    sensor: FailKind


POWER = Faults(POWER_PART, POWER_TOO_FEW, POWER_REDUNDANCY, POWER_THRESHOLDS, POWER_SENSOR)
COOLING = Faults(COOLING_PART, COOLING_TOO_FEW, COOLING_REDUNDANCY, COOLING_THRESHOLDS, COOLING_SENSOR)
