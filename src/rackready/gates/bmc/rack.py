"""Rack devices that nodes depend on: power shelves, PDUs and coolant distribution units with a Redfish service.

The site lists them (``devices`` with ``bmc``). The note names those without a bmc, since nobody asks them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import ClassVar

from rackready.gates.base import Command, Gate, GateFacts, Outputs, Run
from rackready.gates.bmc import documents, leaks, rack_findings
from rackready.gates.bmc.documents import (
    BmcAnswer,
    Document,
    absent,
    ask,
    healthy,
    name,
    numeric,
    read_answer,
    resting,
    state,
    works,
)
from rackready.gates.bmc.leaks import judge_detectors
from rackready.gates.bmc.redundancy import groups, needed, spares
from rackready.gates.bmc.thresholds import bounds
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Criterion, Op, Verdict
from rackready.model.place import Place
from rackready.model.site import Device

_EQUIPMENT = ("PowerEquipment/RackPDUs/*", "PowerEquipment/PowerShelves/*", "PowerEquipment/FloorPDUs/*")
_CIRCUITS = tuple(f"{place}/{part}/*" for place in _EQUIPMENT for part in ("Mains", "Branches", "Feeders"))
_OUTLETS = tuple(f"{place}/Outlets/*" for place in _EQUIPMENT)
_SHELF_PSUS = ("PowerEquipment/PowerShelves/*/PowerSupplies/*", "Chassis/*/PowerSubsystem/PowerSupplies/*")
_SUBSYSTEM = "Chassis/*/PowerSubsystem"
_SENSORS = "Chassis/*/Sensors/*"
_CDUS = "ThermalEquipment/CDUs/*"
_PUMPS, _RESERVOIRS, _LOOPS = (
    f"{_CDUS}/Pumps/*",
    f"{_CDUS}/Reservoirs/*",
    tuple(f"{_CDUS}/{side}Connectors/*" for side in ("PrimaryCoolant", "SecondaryCoolant")),
)
_CDU_LEAKS = f"{_CDUS}/LeakDetection"
_SYSTEMS = "Systems/*"
_SPARE = frozenset({"StandbyOffline"})
"""State of a supply or pump on standby (DSP0268): right for a spare of a redundant set."""
_UNUSED = frozenset({"Disabled", "StandbyOffline"})
"""States of an outlet that is switched off: nothing may be plugged in. A node whose supply it feeds reports that
itself."""
_FLOWS, _HEAT = frozenset({"LiquidFlow", "LiquidFlowLPM"}), frozenset({"Temperature"})
"""ReadingType (DSP0268, Sensor) of flow, in l/s and in l/min, and of temperature."""


class _Devices(Gate):
    """Base of the gates on rack devices: one run per rack, one request to each device."""

    in_no_set = "only a site with such devices that have a Redfish service can use it: it adds the gate (gates.also)"
    kinds: ClassVar[frozenset[str]]
    trails: ClassVar[tuple[str, ...]]

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:
        """Plan one run for every rack of these nodes."""
        racks: dict[str, list[str]] = {}
        for node in nodes:
            racks.setdefault(facts.nodes[node].rack, []).append(node)
        return [
            Run(
                id=rack,
                target=rack,
                nodes=tuple(members),
                commands=tuple(self._ask(device.name) for device in self._listed(facts, rack) if device.bmc),
            )
            for rack, members in racks.items()
        ]

    def _ask(self, device: str) -> Command:
        return ask(device, *self.trails, key=f"redfish-{device}")

    def _listed(self, facts: GateFacts, rack: str) -> list[Device]:
        return [device for device in facts.devices if device.kind in self.kinds and device.rack in {rack, None}]

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Judge every device that is asked; name those that are not."""
        judge = Judge()
        listed = self._listed(facts, run.target)
        asked = [device for device in listed if device.bmc]
        for device in asked:
            found = read_answer(judge, device.name, device.kind, run, outputs, key=f"redfish-{device.name}")
            if found is not None:
                self.device(judge, device, found)
        silent = ", ".join(device.name for device in listed if not device.bmc)
        if not asked:
            judge.judged += 1
            judge.measured.add(f"{run.target}/devices")
            kinds = " or ".join(sorted(kind.replace("_", " ") for kind in self.kinds))
            judge.note = f"the site lists no {kinds} with a Redfish service for {run.target}: nothing to judge" + (
                f" (not asked: {silent})" if silent else ""
            )
        elif silent:
            judge.note = f"not asked, since the site gives them no bmc: {silent}"
        return judge.verdict(run.target)

    def device(self, judge: Judge, device: Device, found: BmcAnswer) -> None:
        """Judge one device."""
        raise NotImplementedError


