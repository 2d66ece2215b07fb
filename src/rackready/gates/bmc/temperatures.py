"""Temperatures of inlet and outlet air and of every monitored part, compared with the BMC's own thresholds.

Inlet and outlet are recognised by name first, and by PhysicalContext only where no name fits: a DGX H100's BMC calls
every sensor Intake.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rackready.gates.base import Gate, GateFacts, Outputs, Run
from rackready.gates.bmc import documents, owner
from rackready.gates.bmc.documents import BAD, BmcAnswer, Document, healthy, name, numeric, parts, resting
from rackready.gates.bmc.thresholds import bounds
from rackready.gates.bmc.words import OTHER_UNITS, READING_TYPES
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Criterion, Op, Verdict
from rackready.model.place import Place

_NEW, _OLD = "Chassis/*/Sensors/*", "Chassis/*/Thermal"
_INLET = re.compile(r"inlet|ambient|intake|\bfront", re.IGNORECASE)
_OUTLET = re.compile(r"outlet|exhaust", re.IGNORECASE)
_MARGIN = re.compile(r"margin|\bdts\b|tlimit", re.IGNORECASE)
"""Sensors that report a distance to a limit instead of a temperature: healthy ones are below 0 (OpenBIC,
MB_SOC_THERMAL_MARGIN_C)."""
_CELSIUS = "Cel"
"""ReadingUnits of a temperature (DSP0268, Sensor: UCUM's code): a BMC may report no type, or an unknown one."""
_OTHERS = READING_TYPES - {"Temperature"}
"""ReadingType of other readings than temperatures: other gates judge them, or none."""
_COLDEST_C = 0.0
"""No sensor of a running server reads this or less. Judgement: the coldest inlet air that ASHRAE's classes A1 to A4
allow has 5 degC, water is liquid, and parts are warmer than both; -128 and 0 are what a BMC shows for a sensor that
does not answer."""
_COLDEST = "judgement: ASHRAE classes A1 to A4 begin at 5 degC"
_AIR = (
    "Check the supply air of the row, the blanking panels and whatever blocks the node's front; then its "
    "fans (bmc/cooling/sanity/fans)."
)
_PART = "Check the node's fans and air or liquid supply first; if they are good, reseat or replace the part."
_SENSOR = "Update or restart the BMC; if the reading stays away, replace the board that carries the sensor."


INLET_NOT_REPORTED = ErrorKind(
    "inlet-temperature-not-reported",
    "inlet temperature not reported",
    meaning="The BMC has no sensor of the inlet air, so a warm room would not be seen.",
    next_step=_SENSOR,
)
TEMPERATURE_NOT_READ = ErrorKind(
    "temperature-not-read",
    "{what} not read",
    meaning="A temperature sensor has no reading.",
    next_step=_SENSOR,
)
NO_THRESHOLD = ErrorKind(
    "temperature-no-threshold",
    "{what} has no threshold",
    meaning="The BMC has no threshold for the inlet air, so it would not warn.",
    next_step="Set it in the BMC, or update its firmware.",
)
NOT_PLAUSIBLE = ErrorKind(
    "temperature-not-plausible",
    "{what} not plausible",
    meaning="The sensor reads a temperature that no running server has.",
    next_step=_SENSOR,
)
TOO_HIGH = FailKind(
    "temperature-too-high",
    "{what} too high",
    meaning="A temperature is above the BMC's threshold.",
    next_step="{step}",
    steps=(_AIR, _PART),
)
TOO_LOW = FailKind(
    "temperature-too-low",
    "{what} too low",
    meaning="The air is colder than the BMC's threshold: water may condense.",
    next_step="{step}",
    steps=(_AIR, _PART),
)
AIR_SENSOR_HEALTH = FailKind(
    "temperature-air-sensor-health",
    "sensor health",
    meaning="The BMC reports that the air at this sensor is too warm or too cold, or that the sensor is broken.",
    next_step=_AIR,
)
PART_SENSOR_HEALTH = FailKind(
    "temperature-part-sensor-health",
    "sensor health",
    meaning="The BMC reports that the part at this sensor is too warm, or that the sensor is broken.",
    next_step=_PART,
)

FINDINGS = (
    AIR_SENSOR_HEALTH,
    PART_SENSOR_HEALTH,
    INLET_NOT_REPORTED,
    TEMPERATURE_NOT_READ,
    NO_THRESHOLD,
    NOT_PLAUSIBLE,
    TOO_HIGH,
    TOO_LOW,
)


class Temperatures(Gate):
    """Inlet and outlet air and every monitored part are within the BMC's thresholds."""

    id = "bmc/cooling/sanity/temperatures"
    findings = (
        *owner.FINDINGS,
        *documents.SENSOR,
        *FINDINGS,
    )
    stops_load = True
    looks = True

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:  # noqa: ARG002
        """Plan one request to each BMC."""
        return [Run.of_node(node, owner.ask(node, _NEW, _OLD)) for node in nodes]

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Judge every temperature that has a threshold; the inlet must have one."""
        node = run.nodes[0]
        judge = Judge()
        found = owner.server(judge, facts.nodes[node], "temperatures", run, outputs)
        if found is None:
            return judge.verdict(node)
        sensors = list(_temperatures(found))
        inlets = _inlets(sensors)
        if not inlets:
            judge.error(Place(node, "BMC"), INLET_NOT_REPORTED, "a sensor of the inlet air", "none")
        unbound = 0
        for sensor in sensors:
            air = "inlet" if sensor in inlets else "outlet" if _OUTLET.search(_called(sensor)) else ""
            unbound += not self._judge_sensor(judge, node, sensor, air)
        _remark(judge, unbound, outlet=any(_OUTLET.search(_called(sensor)) for sensor in sensors))
        return judge.verdict(node)

    @staticmethod
    def _judge_sensor(judge: Judge, node: str, sensor: Document, air: str) -> bool:
        """Judge one sensor; return False where the BMC has no threshold for it and none is needed."""
        where, what = Place(node, f"{air or 'sensor'} {name(sensor)}"), f"{air} temperature".strip()
        if resting(sensor):
            if air == "inlet":
                judge.error(where, TEMPERATURE_NOT_READ, "a reading", "a sensor that is switched off", what=what)
            return True
        reading = numeric(sensor.get("Reading", sensor.get("ReadingCelsius")))
        limits = bounds(sensor)
        if reading is None:
            judge.error(where, TEMPERATURE_NOT_READ, "a reading", "none", what=what)
            return True
        judge.metric(f"{air}_temperature" if air else "temperature", f"{node}/{name(sensor)}", reading, "degC")
        if limits.high() is None:
            if not healthy(judge, where, sensor, AIR_SENSOR_HEALTH if air else PART_SENSOR_HEALTH):
                judge.judged += 1
            if air == "inlet":
                judge.error(where, NO_THRESHOLD, "an upper threshold of the BMC", "none", what=what)
            return air == "inlet"
        _compare(judge, where, what, reading, sensor, air)
        return True


def _compare(judge: Judge, where: Place, what: str, reading: float, sensor: Document, air: str) -> None:
    judge.judged += 1
    limits = bounds(sensor)
    high, low = limits.high(), limits.low()
    if high is not None:
        if reading <= _COLDEST_C and not _MARGIN.search(name(sensor)):
            judge.error(where, NOT_PLAUSIBLE, f"above {_COLDEST_C:g} degC ({_COLDEST})", f"{reading:g} degC", what=what)
            return
        source = f"{high[0]} threshold of the BMC"
        judge.criterion(
            Criterion(
                metric=f"{air}_temperature" if air else "temperature",
                op=Op.LE,
                bound=high[1],
                unit="degC",
                label="ceiling",
                source=source,
            )
        )
        if reading >= high[1]:
            judge.fail(
                where,
                TOO_HIGH,
                f"below {high[1]:g} degC ({source})",
                f"{reading:g} degC",
                what=what,
                step=_AIR if air else _PART,
            )
            return
    if low is not None and air and reading <= low[1]:
        judge.fail(
            where,
            TOO_LOW,
            f"above {low[1]:g} degC ({low[0]} threshold of the BMC)",
            f"{reading:g} degC",
            what=what,
            step=_AIR if air else _PART,
        )
        return
    if healthy(judge, where, sensor, AIR_SENSOR_HEALTH if air else PART_SENSOR_HEALTH):
        judge.measured.add(where.unit)


def _temperatures(found: BmcAnswer) -> Iterator[Document]:
    newer = [item for item in found.at(_NEW) if _is_temperature(item)]
    yield from newer or (item for document in found.at(_OLD) for item in parts(document, "Temperatures"))


def _is_temperature(sensor: Document) -> bool:
    """Return whether a sensor reads a temperature, by its type or its unit.

    A sensor of an unknown kind counts where its unit is unknown, too, or where it reports itself bad.
    """
    kind, status = sensor.get("ReadingType"), sensor.get("Status")
    if (
        kind == "Temperature"
        or sensor.get("ReadingUnits") == _CELSIUS
        or (kind not in {None, *_OTHERS} and sensor.get("ReadingUnits") not in OTHER_UNITS)
    ):
        return True
    return kind not in _OTHERS and isinstance(status, dict) and status.get("Health") in BAD


def _inlets(sensors: Sequence[Document]) -> list[Document]:
    """Return the sensors of the inlet air.

    Among several by name, those with a threshold in the BMC: supplies have inlets of their own.
    """
    named = [item for item in sensors if _INLET.search(_called(item)) and not _OUTLET.search(_called(item))]
    bounded = [item for item in named if bounds(item).high() is not None or resting(item)]
    unread = [
        item for item in named if numeric(item.get("Reading", item.get("ReadingCelsius"))) is None and not resting(item)
    ]
    return (
        bounded + [item for item in unread if item not in bounded]
        or named
        or [item for item in sensors if item.get("PhysicalContext") == "Intake"]
    )


def _called(sensor: Document) -> str:
    return f"{sensor.get('Id', '')} {sensor.get('Name', '')}"


def _remark(judge: Judge, unbound: int, *, outlet: bool) -> None:
    if unbound:
        judge.remark(f"{unbound} readings have no threshold in the BMC and are recorded only")
    if not outlet:
        judge.remark("the BMC has no sensor of the outlet air")
