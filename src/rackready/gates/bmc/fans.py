"""Fans: each turns above the BMC's own threshold, and none is gone since the last pass.

No figure is ours: a fan is compared with the lower thresholds of its own sensor. Where the BMC has none, the fan must
turn and be healthy. No vendor publishes how many fans a server has, so their number is compared with the last pass on
the chassis, or with a repair in its place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rackready.gates.base import Gate, GateFacts, LastPass, Outputs, Run
from rackready.gates.bmc import documents, owner
from rackready.gates.bmc.documents import BmcAnswer, Document, absent, name, numeric, parts, works
from rackready.gates.bmc.redundancy import NONE, groups, kind
from rackready.gates.bmc.thresholds import Bounds, bounds
from rackready.gates.bmc.words import READING_TYPES
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.commands import repair
from rackready.model.outcome import Verdict
from rackready.model.place import Place

_NEW, _OLD, _SUBSYSTEM, _SENSORS = (
    "Chassis/*/ThermalSubsystem/Fans/*",
    "Chassis/*/Thermal",
    "Chassis/*/ThermalSubsystem",
    "Chassis/*/Sensors/*",
)
_STEP = "Find what blocks it, reseat the fan tray, or else replace it; do not load the node before."


_TURNS = frozenset({"RPM", "{rev}/min"})
"""ReadingUnits of a speed (DSP0268, Sensor): UCUM's code, and the usual BMC spelling."""
_SPEED = "fan_speed"
"""Metric of every fan that turns: a pass records with it which fans it saw."""


FANS_NOT_REPORTED = ErrorKind(
    "fans-not-reported",
    "fans not reported",
    meaning="The BMC lists no fan.",
    next_step="Update the BMC's firmware; rackready knows no server without fans.",
)
FAN_SENSOR_LOST = ErrorKind(
    "fan-sensor-not-read",
    "sensor of the fan not read",
    meaning="A fan links to a sensor that the BMC does not deliver.",
    next_step="Update or restart the BMC, then run the gate again.",
)
FAN_SPEED_NOT_REPORTED = ErrorKind(
    "fan-speed-not-reported",
    "fan speed not reported",
    meaning="The BMC does not report how fast a fan turns.",
    next_step="Reseat the fan; if the speed is still missing, replace it, or update the BMC's firmware.",
)
FAN_STANDS = FailKind(
    "fan-stands-still",
    "fan stands still",
    meaning="A fan does not turn.",
    next_step=_STEP,
)
FAN_SLOW = FailKind(
    "fan-slow",
    "fan too slow",
    meaning="A fan turns slower than the BMC's own threshold.",
    next_step=_STEP,
)
FANS_GONE = FailKind(
    "fans-gone",
    "fans gone since the last pass",
    meaning="Fans that the BMC listed at the last pass are no longer listed.",
    next_step=(
        "Reseat that fan, or else replace it. If it was removed on purpose, or new BMC firmware lists "
        f"fans in another way, record with {repair('{node}')} that it was dealt with."
    ),
)
FAN_NOT_WORKING = FailKind(
    "fan-not-working",
    "fan not working",
    meaning="The BMC reports that a fan is broken.",
    next_step=_STEP,
)
FANS_NOT_REDUNDANT = FailKind(
    "fans-redundancy-lost",
    "redundancy not working",
    meaning="The fans are no longer redundant: if one more fails, the server overheats.",
    next_step="Repair the fan that another finding names.",
)

FINDINGS = (
    FAN_NOT_WORKING,
    FANS_NOT_REDUNDANT,
    FANS_NOT_REPORTED,
    FAN_SENSOR_LOST,
    FAN_SPEED_NOT_REPORTED,
    FAN_STANDS,
    FAN_SLOW,
    FANS_GONE,
)