class RackPower(_Devices):
    """Power shelves and PDUs of the rack work, and no circuit is outside its device's thresholds."""

    id = "rack/power/sanity/devices"
    findings = (
        *documents.READING,
        *documents.PART,
        *documents.SENSOR,
        rack_findings.NO_POWER_EQUIPMENT,
        rack_findings.BREAKER,
        rack_findings.SENSOR_NOT_READ,
        rack_findings.POWER_PART,
        rack_findings.POWER_TOO_FEW,
        rack_findings.POWER_REDUNDANCY,
        rack_findings.POWER_THRESHOLDS,
        rack_findings.POWER_SENSOR,
    )
    looks = True
    kinds = frozenset({"pdu", "power_shelf"})
    trails = (*_EQUIPMENT, *_CIRCUITS, *_OUTLETS, *_SHELF_PSUS, _SUBSYSTEM, _SENSORS, _SYSTEMS)

    def device(self, judge: Judge, device: Device, found: BmcAnswer) -> None:
        """Judge the unit, its circuits, outlets and supplies, and its sensors against their own thresholds."""
        units = list(found.at(*_EQUIPMENT))
        supplies = [item for item in found.at(*_SHELF_PSUS) if not absent(item)]
        computers = [name(item) for item in found.at(_SYSTEMS) if _computes(item)]
        if not units and (not supplies or device.kind == "pdu" or computers):
            seen = (
                f"system {', '.join(computers)}, which has processors"
                if computers
                else f"{len(supplies)} power supplies alone"
                if supplies
                else "none"
            )
            judge.error(
                device.name, rack_findings.NO_POWER_EQUIPMENT, "a PDU or power shelf in its Redfish service", seen
            )
        for kind, items, idle in (
            ("unit", units, ()),
            ("circuit", found.at(*_CIRCUITS), ()),
            ("outlet", found.at(*_OUTLETS), _UNUSED),
        ):
            _at_work(judge, device, kind, items, rack_findings.POWER, idle)
        _redundant(
            judge,
            device,
            "psu",
            supplies,
            groups([*units, *found.at(_SUBSYSTEM)], "PowerSupplyRedundancy"),
            rack_findings.POWER,
        )
        _sensors(judge, device, found, rack_findings.POWER)


class RackCooling(_Devices):
    """Coolant distribution units work without leaks, with flow, pressure and temperature within their thresholds."""

    id = "rack/cooling/sanity/devices"
    findings = (
        *leaks.DETECTED,
        *documents.READING,
        *documents.SENSOR,
        rack_findings.NO_CDU,
        rack_findings.NO_PUMP,
        rack_findings.CDU_NO_LEAK_DETECTOR,
        rack_findings.BREAKER,
        rack_findings.SENSOR_NOT_READ,
        rack_findings.NOT_WATCHED,
        rack_findings.COOLING_PART,
        rack_findings.COOLING_TOO_FEW,
        rack_findings.COOLING_REDUNDANCY,
        rack_findings.COOLING_THRESHOLDS,
        rack_findings.COOLING_SENSOR,
    )
    looks = True
    kinds = frozenset({"cdu"})
    trails = (
        _CDUS,
        _PUMPS,
        _RESERVOIRS,
        *_LOOPS,
        _CDU_LEAKS,
        f"{_CDU_LEAKS}/LeakDetectors/*",
        "ThermalEquipment",
        _SENSORS,
    )

    def device(self, judge: Judge, device: Device, found: BmcAnswer) -> None:
        """Judge the unit, its pumps, reservoirs and connections, its leak detectors, and its sensors."""
        units = list(found.at(_CDUS))
        if not units:
            judge.error(device.name, rack_findings.NO_CDU, "one in its Redfish service", "none")
        for kind, items in (("cdu", units), ("reservoir", found.at(_RESERVOIRS)), ("loop", found.at(*_LOOPS))):
            _at_work(judge, device, kind, items, rack_findings.COOLING)
        pumps = list(found.at(_PUMPS))
        if not pumps:
            judge.error(device.name, rack_findings.NO_PUMP, "at least one", "none")
        _redundant(judge, device, "pump", pumps, groups(units, "PumpRedundancy"), rack_findings.COOLING)
        if not judge_detectors(judge, device.name, found, _CDU_LEAKS, f"{_CDU_LEAKS}/LeakDetectors/*"):
            judge.error(device.name, rack_findings.CDU_NO_LEAK_DETECTOR, "at least one", "none")
        _watched(judge, device, _sensors(judge, device, found, rack_findings.COOLING))


def _computes(system: Document) -> bool:
    """Return whether a system is a computer: a shelf's controller may list a system without processors."""
    summary = system.get("ProcessorSummary")
    return bool(numeric(summary.get("Count"))) if isinstance(summary, dict) else False


