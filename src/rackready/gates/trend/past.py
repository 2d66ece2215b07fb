"""The past of every figure from evidence, cut into eras: a change of parts, software or parameters begins a new one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rackready.evidence.distribution import counted
from rackready.model.evidence import EvidenceRecord, Fingerprint
from rackready.model.outcome import Op, Verdict
from rackready.model.place import part_of

Conditions = tuple[tuple[str, str], ...]
"""What a figure was measured under: driver, kernel, firmware, tools, parameters of the gate, and the part itself."""

_MEASURED = frozenset({"attempt", "imported"})
"""Inputs of a record that was measured. Conclusions have none of them, and repeat the figures of others."""
_NOT_PARAMETERS = _MEASURED | {"title", "launches", "conclusion_of", "fleet", "run"}
"""Inputs on record that do not change what is measured (gates/engine/fleet_stage.identical_key)."""
PART = "part"
"""The only condition that differs between identical units: serials."""


class FigureKey(NamedTuple):
    """One figure of one unit. ``target``: node03, node03/gpu2, or a run over several nodes."""

    gate: str
    metric: str
    unit: str
    target: str


class Reading(NamedTuple):
    """One value. ``at``: seconds since 1970; ``conditions``: number of those that it was measured under."""

    at: float
    value: float
    conditions: int


@dataclass(slots=True)
class FigurePast:
    """All readings of one figure. ``side``: the side on which its bounds hold it, None without one."""

    key: FigureKey
    nodes: tuple[str, ...]
    by_time: dict[float, Reading] = field(default_factory=dict)
    side: Op | None = None

    def put(self, reading: Reading) -> None:
        """Add a reading. A record that completes another has its time, and replaces it."""
        self.by_time[reading.at] = reading

    @property
    def readings(self) -> list[Reading]:
        """Return them, the oldest first."""
        return sorted(self.by_time.values())

    def eras(self) -> Iterator[list[Reading]]:
        """Yield the readings of each era: neighbours under the same conditions."""
        era: list[Reading] = []
        for reading in self.readings:
            if era and era[-1].conditions != reading.conditions:
                yield era
                era = []
            era.append(reading)
        if era:
            yield era


@dataclass(slots=True)
class Pasts:
    """The figures of a site. Conditions are kept once and numbered: a large site has few different ones."""

    figures: dict[FigureKey, FigurePast] = field(default_factory=dict)
    conditions: list[Conditions] = field(default_factory=list)
    _numbers: dict[Conditions, int] = field(default_factory=dict)

    @classmethod
    def of(cls, records: Iterable[EvidenceRecord], names: frozenset[str]) -> Pasts:
        """Return the pasts from records. ``names``: the nodes of the site; others are left out."""
        out = cls()
        for record in records:
            if names >= set(record.nodes):
                out.add(record)
        return out

    def add(self, record: EvidenceRecord) -> None:
        """Add the figures of a measurement: those of the node and its parts, or those of a run over several nodes."""
        if not _MEASURED & record.inputs.keys():
            return
        prints = {one.node: one for one in record.fingerprints}
        alone = record.target in record.nodes
        sides = _sides(record.verdict)
        for metric in record.verdict.metrics:
            own = part_of(metric.target, record.target) if alone else ""
            if own is None or not counted({"unit": metric.unit}) or sides.get(metric.name) is Op.EQ:
                continue
            key = FigureKey(record.gate, metric.name, metric.unit, metric.target)
            past = self.figures.setdefault(key, FigurePast(key, tuple(record.nodes)))
            past.side = sides.get(metric.name, past.side)
            number = self._number(_conditions(record, prints, own))
            past.put(Reading(record.started.timestamp(), metric.value, number))

    def _number(self, conditions: Conditions) -> int:
        if conditions not in self._numbers:
            self._numbers[conditions] = len(self.conditions)
            self.conditions.append(conditions)
        return self._numbers[conditions]


def changed(before: Conditions, after: Conditions) -> str:
    """Return in words what differs between two conditions: a part says only that it is another one."""
    old, new = dict(before), dict(after)
    words = []
    for name in dict.fromkeys([*old, *new]):
        if old.get(name) == new.get(name):
            continue
        words.append(
            "another part" if name == PART else f"{name} {old.get(name) or 'none'} -> {new.get(name) or 'none'}"
        )
    return "; ".join(words)


def common(conditions: Conditions) -> Conditions:
    """Return the conditions that identical units share."""
    return tuple(pair for pair in conditions if pair[0] != PART)


def _sides(verdict: Verdict) -> dict[str, Op]:
    """Return the side of each metric's bounds. A bound to one value wins; beside a floor, a ceiling is no goal."""
    out: dict[str, Op] = {}
    for bound in verdict.criteria:
        if out.get(bound.metric) is not Op.EQ:
            out[bound.metric] = bound.op if bound.op is Op.EQ or bound.metric not in out else Op.GE
    return out


def _conditions(record: EvidenceRecord, prints: Mapping[str, Fingerprint], part: str) -> Conditions:
    found = list(prints.values())
    values = {
        "driver": _listed(one.driver for one in found),
        "kernel": _listed(one.kernel for one in found),
        "VBIOS": _listed(version for one in found for version in one.vbios),
        "NIC firmware": _listed(version for one in found for version in one.nic_firmware),
        **dict(sorted(record.tool_versions.items())),
        **{name: str(value) for name, value in sorted(record.inputs.items()) if name not in _NOT_PARAMETERS},
        PART: _serials(found, part),
    }
    return tuple(values.items())


def _listed(versions: Iterable[str]) -> str:
    return ", ".join(sorted(set(versions)))


def _serials(prints: Iterable[Fingerprint], part: str) -> str:
    """Return what identifies the measured part: a GPU's serial, else all parts of the nodes."""
    index = part.removeprefix("gpu")
    out = []
    for one in prints:
        gpu = part.startswith("gpu") and index.isdigit() and int(index) < len(one.gpus)
        out.append(one.gpus[int(index)] if gpu else "|".join([one.chassis_serial, *one.gpus, *one.nics]))
    return " ".join(out)