class Fans(Gate):
    """Every fan turns above the BMC's lower threshold, fans are redundant, and none is gone since the last pass."""

    id = "bmc/cooling/sanity/fans"
    findings = (
        *owner.FINDINGS,
        *documents.PART,
        *FINDINGS,
    )
    stops_load = True
    looks = True
    since_last_pass = True

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:
        """Plan one request to each BMC, with the fans that the last pass saw."""
        return [
            Run.of_node(
                node,
                owner.ask(node, _NEW, _SUBSYSTEM, _OLD, _SENSORS),
                about=_before(facts.passed.get((self.id, node))),
            )
            for node in nodes
        ]

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Judge every fan and every redundancy group."""
        node = run.nodes[0]
        judge = Judge()
        found = owner.server(judge, facts.nodes[node], "fans", run, outputs)
        if found is None:
            return judge.verdict(node)
        fans = list(_fans(found))
        cooling = facts.nodes[node].platform.cooling
        if not fans and not run.about and cooling is not None and cooling.kind == "liquid":
            return nothing_to_judge(
                judge,
                node,
                f"{facts.nodes[node].platform.id} is cooled by liquid alone and its BMC lists no fans: "
                "nothing to judge",
            )
        if not fans:
            judge.error(Place(node, "BMC"), FANS_NOT_REPORTED, "at least one fan", "none")
        for fan, limits in fans:
            self._judge_fan(judge, node, fan, limits)
        _judge_missing(judge, node, [name(fan) for fan, _ in fans], run.about)
        self._redundancy(judge, node, found)
        return judge.verdict(node)

    @staticmethod
    def _judge_fan(judge: Judge, node: str, fan: Document, limits: Bounds) -> None:
        where = Place(node, f"fan {name(fan)}")
        if not works(judge, where, "fan", fan, FAN_NOT_WORKING):
            return
        if isinstance(lost := fan.get("Sensor"), str):
            judge.error(where, FAN_SENSOR_LOST, lost, "not among the sensors of the BMC")
            return
        speed, unit = _speed(fan)
        if speed is None:
            judge.error(where, FAN_SPEED_NOT_REPORTED, "a reading", "none")
            return
        judge.metric(_SPEED, f"{node}/fan/{name(fan)}", speed, unit)
        least = max(
            (item for item in (limits.low_caution, limits.low_critical, limits.low_fatal) if item is not None),
            default=None,
        )
        if speed <= 0:
            judge.fail(
                where,
                FAN_STANDS,
                f"at least {least:.0f} {unit}" if least is not None else "a fan that turns",
                f"{speed:.0f} {unit}",
            )
        elif least is not None and speed < least:
            judge.fail(where, FAN_SLOW, f"at least {least:.0f} {unit} (the BMC's own threshold)", f"{speed:.0f} {unit}")
        else:
            judge.measured.add(f"{node}/fan/{name(fan)}")

    @staticmethod
    def _redundancy(judge: Judge, node: str, found: BmcAnswer) -> None:
        for index, group in enumerate(groups(found.at(_SUBSYSTEM), "FanRedundancy", found.at(_OLD))):
            if isinstance(group.get("Status"), dict) and not absent(group):
                where = Place(node, f"fan redundancy group {group.get('MemberId', index)}")
                idle = {"Disabled"} if kind(group) == NONE else ()  # a group without spares is rightly disabled
                works(judge, where, "redundancy", group, FANS_NOT_REDUNDANT, idle=idle)


def _before(passed: LastPass | None) -> Mapping[str, str]:
    """Return the names of the fans that the last pass saw, each with its count; empty without a pass."""
    if passed is None:
        return {}
    return {
        fan: f"{count}"
        for fan, count in Counter(
            item.target.split("/fan/", 1)[-1] for item in passed.metrics if item.name == _SPEED
        ).items()
    }


def _judge_missing(judge: Judge, node: str, fans: Sequence[str], about: Mapping[str, str]) -> None:
    """Compare the number of fans with the last pass's.

    Fewer fans are a fail. The same number under other names comes from a BMC update.
    """
    before = Counter({fan: int(count) for fan, count in about.items()})
    if not before:
        judge.remark(
            "the number of its fans is not published, and no earlier pass saw them: only listed fans were judged"
        )
        return
    judge.judged += 1
    if len(fans) < before.total():
        lost = sorted((before - Counter(fans)).elements())
        named = (
            f", without {', '.join(lost)}" if len(lost) == before.total() - len(fans) else ""
        )  # otherwise the remaining fans have new names, too
        judge.fail(node, FANS_GONE, f"{before.total()} fans", f"{len(fans)}{named}")


def nothing_to_judge(judge: Judge, node: str, note: str) -> Verdict:
    """Return the verdict of a platform that has no such parts, with the reason."""
    judge.judged += 1
    judge.measured.add(f"{node}/bmc")
    judge.remark(note)
    return judge.verdict(node)


def _fans(found: BmcAnswer) -> Iterator[tuple[Document, Bounds]]:
    """Yield every fan with its bounds.

    The newer schema gives fans with their sensors' bounds; without it the older one gives both, or else the sensors of
    fans do. Where a fan links to a sensor that is not listed, the address stands in the sensor's place.
    """
    newer = list(found.at(_NEW))
    older = [fan for document in found.at(_OLD) for fan in parts(document, "Fans")]
    if not newer and not older:
        yield from ((sensor, bounds(sensor)) for sensor in found.at(_SENSORS) if _turns(sensor))
    elif not newer:
        yield from ((fan, bounds(fan)) for fan in older)
    sensors = {str(item.get("@odata.id")).rstrip("/"): item for item in found.at(_SENSORS)}
    for fan in newer:
        speed = fan.get("SpeedPercent")
        source = str(speed.get("DataSourceUri") or "").partition("#")[0].rstrip("/") if isinstance(speed, dict) else ""
        sensor = sensors.get(source)
        yield ({**fan, "Sensor": sensor or source} if source else fan), bounds(sensor or {})


def _turns(sensor: Document) -> bool:
    """Return whether a sensor belongs to a fan: a GB200's BMC shows fans in no other way."""
    kind_of = sensor.get("ReadingType")
    if kind_of == "Rotational" or sensor.get("ReadingUnits") in _TURNS:
        return True
    return kind_of not in READING_TYPES - {"Percent"} and "fan" in name(sensor).lower()


def _speed(fan: Document) -> tuple[float | None, str]:
    """Return speed and unit: from the fan's sensor, whose unit its thresholds have, or else from the fan itself."""
    sensor = fan.get("Sensor")
    if isinstance(sensor, dict):
        return numeric(sensor.get("Reading")), str(sensor.get("ReadingUnits") or "RPM").replace("{rev}/min", "RPM")
    percent = fan.get("SpeedPercent")
    if isinstance(percent, dict):
        turns = numeric(percent.get("SpeedRPM"))
        return (turns, "RPM") if turns is not None else (numeric(percent.get("Reading")), "%")
    return numeric(fan.get("Reading", fan.get("CurrentReading"))), {"RPM": "RPM", "Percent": "%"}.get(
        str(fan.get("ReadingUnits") or fan.get("Units")), "RPM"
    )