def _at_work(
    judge: Judge,
    device: Device,
    kind: str,
    items: Iterable[Document],
    faults: rack_findings.Faults,
    idle: Collection[str] = (),
) -> int:
    """Judge every part of a kind; return how many are good and in use.

    ``idle``: the unused states that are right for it.
    """
    busy = 0
    for item in items:
        if works(
            judge, Place(device.name, f"{kind} {name(item)}"), kind, item, faults.part, idle=idle, part=kind
        ) and not _tripped(judge, device, kind, item):
            judge.measured.add(f"{device.name}/{kind}/{name(item)}")
            busy += state(item) not in idle
    return busy


def _redundant(
    judge: Judge,
    device: Device,
    kind: str,
    items: Sequence[Document],
    found: Sequence[Document],
    faults: rack_findings.Faults,
) -> None:
    """Judge supplies or pumps and their groups (``found``).

    Spares may be idle, and the needed number must be in use.
    """
    busy = _at_work(judge, device, kind, items, faults, _SPARE if spares(found) else ())
    least = needed(found)
    if items and busy < least:
        judge.fail(device.name, faults.too_few, f"at least {least} (MinNeededInGroup of the device, else one)", busy)
    for group in found:
        if isinstance(group.get("Status"), dict) and not absent(group):
            works(judge, Place(device.name, f"{kind} redundancy"), "redundancy", group, faults.redundancy)


def _tripped(judge: Judge, device: Device, kind: str, item: Document) -> bool:
    """Return whether a breaker has tripped (BreakerState of DSP0268, Circuit)."""
    state = item.get("BreakerState")
    if state in {None, "Normal"}:
        return False
    judge.fail(Place(device.name, f"{kind} {name(item)}"), rack_findings.BREAKER, "Normal", state)
    return True


def _sensors(judge: Judge, device: Device, found: BmcAnswer, faults: rack_findings.Faults) -> set[tuple[str, Op]]:
    """Judge every sensor's health and thresholds, and return which kinds of reading have a threshold on which side.

    A sensor with thresholds and no reading is an error. Kinds: DSP0268, Sensor.ReadingType.
    """
    sides: set[tuple[str, Op]] = set()
    for sensor in (sensor for sensor in found.at(_SENSORS) if not absent(sensor)):
        where, limits, kind = (
            Place(device.name, f"sensor {name(sensor)}"),
            bounds(sensor),
            str(sensor.get("ReadingType") or "reading"),
        )
        held = [(op, bound) for op, bound in ((Op.LE, limits.high()), (Op.GE, limits.low())) if bound is not None]
        sides |= {(kind, op) for op, _ in held}
        reading = None if resting(sensor) else numeric(sensor.get("Reading"))
        judge.judged += bool(held)
        if held and reading is None:
            judge.error(where, rack_findings.SENSOR_NOT_READ, "a reading", "none")
        elif not held or _within(judge, device, sensor, held, faults):
            healthy(judge, where, sensor, faults.sensor)
    return sides


def _within(
    judge: Judge,
    device: Device,
    sensor: Document,
    held: Sequence[tuple[Op, tuple[str, float]]],
    faults: rack_findings.Faults,
) -> bool:
    """Compare a reading with the thresholds of the device."""
    reading, unit, kind = (
        numeric(sensor.get("Reading")) or 0.0,
        str(sensor.get("ReadingUnits") or ""),
        str(sensor.get("ReadingType") or "reading"),
    )
    judge.metric(kind, f"{device.name}/{name(sensor)}", reading, unit or "1")
    good = True
    for op, (threshold, bound) in held:
        source = f"{threshold} threshold of the device"
        judge.criterion(
            Criterion(
                metric=kind, op=op, bound=bound, unit=unit, label="ceiling" if op is Op.LE else "floor", source=source
            )
        )
        if reading >= bound if op is Op.LE else reading <= bound:
            side = "below" if op is Op.LE else "above"
            judge.fail(
                Place(device.name, f"sensor {name(sensor)}"),
                faults.thresholds,
                f"{side} {bound:g} {unit} ({source})",
                f"{reading:g} {unit}",
            )
            good = False
    return good


def _watched(judge: Judge, device: Device, sides: set[tuple[str, Op]]) -> None:
    """Report an error where flow or temperature has no threshold: nobody monitors it, so it cannot be judged."""
    for what, kinds, op, wanted in (
        ("coolant flow", _FLOWS, Op.GE, "a sensor of liquid flow with a lower threshold"),
        ("coolant temperature", _HEAT, Op.LE, "a sensor of temperature with an upper threshold"),
    ):
        if not any((kind, op) in sides for kind in kinds):
            judge.error(device.name, rack_findings.NOT_WATCHED, wanted, "none", what=what)
