"""Order list: cables, fibres and modules by part number with spares, and the switches and nodes that they connect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import ceil

from rackready.design.cabling.catalogue import Catalogue
from rackready.design.cabling.types import BomLine, Cable, Cage, Choice
from rackready.model.parts import Assembly, Fibre, Transceiver


def spares(needed: int, pct: float) -> int:
    """Return how many spares a number of pieces gets: that percentage, rounded up, and at least one."""
    return max(1, ceil(round(needed * pct / 100, 9))) if needed else 0


def bill_of_materials(
    cables: Iterable[Cable],
    catalogue: Catalogue,
    spares_pct: float,
    devices: Mapping[str, Mapping[str, int]] | None = None,
) -> list[BomLine]:
    """Return the lines, by group and part number.

    ``devices`` get no spares here. A twin-port module counts once for its cage, a splitter or twin-port cable once for
    all its rows. Raises ValueError if ``spares_pct`` is negative.
    """
    if spares_pct < 0:
        raise ValueError(f"spares - Expected: 0 percent or more Actual: {spares_pct:g}. Correct the share of spares.")
    pieces, modules = _count(cables)
    lines = [_cable_line(catalogue, part, count, spares_pct) for part, count in pieces.items()]
    lines += [_module_line(catalogue.transceivers[part], count, spares_pct) for part, count in modules.items()]
    lines += [
        BomLine(group, model, "", count, 0, "site")
        for group, models in (devices or {}).items()
        for model, count in models.items()
        if count
    ]
    return sorted(
        lines, key=lambda line: (_GROUPS.index(line.group) if line.group in _GROUPS else len(_GROUPS), line.part)
    )


_GROUPS = ["cable", "fibre", "module", "switch", "node"]


def _count(cables: Iterable[Cable]) -> tuple[Counter[str], Counter[str]]:
    pieces: Counter[str] = Counter()
    # One module fills one cage, however many cables end in it.
    filled: dict[Cage, str] = {}
    # Cables share their choices: evaluate each choice once, and count it.
    chosen: Counter[Choice] = Counter()
    for run, _, _, choice, leader, _ in cables:
        if choice.problem:
            continue
        if leader is run:
            chosen[choice] += 1
        if choice.a_part != choice.cable_part:
            filled[run[0]] = choice.a_part
            filled[run[3]] = choice.b_part
    for choice, count in chosen.items():
        pieces[choice.cable_part] += count
    return pieces, Counter(filled.values())


def _cable_line(catalogue: Catalogue, part: str, count: int, pct: float) -> BomLine:
    series = catalogue.parts[part]
    length = next(length for length, number in series.lengths.items() if number == part)
    if isinstance(series, Fibre):
        text = f"{series.grade} fibre, {series.connector.upper()}/{series.polish.upper()}, {length:g} m"
        return BomLine(
            "fibre",
            part,
            _kind(text, by_specification=series.by_specification),
            count,
            spares(count, pct),
            series.source,
        )
    if not isinstance(series, Assembly):
        raise TypeError(part)
    text = (
        f"{series.medium.replace('_', ' ').upper()}, {series.a_form} to {series.ways} x {series.b_form}, {length:g} m"
    )
    return BomLine(
        "cable", part, _kind(text, by_specification=series.by_specification), count, spares(count, pct), series.source
    )


def _kind(text: str, *, by_specification: bool) -> str:
    return f"{text} (by specification, any maker)" if by_specification else text


def _module_line(module: Transceiver, count: int, pct: float) -> BomLine:
    top = module.form.replace("_", " ")
    text = f"{module.ports} x {module.lanes * module.lane_rate} Gb/s {module.optics}, {top}, {module.reach.value:g} m"
    return BomLine("module", module.part, text, count, spares(count, pct), module.source)
